// The integer vocabulary on AVX-512 (F, BW, DQ, VL), with VNNI where STOKER_VNNI is 1.
//
// A B64 is one register of 64 codes. With VNNI, vpdpbusd makes 16 sums of four products u8 * s8; such a
// sum fits 16 bits for codes below 64 (4 * 63 * 127 = 32004), so vpdpwssd multiplies it by its sub-scale
// and accumulates in one instruction. Without VNNI, vpmaddubsw makes 32 exact 16-bit sums of two products,
// and vpmaddwd does the same with the sub-scales. Signed codes: with VNNI the top bit is flipped (128 is
// added and taken off again with the sums of the activations); without, |w| * (x with the sign of w).
//
// Contract of vec_scalar.h; see there for what each function means.
#pragma once

#define STOKER_LANES 16
#include "vec_x86.h"

namespace STOKER_ISA {

using B64 = __m512i;
using Acc = __m512i;
using PairAcc = __m512i;  // lanes 0-7: first block, 8-15: second
using QuadAcc = __m512i;  // four lanes for each of four sums

constexpr int WIDE_BIAS = STOKER_VNNI ? 128 : 0;

STOKER_INLINE B64 load64(const uint8_t* p) { return _mm512_loadu_si512(p); }
STOKER_INLINE void store64(uint8_t* p, B64 x) { _mm512_storeu_si512(p, x); }
STOKER_INLINE B64 twice32(const uint8_t* p) { return _mm512_broadcast_i64x4(load256(p)); }

STOKER_INLINE B64 pair32(const uint8_t* p, const uint8_t* q) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(load256(p)), load256(q), 1);
}

STOKER_INLINE B64 masked(B64 x, uint8_t mask) {
  return _mm512_and_si512(x, _mm512_set1_epi8(static_cast<char>(mask)));
}
STOKER_INLINE B64 either(B64 x, B64 y) { return _mm512_or_si512(x, y); }

STOKER_INLINE B64 nibble_pair(const uint8_t* p, const uint8_t* q) {
  const __m256i a = _mm256_broadcastsi128_si256(load128(p)), b = _mm256_broadcastsi128_si256(load128(q));
  const __m512i counts = _mm512_set_epi64(4, 4, 0, 0, 4, 4, 0, 0);
  return masked(_mm512_srlv_epi64(_mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1), counts), 0x0f);
}

STOKER_INLINE B64 nibbles_by_8(const uint8_t* p) {
  const __m512i twice = _mm512_permutexvar_epi64(_mm512_set_epi64(3, 3, 2, 2, 1, 1, 0, 0), twice32(p));
  return masked(_mm512_srlv_epi64(twice, _mm512_set_epi64(4, 0, 4, 0, 4, 0, 4, 0)), 0x0f);
}

// Byte b in 32 bits: b | b << 6 | b << 12 | b << 18 has the four codes in the low bits of its bytes.
STOKER_INLINE B64 pairs_of_bits(const uint8_t* p) {
  __m512i x = _mm512_cvtepu8_epi32(load128(p));
  x = _mm512_or_si512(x, _mm512_slli_epi32(x, 12));
  return masked(_mm512_or_si512(x, _mm512_slli_epi32(x, 6)), 3);
}

STOKER_INLINE B64 quarters(B16 a, B16 b, B16 c, B16 d) {  // masked broadcasts need no shuffle
  __m512i x = _mm512_castsi128_si512(bits<__m128i>(a));
  x = _mm512_mask_broadcast_i32x4(x, 0x00f0, bits<__m128i>(b));
  x = _mm512_mask_broadcast_i32x4(x, 0x0f00, bits<__m128i>(c));
  return _mm512_mask_broadcast_i32x4(x, 0xf000, bits<__m128i>(d));
}

STOKER_INLINE B64 chosen(uint64_t mask, uint8_t value) {
  return _mm512_maskz_set1_epi8(mask, static_cast<char>(value));
}

