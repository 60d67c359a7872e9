// Q4_0: 32 values in 18 bytes: d (binary16) at 0, 16 bytes at 2 whose low nibbles are codes 0..15 and
// high nibbles codes 16..31. x = d * (q - 8).
#pragma once

namespace STOKER_ISA {

struct Q4_0 : Block32<18, 0> {
  static constexpr int ID = 2, OFFSET = 8;

  STOKER_INLINE B64 pair(const uint8_t* b, const uint8_t* c) { return nibble_pair(b + 2, c + 2); }
};

}  // namespace STOKER_ISA
