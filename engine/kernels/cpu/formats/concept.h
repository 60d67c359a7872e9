// What a quantised format tells the loop nests: constants, scales, and how a block becomes codes.
//
// A *stored block* is STORED values in BYTES bytes of the file. A *term block* is BLOCK values (32 or 256)
// that share one activation scale and give one float term (contract, point 2); a stored block of 64 values
// holds two term blocks. Every format has
//   F8 d8(w)        d of the 8 term blocks that start at w
//   float d(b, i)   d of term block i of the stored block at b (i is 0 unless STORED > BLOCK)
//   dmin8, dmin     the same of the minimum, with MINS
//   OFFSET          taken off every unsigned code; LIMIT: the largest one
//   WIDE            codes are signed bytes, -127..127
//   SIGNED          codes are magnitudes 0..63 beside a 64-bit mask of signs (256-value formats only)
// Formats of 32-value terms (base Block32; sub-scales and sub-minima are 1) have
//   B64 pair(b, c)  the 64 codes of two consecutive term blocks; b and c are their stored blocks
//   HALVES          d8 and d are of the first 16 values of each term block, e8 and e of the last 16
//   NIBBLES_AT      where 16 bytes of nibbles lie, low ones for values 0..15, high ones for 16..31; then
//   B64 quad<HIGH>(x, b)  codes (WIDE ones plus WIDE_BIAS) from the nibble bytes x of the four blocks at b
// Formats of 256-value terms (base Block256) have
//   B64 codes<PART>(b)       64 of the codes, in natural order
//   uint64_t signs<PART>(b)  with SIGNED: bit i negates code i
//   S16 scales(b), mins(b)   one sub-scale and one sub-minimum per 16 codes
//   B16 scales_and_mins(b)   instead, for decoding: eight sub-scales and eight sub-minima of 32 codes each
//   GROUP, MIN_GROUP         codes that share a sub-scale, and a sub-minimum: 16 or 32
// A format whose X_BYTES differs from BLOCK takes activations in an order of its own when decoding:
//   arrange(x, sums16, out)  brings a block of activations into X_BYTES bytes
//   own_sum(b, x)            (Block256) the sum of a block over such a block,
//   own_sums(b, x, sums)     or the sums of two consecutive ones over two
// A format derives from a base and hides what differs. Functions that take any P, not only const uint8_t*,
// also unpack many rows at once (ops/rows_unpack.h): the prompt path is faster for it.
#pragma once

namespace STOKER_ISA {

STOKER_INLINE S16 scales_of_16(const uint8_t* p) { return scales_of_16(load<B16>(p)); }
STOKER_INLINE float half_at(const uint8_t* p) { return half_to_float(load<uint16_t>(p)); }
STOKER_INLINE int32_t byte_at(const uint8_t* p) { return *p; }
STOKER_INLINE float as_float(int32_t v) { return bits<float>(v); }
STOKER_INLINE F as_float(I v) { return bits<F>(v); }

// Scales that are binary16 at byte D_AT, minima at DMIN_AT when there is one.
template <int BLOCK_, int BYTES_, int D_AT_, int DMIN_AT_>
struct BlockBase {
  static constexpr int BLOCK = BLOCK_, STORED = BLOCK_, BYTES = BYTES_, D_AT = D_AT_, DMIN_AT = DMIN_AT_;
  static constexpr int OFFSET = 0, LIMIT = 127, X_BYTES = BLOCK_, NIBBLES_AT = -1;
  static constexpr bool WIDE = false, SIGNED = false, HALVES = false, MINS = DMIN_AT_ >= 0;

  STOKER_INLINE F8 d8(const uint8_t* w) { return halves8<BYTES>(w + D_AT); }
  template <class P>
  STOKER_INLINE auto d(P b, int) {
    return half_at(b + D_AT);
  }
  STOKER_INLINE F8 dmin8(const uint8_t* w) { return halves8<BYTES>(w + DMIN_AT); }
  template <class P>
  STOKER_INLINE auto dmin(P b, int) {
    return half_at(b + DMIN_AT);
  }
};

// A minimum is stored as what is to be added: x = d * q + m.
template <int BYTES, int D_AT, int DMIN_AT = -1>
struct Block32 : BlockBase<32, BYTES, D_AT, DMIN_AT> {
  using Base = BlockBase<32, BYTES, D_AT, DMIN_AT>;
  STOKER_INLINE F8 dmin8(const uint8_t* w) { return -Base::dmin8(w); }
  template <class P>
  STOKER_INLINE auto dmin(P b, int i) {
    return -Base::dmin(b, i);
  }
};

// Blocks of nibbles. A register holds the nibbles of four blocks, so the low ones meet the first halves of
// the activations and the high ones the last halves: these lie apart, and so do starting sums that take the
// codes' offset off. From any block on they are four blocks' worth in a row.
constexpr int64_t X_STEP = MAX_COLS / 2 + 192;

STOKER_INLINE void arrange_nibbles(int offset, const int8_t* x, const int16_t* sums16, int8_t* out,
                                   int64_t step) {
  const int32_t start[4] = {-offset * (sums16[0] + sums16[1]), 0, 0, 0};
  std::memcpy(out, start, 16);
  std::memcpy(out + step, x, 16);
  std::memcpy(out + 2 * step, x + 16, 16);
}

template <int BYTES, int D_AT, int OFFSET_, int NIBBLES_AT_, int DMIN_AT = -1>
struct Nibbles32 : Block32<BYTES, D_AT, DMIN_AT> {
  static constexpr int OFFSET = OFFSET_, NIBBLES_AT = NIBBLES_AT_, X_BYTES = 16;

  template <class P>
  STOKER_INLINE auto pair(P b, P c) {
    return nibble_pair(b + NIBBLES_AT, c + NIBBLES_AT);
  }
  STOKER_INLINE void arrange(const int8_t* x, const int16_t* sums16, int8_t* out) {
    arrange_nibbles(OFFSET, x, sums16, out, X_STEP);
  }
  template <bool HIGH>
  STOKER_INLINE B64 quad(B64 x, const uint8_t*) {
    return HIGH ? masked(shifted<-4, -4>(x), 0x0f) : masked(x, 0x0f);
  }
};

template <int BYTES, int D_AT, int DMIN_AT = -1>
struct Block256 : BlockBase<256, BYTES, D_AT, DMIN_AT> {
  static constexpr int GROUP = 16, MIN_GROUP = 16;
};

// Bytes of `blocks` term blocks, a whole number of stored ones.
template <class Fmt>
constexpr int64_t bytes_of(int64_t blocks) {
  return blocks * Fmt::BLOCK / Fmt::STORED * Fmt::BYTES;
}

}  // namespace STOKER_ISA