STOKER_INLINE B64 looked_up(B64 x, const int8_t* table) {
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(load128(table)), x);
}

template <bool HIGH>
STOKER_INLINE B64 looked_up(B64 x, const int8_t* table) {
  if constexpr (HIGH) x = _mm512_srli_epi16(x, 4);
#ifdef __AVX512VBMI__  // six bits of each index count; with the table four times over only four matter
  return _mm512_permutexvar_epi8(x, _mm512_broadcast_i32x4(load128(table)));
#else
  return looked_up(masked(x, 0x0f), table);
#endif
}

STOKER_INLINE B64 times(B64 x, const uint8_t* factors) {
  const __m512i f = load64(factors);
  const __m512i odd = _mm512_mullo_epi16(_mm512_srli_epi16(x, 8), _mm512_srli_epi16(f, 8));
  return _mm512_mask_blend_epi8(0x5555555555555555u, _mm512_slli_epi16(odd, 8), _mm512_mullo_epi16(x, f));
}

STOKER_INLINE B64 thirds(B64 x) {
  const __m512i ones = chosen(_mm512_cmpge_epu8_mask(x, _mm512_set1_epi8(86)), 1);
  const __mmask64 two = _mm512_cmpge_epu8_mask(x, _mm512_set1_epi8(static_cast<char>(171)));
  return _mm512_mask_add_epi8(ones, two, ones, ones);
}

template <int LO, int HI>
STOKER_INLINE B64 shifted(B64 x) {
  static_assert((LO >= 0 && HI >= 0) || (LO <= 0 && HI <= 0), "one direction");
  if constexpr (LO == HI && LO < 0) {
    return _mm512_srli_epi64(x, -LO);
  } else if constexpr (LO == HI) {
    return _mm512_slli_epi64(x, LO);
  } else {
    constexpr int l = LO < 0 ? -LO : LO, h = HI < 0 ? -HI : HI;
    const __m512i counts = _mm512_set_epi64(h, h, h, h, l, l, l, l);
    return LO < 0 || HI < 0 ? _mm512_srlv_epi64(x, counts) : _mm512_sllv_epi64(x, counts);
  }
}

STOKER_INLINE Acc no_sum() { return _mm512_setzero_si512(); }

// Lane indices that repeat lanes A, B, C and D over the quarters of a register.
template <int A, int B, int C, int D>
STOKER_INLINE __m512i quarters_of() {
  return _mm512_setr_epi32(A, A, A, A, B, B, B, B, C, C, C, C, D, D, D, D);
}

// 16 sums: acc + pairs of 16-bit products, of int16 words.
STOKER_INLINE __m512i dot2(__m512i acc, __m512i a, __m512i b) {
#if STOKER_VNNI
  return _mm512_dpwssd_epi32(acc, a, b);
#else
  return _mm512_add_epi32(acc, _mm512_madd_epi16(a, b));
#endif
}

// x with the sign of w.
STOKER_INLINE __m512i signed_by(__m512i x, __m512i w) {
  return _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(w), _mm512_setzero_si512(), x);
}

// acc + 64 products, scaled by what lanes of s have in both halves, or with VNNI in the lower one.
STOKER_INLINE Acc dot_lanes(Acc acc, B64 codes, __m512i x, __m512i s) {
#if STOKER_VNNI
  return dot2(acc, _mm512_dpbusd_epi32(_mm512_setzero_si512(), codes, x), s);
#else
  return dot2(acc, _mm512_maddubs_epi16(codes, x), s);
#endif
}

template <int PART>
STOKER_INLINE Acc dot_scaled(Acc acc, B64 codes, __m512i x, S16 scales) {
  __m512i s = _mm512_cvtepu16_epi32(scales);
  if (!STOKER_VNNI) s = _mm512_or_si512(s, _mm512_slli_epi32(s, 16));
  constexpr int a = 4 * PART;
  return dot_lanes(acc, codes, x, _mm512_permutexvar_epi32(quarters_of<a, a + 1, a + 2, a + 3>(), s));
}

