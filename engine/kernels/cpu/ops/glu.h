// What a gated feed-forward makes of gate and up, value by value (contract, point 9).
#pragma once

namespace STOKER_ISA {

struct Silu {
  STOKER_INLINE F of(F gate, F up) { return silu(gate) * up; }
};

struct Gelu {
  STOKER_INLINE F of(F gate, F up) {
    const F inner = gate * (splat(GELU_LINEAR) + splat(GELU_CUBIC) * (gate * gate));
    return gate / (splat(1.0f) + exp_of(-inner)) * up;
  }
};

// Comparisons are false for NaN, so NaN passes through the clamps.
struct Clamped {
  STOKER_INLINE F of(F gate, F up) {
    const F top = splat(GLU_LIMIT);
    const F g = gate > top ? top : gate, u = up > top ? top : up < -top ? -top : up;
    return g / (splat(1.0f) + exp_of(-(g * splat(GLU_SLOPE)))) * (u + splat(1.0f));
  }
};

template <class Activation>
static void glu(float* gate, const float* up, int64_t n) {
  for_vectors(n, [&](int64_t i, int k) {
    store_some(gate + i, Activation::of(load_some(gate + i, k), load_some(up + i, k)), k);
  });
}

}  // namespace STOKER_ISA
