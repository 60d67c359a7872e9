// IQ2_XXS, IQ2_XS, IQ2_S: 256 values in 66, 74, 82 bytes, d (binary16) at 0. Eight values are an entry of
// a grid of magnitudes 8, 25, 43 and eight signs. x = d / 8 * (2 s + 1) * +-magnitude.
#pragma once

#include "codebook.h"

namespace STOKER_ISA {

// Eight groups of 32 values at 2: four bytes of grid indices, then a word with four 7-bit sign indices
// and a 4-bit scale on top.
struct IQ2_XXS : SignedCodebook<66, 8> {
  static constexpr int ID = 16, GROUP = 32;

  template <int PART>
  STOKER_INLINE B64 codes(const uint8_t* b) {
    const uint8_t* q = b + 2 + 16 * PART;
    return eight_words([q](int i) { return IQ2_XXS_GRID[q[8 * (i / 4) + i % 4]]; });
  }
  template <int PART>
  STOKER_INLINE uint64_t signs(const uint8_t* b) {
    const uint8_t* q = b + 2 + 16 * PART;
    return with_parity(spread_sevens(load<uint32_t>(q + 4) | static_cast<uint64_t>(load<uint32_t>(q + 12)) << 32));
  }
  STOKER_INLINE S16 scales(const uint8_t* b) {
    return odd_scales_of_32(bits<uint64_t>(__builtin_convertvector(load<Octs8>(b + 2) >> 60, Bytes8)));
  }

#ifdef __AVX512VBMI__
  STOKER_INLINE void own_sums(const uint8_t* b, const int8_t* x, Acc* sums) {
    const __m512i q = _mm512_loadu_si512(b + 2), r = _mm512_loadu_si512(b + BYTES + 2);
    const __m512i order = byte_table([](int i) { return i % 8 / 2 + i / 8 * 8 % 16; });
    const __m512i index =
        _mm512_mask_shuffle_epi8(_mm512_shuffle_epi8(q, order), 0xaaaaaaaaaaaaaaaau, r, order);
    const __mmask64 high[] = {_mm512_movepi8_mask(index)};
    const Two levels = entries_of_two<8>(IQ2_XXS_HALVES, index, high);
    const auto sum = [x](__m512i words, __m512i l, int block) {
      const __m512i signs = index_signs(bits_from([](int i) { return 32 + i % 8 / 2 * 7; }, words));
      const __m512i lanes = dot_twos<IQ2_XXS_LEVELS>(l, signs, x + block * REARRANGED_BYTES);
      return _mm512_mullo_epi32(lanes, odd_lanes(bits_from([](int) { return 59; }, words)));
    };
    sums[0] = sum(q, levels.first, 0);
    sums[1] = sum(r, levels.second, 1);
  }
#endif
};

// 32 words at 2: a 9-bit grid index, a 7-bit sign index above. Sixteen 4-bit scales at 66.
struct IQ2_XS : SignedCodebook<74, 8> {
  static constexpr int ID = 17;

  template <int PART>
  STOKER_INLINE B64 codes(const uint8_t* b) {
    const uint8_t* q = b + 2 + 16 * PART;
    return eight_words([q](int i) { return IQ2_XS_GRID[load<uint16_t>(q + 2 * i) & 511]; });
  }
  template <int PART>
  STOKER_INLINE uint64_t signs(const uint8_t* b) {
    return with_parity(to_bytes(load<Words8>(b + 2 + 16 * PART) >> 9));
  }
  STOKER_INLINE S16 scales(const uint8_t* b) { return odd_scales_of_16(b + 66); }

#ifdef __AVX512VBMI__
  STOKER_INLINE void own_sums(const uint8_t* b, const int8_t* x, Acc* sums) {
    const __m512i q = _mm512_loadu_si512(b + 2), r = _mm512_loadu_si512(b + BYTES + 2);
    const __m512i index = low_bytes(q, r);
    const __mmask64 high[] = {_mm512_movepi8_mask(index),
                              _mm512_test_epi8_mask(high_bytes(q, r), all_bytes(1))};
    const Two levels = entries_of_two<9>(IQ2_XS_HALVES, index, high);
    const auto sum = [b, x](__m512i words, __m512i l, int block) {
      const __m512i signs = index_signs(bits_from([](int i) { return 9 + i % 8 / 2 * 16; }, words));
      const __m512i lanes = dot_twos<IQ2_XS_LEVELS>(l, signs, x + block * REARRANGED_BYTES);
      return _mm512_mullo_epi32(lanes, odd_lanes_of_16(b + block * BYTES + 66));
    };
    sums[0] = sum(q, levels.first, 0);
    sums[1] = sum(r, levels.second, 1);
  }
#endif
};

// 32 bytes of low index bits at 2, 32 bytes of signs at 34, 8 bytes at 66 with two high index bits of
// four entries each, sixteen 4-bit scales at 74.
struct IQ2_S : SignedCodebook<82, 8> {
  static constexpr int ID = 22;

  template <int PART>
  STOKER_INLINE B64 codes(const uint8_t* b) {
    const uint8_t *q = b + 2 + 8 * PART, *high = b + 66 + 2 * PART;
    return eight_words(
        [q, high](int i) { return IQ2_S_GRID[q[i] | (high[i / 4] >> (2 * (i % 4)) & 3) << 8]; });
  }
  template <int PART>
  STOKER_INLINE uint64_t signs(const uint8_t* b) {
    return load<uint64_t>(b + 34 + 8 * PART);
  }
  STOKER_INLINE S16 scales(const uint8_t* b) { return odd_scales_of_16(b + 74); }

#ifdef __AVX512VBMI__
  STOKER_INLINE void own_sums(const uint8_t* b, const int8_t* x, Acc* sums) {
    const uint8_t* c = b + BYTES;
    const __m512i index = _mm512_permutex2var_epi8(
        _mm512_loadu_si512(b + 2), byte_table([](int i) { return i / 2 + i % 2 * 64; }), _mm512_loadu_si512(c + 2));
    const auto ninth = [](const uint8_t* p) {
      return bits_from([](int i) { return i / 2 * 2; }, all_words(load<uint64_t>(p + 66)));
    };
    const __m512i above = choose(_mm512_set1_epi16(0xff), ninth(b), ninth(c));
    const __mmask64 high[] = {_mm512_movepi8_mask(index), _mm512_test_epi8_mask(above, all_bytes(1)),
                              _mm512_test_epi8_mask(above, all_bytes(2))};
    const Two levels = entries_of_two<10>(IQ2_S_HALVES, index, high);
    const auto sum = [x](const uint8_t* p, __m512i l, int block) {
      const __m512i lanes = dot_twos<IQ2_S_LEVELS>(l, byte_signs(p + 34), x + block * REARRANGED_BYTES);
      return _mm512_mullo_epi32(lanes, odd_lanes_of_16(p + 74));
    };
    sums[0] = sum(b, levels.first, 0);
    sums[1] = sum(c, levels.second, 1);
  }
#endif
};

}  // namespace STOKER_ISA