template <int PART>
STOKER_INLINE Acc dot_scaled(Acc acc, B64 codes, const int8_t* x, S16 scales) {
  return dot_scaled<PART>(acc, codes, _mm512_loadu_si512(x), scales);
}

using Spread = __m512i;
STOKER_INLINE Spread spread_of_32(B16 bytes) { return _mm512_castsi256_si512(lanes_of_32(bytes)); }

template <int PART>
STOKER_INLINE Acc dot_spread(Acc acc, B64 codes, const int8_t* x, Spread scales) {
  constexpr int a = 2 * PART;
  return dot_lanes(acc, codes, _mm512_loadu_si512(x),
                   _mm512_permutexvar_epi32(quarters_of<a, a, a + 1, a + 1>(), scales));
}

template <int OFFSET>
STOKER_INLINE Acc minus_offset(Acc acc, S16 scales, const int16_t* sums16) {
  const __m256i s = _mm256_madd_epi16(_mm256_mullo_epi16(scales, _mm256_set1_epi16(OFFSET)), load256(sums16));
  return _mm512_sub_epi32(acc, _mm512_zextsi256_si512(s));
}

STOKER_INLINE __m512i top_flipped(__m512i x) {
  return _mm512_xor_si512(x, _mm512_set1_epi8(static_cast<char>(0x80)));
}

// 32 16-bit sums of two products of signed codes (WIDE) or of codes 0..127.
template <bool WIDE>
STOKER_INLINE __m512i dot2_bytes(__m512i w, __m512i x) {
  if constexpr (WIDE) {
    x = signed_by(x, w);
    w = _mm512_abs_epi8(w);
  }
  return _mm512_maddubs_epi16(w, x);
}

// 16 sums of four products of signed codes (WIDE) or of codes 0..127.
template <bool WIDE>
STOKER_INLINE __m512i dot4(__m512i acc, __m512i w, __m512i x) {
#if STOKER_VNNI
  return _mm512_dpbusd_epi32(acc, WIDE ? top_flipped(w) : w, x);
#else
  return _mm512_add_epi32(acc, _mm512_madd_epi16(dot2_bytes<WIDE>(w, x), _mm512_set1_epi16(1)));
#endif
}

template <bool WIDE>
STOKER_INLINE QuadAcc dot_quad(B64 first, B64 last, const int8_t* x, int64_t step) {
  const __m512i a = _mm512_loadu_si512(x + step), b = _mm512_loadu_si512(x + 2 * step);
  const __m512i start = _mm512_loadu_si512(x);
#if STOKER_VNNI
  return _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(start, first, a), last, b);
#else
  if constexpr (WIDE) return dot4<WIDE>(dot4<WIDE>(start, first, a), last, b);
  // Four products of codes below 64 fit 16 bits.
  const __m512i p = _mm512_add_epi16(_mm512_maddubs_epi16(first, a), _mm512_maddubs_epi16(last, b));
  return dot2(start, p, _mm512_set1_epi16(1));
#endif
}

template <int HALF>
STOKER_INLINE Acc dot_quad_scaled(Acc acc, B64 first, B64 last, const int8_t* x, I8 scales) {
  constexpr int a = 4 * HALF;
  const __m512i p = dot_quad<true>(first, last, x, 64), index = quarters_of<a, a + 1, a + 2, a + 3>();
  const __m512i s = _mm512_castsi256_si512(bits<__m256i>(scales));
  return _mm512_add_epi32(acc, _mm512_mullo_epi32(p, _mm512_permutexvar_epi32(index, s)));
}

template <bool WIDE>
STOKER_INLINE PairAcc dot_pair(B64 codes, const int8_t* x) {
  return dot4<WIDE>(_mm512_setzero_si512(), codes, _mm512_loadu_si512(x));
}

