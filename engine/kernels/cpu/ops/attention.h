// Causal attention over a binary16 cache (contract, point 7).
//
// Keys are stored with the key index innermost (64 keys of one dimension side by side), so scores need no
// reduction: a vector holds W keys, each with its own running sum over the dimensions. Values are stored
// row by row, so a vector holds W dimensions and keys are added in order. Both loops convert a vector
// of halves once and use it for several heads that share the key/value head. Up to 8 queries share one
// pass over the keys, chunk by chunk, while the chunk is in the cache.
#pragma once

namespace STOKER_ISA {

constexpr int CHUNK_VECTORS = KEY_CHUNK / W;
constexpr int HEADS_AT_ONCE = W == 16 ? 4 : 2;  // accumulators fit the registers: 4 vectors per head

// scores[h][0..63] for HEADS heads of one query; k: [head_dim][64].
template <int HEADS>
STOKER_INLINE void chunk_scores(const float* q, int head_dim, const uint16_t* k, float scale, float* scores) {
  for (int part = 0; part < CHUNK_VECTORS; part += 4) {
    F s[HEADS][4] = {};
    for (int i = 0; i < head_dim; ++i) {
      F key[4];
      for (int v = 0; v < 4; ++v) key[v] = load_halves(k + i * KEY_CHUNK + (part + v) * W);
      for (int h = 0; h < HEADS; ++h) {
        const F a = splat(q[h * head_dim + i]);
        for (int v = 0; v < 4; ++v) s[h][v] = s[h][v] + a * key[v];
      }
    }
    for (int h = 0; h < HEADS; ++h)
      for (int v = 0; v < 4; ++v) store(scores + h * KEY_CHUNK + (part + v) * W, s[h][v] * splat(scale));
  }
}

// o[h][i] += p[h][j] * v[j][i] for the visible keys j in order.
template <int HEADS, int VECTORS>
STOKER_INLINE void add_values(float* o, int head_dim, const float* p, const uint16_t* v, int64_t stride,
                              int visible) {
  F s[HEADS][VECTORS];
  for (int h = 0; h < HEADS; ++h)
    for (int k = 0; k < VECTORS; ++k) s[h][k] = load<F>(o + h * head_dim + k * W);
  for (int j = 0; j < visible; ++j, v += stride) {
    F value[VECTORS];
    for (int k = 0; k < VECTORS; ++k) value[k] = load_halves(v + k * W);
    for (int h = 0; h < HEADS; ++h) {
      const F a = splat(p[h * KEY_CHUNK + j]);
      for (int k = 0; k < VECTORS; ++k) s[h][k] = s[h][k] + a * value[k];
    }
  }
  for (int h = 0; h < HEADS; ++h)
    for (int k = 0; k < VECTORS; ++k) store(o + h * head_dim + k * W, s[h][k]);
}

// Scores of one head to weights in place; m and l are updated and o is rescaled.
STOKER_INLINE void chunk_softmax(float* s, int visible, float* m, float* l, float* o, int head_dim) {
  for (int j = visible; j < KEY_CHUNK; ++j) s[j] = -__builtin_inff();
  const float chunk_max = max_of(s, KEY_CHUNK);
  const float top = chunk_max > *m ? chunk_max : *m;
  const F c = exp_of(splat(*m - top));
  for (int j = 0; j < KEY_CHUNK; j += W) store(s + j, exp_of(load<F>(s + j) - splat(top)));
  for (int j = visible; j < KEY_CHUNK; ++j) s[j] = 0.0f;
  *l = *l * c[0] + sum32(s, KEY_CHUNK);
  *m = top;
  for (int i = 0; i < head_dim; i += W) store(o + i, load<F>(o + i) * c);
}

template <int HEADS>
STOKER_INLINE void chunk_for_heads(const AttentionJob& job, const float* q, const uint16_t* k,
                                   const uint16_t* v, int visible, float* m, float* l, float* o) {
  const int d = job.head_dim;
  alignas(64) float p[HEADS * KEY_CHUNK];
  chunk_scores<HEADS>(q, d, k, job.scale, p);
  for (int h = 0; h < HEADS; ++h) chunk_softmax(p + h * KEY_CHUNK, visible, m + h, l + h, o + h * d, d);
  const int64_t stride = static_cast<int64_t>(job.kv_heads) * d;
  int i = 0;
  for (; i + 4 * W <= d; i += 4 * W) add_values<HEADS, 4>(o + i, d, p, v + i, stride, visible);
  for (; i < d; i += W) add_values<HEADS, 1>(o + i, d, p, v + i, stride, visible);
}

static void attention(const AttentionJob& job) {
  const int d = job.head_dim, heads = job.head1 - job.head0;
  const int64_t row_size = static_cast<int64_t>(job.heads) * d;
  const int64_t chunk_size = static_cast<int64_t>(job.kv_heads) * d * KEY_CHUNK;
  float* o = reinterpret_cast<float*>(job.scratch);  // [rows][heads][d]
  float m[ATTENTION_ROWS * ATTENTION_HEADS], l[ATTENTION_ROWS * ATTENTION_HEADS];
  const int rows = static_cast<int>(job.row1 - job.row0);
  for (int i = 0; i < rows * heads; ++i) {
    m[i] = -__builtin_inff();
    l[i] = 0.0f;
  }
  std::memset(o, 0, static_cast<size_t>(rows) * heads * d * sizeof(float));
  const int64_t last = job.start + job.row1 - 1;
  for (int64_t chunk = 0; chunk <= last / KEY_CHUNK; ++chunk) {
    const uint16_t* k = job.k_cache + chunk * chunk_size + static_cast<int64_t>(job.kv_head) * d * KEY_CHUNK;
    const uint16_t* v = job.v_cache + chunk * chunk_size + static_cast<int64_t>(job.kv_head) * d;
    for (int r = 0; r < rows; ++r) {
      const int64_t seen = job.start + job.row0 + r + 1 - chunk * KEY_CHUNK;
      if (seen <= 0) continue;
      const int visible = seen < KEY_CHUNK ? static_cast<int>(seen) : KEY_CHUNK;
      const float* q = job.q + (job.row0 + r) * row_size + static_cast<int64_t>(job.head0) * d;
      int h = 0;
      for (; h + HEADS_AT_ONCE <= heads; h += HEADS_AT_ONCE)
        chunk_for_heads<HEADS_AT_ONCE>(job, q + h * d, k, v, visible, m + r * heads + h, l + r * heads + h,
                                       o + (r * heads + h) * d);
      for (; h < heads; ++h)
        chunk_for_heads<1>(job, q + h * d, k, v, visible, m + r * heads + h, l + r * heads + h,
                           o + (r * heads + h) * d);
    }
  }
  for (int r = 0; r < rows; ++r)
    for (int h = 0; h < heads; ++h) {
      float* out = job.out + (job.row0 + r) * row_size + static_cast<int64_t>(job.head0 + h) * d;
      const F divisor = splat(l[r * heads + h]);
      for (int i = 0; i < d; i += W) store(out + i, load<F>(o + (r * heads + h) * d + i) / divisor);
    }
}

// One position's keys and values, rounded to binary16. Keys go 64 apart.
static void store_kv(const float* k, const float* v, uint16_t* k_cache, uint16_t* v_cache, int64_t position,
                     int64_t cols) {
  uint16_t* values = v_cache + position * cols;
  uint16_t* keys = k_cache + position / KEY_CHUNK * KEY_CHUNK * cols + position % KEY_CHUNK;
  for (int64_t i = 0; i < cols; i += W) {
    store_halves(values + i, load<F>(v + i));
    uint16_t halves[W];
    store_halves(halves, load<F>(k + i));
    for (int j = 0; j < W; ++j) keys[(i + j) * KEY_CHUNK] = halves[j];
  }
}

}  // namespace STOKER_ISA
