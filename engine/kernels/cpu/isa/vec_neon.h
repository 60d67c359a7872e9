// The integer vocabulary on NEON (any 64-bit ARM), with the dot product instructions where STOKER_DOT is 1.
//
// A B64 is four registers of 16 codes. All codes fit signed bytes, so one multiplication serves signed
// and unsigned ones: sdot makes sums of four products; without it, smull and smlal make 16-bit sums of two
// (2 * 128 * 127 < 2^15).
//
// Contract of vec_scalar.h; see there for what each function means.
#pragma once

#define STOKER_LANES 4
#include "vec_common.h"

#include <arm_neon.h>

namespace STOKER_ISA {

struct B64 {
  uint8x16_t v[4];
};
using S16 = int16x8x2_t;
using Acc = int32x4_t;
using MinAcc = int32x4_t;
struct PairAcc {
  int32x4_t a, b;
};
struct QuadAcc {
  int32x4_t v[4];
};

constexpr int WIDE_BIAS = 0;

STOKER_INLINE B64 load64(const uint8_t* p) {
  return {{vld1q_u8(p), vld1q_u8(p + 16), vld1q_u8(p + 32), vld1q_u8(p + 48)}};
}
STOKER_INLINE void store64(uint8_t* p, B64 x) { store(p, x); }

STOKER_INLINE B64 pair32(const uint8_t* p, const uint8_t* q) {
  return {{vld1q_u8(p), vld1q_u8(p + 16), vld1q_u8(q), vld1q_u8(q + 16)}};
}
STOKER_INLINE B64 twice32(const uint8_t* p) { return pair32(p, p); }

STOKER_INLINE B64 nibble_pair(const uint8_t* p, const uint8_t* q) {
  const uint8x16_t a = vld1q_u8(p), b = vld1q_u8(q), low = vdupq_n_u8(15);
  return {{vandq_u8(a, low), vshrq_n_u8(a, 4), vandq_u8(b, low), vshrq_n_u8(b, 4)}};
}

STOKER_INLINE B64 nibbles_by_8(const uint8_t* p) {
  const auto split = [](uint8x16_t x, uint8x16_t* out) {
    const uint64x2_t low = vreinterpretq_u64_u8(vandq_u8(x, vdupq_n_u8(15))),
                     high = vreinterpretq_u64_u8(vshrq_n_u8(x, 4));
    out[0] = vreinterpretq_u8_u64(vzip1q_u64(low, high));
    out[1] = vreinterpretq_u8_u64(vzip2q_u64(low, high));
  };
  B64 r;
  split(vld1q_u8(p), r.v);
  split(vld1q_u8(p + 16), r.v + 2);
  return r;
}

STOKER_INLINE B64 pairs_of_bits(const uint8_t* p) {
  const uint8x16_t x = vld1q_u8(p), m = vdupq_n_u8(3);
  const uint8x16x2_t even = vzipq_u8(vandq_u8(x, m), vandq_u8(vshrq_n_u8(x, 4), m)),
                     odd = vzipq_u8(vandq_u8(vshrq_n_u8(x, 2), m), vshrq_n_u8(x, 6));
  return {{vzip1q_u8(even.val[0], odd.val[0]), vzip2q_u8(even.val[0], odd.val[0]),
           vzip1q_u8(even.val[1], odd.val[1]), vzip2q_u8(even.val[1], odd.val[1])}};
}

STOKER_INLINE B64 quarters(B16 a, B16 b, B16 c, B16 d) {
  return {{bits<uint8x16_t>(a), bits<uint8x16_t>(b), bits<uint8x16_t>(c), bits<uint8x16_t>(d)}};
}

STOKER_INLINE B64 looked_up(B64 x, const int8_t* table) {
  const uint8x16_t t = load<uint8x16_t>(table);
  for (uint8x16_t& v : x.v) v = vqtbl1q_u8(t, v);
  return x;
}

template <bool HIGH>
STOKER_INLINE B64 looked_up(B64 x, const int8_t* table) {
  for (uint8x16_t& v : x.v) v = HIGH ? vshrq_n_u8(v, 4) : vandq_u8(v, vdupq_n_u8(15));
  return looked_up(x, table);
}

STOKER_INLINE B64 times(B64 x, const uint8_t* factors) {
  const B64 f = load64(factors);
  for (int i = 0; i < 4; ++i) x.v[i] = vmulq_u8(x.v[i], f.v[i]);
  return x;
}

STOKER_INLINE B64 thirds(B64 x) {  // a comparison gives -1
  for (uint8x16_t& v : x.v)
    v = vsubq_u8(vsubq_u8(vdupq_n_u8(0), vcgeq_u8(v, vdupq_n_u8(86))), vcgeq_u8(v, vdupq_n_u8(171)));
  return x;
}

// Bytes of ones where one of 16 bits is set.
STOKER_INLINE uint8x16_t mask_bytes(uint64_t mask) {
  const uint8x16_t bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201u));
  return vtstq_u8(vcombine_u8(vdup_n_u8(mask & 255), vdup_n_u8(mask >> 8 & 255)), bit);
}

