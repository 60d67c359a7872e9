// The gates of a block: on what it gives, and what steers a DeltaNet's memory (contract, points 5 and 10).
#pragma once

namespace STOKER_ISA {

STOKER_INLINE F sigmoid(F x) { return splat(1.0f) / (splat(1.0f) + exp_of(-x)); }

// ln(1 + e^x). Comparisons are false for NaN, so NaN passes through.
STOKER_INLINE F softplus(F x) {
  const F zero = splat(0.0f);
  const F t = exp_of(x > zero ? -x : x);
  const F s = t / (t + splat(2.0f)), u = s * s;
  F g = splat(LOG1P_POLY[0]);
  for (int i = 1; i < 5; ++i) g = g * u + splat(LOG1P_POLY[i]);
  return (x < zero ? zero : x) + (s + s) * g;
}

template <Gate KIND>
static void apply_gate(float* x, const float* gate, bool one, int64_t n) {
  const auto activation = [](F g) { return KIND == GATE_SIGMOID ? sigmoid(g) : softplus(g); };
  const F all = one ? activation(splat(gate[0])) : splat(0.0f);
  for_vectors(n, [&](int64_t i, int k) {
    store_some(x + i, load_some(x + i, k) * (one ? all : activation(load_some(gate + i, k))), k);
  });
}

static void delta_gates(float* decay, float* beta, const float* rate, const float* bias, int64_t heads) {
  for_vectors(heads, [&](int64_t i, int k) {
    const F step = softplus(load_some(decay + i, k) + load_some(bias + i, k));
    store_some(decay + i, load_some(rate + i, k) * step, k);
    store_some(beta + i, sigmoid(load_some(beta + i, k)), k);
  });
}

}  // namespace STOKER_ISA
