// Q3_K: 256 values in 110 bytes: third bits at 0 (bit j of byte l belongs to value l of run j of 32), the
// low two bits at 32 as in Q2_K, sixteen packed 6-bit scales at 96, d (binary16) at 108. x = d * (sc - 32)
// * (q - 4).
#pragma once

#include "q2_k.h"

namespace STOKER_ISA {

struct Q3_K : Block256<110, 108> {
  static constexpr int ID = 11, LIMIT = 7, OFFSET = 4;

  template <int PART, class P>
  STOKER_INLINE auto codes(P b) {
    const auto high = masked(shifted<2 - 2 * PART, 1 - 2 * PART>(twice32(b)), 4);
    return either(two_bits<PART>(b + 32), high);
  }
  // Scales 0-7 have the low nibbles of 8 bytes, 8-15 the high ones; the upper two bits of scales j, j + 4,
  // j + 8 and j + 12 are bits 0-1, 2-3, 4-5, 6-7 of byte 8 + j.
  STOKER_INLINE S16 scales(const uint8_t* b) {
    const uint64_t low = load<uint64_t>(b + 96), high = load<uint32_t>(b + 104);
    const uint64_t pairs = high | high << 30;  // bits leak into others of the byte, and are masked off
    const B16 nibbles = bits<B16>(Q2{low, low >> 4}) & 0x0f;
    const B16 upper = bits<B16>(Q2{pairs << 4, pairs}) & 0x30;
    return scales_of_16((nibbles | upper) - 32);
  }
};

}  // namespace STOKER_ISA
