// What every instruction set shares: fixed-width vectors, loads, and the trees of the contract.
//
// The code in ops/ and formats/ is written once against these types. F and I are W lanes of float and
// int32 as GCC/Clang vector types, so + - * / and comparisons need no intrinsics and the same source
// compiles on every architecture; F8 and I8 are always eight lanes (the eight partial sums of a row).
//
// Everything lives in a namespace named after the instruction set (STOKER_ISA): the linker must never
// merge a function compiled for AVX-512 with its twin for older processors.
#pragma once

#ifdef __clang__
#pragma clang fp contract(off)  // as -ffp-contract=off, whatever the flags
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "../contract.h"

#if defined(STOKER_UNROLL)  // the scalar file keeps its loops: it is compiled quickly, not run quickly
#elif defined(__clang__)
#define STOKER_UNROLL _Pragma("clang loop unroll(full)")
#else
#define STOKER_UNROLL _Pragma("GCC unroll 16")
#endif
#define STOKER_INLINE static inline __attribute__((always_inline, unused))

namespace STOKER_ISA {

using namespace stoker;

typedef float F __attribute__((vector_size(4 * STOKER_LANES)));
typedef int32_t I __attribute__((vector_size(4 * STOKER_LANES)));
typedef uint32_t U __attribute__((vector_size(4 * STOKER_LANES)));
typedef int16_t H __attribute__((vector_size(2 * STOKER_LANES)));
typedef uint16_t U16 __attribute__((vector_size(2 * STOKER_LANES)));
typedef int8_t S8 __attribute__((vector_size(STOKER_LANES)));
typedef float F8 __attribute__((vector_size(32)));
typedef int32_t I8 __attribute__((vector_size(32)));
typedef int16_t H8 __attribute__((vector_size(16)));
typedef float F4 __attribute__((vector_size(16)));
typedef uint64_t Octs8 __attribute__((vector_size(64)));
typedef uint8_t B16 __attribute__((vector_size(16)));
typedef uint32_t U4 __attribute__((vector_size(16)));
typedef uint64_t Q2 __attribute__((vector_size(16)));

constexpr int W = STOKER_LANES;
constexpr int PER32 = FLOAT_LANES / W;  // vectors that hold the 32 partial sums of a float row

template <class T>
STOKER_INLINE T load(const void* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

template <class T>
STOKER_INLINE void store(void* p, T v) {
  std::memcpy(p, &v, sizeof v);
}

template <class To, class From>
STOKER_INLINE To bits(From v) {
  static_assert(sizeof(To) == sizeof(From));
  To r;
  std::memcpy(&r, &v, sizeof r);
  return r;
}

// A scalar operand is broadcast; subtracting +0 keeps every value (-0 and NaN too) and compiles to nothing.
STOKER_INLINE F splat(float x) { return x - F{}; }
STOKER_INLINE I splat_int(int32_t x) { return x - I{}; }

STOKER_INLINE F to_float(I v) { return __builtin_convertvector(v, F); }
STOKER_INLINE F8 to_float8(I8 v) { return __builtin_convertvector(v, F8); }
STOKER_INLINE F round_even(F v) { return (v + splat(ROUND_MAGIC)) - splat(ROUND_MAGIC); }

#ifndef __AVX2__  // which has faster ones
STOKER_INLINE S8 low_bytes(I lanes) { return __builtin_convertvector(lanes, S8); }
#endif

#ifndef __AVX512VBMI__  // vec_x86.h has a faster one
// Eight bytes, STRIDE apart.
template <int STRIDE>
STOKER_INLINE I8 bytes8(const uint8_t* p) {
  return I8{p[0],          p[STRIDE],     p[2 * STRIDE], p[3 * STRIDE],
            p[4 * STRIDE], p[5 * STRIDE], p[6 * STRIDE], p[7 * STRIDE]};
}
#endif

// Each byte twice.
STOKER_INLINE B16 twice_each(uint64_t bytes) {
  const B16 b = bits<B16>(Q2{bytes, 0});
  return __builtin_shufflevector(b, b, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
}

// binary16 bits of one value; subnormals and infinities included.
STOKER_INLINE float half_to_float(uint16_t h) {
#if defined(__F16C__)
  return static_cast<float>(bits<_Float16>(h));
#else
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t rest = h & 0x7fffu;
  if (rest >= 0x7c00u) return bits<float>(sign | 0x7f800000u | ((rest & 0x3ffu) << 13));
  if (rest < 0x0400u) {  // zero or subnormal: rest * 2^-24 is exact
    const float v = static_cast<float>(rest) * 0x1p-24f;
    return bits<float>(bits<uint32_t>(v) | sign);
  }
  return bits<float>(sign | ((rest + 0x1c000u) << 13));
#endif
}

// Round to nearest even, overflow to infinity, NaN stays a quiet NaN.
STOKER_INLINE uint16_t float_to_half(float x) {
  const uint32_t b = bits<uint32_t>(x);
  const uint32_t sign = (b >> 16) & 0x8000u, a = b & 0x7fffffffu;
  if (a > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((a >> 13) & 0x3ffu));
  if (a >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (a < 0x38800000u) {  // below 2^-14: adding 0.5 rounds at 2^-24
    const float v = bits<float>(a) + 0.5f;
    return static_cast<uint16_t>(sign | (bits<uint32_t>(v) - 0x3f000000u));
  }
  const uint32_t r = a + 0xfffu + ((a >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((r - 0x38000000u) >> 13));
}

// The largest lane; none is NaN.
template <class V>
STOKER_INLINE auto max_lane(V v) {
  typedef std::remove_cvref_t<decltype(v[0])> V4 __attribute__((vector_size(16)));
  V4 s[W / 4];
  std::memcpy(s, &v, sizeof s);
  for (int n = W / 8; n > 0; n /= 2)
    for (int i = 0; i < n; ++i) s[i] = s[i] > s[n + i] ? s[i] : s[n + i];
  const V4 d = *s;
  const auto x = d[0] > d[2] ? d[0] : d[2], y = d[1] > d[3] ? d[1] : d[3];
  return x > y ? x : y;
}

// The last eight steps of a row's sum: (i, i + 4), (i, i + 2), (i, i + 1).
STOKER_INLINE float tree8(F8 v) {
  F4 lo, hi;
  std::memcpy(&lo, &v, 16);
  std::memcpy(&hi, reinterpret_cast<const char*>(&v) + 16, 16);
  const F4 s = lo + hi;
  const float a = s[0] + s[2], b = s[1] + s[3];
  return a + b;
}

// The tree of 32 over partial sums in registers.
STOKER_INLINE float tree32(const F* v) {
  float s[FLOAT_LANES];
  std::memcpy(s, v, sizeof s);
  F8 a = load<F8>(s) + load<F8>(s + 16), b = load<F8>(s + 8) + load<F8>(s + 24);
  return tree8(a + b);
}

}  // namespace STOKER_ISA
