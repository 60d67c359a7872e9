// The integer vocabulary on AVX2 (with F16C), with AVX-VNNI where STOKER_VNNI is 1: a B64 is two
// registers of 32 codes.
//
// vpmaddubsw makes exact 16-bit sums of two products u8 * s8 (2 * 128 * 127 < 2^15), vpmaddwd multiplies
// them by their sub-scales and adds pairs to 32 bits. Signed codes: |w| * (x with the sign of w). With VNNI
// one vpdpbusd makes sums of four, and signed codes have their top bit flipped: see vec_avx512.h.
//
// Contract of vec_scalar.h; see there for what each function means.
#pragma once

#define STOKER_LANES 8
#include "vec_x86.h"

namespace STOKER_ISA {

struct B64 {
  __m256i lo, hi;
};
using Acc = __m256i;
using PairAcc = B64;
using QuadAcc = B64;  // four lanes for each of four sums

constexpr int WIDE_BIAS = STOKER_VNNI ? 128 : 0;

STOKER_INLINE B64 load64(const uint8_t* p) { return {load256(p), load256(p + 32)}; }

STOKER_INLINE void store64(uint8_t* p, B64 x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x.lo);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 32), x.hi);
}

STOKER_INLINE B64 pair32(const uint8_t* p, const uint8_t* q) { return {load256(p), load256(q)}; }
STOKER_INLINE B64 twice32(const uint8_t* p) { return pair32(p, p); }

STOKER_INLINE B64 masked(B64 x, uint8_t mask) {
  const __m256i m = _mm256_set1_epi8(static_cast<char>(mask));
  return {_mm256_and_si256(x.lo, m), _mm256_and_si256(x.hi, m)};
}

STOKER_INLINE B64 either(B64 x, B64 y) { return {_mm256_or_si256(x.lo, y.lo), _mm256_or_si256(x.hi, y.hi)}; }

STOKER_INLINE B64 nibble_pair(const uint8_t* p, const uint8_t* q) {
  const __m256i counts = _mm256_set_epi64x(4, 4, 0, 0);
  return masked({_mm256_srlv_epi64(_mm256_broadcastsi128_si256(load128(p)), counts),
                 _mm256_srlv_epi64(_mm256_broadcastsi128_si256(load128(q)), counts)},
                0x0f);
}

STOKER_INLINE B64 nibbles_by_8(const uint8_t* p) {
  const __m256i x = load256(p), counts = _mm256_set_epi64x(4, 0, 4, 0);
  return masked({_mm256_srlv_epi64(_mm256_permute4x64_epi64(x, 0x50), counts),
                 _mm256_srlv_epi64(_mm256_permute4x64_epi64(x, 0xfa), counts)},
                0x0f);
}

// Byte b in 32 bits: b | b << 6 | b << 12 | b << 18 has the four codes in the low bits of its bytes.
STOKER_INLINE B64 pairs_of_bits(const uint8_t* p) {
  const auto spread = [](const uint8_t* q) {
    __m256i x = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(q)));
    x = _mm256_or_si256(x, _mm256_slli_epi32(x, 12));
    return _mm256_or_si256(x, _mm256_slli_epi32(x, 6));
  };
  return masked({spread(p), spread(p + 8)}, 3);
}

STOKER_INLINE B64 quarters(B16 a, B16 b, B16 c, B16 d) {
  return {_mm256_set_m128i(bits<__m128i>(b), bits<__m128i>(a)),
          _mm256_set_m128i(bits<__m128i>(d), bits<__m128i>(c))};
}

// Bytes of ones where the mask has a bit.
STOKER_INLINE __m256i mask_bytes(uint32_t mask) {
  const __m256i index = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
  const __m256i bit = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201u));
  const __m256i spread = _mm256_shuffle_epi8(_mm256_set1_epi32(static_cast<int>(mask)), index);
  return _mm256_cmpeq_epi8(_mm256_and_si256(spread, bit), bit);
}

