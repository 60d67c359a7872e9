// IQ1_S and IQ1_M: 256 values in 50 and 56 bytes. Eight values are an entry of a grid of -1, 0, 1 and a
// common shift of +-1/8. x = d / 8 * (2 s + 1) * (8 * value +- 1): the grid holds 8 * value + 8, a
// positive shift adds 2, and 9 is the fixed offset.
#pragma once

#include "codebook.h"

namespace STOKER_ISA {

// An entry, moved up when `down` is 0 and not when it is 1.
STOKER_INLINE uint64_t ternary(uint32_t index, uint32_t down) {
  return IQ1_S_GRID[index] + ((static_cast<uint64_t>(down) - 1) & 0x0202020202020202u);
}

// d (binary16) at 0, 32 bytes of low index bits at 2, eight words at 34, one for 32 values: four times
// three high index bits, a 3-bit scale, and the sign of the shift on top.
struct IQ1_S : Codebook<50, 8> {
  static constexpr int ID = 19, GROUP = 32, OFFSET = 9;

  template <int PART>
  STOKER_INLINE B64 codes(const uint8_t* b) {
    const uint8_t *q = b + 2 + 8 * PART, *high = b + 34 + 4 * PART;
    return eight_words([q, high](int i) {
      const uint32_t h = load<uint16_t>(high + 2 * (i / 4));
      return ternary(q[i] | (h >> (3 * (i % 4)) & 7) << 8, h >> 15);
    });
  }
  STOKER_INLINE S16 scales(const uint8_t* b) {
    return odd_scales_of_32(to_bytes(load<Words8>(b + 34) >> 12 & 7));
  }
};

// 32 bytes of low index bits at 0; 16 bytes at 32 with a nibble for eight values: three high index bits
// and the sign of the shift; four words at 48 with four 3-bit scales each, for 16 values, and on top a
// quarter of d (binary16), lowest first.
struct IQ1_M : Codebook<56, 8> {
  static constexpr int ID = 29, OFFSET = 9;

  STOKER_INLINE uint16_t d_bits(const uint8_t* b) {
    const uint64_t s = load<uint64_t>(b + 48) & 0xf000f000f000f000u;
    return static_cast<uint16_t>(s >> 12 | s >> 24 | s >> 36 | s >> 48);
  }
  STOKER_INLINE F8 d8(const uint8_t* w) {
    uint16_t h[8];
    for (int i = 0; i < 8; ++i) h[i] = d_bits(w + i * BYTES);
    return halves8<2>(reinterpret_cast<const uint8_t*>(h)) * 0.125f;
  }
  STOKER_INLINE float d(const uint8_t* b, int) { return half_to_float(d_bits(b)) * 0.125f; }

  template <int PART>
  STOKER_INLINE B64 codes(const uint8_t* b) {
    const uint8_t *q = b + 8 * PART, *high = b + 32 + 4 * PART;
    return eight_words([q, high](int i) {
      const uint32_t h = high[i / 2] >> (4 * (i % 2)) & 15;
      return ternary(q[i] | (h & 7) << 8, h >> 3);
    });
  }
  STOKER_INLINE S16 scales(const uint8_t* b) {
    Words16 s;
    for (int i = 0; i < 16; ++i)
      s[i] = static_cast<uint16_t>((load<uint16_t>(b + 48 + 2 * (i / 4)) >> (3 * (i % 4)) & 7) * 2 + 1);
    return bits<S16>(s);
  }
};

}  // namespace STOKER_ISA
