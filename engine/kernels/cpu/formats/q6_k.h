// Q6_K: 256 values in 210 bytes: low nibbles at 0 (128 bytes), high bit pairs at 128 (64 bytes), sixteen
// signed scales at 192, d (binary16) at 208. In each half of 128 values, values 0..63 are the low nibbles
// of 64 bytes and 64..127 their high nibbles; the pairs of 32 values are bits 0-1, 2-3, 4-5, 6-7 of 32
// bytes. x = d * sc * (q - 32).
#pragma once

namespace STOKER_ISA {

struct Q6_K : Block256<210, 208> {
  static constexpr int ID = 14, LIMIT = 63, OFFSET = 32;

  template <int PART, class P>
  STOKER_INLINE auto codes(P b) {
    constexpr int half = PART / 2;
    const auto nibbles = load64(b + 64 * half), pairs = twice32(b + 128 + 32 * half);
    if constexpr (PART % 2 == 0)
      return either(masked(nibbles, 0x0f), masked(shifted<4, 2>(pairs), 0x30));
    else
      return either(masked(shifted<-4, -4>(nibbles), 0x0f), masked(shifted<0, -2>(pairs), 0x30));
  }
  template <class P>
  STOKER_INLINE auto scales(P b) { return scales_of_16(b + 192); }
};

}  // namespace STOKER_ISA
