// What the AVX2 and the AVX-512 vocabulary share: sub-scales in 256 bits, and eight halves from memory.
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

STOKER_INLINE S16 scales_of_32(uint64_t bytes) {
  const __m128i b = _mm_cvtsi64_si128(static_cast<long long>(bytes));
  return _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(b, b));
}

STOKER_INLINE S16 scales_of_16(const uint8_t* p) { return _mm256_cvtepi8_epi16(load128(p)); }
STOKER_INLINE void store_scales(int16_t* p, S16 s) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), s); }

STOKER_INLINE MinAcc min_sum(S16 mins, const int16_t* sums16) {
  return _mm256_madd_epi16(mins, load256(sums16));
}

template <int STRIDE>
STOKER_INLINE F8 halves8(const uint8_t* p) {
  __m128i h = _mm_cvtsi32_si128(load<uint16_t>(p));
  h = _mm_insert_epi16(h, load<uint16_t>(p + STRIDE), 1);
  h = _mm_insert_epi16(h, load<uint16_t>(p + 2 * STRIDE), 2);
  h = _mm_insert_epi16(h, load<uint16_t>(p + 3 * STRIDE), 3);
  h = _mm_insert_epi16(h, load<uint16_t>(p + 4 * STRIDE), 4);
  h = _mm_insert_epi16(h, load<uint16_t>(p + 5 * STRIDE), 5);
  h = _mm_insert_epi16(h, load<uint16_t>(p + 6 * STRIDE), 6);
  h = _mm_insert_epi16(h, load<uint16_t>(p + 7 * STRIDE), 7);
  return bits<F8>(_mm256_cvtph_ps(h));
}

}  // namespace STOKER_ISA
