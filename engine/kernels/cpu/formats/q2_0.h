// Q2_0: 64 values in 18 bytes: d (binary16) at 0, 2-bit codes at 2, four consecutive ones to a byte.
// x = d * (q - 1).
#pragma once

namespace STOKER_ISA {

struct Q2_0 : Block32<18, 0> {
  static constexpr int ID = 42, STORED = 64, LIMIT = 3, OFFSET = 1;

  STOKER_INLINE B64 pair(const uint8_t* b, const uint8_t*) { return pairs_of_bits(b + 2); }
  STOKER_INLINE F8 d8(const uint8_t* w) {
    const auto twice_two = [](const uint8_t* p) {
      return (load<uint16_t>(p) | static_cast<uint64_t>(load<uint16_t>(p + BYTES)) << 32) * 0x10001;
    };
    return to_floats(bits<H8>(Q2{twice_two(w), twice_two(w + 2 * BYTES)}));
  }
};

}  // namespace STOKER_ISA
