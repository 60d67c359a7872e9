// Activations to int8 (contract, point 1). One pass for the largest magnitude, on bit patterns, so that
// its order is free and NaN and Inf are seen; one pass for the codes; sums of 16 and 32 codes on the side,
// because every format with an offset or minima needs them.
#pragma once

namespace STOKER_ISA {

STOKER_INLINE void quantise_block(const float* x, int block, int8_t* codes, float* scale) {
  I top = {};
  for (int i = 0; i < block; i += W) {
    const I a = load<I>(x + i) & splat_int(0x7fffffff);
    top = a > top ? a : top;
  }
  int32_t largest = 0;
  for (int i = 0; i < W; ++i) largest = top[i] > largest ? top[i] : largest;
  const float amax = bits<float>(largest);
  const bool finite = largest < 0x7f800000;
  if (!finite || amax < TINY_AMAX) {
    *scale = finite ? 0.0f : bits<float>(0x7fc00000);
    std::memset(codes, 0, static_cast<size_t>(block));
    return;
  }
  *scale = amax / 127.0f;
  const F inv = splat(127.0f / amax);
  for (int i = 0; i < block; i += W) {
    const F t = load<F>(x + i) * inv + splat(ROUND_MAGIC);  // the code is the low byte
    store(codes + i, __builtin_convertvector(bits<I>(t), S8));
  }
}

static void quantise(const float* x, int64_t cols, int block, const ActOut& out) {
  const int64_t blocks = cols / block;
  for (int64_t b = 0; b < blocks; ++b)
    quantise_block(x + b * block, block, out.codes + b * block, out.scales + b);
  for (int64_t g = 0; g < cols / 16; ++g) {
    typedef int16_t H16 __attribute__((vector_size(32)));
    typedef int8_t C16 __attribute__((vector_size(16)));
    const H16 c = __builtin_convertvector(load<C16>(out.codes + 16 * g), H16);
    H8 lo, hi;
    std::memcpy(&lo, &c, 16);
    std::memcpy(&hi, reinterpret_cast<const char*>(&c) + 16, 16);
    const H8 s = lo + hi;
    int sum = 0;
    for (int i = 0; i < 8; ++i) sum += s[i];
    out.sums16[g] = static_cast<int16_t>(sum);
  }
  for (int64_t g = 0; g < cols / 32; ++g)
    out.sums32[g] = static_cast<int16_t>(out.sums16[2 * g] + out.sums16[2 * g + 1]);
  if (blocks % BLOCK_LANES == 0) return;
  for (int64_t i = 0; i < (BLOCK_LANES - 1) * block; ++i) out.codes[cols + i] = out.codes[i];
  for (int64_t i = 0; i < BLOCK_LANES - 1; ++i) out.scales[blocks + i] = out.scales[i];
  for (int64_t i = 0; i < (BLOCK_LANES - 1) * block / 16; ++i) out.sums16[cols / 16 + i] = out.sums16[i];
  for (int64_t i = 0; i < (BLOCK_LANES - 1) * block / 32; ++i) out.sums32[cols / 32 + i] = out.sums32[i];
}

}  // namespace STOKER_ISA
