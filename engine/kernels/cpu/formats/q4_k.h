// Q4_K: 256 values in 144 bytes: d at 0, dmin at 2 (binary16), packed 6-bit scales and minima at 4, codes
// at 16. Sub-block 2k (32 values) is the low nibbles of bytes 32k..32k+31, 2k + 1 the high nibbles.
// x = d * sc * q - dmin * mn.
#pragma once

#include "k_scales.h"

namespace STOKER_ISA {

struct Q4_K : Block256<144, 0, 2> {
  static constexpr int ID = 12, LIMIT = 15, GROUP = 32, MIN_GROUP = 32;

  template <int PART, class P>
  STOKER_INLINE auto codes(P b) {
    return masked(shifted<0, -4>(twice32(b + 16 + 32 * PART)), 0x0f);
  }
  STOKER_INLINE B16 scales_and_mins(const uint8_t* b) { return k_scales_and_mins(b); }
  template <class P>
  STOKER_INLINE auto scales(P b) { return scales_of_32(k_scales(b + 4)); }
  template <class P>
  STOKER_INLINE auto mins(P b) { return scales_of_32(k_mins(b + 4)); }
};

}  // namespace STOKER_ISA
