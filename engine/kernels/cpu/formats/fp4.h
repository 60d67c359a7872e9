// Four-bit floats (E2M1), as codes of twice their value. MXFP4: 32 values in 17 bytes: an exponent e at 0,
// 16 bytes of nibbles at 1 as in Q4_0. x = 2^(e - 128) * K[q]. NVFP4: 64 values in 36 bytes: four E4M3
// scales (sign bit ignored, 0x7f means 0) at 0, each for 16 values; these are low and high nibbles of 8
// bytes, from 4 on. x = scale / 2 * K[q]. The table holds K + 12, so that codes are not negative.
#pragma once

namespace STOKER_ISA {

alignas(16) constexpr int8_t FP4_VALUES[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

struct MXFP4 : Nibbles32<17, 0, 12, 1> {
  static constexpr int ID = 39, LIMIT = 24;

  template <class P>
  STOKER_INLINE auto pair(P b, P c) {
    return looked_up(Nibbles32::pair(b, c), FP4_VALUES);
  }
  template <bool HIGH>
  STOKER_INLINE B64 quad(B64 x, const uint8_t*) {
    return looked_up<HIGH>(x, FP4_VALUES);
  }
  // 2^(e - 128): from e = 2 on the exponent field is e - 1 (the greater of the two); below it is zero.
  STOKER_INLINE F8 d8(const uint8_t* w) {
    const I8 e = bytes8<BYTES>(w), normal = (e - 1) << 23, small = (e + 1) << 21;
    return bits<F8>(normal > small ? normal : small);
  }
  template <class P>
  STOKER_INLINE auto d(P b, int) {
    const auto e = byte_at(b), normal = (e - 1) << 23, small = (e + 1) << 21;
    return as_float(normal > small ? normal : small);
  }
};

struct NVFP4 : Block32<36, 0> {
  static constexpr int ID = 40, STORED = 64, LIMIT = 24, OFFSET = 12;
  static constexpr bool HALVES = true;

  template <class P>
  STOKER_INLINE auto pair(P b, P) {
    return looked_up(nibbles_by_8(b + 4), FP4_VALUES);
  }
  STOKER_INLINE F8 d8(const uint8_t* w) { return scales(scale_words(w) & 0xff); }
  STOKER_INLINE F8 e8(const uint8_t* w) { return scales(scale_words(w) >> 8 & 0xff); }
  template <class P>
  STOKER_INLINE auto d(P b, int i) {
    return scale(byte_at(b + 2 * i));
  }
  template <class P>
  STOKER_INLINE auto e(P b, int i) {
    return scale(byte_at(b + (2 * i + 1)));
  }

  // A word for each term block: the scale of its first half, above it that of its last half.
  STOKER_INLINE H8 scale_words(const uint8_t* w) {
    const auto two = [](const uint8_t* p) {
      return load<uint32_t>(p) | static_cast<uint64_t>(load<uint32_t>(p + BYTES)) << 32;
    };
    return bits<H8>(Q2{two(w), two(w + 2 * BYTES)});
  }
  // As float32 the bits of E4M3, moved up, mean the value divided by 2^120, subnormals too;
  // half of it is wanted.
  template <class T>
  STOKER_INLINE auto scale(T s) {
    return as_float(s == 0x7f ? s - s : (s & 0x7f) << 20) * 0x1p119f;
  }
  // As binary16 the bits of E4M3 mean the value divided by 2^8, subnormals too; half of it is wanted.
  STOKER_INLINE F8 scales(H8 s) { return to_floats(s == 0x7f ? H8{} : (s & 0x7f) << 7) * 128.0f; }
};

}  // namespace STOKER_ISA
