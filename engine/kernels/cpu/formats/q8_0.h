// Q8_0: 32 values in 34 bytes: d (binary16) at 0, 32 signed codes at 2. x = d * q.
#pragma once

namespace STOKER_ISA {

struct Q8_0 : Block32<34, 0> {
  static constexpr int ID = 8;
  static constexpr bool WIDE = true;

  template <class P>
  STOKER_INLINE auto pair(P b, P c) { return pair32(b + 2, c + 2); }
};

}  // namespace STOKER_ISA
