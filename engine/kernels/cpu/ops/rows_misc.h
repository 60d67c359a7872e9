// One row at a time: RMS norm, rotation, combination over experts, sums and the logits (contract, points
// 6, 9 and 11). Elementwise work: bound by the cache, so plain vector loops suffice.
#pragma once

namespace STOKER_ISA {

static void rms_norm(const float* x, const float* weight, float eps, int64_t n, float* out) {
  const float mean = dot32(x, x, n) / static_cast<float>(n);
  const F r = splat(1.0f / __builtin_sqrtf(mean + eps));
  for_vectors(n, [&](int64_t i, int k) {
    store_some(out + i, (load_some(x + i, k) * r) * load_some(weight + i, k), k);
  });
}

static void rotate(float* head, const float* cos, const float* sin, int64_t half) {
  for_vectors(half, [&](int64_t i, int k) {
    const F a = load_some(head + i, k), b = load_some(head + half + i, k);
    const F c = load_some(cos + i, k), s = load_some(sin + i, k);
    store_some(head + i, a * c - b * s, k);
    store_some(head + half + i, b * c + a * s, k);
  });
}

static void rotate_adjacent(float* head, const float* cos, const float* sin, int64_t half) {
  for (int64_t i = 0; i < half; ++i) {
    const float a = head[2 * i], b = head[2 * i + 1];
    head[2 * i] = a * cos[i] - b * sin[i];
    head[2 * i + 1] = b * cos[i] + a * sin[i];
  }
}

static void combine(const float* y, const float* weights, int64_t used, int64_t n, float* out) {
  for_vectors(n, [&](int64_t i, int k) {
    F c = splat(weights[0]) * load_some(y + i, k);
    for (int64_t e = 1; e < used; ++e) c = c + splat(weights[e]) * load_some(y + e * n + i, k);
    store_some(out + i, load_some(out + i, k) + c, k);
  });
}

static void add(float* a, const float* b, int64_t n) {
  for_vectors(n, [&](int64_t i, int k) { store_some(a + i, load_some(a + i, k) + load_some(b + i, k), k); });
}

// m and l of one span of logits, n <= KEY_SPAN (contract, point 11).
static void span_total(const float* x, int64_t n, float* state) {
  float weights[KEY_SPAN];
  const float top = max_of(x, n);
  const F from = splat(top == -__builtin_inff() ? 0.0f : top);
  for_vectors(n, [&](int64_t i, int k) { store_some(weights + i, exp_of(load_some(x + i, k) - from), k); });
  state[0] = top;
  state[1] = sum32(weights, n);
}

}  // namespace STOKER_ISA
