// Q4_1: 32 values in 20 bytes: d at 0, m at 2 (binary16), nibbles at 4 as in Q4_0. x = d * q + m.
#pragma once

namespace STOKER_ISA {

struct Q4_1 : Nibbles32<20, 0, 0, 4, 2> {
  static constexpr int ID = 3, LIMIT = 15;
};

}  // namespace STOKER_ISA