STOKER_INLINE B64 chosen(uint64_t mask, uint8_t value) {
  const auto low = static_cast<uint32_t>(mask), high = static_cast<uint32_t>(mask >> 32);
  return masked({mask_bytes(low), mask_bytes(high)}, value);
}

STOKER_INLINE B64 looked_up(B64 x, const int8_t* table) {
  const __m256i t = _mm256_broadcastsi128_si256(load128(table));
  return {_mm256_shuffle_epi8(t, x.lo), _mm256_shuffle_epi8(t, x.hi)};
}

template <bool HIGH>
STOKER_INLINE B64 looked_up(B64 x, const int8_t* table) {
  if constexpr (HIGH) x = {_mm256_srli_epi16(x.lo, 4), _mm256_srli_epi16(x.hi, 4)};
  return looked_up(masked(x, 0x0f), table);
}

STOKER_INLINE __m256i times32(__m256i x, __m256i f) {
  const __m256i even = _mm256_set1_epi16(0xff);
  const __m256i odd = _mm256_mullo_epi16(_mm256_srli_epi16(x, 8), _mm256_srli_epi16(f, 8));
  return _mm256_or_si256(_mm256_and_si256(_mm256_mullo_epi16(x, f), even), _mm256_slli_epi16(odd, 8));
}

STOKER_INLINE B64 times(B64 x, const uint8_t* factors) {
  return {times32(x.lo, load256(factors)), times32(x.hi, load256(factors + 32))};
}

STOKER_INLINE __m256i thirds32(__m256i x) {  // max(x, n) == x: x >= n; each comparison gives -1
  const __m256i one = _mm256_set1_epi8(86), two = _mm256_set1_epi8(static_cast<char>(171));
  return _mm256_sub_epi8(_mm256_setzero_si256(),
                         _mm256_add_epi8(_mm256_cmpeq_epi8(_mm256_max_epu8(x, one), x),
                                         _mm256_cmpeq_epi8(_mm256_max_epu8(x, two), x)));
}
STOKER_INLINE B64 thirds(B64 x) { return {thirds32(x.lo), thirds32(x.hi)}; }

template <int BITS>
STOKER_INLINE __m256i shifted32(__m256i x) {
  if constexpr (BITS == 0)
    return x;
  else if constexpr (BITS < 0)
    return _mm256_srli_epi16(x, -BITS);
  else
    return _mm256_slli_epi16(x, BITS);
}

template <int LO, int HI>
STOKER_INLINE B64 shifted(B64 x) {
  return {shifted32<LO>(x.lo), shifted32<HI>(x.hi)};
}

STOKER_INLINE Acc no_sum() { return _mm256_setzero_si256(); }

// Byte indices that put word `at` into both halves of 32 bits; with VNNI into the low half, above it zero.
constexpr int spread_index(int at) {
  const unsigned once = 2 * at * 0x101 + 0x100;
  return static_cast<int>(once | (STOKER_VNNI ? 0x8080u : once) << 16);
}

// Sub-scale G over the low half, G + 1 over the high half. The half that holds both is doubled first.
template <int G>
STOKER_INLINE __m256i spread(S16 scales) {
  const __m256i both = _mm256_permute4x64_epi64(scales, G / 8 == 0 ? 0x44 : 0xee);
  constexpr int a = spread_index(G % 8), b = spread_index(G % 8 + 1);
  return _mm256_shuffle_epi8(both, _mm256_setr_epi32(a, a, a, a, b, b, b, b));
}

// 8 sums: acc + pairs of 16-bit products, of int16 words.
STOKER_INLINE __m256i dot2(__m256i acc, __m256i a, __m256i b) {
#if STOKER_VNNI
  return _mm256_dpwssd_avx_epi32(acc, a, b);
#else
  return _mm256_add_epi32(acc, _mm256_madd_epi16(a, b));
#endif
}

