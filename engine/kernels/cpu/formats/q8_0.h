// Q8_0: 32 values in 34 bytes: d (binary16) at 0, 32 signed codes at 2. x = d * q.
#pragma once

namespace STOKER_ISA {

struct Q8_0 {
  static constexpr int ID = 8, BLOCK = 32, BYTES = 34, D_AT = 0;
  static constexpr bool WIDE = true;  // codes are signed bytes
  static constexpr int OFFSET = 0;

  STOKER_INLINE B64 pair(const uint8_t* b, const uint8_t* c) { return pair32(b + 2, c + 2); }
};

}  // namespace STOKER_ISA