template <int LO, int HI>
STOKER_INLINE B64 shifted(B64 x) {
  const int8x16_t lo = vdupq_n_s8(LO), hi = vdupq_n_s8(HI);
  return {{vshlq_u8(x.v[0], lo), vshlq_u8(x.v[1], lo), vshlq_u8(x.v[2], hi), vshlq_u8(x.v[3], hi)}};
}

STOKER_INLINE B64 masked(B64 x, uint8_t mask) {
  const uint8x16_t m = vdupq_n_u8(mask);
  return {{vandq_u8(x.v[0], m), vandq_u8(x.v[1], m), vandq_u8(x.v[2], m), vandq_u8(x.v[3], m)}};
}

STOKER_INLINE B64 either(B64 x, B64 y) {
  return {{vorrq_u8(x.v[0], y.v[0]), vorrq_u8(x.v[1], y.v[1]), vorrq_u8(x.v[2], y.v[2]),
           vorrq_u8(x.v[3], y.v[3])}};
}

STOKER_INLINE B64 chosen(uint64_t mask, uint8_t value) {
  return masked({{mask_bytes(mask), mask_bytes(mask >> 16), mask_bytes(mask >> 32), mask_bytes(mask >> 48)}},
                value);
}

STOKER_INLINE S16 scales_of_16(B16 bytes) {
  const auto s = bits<int8x16_t>(bytes);
  return {{vmovl_s8(vget_low_s8(s)), vmovl_high_s8(s)}};
}
STOKER_INLINE S16 scales_of_32(uint64_t bytes) { return scales_of_16(twice_each(bytes)); }

STOKER_INLINE void store_scales(int16_t* p, S16 s) { store(p, s); }

STOKER_INLINE Acc no_sum() { return vdupq_n_s32(0); }

// acc + 4 sums of 4 products of signed bytes.
STOKER_INLINE int32x4_t dot4(int32x4_t acc, uint8x16_t codes, int8x16_t x) {
  const int8x16_t w = vreinterpretq_s8_u8(codes);
#if STOKER_DOT
  return vdotq_s32(acc, w, x);
#else
  const int16x8_t lo = vmull_s8(vget_low_s8(w), vget_low_s8(x)), hi = vmull_high_s8(w, x);
  return vpadalq_s16(acc, vpaddq_s16(lo, hi));
#endif
}

// acc + 16 products times sub-scale G.
template <int G>
STOKER_INLINE Acc dot16_scaled(Acc acc, uint8x16_t codes, const int8_t* x, S16 scales) {
  const int16x8_t s = scales.val[G / 8];
#if STOKER_DOT
  const int32x4_t wide = G % 8 < 4 ? vmovl_s16(vget_low_s16(s)) : vmovl_high_s16(s);
  return vmlaq_laneq_s32(acc, dot4(vdupq_n_s32(0), codes, vld1q_s8(x)), wide, G % 4);
#else
  const int8x16_t w = vreinterpretq_s8_u8(codes), a = vld1q_s8(x);
  int16x8_t p = vmull_s8(vget_low_s8(w), vget_low_s8(a));
  p = vmlal_high_s8(p, w, a);
  acc = vmlal_laneq_s16(acc, vget_low_s16(p), s, G % 8);
  return vmlal_high_laneq_s16(acc, p, s, G % 8);
#endif
}

template <int PART>
STOKER_INLINE Acc dot_scaled(Acc acc, B64 codes, const int8_t* x, S16 scales) {
  acc = dot16_scaled<4 * PART>(acc, codes.v[0], x, scales);
  acc = dot16_scaled<4 * PART + 1>(acc, codes.v[1], x + 16, scales);
  acc = dot16_scaled<4 * PART + 2>(acc, codes.v[2], x + 32, scales);
  return dot16_scaled<4 * PART + 3>(acc, codes.v[3], x + 48, scales);
}