// Products of 32 codes below 64 and 32 activations: 16 sums of two, or with VNNI 8 sums of four in the even
// words.
STOKER_INLINE __m256i products(__m256i codes, __m256i x) {
#if STOKER_VNNI
  return _mm256_dpbusd_avx_epi32(_mm256_setzero_si256(), codes, x);
#else
  return _mm256_maddubs_epi16(codes, x);
#endif
}

template <int PART>
STOKER_INLINE Acc dot_scaled(Acc acc, B64 codes, const int8_t* x, S16 scales) {
  acc = dot2(acc, products(codes.lo, load256(x)), spread<4 * PART>(scales));
  return dot2(acc, products(codes.hi, load256(x + 32)), spread<4 * PART + 2>(scales));
}

using Spread = __m256i;
STOKER_INLINE Spread spread_of_32(B16 bytes) { return lanes_of_32(bytes); }

template <int PART>
STOKER_INLINE Acc dot_spread(Acc acc, B64 codes, const int8_t* x, Spread scales) {
  const __m256i a = _mm256_permutevar8x32_epi32(scales, _mm256_set1_epi32(2 * PART)),
                b = _mm256_permutevar8x32_epi32(scales, _mm256_set1_epi32(2 * PART + 1));
  acc = dot2(acc, products(codes.lo, load256(x)), a);
  return dot2(acc, products(codes.hi, load256(x + 32)), b);
}

template <int OFFSET>
STOKER_INLINE Acc minus_offset(Acc acc, S16 scales, const int16_t* sums16) {
  return _mm256_sub_epi32(
      acc, _mm256_madd_epi16(_mm256_mullo_epi16(scales, _mm256_set1_epi16(OFFSET)), load256(sums16)));
}

STOKER_INLINE __m256i top_flipped(__m256i x) {
  return STOKER_VNNI ? _mm256_xor_si256(x, _mm256_set1_epi8(static_cast<char>(0x80))) : x;
}
STOKER_INLINE B64 flipped(B64 x) { return {top_flipped(x.lo), top_flipped(x.hi)}; }

// 16 16-bit sums of two products of signed codes (WIDE) or of codes 0..127.
template <bool WIDE>
STOKER_INLINE __m256i dot2_bytes(__m256i w, __m256i x) {
  return _mm256_maddubs_epi16(WIDE ? _mm256_abs_epi8(w) : w, WIDE ? _mm256_sign_epi8(x, w) : x);
}

// 8 sums of four products of signed codes (WIDE; with VNNI their top bit is flipped) or of codes 0..127.
template <bool WIDE>
STOKER_INLINE __m256i dot4(__m256i acc, __m256i w, __m256i x) {
#if STOKER_VNNI
  return _mm256_dpbusd_avx_epi32(acc, w, x);
#else
  return dot2(acc, dot2_bytes<WIDE>(w, x), _mm256_set1_epi16(1));
#endif
}

template <bool WIDE>
STOKER_INLINE PairAcc dot_pair(B64 codes, const int8_t* x) {
  const __m256i zero = _mm256_setzero_si256();
  if constexpr (WIDE) codes = flipped(codes);
  return {dot4<WIDE>(zero, codes.lo, load256(x)), dot4<WIDE>(zero, codes.hi, load256(x + 32))};
}

constexpr bool SUMS32 = STOKER_VNNI, SCALES16 = true;

template <bool WIDE>
STOKER_INLINE I tile_add(I p, I w, I x) {
  const auto a = bits<__m256i>(p), b = bits<__m256i>(w), c = bits<__m256i>(x);
#if STOKER_VNNI
  return bits<I>(dot4<WIDE>(a, b, c));
#else
  return bits<I>(_mm256_add_epi16(a, dot2_bytes<WIDE>(b, c)));
#endif
}

STOKER_INLINE I tile_dot2(I acc, I w, I x) {
  return bits<I>(dot2(bits<__m256i>(acc), bits<__m256i>(w), bits<__m256i>(x)));
}

