// Codebooks looked up inside registers: AVX-512 with VBMI and GFNI (Ice Lake, Zen 4 and later).
//
// Loading the entries one by one costs some 100 instructions for 256 codes. Here vpermi2b looks up 64
// indices in 128 bytes at once, so four of it and three blends find a byte of 64 entries out of 512. A
// byte holds the levels of several codes; with sign bits put beside them it is the index of a vpermb whose
// table says 64 +- magnitude, so signs cost no arithmetic. Seven-bit sign indices become sign bits by one
// product with a matrix of bits (vgf2p8affineqb).
//
// The codes come out rearranged: lane g of register c holds codes 16 g + c, + 4, + 8, + 12. A lane belongs
// to one sub-scale, so one multiplication scales a whole block. rearrange() brings a row of activations
// into the same order, once for all rows of weights.
#pragma once

namespace STOKER_ISA {

// A constant register: byte(i) in byte i.
template <class Byte>
STOKER_INLINE __m512i byte_table(Byte) {
  struct alignas(64) Table {
    uint8_t v[64];
  };
  static constexpr Table table = [] {
    Table t{};
    for (int i = 0; i < 64; ++i) t.v[i] = static_cast<uint8_t>(Byte()(i));
    return t;
  }();
  return _mm512_load_si512(table.v);
}

// A rearranged block: 256 codes of activations, then -64 times their sums per lane (int32).
constexpr int REARRANGED_BYTES = 320;

STOKER_INLINE void rearrange(const int8_t* x, const int16_t* sums16, int8_t* out) {
  const __m512i order = byte_table([](int i) { return i / 4 % 4 * 16 + i % 4 * 4 + i / 16; });
  STOKER_UNROLL
  for (int part = 0; part < 4; ++part) {
    const __m512i v = _mm512_permutexvar_epi8(order, _mm512_loadu_si512(x + 64 * part));
    int8_t* p = out + 16 * part;
    _mm_store_si128(reinterpret_cast<__m128i*>(p), _mm512_castsi512_si128(v));
    _mm_store_si128(reinterpret_cast<__m128i*>(p + 64), _mm512_extracti32x4_epi32(v, 1));
    _mm_store_si128(reinterpret_cast<__m128i*>(p + 128), _mm512_extracti32x4_epi32(v, 2));
    _mm_store_si128(reinterpret_cast<__m128i*>(p + 192), _mm512_extracti32x4_epi32(v, 3));
  }
  const __m512i sums = _mm512_slli_epi32(_mm512_cvtepi16_epi32(load256(sums16)), 6);
  _mm512_store_si512(out + 256, _mm512_sub_epi32(_mm512_setzero_si512(), sums));
}

STOKER_INLINE __m512i all_bytes(int v) { return _mm512_set1_epi8(static_cast<char>(v)); }
STOKER_INLINE __m512i all_words(uint64_t p) { return _mm512_set1_epi64(static_cast<long long>(p)); }

// Bits of a where the mask has ones, of b elsewhere.
STOKER_INLINE __m512i choose(__m512i mask, __m512i a, __m512i b) {
  return _mm512_ternarylogic_epi64(mask, a, b, 0xca);
}

// The low bytes of the words of a and b side by side, and the high bytes. Undone by the same two.
STOKER_INLINE __m512i low_bytes(__m512i a, __m512i b) {
  return choose(_mm512_set1_epi16(0xff), a, _mm512_slli_epi16(b, 8));
}
STOKER_INLINE __m512i high_bytes(__m512i a, __m512i b) {
  return choose(_mm512_set1_epi16(0xff), _mm512_srli_epi16(a, 8), b);
}

// table[index] for 64 indices of BITS bits: the low seven in the bytes of index, high[0], high[1].. above.
template <int BITS>
STOKER_INLINE __m512i look_up(const uint8_t* table, __m512i index, const __mmask64* high) {
  if constexpr (BITS == 7) {
    return _mm512_permutex2var_epi8(_mm512_load_si512(table), index, _mm512_load_si512(table + 64));
  } else {
    const __m512i low = look_up<BITS - 1>(table, index, high);
    return _mm512_mask_blend_epi8(high[BITS - 8], low,
                                  look_up<BITS - 1>(table + (1 << (BITS - 1)), index, high));
  }
}

// Levels of the entries of two blocks, whose index bytes alternate: the words of each block in a register.
struct Two {
  __m512i first, second;
};
template <int BITS>
STOKER_INLINE Two entries_of_two(const uint8_t (&halves)[2][1 << BITS], __m512i index, const __mmask64* high) {
  const __m512i a = look_up<BITS>(halves[0], index, high), b = look_up<BITS>(halves[1], index, high);
  return {low_bytes(a, b), high_bytes(a, b)};
}

// Byte i: the eight bits from bit offset(i) of its 64-bit word, cyclically.
template <class Offset>
STOKER_INLINE __m512i bits_from(Offset offset, __m512i words) {
  return _mm512_multishift_epi64_epi8(byte_table(offset), words);
}

// 2 s + 1 in each lane, from lanes whose lowest byte has the four bits of s from bit 1.
STOKER_INLINE __m512i odd_lanes(__m512i v) {
  return _mm512_ternarylogic_epi64(v, _mm512_set1_epi32(0x1e), _mm512_set1_epi32(1), 0xea);
}

// The same from sixteen nibbles.
STOKER_INLINE __m512i odd_lanes_of_16(const uint8_t* p) {
  return odd_lanes(bits_from([](int i) { return i / 4 * 4 - 1; }, all_words(load<uint64_t>(p))));
}

// Sign bits. The signs of four codes lie in a byte as both kinds of levels want them: those of codes 0 to
// 3 in bits 3, 0, 1, 2; and again those of code 1 in bit 7, of code 3 in bit 5. A map gives a byte's four
// signs as parities of chosen bits of the source byte.
constexpr uint64_t sign_map(int s0, int s1, int s2, int s3) {
  const int rows[8] = {s1, s2, s3, s0, 0, s3, 0, s1};
  uint64_t m = 0;
  for (int i = 0; i < 8; ++i) m |= static_cast<uint64_t>(rows[i]) << (8 * (7 - i));
  return m;
}
constexpr uint64_t FIRST_FOUR = sign_map(1, 2, 4, 8);
constexpr uint64_t LAST_FOUR = sign_map(16, 32, 64, 0x7f);  // of a seven-bit index; the eighth is the parity

STOKER_INLINE __m512i plain_signs(__m512i nibbles) {
  return _mm512_gf2p8affine_epi64_epi8(nibbles, all_words(FIRST_FOUR), 0);
}
// From seven-bit indices, each in two neighbouring bytes.
STOKER_INLINE __m512i index_signs(__m512i index) {
  const __mmask64 odd = 0xaaaaaaaaaaaaaaaau;
  return _mm512_mask_gf2p8affine_epi64_epi8(plain_signs(index), odd, index, all_words(LAST_FOUR), 0);
}
// From 32 bytes of signs: the byte's nibbles in turn.
STOKER_INLINE __m512i byte_signs(const uint8_t* p) {
  return plain_signs(bits_from([](int i) { return i % 8 * 4; }, _mm512_cvtepu32_epi64(load256(p))));
}

// 64 +- magnitude, by the level in the bits from LEVEL of an index and the sign in bit SIGN.
struct alignas(64) SignedLevels {
  uint8_t v[64];
};
template <int LEVEL, int SIGN, size_t N>
constexpr SignedLevels signed_levels(const uint8_t (&magnitudes)[N]) {
  SignedLevels t{};
  for (int i = 0; i < 64; ++i) {
    const size_t level = static_cast<size_t>(i >> LEVEL) % (N > 4 ? 8 : 4);
    const int m = level < N ? magnitudes[level] : 0;
    t.v[i] = static_cast<uint8_t>(64 + ((i >> SIGN & 1) != 0 ? -m : m));
  }
  return t;
}

STOKER_INLINE __m512i add_codes(__m512i sum, const SignedLevels& levels, __m512i index, const int8_t* x) {
  const __m512i codes = _mm512_permutexvar_epi8(index, _mm512_load_si512(levels.v));
  return _mm512_dpbusd_epi32(sum, codes, _mm512_load_si512(x));
}

// Sums per lane of a block whose bytes hold four levels of 2 bits.
template <const auto& LEVELS>
STOKER_INLINE __m512i dot_twos(__m512i levels, __m512i signs, const int8_t* x) {
  static constexpr SignedLevels t0 = signed_levels<0, 3>(LEVELS), t1 = signed_levels<2, 0>(LEVELS),
                                t2 = signed_levels<4, 1>(LEVELS), t3 = signed_levels<4, 2>(LEVELS);
  __m512i p = _mm512_load_si512(x + 256);
  p = add_codes(p, t0, choose(all_bytes(0x03), levels, signs), x);
  p = add_codes(p, t1, choose(all_bytes(0x0c), levels, signs), x + 64);
  p = add_codes(p, t2, choose(all_bytes(0x30), levels, signs), x + 128);
  return add_codes(p, t3, choose(all_bytes(0x30), _mm512_srli_epi16(levels, 2), signs), x + 192);
}

// The same, where the bytes of two registers hold two levels of 4 bits each.
template <const auto& LEVELS>
STOKER_INLINE __m512i dot_fours(__m512i first, __m512i second, __m512i signs, const int8_t* x) {
  static constexpr SignedLevels t = signed_levels<0, 3>(LEVELS);
  const __m512i a = choose(all_bytes(0x77), first, signs),
                b = choose(all_bytes(0x77), second, _mm512_slli_epi16(signs, 2));
  __m512i p = _mm512_load_si512(x + 256);
  p = add_codes(p, t, a, x);
  p = add_codes(p, t, _mm512_srli_epi16(a, 4), x + 64);
  p = add_codes(p, t, b, x + 128);
  return add_codes(p, t, _mm512_srli_epi16(b, 4), x + 192);
}

}  // namespace STOKER_ISA