STOKER_INLINE MinAcc min_sum(S16 mins, const int16_t* sums16) {
  const int16x8_t a = vld1q_s16(sums16), b = vld1q_s16(sums16 + 8);
  int32x4_t s = vmull_s16(vget_low_s16(mins.val[0]), vget_low_s16(a));
  s = vmlal_high_s16(s, mins.val[0], a);
  s = vmlal_s16(s, vget_low_s16(mins.val[1]), vget_low_s16(b));
  return vmlal_high_s16(s, mins.val[1], b);
}

using Spread = S16;
STOKER_INLINE Spread spread_of_32(B16 bytes) { return scales_of_32(bits<Q2>(bytes)[0]); }
template <int PART>
STOKER_INLINE Acc dot_spread(Acc acc, B64 codes, const int8_t* x, Spread scales) {
  return dot_scaled<PART>(acc, codes, x, scales);
}

template <int OFFSET>
STOKER_INLINE Acc minus_offset(Acc acc, S16 scales, const int16_t* sums16) {
  return vmlsq_n_s32(acc, min_sum(scales, sums16), OFFSET);
}

template <bool WIDE>
STOKER_INLINE PairAcc dot_pair(B64 codes, const int8_t* x) {
  const int32x4_t zero = vdupq_n_s32(0);
  return {dot4(dot4(zero, codes.v[0], vld1q_s8(x)), codes.v[1], vld1q_s8(x + 16)),
          dot4(dot4(zero, codes.v[2], vld1q_s8(x + 32)), codes.v[3], vld1q_s8(x + 48))};
}

STOKER_INLINE QuadAcc dot_runs(B64 codes, const int8_t* x) {
  QuadAcc r;
  for (int i = 0; i < 4; ++i) r.v[i] = dot4(vdupq_n_s32(0), codes.v[i], vld1q_s8(x + 16 * i));
  return r;
}

template <bool WIDE>
STOKER_INLINE QuadAcc dot_quad(B64 first, B64 last, const int8_t* x, int64_t step) {
  QuadAcc r;
  for (int i = 0; i < 4; ++i) {
    const int32x4_t s = dot4(load<int32x4_t>(x + 16 * i), first.v[i], vld1q_s8(x + step + 16 * i));
    r.v[i] = dot4(s, last.v[i], vld1q_s8(x + 2 * step + 16 * i));
  }
  return r;
}

template <int HALF>
STOKER_INLINE Acc dot_quad_scaled(Acc acc, B64 first, B64 last, const int8_t* x, I8 scales) {
  const QuadAcc p = dot_quad<true>(first, last, x, 64);
  for (int i = 0; i < 4; ++i) acc = vmlaq_n_s32(acc, p.v[i], scales[4 * HALF + i]);
  return acc;
}

constexpr bool SUMS32 = true, SCALES16 = false;

template <bool WIDE>
STOKER_INLINE I tile_add(I p, I w, I x) {
  return bits<I>(dot4(bits<int32x4_t>(p), bits<uint8x16_t>(w), bits<int8x16_t>(x)));
}

STOKER_INLINE I tile_dot2(I acc, I w, I x) {
  const auto a = bits<int16x8_t>(w), b = bits<int16x8_t>(x);
  const int32x4_t lo = vmull_s16(vget_low_s16(a), vget_low_s16(b)), hi = vmull_high_s16(a, b);
  return acc + bits<I>(vpaddq_s32(lo, hi));
}

// 4 x 4 words: pairs, then quads.
STOKER_INLINE void quarter(const uint8_t* const* rows, int64_t at, I* words) {
  int32x4_t r[4];
  for (int i = 0; i < 4; ++i) r[i] = vreinterpretq_s32_u8(vld1q_u8(rows[i] + at));
  const auto ab_lo = vreinterpretq_s64_s32(vzip1q_s32(r[0], r[1])),
             ab_hi = vreinterpretq_s64_s32(vzip2q_s32(r[0], r[1])),
             cd_lo = vreinterpretq_s64_s32(vzip1q_s32(r[2], r[3])),
             cd_hi = vreinterpretq_s64_s32(vzip2q_s32(r[2], r[3]));
  words[0] = bits<I>(vzip1q_s64(ab_lo, cd_lo));
  words[1] = bits<I>(vzip2q_s64(ab_lo, cd_lo));
  words[2] = bits<I>(vzip1q_s64(ab_hi, cd_hi));
  words[3] = bits<I>(vzip2q_s64(ab_hi, cd_hi));
}

// The sums of the lanes of four registers.
STOKER_INLINE int32x4_t reduce4(int32x4_t a, int32x4_t b, int32x4_t c, int32x4_t d) {
  return vpaddq_s32(vpaddq_s32(a, b), vpaddq_s32(c, d));
}