// Rows j and 4 + j come into the halves of register j; then 4 x 4 words are transposed inside each half.
STOKER_INLINE void quarter(const uint8_t* const* rows, int64_t at, I* words) {
  __m256i t[4];
  STOKER_UNROLL
  for (int j = 0; j < 4; ++j)
    t[j] = _mm256_inserti128_si256(_mm256_castsi128_si256(load128(rows[j] + at)),
                                   load128(rows[4 + j] + at), 1);
  const __m256i a = _mm256_unpacklo_epi32(t[0], t[1]), b = _mm256_unpacklo_epi32(t[2], t[3]);
  const __m256i c = _mm256_unpackhi_epi32(t[0], t[1]), d = _mm256_unpackhi_epi32(t[2], t[3]);
  words[0] = bits<I>(_mm256_unpacklo_epi64(a, b));
  words[1] = bits<I>(_mm256_unpackhi_epi64(a, b));
  words[2] = bits<I>(_mm256_unpacklo_epi64(c, d));
  words[3] = bits<I>(_mm256_unpackhi_epi64(c, d));
}

// The sums of the lanes of 8 registers. hadd works in halves: [a a b b] + [c c d d] -> [a b c d].
STOKER_INLINE I8 reduce8(__m256i a, __m256i b, __m256i c, __m256i d, __m256i e, __m256i f, __m256i g,
                         __m256i h) {
  const __m256i abcd = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
  const __m256i efgh = _mm256_hadd_epi32(_mm256_hadd_epi32(e, f), _mm256_hadd_epi32(g, h));
  return bits<I8>(_mm256_add_epi32(_mm256_permute2x128_si256(abcd, efgh, 0x20),
                                   _mm256_permute2x128_si256(abcd, efgh, 0x31)));
}

STOKER_INLINE I8 reduce(const Acc* a) { return reduce8(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]); }
template <bool WIDE>
STOKER_INLINE __m256i dot_quad32(__m256i first, __m256i last, const int8_t* x, int64_t step) {
  const __m256i a = load256(x + step), b = load256(x + 2 * step), start = load256(x);
#if !STOKER_VNNI
  if constexpr (!WIDE)  // four products of codes below 64 fit 16 bits
    return dot2(start, _mm256_add_epi16(_mm256_maddubs_epi16(first, a), _mm256_maddubs_epi16(last, b)),
                _mm256_set1_epi16(1));
#endif
  return dot4<WIDE>(dot4<WIDE>(start, first, a), last, b);
}

template <bool WIDE>
STOKER_INLINE QuadAcc dot_quad(B64 first, B64 last, const int8_t* x, int64_t step) {
  return {dot_quad32<WIDE>(first.lo, last.lo, x, step), dot_quad32<WIDE>(first.hi, last.hi, x + 32, step)};
}

// Lane l has scale 4 * HALF + l / 4: two scales of four lanes to a register.
template <int HALF>
STOKER_INLINE Acc dot_quad_scaled(Acc acc, B64 first, B64 last, const int8_t* x, I8 scales) {
  constexpr int a = 4 * HALF, b = a + 1, c = a + 2, d = a + 3;
  const __m256i s = bits<__m256i>(scales);
  const QuadAcc p = dot_quad<true>(first, last, x, 64);
  const __m256i lo = _mm256_permutevar8x32_epi32(s, _mm256_setr_epi32(a, a, a, a, b, b, b, b));
  const __m256i hi = _mm256_permutevar8x32_epi32(s, _mm256_setr_epi32(c, c, c, c, d, d, d, d));
  acc = _mm256_add_epi32(acc, _mm256_mullo_epi32(p.lo, lo));
  return _mm256_add_epi32(acc, _mm256_mullo_epi32(p.hi, hi));
}