constexpr bool SUMS32 = STOKER_VNNI, SCALES16 = true;

template <bool WIDE>
STOKER_INLINE I tile_add(I p, I w, I x) {
  const auto a = bits<__m512i>(p), b = bits<__m512i>(w), c = bits<__m512i>(x);
#if STOKER_VNNI
  return bits<I>(_mm512_dpbusd_epi32(a, b, c));  // WIDE codes have WIDE_BIAS added
#else
  return bits<I>(_mm512_add_epi16(a, dot2_bytes<WIDE>(b, c)));
#endif
}

STOKER_INLINE I tile_dot2(I acc, I w, I x) {
  return bits<I>(dot2(bits<__m512i>(acc), bits<__m512i>(w), bits<__m512i>(x)));
}

// Rows j, 4 + j, 8 + j and 12 + j come into the quarters of register j; then 4 x 4 words are transposed
// inside each quarter.
STOKER_INLINE void quarter(const uint8_t* const* rows, int64_t at, I* words) {
  __m512i t[4];
  STOKER_UNROLL
  for (int j = 0; j < 4; ++j) {
    t[j] = _mm512_castsi128_si512(load128(rows[j] + at));
    t[j] = _mm512_inserti32x4(t[j], load128(rows[4 + j] + at), 1);
    t[j] = _mm512_inserti32x4(t[j], load128(rows[8 + j] + at), 2);
    t[j] = _mm512_inserti32x4(t[j], load128(rows[12 + j] + at), 3);
  }
  const __m512i a = _mm512_unpacklo_epi32(t[0], t[1]), b = _mm512_unpacklo_epi32(t[2], t[3]);
  const __m512i c = _mm512_unpackhi_epi32(t[0], t[1]), d = _mm512_unpackhi_epi32(t[2], t[3]);
  words[0] = bits<I>(_mm512_unpacklo_epi64(a, b));
  words[1] = bits<I>(_mm512_unpackhi_epi64(a, b));
  words[2] = bits<I>(_mm512_unpacklo_epi64(c, d));
  words[3] = bits<I>(_mm512_unpackhi_epi64(c, d));
}

// The sums of the 128-bit quarters of four registers, one quarter each.
STOKER_INLINE __m512i quarters4(__m512i a, __m512i b, __m512i c, __m512i d) {
  const __m512i ab = _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x44), _mm512_shuffle_i32x4(a, b, 0xee));
  const __m512i cd = _mm512_add_epi32(_mm512_shuffle_i32x4(c, d, 0x44), _mm512_shuffle_i32x4(c, d, 0xee));
  return _mm512_add_epi32(_mm512_shuffle_i32x4(ab, cd, 0x88), _mm512_shuffle_i32x4(ab, cd, 0xdd));
}

// Quarters of x are blocks 0-3, of y blocks 4-7; their four lanes are still to be added.
STOKER_INLINE I8 finish8(__m512i x, __m512i y) {
  __m512i s = _mm512_add_epi32(_mm512_unpacklo_epi32(x, y), _mm512_unpackhi_epi32(x, y));  // x y x y
  s = _mm512_add_epi32(s, _mm512_shuffle_epi32(s, _MM_PERM_BADC));
  const __m512i order = _mm512_set_epi32(0, 0, 0, 0, 0, 0, 0, 0, 13, 9, 5, 1, 12, 8, 4, 0);
  return bits<I8>(_mm512_castsi512_si256(_mm512_permutexvar_epi32(order, s)));
}

STOKER_INLINE I8 reduce(const Acc* a) {
  return finish8(quarters4(a[0], a[1], a[2], a[3]), quarters4(a[4], a[5], a[6], a[7]));
}

STOKER_INLINE __m256i halves2(__m256i a, __m256i b) {
  return _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31));
}

STOKER_INLINE __m512i join(__m256i a, __m256i b) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
}

