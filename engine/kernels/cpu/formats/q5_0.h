// Q5_0: 32 values in 22 bytes: d (binary16) at 0, 32 bits at 2 that are the fifth bits of codes 0..31,
// nibbles at 6 as in Q4_0. x = d * (q - 16). Q5_1: 32 values in 24 bytes: d at 0, m at 2, fifth bits at 4,
// nibbles at 8. x = d * q + m.
#pragma once

namespace STOKER_ISA {

template <int BYTES, int OFFSET, int BITS_AT, int DMIN_AT = -1>
struct FiveBits : Nibbles32<BYTES, 0, OFFSET, BITS_AT + 4, DMIN_AT> {
  using Low = Nibbles32<BYTES, 0, OFFSET, BITS_AT + 4, DMIN_AT>;

  STOKER_INLINE B64 pair(const uint8_t* b, const uint8_t* c) {
    const uint64_t more = load<uint32_t>(c + BITS_AT);
    return either(Low::pair(b, c), chosen(load<uint32_t>(b + BITS_AT) | more << 32, 16));
  }
  template <bool HIGH>
  STOKER_INLINE B64 quad(B64 x, const uint8_t* b) {
    const auto fifth = [b](int j) {
      return static_cast<uint64_t>(load<uint16_t>(b + j * BYTES + BITS_AT + 2 * HIGH)) << 16 * j;
    };
    return either(Low::template quad<HIGH>(x, b), chosen(fifth(0) | fifth(1) | fifth(2) | fifth(3), 16));
  }
};

struct Q5_0 : FiveBits<22, 16, 2> {
  static constexpr int ID = 6, LIMIT = 31;
};

struct Q5_1 : FiveBits<24, 0, 4, 2> {
  static constexpr int ID = 7, LIMIT = 31;
};

}  // namespace STOKER_ISA