STOKER_INLINE I8 reduce_quads(QuadAcc a, QuadAcc b) {
  const __m256i s = _mm256_hadd_epi32(_mm256_hadd_epi32(a.lo, a.hi), _mm256_hadd_epi32(b.lo, b.hi));
  return bits<I8>(_mm256_permutevar8x32_epi32(s, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
}
STOKER_INLINE I8 min_sums(const B16* bytes, const int16_t* sums32) {
  const auto two = [&](int j) { return min_sums2(bytes + j, sums32 + 8 * j); };
  return reduce_quads({two(0), two(2)}, {two(4), two(6)});
}
STOKER_INLINE I8 reduce_mins(const MinAcc* a) { return reduce(a); }
STOKER_INLINE QuadAcc dot_runs(B64 codes, const int8_t* x) { return dot_pair<false>(codes, x); }

STOKER_INLINE void reduce_runs(const QuadAcc* a, I8& even, I8& odd) {
  const auto adjacent = [](B64 p, B64 q) {  // four even runs, four odd ones
    return _mm256_hadd_epi32(_mm256_hadd_epi32(p.lo, p.hi), _mm256_hadd_epi32(q.lo, q.hi));
  };
  const __m256i x = adjacent(a[0], a[1]), y = adjacent(a[2], a[3]);
  even = bits<I8>(_mm256_permute2x128_si256(x, y, 0x20));
  odd = bits<I8>(_mm256_permute2x128_si256(x, y, 0x31));
}
STOKER_INLINE I8 reduce_pairs(const PairAcc* a) {
  return reduce8(a[0].lo, a[0].hi, a[1].lo, a[1].hi, a[2].lo, a[2].hi, a[3].lo, a[3].hi);
}

STOKER_INLINE F load_halves(const uint16_t* p) { return bits<F>(_mm256_cvtph_ps(load128(p))); }

STOKER_INLINE void store_halves(uint16_t* p, F v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                   _mm256_cvtps_ph(bits<__m256>(v), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

STOKER_INLINE S8 low_bytes(I v) {
  const __m256i b = _mm256_shuffle_epi8(bits<__m256i>(v), _mm256_set1_epi32(0x0c080400));
  const __m128i both = _mm_unpacklo_epi32(_mm256_castsi256_si128(b), _mm256_extracti128_si256(b, 1));
  return bits<S8>(_mm_cvtsi128_si64(both));
}

STOKER_INLINE I load_codes(const uint8_t* p) {
  return bits<I>(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}

// Codebooks and signs.

STOKER_INLINE B64 words(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g,
                        uint64_t h) {
  const auto four = [](uint64_t p, uint64_t q, uint64_t r, uint64_t s) {
    return _mm256_set_epi64x(static_cast<long long>(s), static_cast<long long>(r), static_cast<long long>(q),
                             static_cast<long long>(p));
  };
  return {four(a, b, c, d), four(e, f, g, h)};
}

STOKER_INLINE __m256i negated(__m256i x, uint32_t mask) {
  const __m256i m = mask_bytes(mask);
  return _mm256_sub_epi8(_mm256_xor_si256(x, m), m);
}

template <int PART>
STOKER_INLINE Acc dot_scaled_signed(Acc acc, B64 codes, uint64_t signs, const int8_t* x, S16 scales) {
  const __m256i a = negated(load256(x), static_cast<uint32_t>(signs)),
                b = negated(load256(x + 32), static_cast<uint32_t>(signs >> 32));
  acc = dot2(acc, products(codes.lo, a), spread<4 * PART>(scales));
  return dot2(acc, products(codes.hi, b), spread<4 * PART + 2>(scales));
}

STOKER_INLINE B64 biased(B64 codes, uint64_t signs) {
  const __m256i bias = _mm256_set1_epi8(64);
  return {_mm256_add_epi8(negated(codes.lo, static_cast<uint32_t>(signs)), bias),
          _mm256_add_epi8(negated(codes.hi, static_cast<uint32_t>(signs >> 32)), bias)};
}

}  // namespace STOKER_ISA
