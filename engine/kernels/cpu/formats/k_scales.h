// The 12 bytes of Q4_K and Q5_K that hold eight 6-bit scales and eight 6-bit minima.
//
// Bytes 0-3: scales 0-3 in the low six bits; bytes 4-7: minima 0-3. Bytes 8-11: low nibbles are the low
// four bits of scales 4-7, high nibbles those of minima 4-7; their top two bits are the top two bits of
// bytes 0-3 and 4-7. Unpacked four at a time in 32-bit words: no vector work, no table.
#pragma once

namespace STOKER_ISA {

// On uint32_t, or on vectors of such words.
template <class T>
STOKER_INLINE T k_low(T top) {
  return top & 0x3f3f3f3f;
}
template <class T>
STOKER_INLINE T k_high(T top, T nibbles) {
  return (nibbles & 0x0f0f0f0f) | ((top >> 2) & 0x30303030);
}

STOKER_INLINE uint64_t k_scales(const uint8_t* s) {
  const uint32_t a = load<uint32_t>(s), c = load<uint32_t>(s + 8);
  return k_low(a) | static_cast<uint64_t>(k_high(a, c)) << 32;
}

STOKER_INLINE uint64_t k_mins(const uint8_t* s) {
  const uint32_t b = load<uint32_t>(s + 4), c = load<uint32_t>(s + 8);
  return k_low(b) | static_cast<uint64_t>(k_high(b, c >> 4)) << 32;
}

// The 12 bytes lie at 4, behind d and dmin.
template <int BYTES>
struct BlockK : Block256<BYTES, 0, 2> {
  static constexpr int GROUP = 32, MIN_GROUP = 32;

  STOKER_INLINE B16 scales_and_mins(const uint8_t* b) {
    const U4 v = load<U4>(b);
    const U4 x = __builtin_shufflevector(v, v, 1, 3, 2, 3) >> U4{0, 0, 0, 4};
    const U4 top = __builtin_shufflevector(v, v, 1, 1, 2, 2) >> 2;
    const U4 low = {0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f}, high = {0, 0x30303030, 0, 0x30303030};
    return bits<B16>((x & low) | (top & high));
  }
  template <class P>
  STOKER_INLINE auto scales(P b) { return scales_of_32(k_scales(b + 4)); }
  template <class P>
  STOKER_INLINE auto mins(P b) { return scales_of_32(k_mins(b + 4)); }
};

}  // namespace STOKER_ISA