STOKER_INLINE I8 join(int32x4_t a, int32x4_t b) { return bits<I8>(int32x4x2_t{{a, b}}); }

STOKER_INLINE I8 reduce(const Acc* a) {
  return join(reduce4(a[0], a[1], a[2], a[3]), reduce4(a[4], a[5], a[6], a[7]));
}
STOKER_INLINE I8 reduce_mins(const MinAcc* a) { return reduce(a); }
STOKER_INLINE I8 reduce_pairs(const PairAcc* a) {
  return join(reduce4(a[0].a, a[0].b, a[1].a, a[1].b), reduce4(a[2].a, a[2].b, a[3].a, a[3].b));
}

STOKER_INLINE I8 reduce_quads(QuadAcc a, QuadAcc b) {
  return join(reduce4(a.v[0], a.v[1], a.v[2], a.v[3]), reduce4(b.v[0], b.v[1], b.v[2], b.v[3]));
}
STOKER_INLINE I8 min_sums(const B16* bytes, const int16_t* sums32) {
  QuadAcc s[2];
  STOKER_UNROLL
  for (int j = 0; j < 8; ++j) {
    const auto mins = vreinterpretq_s16_u16(vmovl_high_u8(bits<uint8x16_t>(bytes[j])));
    const int16x8_t x = vld1q_s16(sums32 + 8 * j);
    s[j / 4].v[j % 4] = vmlal_high_s16(vmull_s16(vget_low_s16(mins), vget_low_s16(x)), mins, x);
  }
  return reduce_quads(s[0], s[1]);
}
STOKER_INLINE void reduce_runs(const QuadAcc* a, I8& even, I8& odd) {
  even = join(reduce4(a[0].v[0], a[0].v[2], a[1].v[0], a[1].v[2]),
              reduce4(a[2].v[0], a[2].v[2], a[3].v[0], a[3].v[2]));
  odd = join(reduce4(a[0].v[1], a[0].v[3], a[1].v[1], a[1].v[3]),
             reduce4(a[2].v[1], a[2].v[3], a[3].v[1], a[3].v[3]));
}

STOKER_INLINE F load_halves(const uint16_t* p) {
  return bits<F>(vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))));
}

STOKER_INLINE void store_halves(uint16_t* p, F v) {
  vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(bits<float32x4_t>(v))));
}

STOKER_INLINE I load_codes(const uint8_t* p) {
  const int8x8_t codes = vreinterpret_s8_u32(vdup_n_u32(load<uint32_t>(p)));
  return bits<I>(vmovl_s16(vget_low_s16(vmovl_s8(codes))));
}

STOKER_INLINE F8 to_floats(H8 halves) {
  const auto h = bits<float16x8_t>(halves);
  const float32x4_t r[2] = {vcvt_f32_f16(vget_low_f16(h)), vcvt_high_f32_f16(h)};
  return load<F8>(r);
}

template <int STRIDE>
STOKER_INLINE F8 halves8(const uint8_t* p) {
  H8 h;
  for (int i = 0; i < 8; ++i) h[i] = load<int16_t>(p + i * STRIDE);
  return to_floats(h);
}

// Codebooks and signs.

STOKER_INLINE B64 words(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g,
                        uint64_t h) {
  const auto two = [](uint64_t p, uint64_t q) { return vcombine_u8(vcreate_u8(p), vcreate_u8(q)); };
  return {{two(a, b), two(c, d), two(e, f), two(g, h)}};
}

// The codes with their signs, as signed bytes.
STOKER_INLINE B64 with_signs(B64 codes, uint64_t signs) {
  STOKER_UNROLL
  for (int i = 0; i < 4; ++i, signs >>= 16) {
    const uint8x16_t m = mask_bytes(signs);
    codes.v[i] = vsubq_u8(veorq_u8(codes.v[i], m), m);
  }
  return codes;
}

template <int PART>
STOKER_INLINE Acc dot_scaled_signed(Acc acc, B64 codes, uint64_t signs, const int8_t* x, S16 scales) {
  return dot_scaled<PART>(acc, with_signs(codes, signs), x, scales);
}

STOKER_INLINE B64 biased(B64 codes, uint64_t signs) {
  codes = with_signs(codes, signs);
  const uint8x16_t bias = vdupq_n_u8(64);
  for (uint8x16_t& v : codes.v) v = vaddq_u8(v, bias);
  return codes;
}

}  // namespace STOKER_ISA
