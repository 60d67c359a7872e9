// Q4_K: 256 values in 144 bytes: d at 0, dmin at 2 (binary16), packed 6-bit scales and minima at 4, codes
// at 16. Sub-block 2k (32 values) is the low nibbles of bytes 32k..32k+31, 2k + 1 the high nibbles.
// x = d * sc * q - dmin * mn.
#pragma once

#include "k_scales.h"

namespace STOKER_ISA {

struct Q4_K : BlockK<144> {
  static constexpr int ID = 12, LIMIT = 15;

  template <int PART, class P>
  STOKER_INLINE auto codes(P b) {
    return masked(shifted<0, -4>(twice32(b + 16 + 32 * PART)), 0x0f);
  }
};

}  // namespace STOKER_ISA
