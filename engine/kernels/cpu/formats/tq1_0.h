// TQ1_0: 256 values in 54 bytes: five ternary digits to a byte. Digit t of byte b is the third of 0..255 that
// b * 3^t mod 256 lies in. Values 0..159 are digits 0..4 of bytes 0..31, 160..239 those of bytes 32..47,
// 240..255 digits 0..3 of bytes 48..51; d (binary16) at 52. x = d * (digit - 1).
#pragma once

namespace STOKER_ISA {

struct TQ1_0 : Block256<54, 52> {
  static constexpr int ID = 34, LIMIT = 2, OFFSET = 1;

  template <int PART>
  STOKER_INLINE B64 codes(const uint8_t* b) {
    if constexpr (PART < 2) return thirds(times(twice32(b), FACTORS[PART]));
    const B16 middle = load<B16>(b + 32);
    if constexpr (PART == 2)
      return thirds(times(quarters(load<B16>(b), load<B16>(b + 16), middle, middle), FACTORS[2]));
    const uint64_t last = load<uint32_t>(b + 48) * uint64_t{0x100000001};
    return thirds(times(quarters(middle, middle, middle, bits<B16>(Q2{last, last})), FACTORS[3]));
  }
  STOKER_INLINE S16 scales(const uint8_t*) { return scales_of_16(B16{} + 1); }

 private:
  struct Factors {
    alignas(64) uint8_t of[4][64];
    constexpr const uint8_t* operator[](int part) const { return of[part]; }
  };
  static constexpr Factors factors() {
    constexpr uint8_t power[5] = {1, 3, 9, 27, 81};
    Factors f = {};
    for (int i = 0; i < 256; ++i)
      f.of[i / 64][i % 64] = power[i < 160 ? i / 32 : i < 240 ? (i - 160) / 16 : (i - 240) / 4];
    return f;
  }
  static const Factors FACTORS;
};
constexpr TQ1_0::Factors TQ1_0::FACTORS = TQ1_0::factors();

}  // namespace STOKER_ISA
