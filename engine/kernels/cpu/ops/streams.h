// Several streams of a hidden state, and the keys of blocks (contract, points 7d and 12).
#pragma once

namespace STOKER_ISA {

// streams [count][n] += x [n] times a gate of each stream.
static void inject(float* streams, const float* x, const float* logits, int64_t count, int64_t n) {
  for (int64_t c = 0; c < count; ++c, streams += n) {
    const F gate = sigmoid(splat(logits[c] / static_cast<float>(count))), twice = gate + gate;
    for_vectors(n, [&](int64_t i, int k) {
      store_some(streams + i, load_some(streams + i, k) + load_some(x + i, k) * twice, k);
    });
  }
}

// out [count][n] = value [n] times how well the keys [count][n] match the queries.
static void keyed_values(const float* key, const float* query, const float* value, int64_t count, int64_t n,
                         float* out) {
  for (int64_t c = 0; c < count; ++c) {
    const float s = dot32(key + c * n, query + c * n, n) / __builtin_sqrtf(static_cast<float>(n));
    const float size = s < 0.0f ? -s : s;
    const float root = __builtin_sqrtf(size < LEAST_MATCH ? LEAST_MATCH : size);
    const F gate = sigmoid(splat(s == 0.0f ? 0.0f : s < 0.0f ? -root : root));
    for_vectors(n, [&](int64_t i, int k) { store_some(out + c * n + i, load_some(value + i, k) * gate, k); });
  }
}

static void mean_halves(const uint16_t* rows, int count, int n, float* out) {
  for (int i = 0; i < n; i += W) {
    F s = load_halves(rows + i);
    for (int r = 1; r < count; ++r) s = s + load_halves(rows + r * n + i);
    store(out + i, s / splat(static_cast<float>(count)));
  }
}

}  // namespace STOKER_ISA
