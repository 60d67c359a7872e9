// IQ4_NL: 32 values in 18 bytes as Q4_0; a code picks one of 16 values. x = d * T[q]. IQ4_XS: 256 values
// in 136 bytes: d (binary16) at 0, the upper bits of eight 6-bit scales at 2 (two bytes), their low
// nibbles at 4 (four bytes), eight times 16 bytes of nibbles at 8. x = d * (sc - 32) * T[q].
#pragma once

namespace STOKER_ISA {

constexpr int8_t biased_code(int code) { return static_cast<int8_t>(code + WIDE_BIAS); }

alignas(16) constexpr int8_t IQ4_VALUES[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                               1,    13,   25,  38,  53,  69,  89,  113};
alignas(16) constexpr int8_t IQ4_BIASED[16] = {
    biased_code(-127), biased_code(-104), biased_code(-83), biased_code(-65),
    biased_code(-49),  biased_code(-35),  biased_code(-22), biased_code(-10),
    biased_code(1),    biased_code(13),   biased_code(25),  biased_code(38),
    biased_code(53),   biased_code(69),   biased_code(89),  biased_code(113)};

struct IQ4_NL : Nibbles32<18, 0, 0, 2> {
  static constexpr int ID = 20;
  static constexpr bool WIDE = true;

  template <class P>
  STOKER_INLINE auto pair(P b, P c) {
    return looked_up(Nibbles32::pair(b, c), IQ4_VALUES);
  }
  STOKER_INLINE void arrange(const int8_t* x, const int16_t* sums16, int8_t* out) {
    arrange_nibbles(WIDE_BIAS, x, sums16, out, X_STEP);
  }
  template <bool HIGH>
  STOKER_INLINE B64 quad(B64 x, const uint8_t*) {
    return looked_up<HIGH>(x, IQ4_BIASED);
  }
};

struct IQ4_XS : Block256<136, 0> {
  static constexpr int ID = 23, GROUP = 32, X_BYTES = 2 * 192;
  static constexpr bool WIDE = true;

  template <int PART, class P>
  STOKER_INLINE auto codes(P b) {
    return looked_up(nibble_pair(b + 8 + 32 * PART, b + 24 + 32 * PART), IQ4_VALUES);
  }
  STOKER_INLINE S16 scales(const uint8_t* b) {
    typedef int8_t Signed8 __attribute__((vector_size(8)));
    return scales_of_32(bits<uint64_t>(__builtin_convertvector(scales8(b), Signed8)));
  }

  // 64 bytes hold four sub-blocks: as four blocks of IQ4_NL.
  STOKER_INLINE void arrange(const int8_t* x, const int16_t* sums16, int8_t* out) {
    for (int i = 0; i < 8; ++i)
      arrange_nibbles(WIDE_BIAS, x + 32 * i, sums16 + 2 * i, out + i / 4 * 192 + i % 4 * 16, 64);
  }
  STOKER_INLINE Acc own_sum(const uint8_t* b, const int8_t* x) {
    const I8 scales = scales8(b);
    const B64 p = load64(b + 8), q = load64(b + 72);
    const Acc s = dot_quad_scaled<0>(no_sum(), looked_up<false>(p, IQ4_BIASED),
                                     looked_up<true>(p, IQ4_BIASED), x, scales);
    return dot_quad_scaled<1>(s, looked_up<false>(q, IQ4_BIASED), looked_up<true>(q, IQ4_BIASED), x + 192,
                              scales);
  }
  // The words at 0 and at 4, in each lane shifted by as much as brings its bits down.
  STOKER_INLINE I8 scales8(const uint8_t* b) {
    const I8 low = (load<int32_t>(b + 4) - I8{}) >> I8{0, 4, 8, 12, 16, 20, 24, 28};
    const I8 high = (load<int32_t>(b) - I8{}) >> I8{12, 14, 16, 18, 20, 22, 24, 26};
    return ((low & 15) | (high & 48)) - 32;
  }
};

}  // namespace STOKER_ISA
