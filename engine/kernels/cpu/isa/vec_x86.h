// What the AVX2 and the AVX-512 vocabulary share: sub-scales in 256 bits, and eight small values from memory.
//
// Contract of vec_scalar.h; see there for what each function means.
#pragma once

#include "vec_common.h"

#include <immintrin.h>

namespace STOKER_ISA {

using S16 = __m256i;  // 16 x int16
using MinAcc = __m256i;

STOKER_INLINE __m256i load256(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
STOKER_INLINE __m128i load128(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }

STOKER_INLINE S16 scales_of_16(B16 bytes) { return _mm256_cvtepi8_epi16(bits<__m128i>(bytes)); }
STOKER_INLINE S16 scales_of_32(uint64_t bytes) { return scales_of_16(twice_each(bytes)); }
STOKER_INLINE void store_scales(int16_t* p, S16 s) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), s); }

STOKER_INLINE MinAcc min_sum(S16 mins, const int16_t* sums16) {
  return _mm256_madd_epi16(mins, load256(sums16));
}

// Two blocks, four lanes each: the last eight bytes of each times its sums of 32 activation codes.
STOKER_INLINE __m256i min_sums2(const B16* bytes, const int16_t* sums32) {
  const __m128i mins = _mm_unpackhi_epi64(bits<__m128i>(bytes[0]), bits<__m128i>(bytes[1]));
  return _mm256_madd_epi16(_mm256_cvtepu8_epi16(mins), load256(sums32));
}

// Sub-scales of 32 codes each in the lanes, in both halves of a lane or (sums of four) only in the lower one.
STOKER_INLINE __m256i lanes_of_32(B16 bytes) {
  const __m256i s = _mm256_cvtepu8_epi32(bits<__m128i>(bytes));
  return STOKER_VNNI ? s : _mm256_or_si256(s, _mm256_slli_epi32(s, 16));
}

STOKER_INLINE F8 to_floats(H8 halves) { return bits<F8>(_mm256_cvtph_ps(bits<__m128i>(halves))); }

#ifdef __AVX512VBMI__

// Where gathered8 finds each byte of its result: in the 64 bytes that hold most of the elements from there.
template <int STRIDE, int SIZE, int STEP>
struct Gather {
  static constexpr int PER = (64 - SIZE) / STRIDE + 1;  // elements in 64 bytes
  static constexpr int start(int first) { return first < 8 - PER ? first : 8 - PER; }
  uint8_t index[64] = {};
  constexpr Gather() {
    for (int j = 0; j < 8; ++j)
      for (int k = 0; k < SIZE; ++k)
        index[j * STEP + k] = static_cast<uint8_t>((j - start(j / PER * PER)) * STRIDE + k);
  }
  static constexpr uint64_t mask(int first) {
    uint64_t m = 0;
    for (int j = first; j < first + PER && j < 8; ++j) m |= ((uint64_t{1} << SIZE) - 1) << (j * STEP);
    return m;
  }
};

// Eight elements of SIZE bytes, STRIDE bytes apart, put STEP bytes apart, zeros between them; reads nothing
// beyond the 8 * STRIDE bytes. A byte permutation for every 64 bytes is cheaper than one insert per element.
template <int STRIDE, int SIZE, int STEP>
STOKER_INLINE __m512i gathered8(const uint8_t* p) {
  using G = Gather<STRIDE, SIZE, STEP>;
  alignas(64) static constexpr G where;
  const __m512i index = _mm512_load_si512(where.index);
  __m512i x = _mm512_setzero_si512();
  STOKER_UNROLL
  for (int j = 0; j < 8; j += G::PER)
    x = _mm512_mask_permutexvar_epi8(x, G::mask(j), index, _mm512_loadu_si512(p + G::start(j) * STRIDE));
  return x;
}

template <int STRIDE>
STOKER_INLINE I8 bytes8(const uint8_t* p) {
  return bits<I8>(_mm512_castsi512_si256(gathered8<STRIDE, 1, 4>(p)));
}

#endif

template <int STRIDE>
STOKER_INLINE F8 halves8(const uint8_t* p) {
#ifdef __AVX512VBMI__
  if constexpr (STRIDE >= 16 && STRIDE <= 34)
    return to_floats(bits<H8>(_mm512_castsi512_si128(gathered8<STRIDE, 2, 2>(p))));
#endif
  __m128i h = _mm_cvtsi32_si128(load<uint16_t>(p));
  h = _mm_insert_epi16(h, load<uint16_t>(p + STRIDE), 1);
  h = _mm_insert_epi16(h, load<uint16_t>(p + 2 * STRIDE), 2);
  h = _mm_insert_epi16(h, load<uint16_t>(p + 3 * STRIDE), 3);
  h = _mm_insert_epi16(h, load<uint16_t>(p + 4 * STRIDE), 4);
  h = _mm_insert_epi16(h, load<uint16_t>(p + 5 * STRIDE), 5);
  h = _mm_insert_epi16(h, load<uint16_t>(p + 6 * STRIDE), 6);
  h = _mm_insert_epi16(h, load<uint16_t>(p + 7 * STRIDE), 7);
  return to_floats(bits<H8>(h));
}

}  // namespace STOKER_ISA
