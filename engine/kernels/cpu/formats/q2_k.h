// Q2_K: 256 values in 84 bytes: sixteen bytes at 0 (low nibble: scale, high nibble: minimum), codes at 16,
// d at 80, dmin at 82 (binary16). In each half of 128 values, the four runs of 32 are bits 0-1, 2-3, 4-5,
// 6-7 of 32 bytes. x = d * sc * q - dmin * mn. TQ2_0: 256 values in 66 bytes: the same codes at 0, d at
// 64. x = d * (q - 1).
#pragma once

namespace STOKER_ISA {

template <int PART, class P>
STOKER_INLINE auto two_bits(P p) {
  constexpr int low = PART % 2 * 4;
  return masked(shifted<-low, -low - 2>(twice32(p + 32 * (PART / 2))), 3);
}

struct Q2_K : Block256<84, 80, 82> {
  static constexpr int ID = 10, LIMIT = 3;

  template <int PART, class P>
  STOKER_INLINE auto codes(P b) {
    return two_bits<PART>(b + 16);
  }
  STOKER_INLINE S16 scales(const uint8_t* b) { return scales_of_16(load<B16>(b) & 0x0f); }
  STOKER_INLINE S16 mins(const uint8_t* b) { return scales_of_16(load<B16>(b) >> 4); }
};

struct TQ2_0 : Block256<66, 64> {
  static constexpr int ID = 35, LIMIT = 2, OFFSET = 1;

  template <int PART, class P>
  STOKER_INLINE auto codes(P b) {
    return two_bits<PART>(b);
  }
  STOKER_INLINE S16 scales(const uint8_t*) { return scales_of_16(B16{} + 1); }
};

}  // namespace STOKER_ISA
