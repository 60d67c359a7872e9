// The integer vocabulary in plain C++: what each operation of the vector files means.
//
// Formats unpack a block into B64s (64 codes each, in natural order) and S16s (one sub-scale per 16
// codes); the loop nests feed those to the dot products below. Any processor, any compiler with vector
// types; the twin that the faster files are tested against.
#pragma once

#define STOKER_LANES 8
#define STOKER_UNROLL
#include "vec_common.h"

// What the loop nests repeat most stays a call here: inlined, it would triple the time to compile.
#define STOKER_OUTLINE static __attribute__((noinline, unused))

namespace STOKER_ISA {

struct B64 {
  uint8_t v[64];
};
struct S16 {
  int16_t v[16];
};
using Acc = int32_t;     // integer sum of one block, not yet reduced
using MinAcc = int32_t;  // the same for minima
struct PairAcc {         // integer sums of two 32-value blocks
  int32_t v[2];
};
struct QuadAcc {  // of four 32-value blocks, or of four runs of 16 values
  int32_t v[4];
};

constexpr int WIDE_BIAS = 0;  // what dot_pair<wide> adds to each signed weight code

STOKER_INLINE B64 load64(const uint8_t* p) { return load<B64>(p); }

STOKER_INLINE void store64(uint8_t* p, B64 x) { store(p, x); }

STOKER_INLINE B64 pair32(const uint8_t* p, const uint8_t* q) {
  B64 r;
  std::memcpy(r.v, p, 32);
  std::memcpy(r.v + 32, q, 32);
  return r;
}
STOKER_INLINE B64 twice32(const uint8_t* p) { return pair32(p, p); }

// Low nibbles then high nibbles of 16 bytes at p, then of 16 bytes at q.
STOKER_INLINE B64 nibble_pair(const uint8_t* p, const uint8_t* q) {
  B64 r;
  for (int i = 0; i < 16; ++i) {
    r.v[i] = p[i] & 15;
    r.v[16 + i] = p[i] >> 4;
    r.v[32 + i] = q[i] & 15;
    r.v[48 + i] = q[i] >> 4;
  }
  return r;
}

// Low then high nibbles of each 8 of 32 bytes.
STOKER_INLINE B64 nibbles_by_8(const uint8_t* p) {
  B64 r;
  for (int i = 0; i < 64; ++i) r.v[i] = (p[i / 16 * 8 + i % 8] >> (i & 8) / 2) & 15;
  return r;
}

// 2-bit codes, four to a byte, of 16 bytes.
STOKER_INLINE B64 pairs_of_bits(const uint8_t* p) {
  B64 r;
  for (int i = 0; i < 64; ++i) r.v[i] = (p[i / 4] >> 2 * (i % 4)) & 3;
  return r;
}

// Four times 16 bytes.
STOKER_INLINE B64 quarters(B16 a, B16 b, B16 c, B16 d) {
  B64 r;
  store(r.v, a);
  store(r.v + 16, b);
  store(r.v + 32, c);
  store(r.v + 48, d);
  return r;
}

// `value` where the bit of the mask is set, else 0.
STOKER_INLINE B64 chosen(uint64_t mask, uint8_t value) {
  B64 r;
  for (int i = 0; i < 64; ++i) r.v[i] = (mask >> i) & 1 ? value : 0;
  return r;
}

// The table's entries for codes 0..15.
STOKER_INLINE B64 looked_up(B64 x, const int8_t* table) {
  for (int i = 0; i < 64; ++i) x.v[i] = static_cast<uint8_t>(table[x.v[i]]);
  return x;
}

// The table's entries for the low or the high nibbles.
template <bool HIGH>
STOKER_INLINE B64 looked_up(B64 x, const int8_t* table) {
  for (int i = 0; i < 64; ++i) x.v[i] = static_cast<uint8_t>(table[HIGH ? x.v[i] >> 4 : x.v[i] & 15]);
  return x;
}

// Byte products modulo 256.
STOKER_INLINE B64 times(B64 x, const uint8_t* factors) {
  for (int i = 0; i < 64; ++i) x.v[i] = static_cast<uint8_t>(x.v[i] * factors[i]);
  return x;
}

// 0, 1 or 2: which third of 0..255.
STOKER_INLINE B64 thirds(B64 x) {
  for (int i = 0; i < 64; ++i) x.v[i] = static_cast<uint8_t>((x.v[i] >= 86) + (x.v[i] >= 171));
  return x;
}

// Shift the first 32 bytes by LO and the last 32 by HI bits, left when positive. Bits may leak from one
// byte of a 16-bit pair into the other: callers mask them off.
template <int LO, int HI>
STOKER_INLINE B64 shifted(B64 x) {
  for (int i = 0; i < 32; ++i) {
    x.v[i] = static_cast<uint8_t>(LO >= 0 ? x.v[i] << (LO & 7) : x.v[i] >> (-LO & 7));
    x.v[32 + i] = static_cast<uint8_t>(HI >= 0 ? x.v[32 + i] << (HI & 7) : x.v[32 + i] >> (-HI & 7));
  }
  return x;
}

STOKER_INLINE B64 masked(B64 x, uint8_t mask) {
  for (int i = 0; i < 64; ++i) x.v[i] &= mask;
  return x;
}

STOKER_INLINE B64 either(B64 x, B64 y) {
  for (int i = 0; i < 64; ++i) x.v[i] |= y.v[i];
  return x;
}

// Sixteen signed bytes.
STOKER_INLINE S16 scales_of_16(B16 bytes) {
  S16 r;
  for (int i = 0; i < 16; ++i) r.v[i] = static_cast<int8_t>(bytes[i]);
  return r;
}

// Eight signed bytes, each for two groups of 16 codes.
STOKER_INLINE S16 scales_of_32(uint64_t bytes) { return scales_of_16(twice_each(bytes)); }

STOKER_INLINE void store_scales(int16_t* p, S16 s) { store(p, s); }

STOKER_INLINE Acc no_sum() { return 0; }

// A code as an integer: a signed byte when WIDE.
template <bool WIDE>
STOKER_INLINE int code_of(uint8_t c) {
  return WIDE ? static_cast<int8_t>(c) : static_cast<int>(c);
}

// acc + the scaled products of codes 64 * PART .. 64 * PART + 63, which are 0..63.
template <int PART>
STOKER_INLINE Acc dot_scaled(Acc acc, B64 codes, const int8_t* x, S16 scales) {
  for (int g = 0; g < 4; ++g) {
    int32_t s = 0;
    for (int i = 0; i < 16; ++i) s += codes.v[16 * g + i] * x[16 * g + i];
    acc += s * scales.v[4 * PART + g];
  }
  return acc;
}

// Sub-scales of 32 codes each, from the first eight bytes; and dot_scaled() with them.
using Spread = S16;
STOKER_INLINE Spread spread_of_32(B16 bytes) { return scales_of_32(bits<Q2>(bytes)[0]); }
template <int PART>
STOKER_INLINE Acc dot_spread(Acc acc, B64 codes, const int8_t* x, Spread scales) {
  return dot_scaled<PART>(acc, codes, x, scales);
}

// acc - OFFSET * (the scaled sums of 16 activation codes): the codes' fixed offset.
template <int OFFSET>
STOKER_INLINE Acc minus_offset(Acc acc, S16 scales, const int16_t* sums16) {
  for (int g = 0; g < 16; ++g) acc -= OFFSET * scales.v[g] * sums16[g];
  return acc;
}

STOKER_INLINE MinAcc min_sum(S16 mins, const int16_t* sums16) {
  int32_t s = 0;
  for (int g = 0; g < 16; ++g) s += mins.v[g] * sums16[g];
  return s;
}

// Eight blocks: the last eight bytes of each times its sums of 32 activation codes.
STOKER_INLINE I8 min_sums(const B16* bytes, const int16_t* sums32) {
  I8 r = {};
  for (int i = 0; i < 64; ++i) r[i / 8] += bytes[i / 8][8 + i % 8] * sums32[i];
  return r;
}

template <bool WIDE>
STOKER_INLINE PairAcc dot_pair(B64 codes, const int8_t* x) {
  PairAcc r = {};
  for (int i = 0; i < 64; ++i) r.v[i / 32] += code_of<WIDE>(codes.v[i]) * x[i];
  return r;
}

// The sums of each 16 of 64 products of codes 0..63.
STOKER_INLINE QuadAcc dot_runs(B64 codes, const int8_t* x) {
  QuadAcc r = {};
  for (int i = 0; i < 64; ++i) r.v[i / 16] += codes.v[i] * x[i];
  return r;
}

// Codes in quarters, each a half of 32 codes: x has the quarters' starting sums (16 bytes each, to be added
// up), then the activations of the first halves, then of the last halves, STEP bytes apart. Codes are
// 0..63, or with WIDE signed plus WIDE_BIAS.
template <bool WIDE>
STOKER_INLINE QuadAcc dot_quad(B64 first, B64 last, const int8_t* x, int64_t step) {
  QuadAcc r;
  for (int i = 0; i < 4; ++i) {
    r.v[i] = load<int32_t>(x + 16 * i);
    for (int k = 16 * i; k < 16 * i + 16; ++k)
      r.v[i] += code_of<WIDE>(first.v[k]) * x[step + k] + code_of<WIDE>(last.v[k]) * x[2 * step + k];
  }
  return r;
}

// acc + those sums (WIDE, step 64), scaled by scales 4 * HALF .. 4 * HALF + 3.
template <int HALF>
STOKER_INLINE Acc dot_quad_scaled(Acc acc, B64 first, B64 last, const int8_t* x, I8 scales) {
  const QuadAcc p = dot_quad<true>(first, last, x, 64);
  for (int i = 0; i < 4; ++i) acc += p.v[i] * scales[4 * HALF + i];
  return acc;
}

// Eight block sums, one per lane.
STOKER_INLINE I8 reduce(const Acc* a) { return load<I8>(a); }
STOKER_INLINE I8 reduce_mins(const MinAcc* a) { return load<I8>(a); }
// The sums of runs of 16: even ones, and odd ones.
STOKER_INLINE void reduce_runs(const QuadAcc* a, I8& even, I8& odd) {
  for (int i = 0; i < 8; ++i) {
    even[i] = a[i / 2].v[2 * (i % 2)];
    odd[i] = a[i / 2].v[2 * (i % 2) + 1];
  }
}
STOKER_INLINE I8 reduce_quads(QuadAcc a, QuadAcc b) {
  return I8{a.v[0], a.v[1], a.v[2], a.v[3], b.v[0], b.v[1], b.v[2], b.v[3]};
}
STOKER_INLINE I8 reduce_pairs(const PairAcc* a) { return load<I8>(a); }

constexpr bool SUMS32 = true;     // tile_add() sums in 32-bit lanes; otherwise in pairs of 16-bit lanes
constexpr bool SCALES16 = false;  // tile_dot2() is cheaper than a product of 32 bits

// Per lane: p + the four products of the bytes of w (signed codes when WIDE, else unsigned ones; with
// WIDE_BIAS added there are no signed ones) and the signed bytes of x.
template <bool WIDE>
STOKER_OUTLINE I tile_add(I p, I w, I x) {
  for (int i = 0; i < W; ++i)
    for (int k = 0; k < 32; k += 8) {
      const auto a = static_cast<uint8_t>(static_cast<uint32_t>(w[i]) >> k);
      p[i] += code_of<WIDE>(a) * static_cast<int8_t>(static_cast<uint32_t>(x[i]) >> k);
    }
  return p;
}

// Per lane: acc + the two products of the int16 halves.
STOKER_INLINE I tile_dot2(I acc, I w, I x) {
  for (int i = 0; i < W; ++i)
    acc[i] += static_cast<int16_t>(w[i]) * static_cast<int16_t>(x[i]) + (w[i] >> 16) * (x[i] >> 16);
  return acc;
}

// words[i][r] = 32-bit word i of the 16 bytes at rows[r] + at.
STOKER_INLINE void quarter(const uint8_t* const* rows, int64_t at, I* words) {
  for (int r = 0; r < W; ++r)
    for (int i = 0; i < 4; ++i) words[i][r] = load<int32_t>(rows[r] + at + 4 * i);
}

// Eight binary16 values, from their bits.
STOKER_INLINE F8 to_floats(H8 halves) {
  F8 r;
  for (int i = 0; i < 8; ++i) r[i] = half_to_float(static_cast<uint16_t>(halves[i]));
  return r;
}

// Eight binary16 values, STRIDE bytes apart.
template <int STRIDE>
STOKER_INLINE F8 halves8(const uint8_t* p) {
  H8 h;
  for (int i = 0; i < 8; ++i) h[i] = load<int16_t>(p + i * STRIDE);
  return to_floats(h);
}

STOKER_OUTLINE F load_halves(const uint16_t* p) {
  F r;
  for (int i = 0; i < W; ++i) r[i] = half_to_float(p[i]);
  return r;
}

STOKER_OUTLINE void store_halves(uint16_t* p, F v) {
  for (int i = 0; i < W; ++i) p[i] = float_to_half(v[i]);
}

// W signed bytes. (GCC 12 takes __builtin_convertvector apart here.)
STOKER_INLINE I load_codes(const uint8_t* p) {
  I r;
  for (int i = 0; i < W; ++i) r[i] = static_cast<int8_t>(p[i]);
  return r;
}

// Codebooks and signs: codes are magnitudes 0..63, bit i of a 64-bit mask negates code i.

// 64 bytes from eight little-endian words.
STOKER_INLINE B64 words(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g,
                        uint64_t h) {
  const uint64_t v[8] = {a, b, c, d, e, f, g, h};
  return load<B64>(v);
}

STOKER_INLINE int signed_code(uint8_t magnitude, uint64_t signs, int i) {
  return signs >> i & 1 ? -magnitude : magnitude;
}

template <int PART>
STOKER_INLINE Acc dot_scaled_signed(Acc acc, B64 codes, uint64_t signs, const int8_t* x, S16 scales) {
  for (int i = 0; i < 64; ++i)
    acc += signed_code(codes.v[i], signs, i) * x[i] * scales.v[4 * PART + i / 16];
  return acc;
}

// The signed codes plus 64.
STOKER_INLINE B64 biased(B64 codes, uint64_t signs) {
  for (int i = 0; i < 64; ++i) codes.v[i] = static_cast<uint8_t>(64 + signed_code(codes.v[i], signs, i));
  return codes;
}

}  // namespace STOKER_ISA
