// Q5_K: 256 values in 176 bytes: as Q4_K, with 32 bytes at 16 that hold the fifth bits (bit j of byte l
// belongs to value l of sub-block j) and the low nibbles at 48.
#pragma once

#include "k_scales.h"

namespace STOKER_ISA {

struct Q5_K : BlockK<176> {
  static constexpr int ID = 13, LIMIT = 31;

  template <int PART, class P>
  STOKER_INLINE auto codes(P b) {
    const auto low = masked(shifted<0, -4>(twice32(b + 48 + 32 * PART)), 0x0f);
    const auto high = masked(shifted<4 - 2 * PART, 3 - 2 * PART>(twice32(b + 16)), 0x10);
    return either(low, high);
  }
};

}  // namespace STOKER_ISA
