// Q4_1: 32 values in 20 bytes: d at 0, m at 2 (binary16), nibbles at 4 as in Q4_0. x = d * q + m.
#pragma once

namespace STOKER_ISA {

struct Q4_1 : Nibbles32<20, 0, 0, 4, 2> {
  static constexpr int ID = 3, LIMIT = 15;

  STOKER_INLINE F8 dmin8(const uint8_t* w) { return -Block32::dmin8(w); }
  template <class P>
  STOKER_INLINE auto dmin(P b, int i) {
    return -Block32::dmin(b, i);
  }
};

}  // namespace STOKER_ISA