STOKER_INLINE I8 reduce_mins(const MinAcc* a) {
  return finish8(join(halves2(a[0], a[1]), halves2(a[2], a[3])),
                 join(halves2(a[4], a[5]), halves2(a[6], a[7])));
}

STOKER_INLINE I8 reduce_quads(QuadAcc a, QuadAcc b) { return finish8(a, b); }

STOKER_INLINE I8 min_sums(const B16* bytes, const int16_t* sums32) {
  const auto two = [&](int j) { return min_sums2(bytes + j, sums32 + 8 * j); };
  return finish8(join(two(0), two(2)), join(two(4), two(6)));
}

STOKER_INLINE QuadAcc dot_runs(B64 codes, const int8_t* x) { return dot_pair<false>(codes, x); }

STOKER_INLINE void reduce_runs(const QuadAcc* a, I8& even, I8& odd) {
  const auto pairs = [](__m512i x, __m512i y) {  // in each quarter two sums of x and two of y
    return _mm512_add_epi32(_mm512_unpacklo_epi32(x, y), _mm512_unpackhi_epi32(x, y));
  };
  const __m512i x = pairs(a[0], a[1]), y = pairs(a[2], a[3]);
  const __m512i s = _mm512_add_epi32(_mm512_unpacklo_epi64(x, y), _mm512_unpackhi_epi64(x, y));
  // Lane 4 * q + j is now quarter q of register j, which is run 4 * j + q.
  const __m512i order = _mm512_set_epi32(15, 7, 14, 6, 13, 5, 12, 4, 11, 3, 10, 2, 9, 1, 8, 0);
  const __m512i r = _mm512_permutexvar_epi32(order, s);
  even = bits<I8>(_mm512_castsi512_si256(r));
  odd = bits<I8>(_mm512_extracti64x4_epi64(r, 1));
}

STOKER_INLINE I8 reduce_pairs(const PairAcc* a) {
  const auto halves = [](__m512i x, __m512i y) {  // x0+x1, x2+x3, y0+y1, y2+y3: blocks in order
    return _mm512_add_epi32(_mm512_shuffle_i32x4(x, y, 0x88), _mm512_shuffle_i32x4(x, y, 0xdd));
  };
  return finish8(halves(a[0], a[1]), halves(a[2], a[3]));
}

STOKER_INLINE F load_halves(const uint16_t* p) { return bits<F>(_mm512_cvtph_ps(load256(p))); }

STOKER_INLINE void store_halves(uint16_t* p, F v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(bits<__m512>(v), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

STOKER_INLINE S8 low_bytes(I v) { return bits<S8>(_mm512_cvtepi32_epi8(bits<__m512i>(v))); }

STOKER_INLINE I load_codes(const uint8_t* p) { return bits<I>(_mm512_cvtepi8_epi32(load128(p))); }

// Codebooks and signs.

STOKER_INLINE B64 words(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g,
                        uint64_t h) {
  const auto s = [](uint64_t v) { return static_cast<long long>(v); };
  return _mm512_set_epi64(s(h), s(g), s(f), s(e), s(d), s(c), s(b), s(a));
}

template <int PART>
STOKER_INLINE Acc dot_scaled_signed(Acc acc, B64 codes, uint64_t signs, const int8_t* x, S16 scales) {
  const __m512i a = _mm512_loadu_si512(x);
  return dot_scaled<PART>(acc, codes, _mm512_mask_sub_epi8(a, signs, _mm512_setzero_si512(), a), scales);
}

STOKER_INLINE B64 biased(B64 codes, uint64_t signs) {
  const __m512i bias = _mm512_set1_epi8(64), up = _mm512_add_epi8(codes, bias);
  return _mm512_mask_sub_epi8(up, signs, bias, codes);
}

}  // namespace STOKER_ISA

#ifdef __AVX512VBMI__
#include "vec_vbmi.h"
#endif
