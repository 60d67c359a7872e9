// Q5_K: 256 values in 176 bytes: as Q4_K, with 32 bytes at 16 that hold the fifth bits (bit j of byte l
// belongs to value l of sub-block j) and the low nibbles at 48.
#pragma once

#include "k_scales.h"

namespace STOKER_ISA {

struct Q5_K : Block256<176, 0, 2> {
  static constexpr int ID = 13, LIMIT = 31, GROUP = 32, MIN_GROUP = 32;

  template <int PART, class P>
  STOKER_INLINE auto codes(P b) {
    const auto low = masked(shifted<0, -4>(twice32(b + 48 + 32 * PART)), 0x0f);
    const auto high = masked(shifted<4 - 2 * PART, 3 - 2 * PART>(twice32(b + 16)), 0x10);
    return either(low, high);
  }
  STOKER_INLINE B16 scales_and_mins(const uint8_t* b) { return k_scales_and_mins(b); }
  template <class P>
  STOKER_INLINE auto scales(P b) { return scales_of_32(k_scales(b + 4)); }
  template <class P>
  STOKER_INLINE auto mins(P b) { return scales_of_32(k_mins(b + 4)); }
};

}  // namespace STOKER_ISA
