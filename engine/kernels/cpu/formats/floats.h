// F32, F16 and BF16: plain values, no blocks. BF16 is the upper half of a float32.
#pragma once

namespace STOKER_ISA {

struct F32 {
  static constexpr int ID = 0, BYTES = 4;
  STOKER_INLINE F weights(const uint8_t* p) { return load<F>(p); }
  STOKER_INLINE float weight(const uint8_t* p) { return load<float>(p); }
};

struct F16 {
  static constexpr int ID = 1, BYTES = 2;
  STOKER_INLINE F weights(const uint8_t* p) { return load_halves(reinterpret_cast<const uint16_t*>(p)); }
  STOKER_INLINE float weight(const uint8_t* p) { return half_to_float(load<uint16_t>(p)); }
};

struct BF16 {
  static constexpr int ID = 30, BYTES = 2;
  STOKER_INLINE F weights(const uint8_t* p) {
    return bits<F>(__builtin_convertvector(load<U16>(p), I) << 16);
  }
  STOKER_INLINE float weight(const uint8_t* p) {
    return bits<float>(static_cast<uint32_t>(load<uint16_t>(p)) << 16);
  }
};

}  // namespace STOKER_ISA
