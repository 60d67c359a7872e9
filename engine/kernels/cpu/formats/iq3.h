// IQ3_XXS and IQ3_S: 256 values in 98 and 110 bytes, d (binary16) at 0, 64 bytes of grid indices at 2. Four
// values are an entry of a grid of magnitudes (4, 12 .. 62; 1, 3 .. 15).
#pragma once

#include "codebook.h"

namespace STOKER_ISA {

// Eight words at 66, one for 32 values: four 7-bit sign indices and a 4-bit scale on top.
// x = d / 4 * (2 s + 1) * +-magnitude.
struct IQ3_XXS : SignedCodebook<98, 4> {
  static constexpr int ID = 18, GROUP = 32;

  template <int PART>
  STOKER_INLINE B64 codes(const uint8_t* b) {
    const uint8_t* q = b + 2 + 16 * PART;
    return eight_words([q](int i) {
      return IQ3_XXS_GRID[q[2 * i]] | static_cast<uint64_t>(IQ3_XXS_GRID[q[2 * i + 1]]) << 32;
    });
  }
  template <int PART>
  STOKER_INLINE uint64_t signs(const uint8_t* b) {
    return with_parity(spread_sevens(load<uint64_t>(b + 66 + 8 * PART)));
  }
  STOKER_INLINE S16 scales(const uint8_t* b) {
    return odd_scales_of_32(bits<uint64_t>(__builtin_convertvector(load<Quads8>(b + 66) >> 28, Bytes8)));
  }

#ifdef __AVX512VBMI__
  STOKER_INLINE Acc own_sum(const uint8_t* b, const int8_t* x) {
    const __m512i index = _mm512_loadu_si512(b + 2), words = _mm512_cvtepu32_epi64(load256(b + 66));
    const __mmask64 high[] = {_mm512_movepi8_mask(index)};
    const __m512i first = look_up<8>(IQ3_XXS_HALVES[0], index, high),
                  second = look_up<8>(IQ3_XXS_HALVES[1], index, high);
    const __m512i signs = index_signs(bits_from([](int i) { return i % 8 / 2 * 7; }, words));
    return _mm512_mullo_epi32(dot_fours<IQ3_XXS_LEVELS>(first, second, signs, x),
                              odd_lanes(bits_from([](int) { return 27; }, words)));
  }
#endif
};

// Ninth index bits at 66 (bit j of byte i: entry 8 i + j), 32 bytes of signs at 74, eight 4-bit scales at
// 106. x = d * (2 s + 1) * +-magnitude.
struct IQ3_S : SignedCodebook<110, 1> {
  static constexpr int ID = 21, GROUP = 32;

  template <int PART>
  STOKER_INLINE B64 codes(const uint8_t* b) {
    const uint8_t* q = b + 2 + 16 * PART;
    const uint32_t ninth = load<uint16_t>(b + 66 + 2 * PART) << 8;
    const auto entry = [q, ninth](int i) -> uint64_t { return IQ3_S_GRID[q[i] | (ninth >> i & 256)]; };
    return eight_words([entry](int i) { return entry(2 * i) | entry(2 * i + 1) << 32; });
  }
  template <int PART>
  STOKER_INLINE uint64_t signs(const uint8_t* b) {
    return load<uint64_t>(b + 74 + 8 * PART);
  }
  STOKER_INLINE S16 scales(const uint8_t* b) {
    uint64_t s = load<uint32_t>(b + 106);
    s = (s | s << 16) & 0x0000ffff0000ffffu;
    s = (s | s << 8) & 0x00ff00ff00ff00ffu;
    return odd_scales_of_32((s | s << 4) & 0x0f0f0f0f0f0f0f0fu);
  }

#ifdef __AVX512VBMI__
  STOKER_INLINE Acc own_sum(const uint8_t* b, const int8_t* x) {
    const __m512i index = _mm512_loadu_si512(b + 2);
    const __mmask64 high[] = {_mm512_movepi8_mask(index), load<uint64_t>(b + 66)};
    const __m512i first = look_up<9>(IQ3_S_HALVES[0], index, high),
                  second = look_up<9>(IQ3_S_HALVES[1], index, high);
    const __m512i scales = _mm512_set1_epi32(load<int32_t>(b + 106));
    return _mm512_mullo_epi32(dot_fours<IQ3_S_LEVELS>(first, second, byte_signs(b + 74), x),
                              odd_lanes(bits_from([](int i) { return i / 8 * 4 - 1; }, scales)));
  }
#endif
};

}  // namespace STOKER_ISA
