// What the codebook formats share: reading entries of grids.h, and the seven-bit sign indices.
//
// Magnitudes and signs stay apart: the dot products apply 64 signs as one mask to the activations.
// Vector types of fixed width keep this code the same for every instruction set.
#pragma once

#include "grids.h"

namespace STOKER_ISA {

typedef uint8_t Bytes8 __attribute__((vector_size(8)));
typedef uint16_t Words8 __attribute__((vector_size(16)));
typedef uint16_t Words16 __attribute__((vector_size(32)));
typedef uint32_t Quads8 __attribute__((vector_size(32)));

// d is a binary16 value at 0, divided by DIVISOR: the sub-scales or codes are multiplied up to integers.
template <int BYTES, int DIVISOR>
struct Codebook : Block256<BYTES, 0> {
  using Base = Block256<BYTES, 0>;
  STOKER_INLINE F8 d8(const uint8_t* w) { return Base::d8(w) * (1.0f / DIVISOR); }
  template <class P>
  STOKER_INLINE auto d(P b, int i) {
    return Base::d(b, i) * (1.0f / DIVISOR);
  }
};

template <int BYTES, int DIVISOR>
struct SignedCodebook : Codebook<BYTES, DIVISOR> {
  static constexpr bool SIGNED = true;
#ifdef __AVX512VBMI__
  static constexpr int X_BYTES = REARRANGED_BYTES;
  STOKER_INLINE void arrange(const int8_t* x, const int16_t* sums16, int8_t* out) { rearrange(x, sums16, out); }
#endif
};

STOKER_INLINE uint64_t to_bytes(Words8 v) { return bits<uint64_t>(__builtin_convertvector(v, Bytes8)); }

// 64 codes from eight words of eight; word(i) gives codes 8 * i .. 8 * i + 7.
template <class Word>
STOKER_INLINE B64 eight_words(Word word) {
  return words(word(0), word(1), word(2), word(3), word(4), word(5), word(6), word(7));
}

// Sets bit 7 of every byte to the parity of its bits 0-6: what a seven-bit sign index stands for. The
// folds leak between bytes, but never into the lowest bit.
STOKER_INLINE uint64_t with_parity(uint64_t s) {
  uint64_t p = s ^ (s >> 4);
  p ^= p >> 2;
  p ^= p >> 1;
  return s | (p & 0x0101010101010101u) << 7;
}

// The four seven-bit fields at the bottom of each 32-bit half, one to a byte.
STOKER_INLINE uint64_t spread_sevens(uint64_t a) {
  a = (a & 0x00003fff00003fffu) | (a & 0x0fffc0000fffc000u) << 2;
  return (a & 0x007f007f007f007fu) | (a & 0x3f803f803f803f80u) << 1;
}

// 2 s + 1 of 16 nibbles, low nibbles first: the sub-scales of 16 codes each.
STOKER_INLINE S16 odd_scales_of_16(const uint8_t* p) {
  const Words8 pairs = __builtin_convertvector(load<Bytes8>(p), Words8);
  const Words8 spread = ((pairs & 15) | (pairs & 0xf0) << 4) * 2 + 0x0101;
  return scales_of_16(bits<B16>(spread));
}

// 2 s + 1 of eight bytes s < 16: the sub-scales of 32 codes each.
STOKER_INLINE S16 odd_scales_of_32(uint64_t s) { return scales_of_32(s * 2 + 0x0101010101010101u); }

}  // namespace STOKER_ISA
