// exp, SiLU, and loops over vectors with a ragged end.
#pragma once

namespace STOKER_ISA {

// Contract, point 5. Comparisons are false for NaN, so NaN passes through the clamps.
STOKER_INLINE F exp_of(F x) {
  const F top = splat(EXP_HIGHEST);
  const F v = x > top ? top : x;
  const F t = v * splat(LOG2E) + splat(ROUND_MAGIC);
  const F n = t - splat(ROUND_MAGIC);
  const F r = (v - n * splat(LN2_HI)) - n * splat(LN2_LO);
  F g = splat(EXP_POLY[0]);
  for (int i = 1; i < 6; ++i) g = g * r + splat(EXP_POLY[i]);
  const F y = ((r * r) * g + r) + splat(1.0f);
  // The integer n sits in the low bits of t, those of the added constant are 0; 2^n is built in the
  // exponent field. Unsigned: for NaN anything may come out, but defined.
  const U power = (bits<U>(t) + 127u) << 23;
  const F e = y * bits<F>(power);
  return v < splat(EXP_LOWEST) ? splat(0.0f) : e;
}

STOKER_INLINE F silu(F x) { return x / (splat(1.0f) + exp_of(-x)); }

// f(i, k) for each vector of W values that starts at i; k < W in the last, ragged one.
template <class Body>
STOKER_INLINE void for_vectors(int64_t n, Body f) {
  int64_t i = 0;
  for (; i + W <= n; i += W) f(i, W);
  if (i < n) f(i, static_cast<int>(n - i));
}

STOKER_INLINE F load_some(const float* p, int k, float fill = 0.0f) {
  if (k == W) return load<F>(p);
  F v = splat(fill);
  std::memcpy(&v, p, static_cast<size_t>(k) * sizeof(float));
  return v;
}

STOKER_INLINE void store_some(float* p, F v, int k) {
  if (k == W)
    store(p, v);
  else
    std::memcpy(p, &v, static_cast<size_t>(k) * sizeof(float));
}

// Sum of a[j] * b[j] in the contract's 32 lanes. A missing product counts as +0: partial sums start at
// +0 and so never are -0, and adding +0 leaves them as they are.
STOKER_INLINE float dot32(const float* a, const float* b, int64_t n) {
  F s[PER32] = {};
  int64_t j = 0;
  for (; j + FLOAT_LANES <= n; j += FLOAT_LANES)
    for (int k = 0; k < PER32; ++k) s[k] = s[k] + load<F>(a + j + k * W) * load<F>(b + j + k * W);
  for (int k = 0; j < n; j += W, ++k) {
    const int left = n - j < W ? static_cast<int>(n - j) : W;
    s[k] = s[k] + load_some(a + j, left) * load_some(b + j, left);
  }
  return tree32(s);
}

// Sum of 32 lanes of the values themselves.
STOKER_INLINE float sum32(const float* a, int64_t n) {
  F s[PER32] = {};
  int64_t j = 0;
  for (; j + FLOAT_LANES <= n; j += FLOAT_LANES)
    for (int k = 0; k < PER32; ++k) s[k] = s[k] + load<F>(a + j + k * W);
  for (int k = 0; j < n; j += W, ++k) s[k] = s[k] + load_some(a + j, n - j < W ? static_cast<int>(n - j) : W);
  return tree32(s);
}

// Largest value; NaN never wins; -Inf when there is none.
static float max_of(const float* a, int64_t n) {
  F m = splat(-__builtin_inff());
  for_vectors(n, [&](int64_t i, int k) {
    const F v = load_some(a + i, k, -__builtin_inff());
    m = v > m ? v : m;
  });
  return max_lane(m);
}

}  // namespace STOKER_ISA
