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
  const int32_t largest = max_lane(top);
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
    store(codes + i, low_bytes(bits<I>(t)));
  }
}

static void quantise(const float* x, int64_t cols, int block, const ActOut& out) {
  const int64_t blocks = cols / block;
  for (int64_t b = 0; b < blocks; ++b)
    quantise_block(x + b * block, block, out.codes + b * block, out.scales + b);
  uint8_t ones[64];
  std::memset(ones, 1, sizeof ones);
  for (int64_t at = 0; at < cols; at += 256) {  // behind the end of a row lie the blocks that follow
    QuadAcc runs[4];
    STOKER_UNROLL
    for (int j = 0; j < 4; ++j) runs[j] = dot_runs(load64(ones), out.codes + at + 64 * j);
    I8 even, odd;
    reduce_runs(runs, even, odd);
    store(out.sums16 + at / 16, (even & 0xffff) | (odd << 16));
    store(out.sums32 + at / 32, __builtin_convertvector(even + odd, H8));
  }
  if (blocks % BLOCK_LANES == 0) return;
  const auto go_on = [blocks](auto* values, int64_t per_block) {  // cyclically
    for (int64_t b = 0; b < BLOCK_LANES - 1; ++b)
      std::memcpy(values + (blocks + b) * per_block, values + b * per_block,
                  static_cast<size_t>(per_block) * sizeof *values);
  };
  go_on(out.codes, block);
  go_on(out.scales, 1);
  go_on(out.sums16, block / 16);
  go_on(out.sums32, block / 32);
}

}  // namespace STOKER_ISA
