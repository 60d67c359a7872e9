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
// Formats of 256-value terms (base Block256) have
//   B64 codes<PART>(b)       64 of the codes, in natural order
//   uint64_t signs<PART>(b)  with SIGNED: bit i negates code i
//   S16 scales(b), mins(b)   one sub-scale and one sub-minimum per 16 codes
//   GROUP, MIN_GROUP         codes that share a sub-scale, and a sub-minimum: 16 or 32
// A format whose X_BYTES differs from BLOCK decodes in its own way, where an instruction set has one:
//   arrange(x, sums16, out)  brings a block of activations into X_BYTES bytes
//   pair_sums(b, x, sums)    the sums of two consecutive blocks, over two such blocks of activations
// A format derives from a base and hides what differs. Functions that take any P, not only const uint8_t*,
// also unpack many rows at once (ops/rows_unpack.h): the prompt path is faster for it.
#pragma once

namespace STOKER_ISA {

STOKER_INLINE float half_at(const uint8_t* p) { return half_to_float(load<uint16_t>(p)); }

// Scales that are binary16 at byte D_AT, minima at DMIN_AT when there is one.
template <int BLOCK_, int BYTES_, int D_AT_, int DMIN_AT_>
struct BlockBase {
  static constexpr int BLOCK = BLOCK_, STORED = BLOCK_, BYTES = BYTES_, D_AT = D_AT_, DMIN_AT = DMIN_AT_;
  static constexpr int OFFSET = 0, LIMIT = 127, X_BYTES = BLOCK_;
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

template <int BYTES, int D_AT, int DMIN_AT = -1>
struct Block32 : BlockBase<32, BYTES, D_AT, DMIN_AT> {};

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
