// Q4_0: 32 values in 18 bytes: d (binary16) at 0, 16 bytes at 2 whose low nibbles are codes 0..15 and
// high nibbles codes 16..31. x = d * (q - 8).
#pragma once

namespace STOKER_ISA {

struct Q4_0 : Nibbles32<18, 0, 8, 2> {
  static constexpr int ID = 2, LIMIT = 15;
};

}  // namespace STOKER_ISA
