// Causal attention over a cache of keys and values (contract, points 7 and 7b).
//
// Keys lie with the key index innermost, so scores need no reduction: a vector holds W keys, each with its
// own running sum over the dimensions. Values lie row by row, so a vector holds W dimensions and keys are
// added in order. A pair of vectors is converted once for up to QUERIES queries (heads that share a
// key/value head, and rows); while a chunk is worked on, the next one is asked for.
#pragma once

#include <type_traits>

namespace STOKER_ISA {

constexpr int QUERIES = W == 16 ? 8 : 4;  // with two vectors each, the accumulators fit the registers
constexpr int PART = 2 * W;               // keys or dimensions of two vectors

// body(number of queries as a constant, first query) over n queries.
template <class Body>
STOKER_INLINE void for_queries(int n, Body body) {
  int f = 0;
  for (; f + QUERIES <= n; f += QUERIES) body(std::integral_constant<int, QUERIES>{}, f);
  for (; f + QUERIES / 2 <= n; f += QUERIES / 2) body(std::integral_constant<int, QUERIES / 2>{}, f);
  for (; f < n; ++f) body(std::integral_constant<int, 1>{}, f);
}

STOKER_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
STOKER_INLINE int64_t greatest(int64_t a, int64_t b) { return a > b ? a : b; }

// The keys of a chunk that a query sees: first <= j < end, none if end is 0.
struct Seen {
  int64_t first, end;
  bool whole() const { return first == 0 && end == KEY_CHUNK; }
};

STOKER_INLINE Seen seen_of(int64_t position, int64_t window, int64_t chunk) {
  const int64_t at = chunk * KEY_CHUNK;
  const Seen seen = {greatest(first_key(position, window) - at, 0), least(position + 1 - at, KEY_CHUNK)};
  return seen.first < seen.end ? seen : Seen{};
}

STOKER_INLINE void hide(float* row, const Seen& seen, float value) {
  for (int64_t j = 0; j < seen.first; ++j) row[j] = value;
  for (int64_t j = seen.end; j < KEY_CHUNK; ++j) row[j] = value;
}

// Scores of a chunk to weights in place, for N queries; m and l move on, c receives exp(old m - new m).
// A query that sees none of the chunk keeps its state.
template <int N>
STOKER_INLINE void softmax(float* s, const Seen* seen, float* m, float* l, float* c) {
  const F lowest = splat(-__builtin_inff());
  alignas(64) float top[W] = {};
  for (int n = 0; n < N; ++n) {
    float* row = s + n * KEY_CHUNK;
    if (!seen[n].whole()) hide(row, seen[n], lowest[0]);
    F v = lowest;
    for (int j = 0; j < KEY_CHUNK; j += W) {
      const F x = load<F>(row + j);
      v = x > v ? x : v;
    }
    const float best = max_lane(v);
    top[n] = best > m[n] ? best : m[n];
  }
  store(c, exp_of(load_some(m, N) - load<F>(top)));
  for (int n = 0; n < N; ++n) {
    float* row = s + n * KEY_CHUNK;
    if (seen[n].end == 0) {
      c[n] = 1.0f;
      continue;
    }
    for (int j = 0; j < KEY_CHUNK; j += W) store(row + j, exp_of(load<F>(row + j) - splat(top[n])));
    if (!seen[n].whole()) hide(row, seen[n], 0.0f);
    l[n] = l[n] * c[n] + sum32(row, KEY_CHUNK);
    m[n] = top[n];
  }
}

// V vectors of dimensions of N queries: o = o * c, then o += p[j] * value(j, vector) over the visible keys.
template <int N, int V, class Value>
STOKER_INLINE void add_values(float* o, int64_t stride, const float* c, const float* p, const Seen* seen,
                              const Value& value) {
  F s[N][V];
  Seen common = {0, KEY_CHUNK};  // keys that all of them see
  for (int n = 0; n < N; ++n) {
    for (int k = 0; k < V; ++k) s[n][k] = load<F>(o + n * stride + k * W) * splat(c[n]);
    common = {greatest(common.first, seen[n].first), least(common.end, seen[n].end)};
  }
  const auto add_own = [&](int n, int64_t j, int64_t end) __attribute__((always_inline)) {
    for (; j < end; ++j)
      for (int k = 0; k < V; ++k) s[n][k] = s[n][k] + splat(p[n * KEY_CHUNK + j]) * value(j, k);
  };
  if (common.first > 0)
    for (int n = 0; n < N; ++n) add_own(n, seen[n].first, least(common.first, seen[n].end));
  for (int64_t j = common.first; j < common.end; ++j) {
    F v[V];
    for (int k = 0; k < V; ++k) v[k] = value(j, k);
    for (int n = 0; n < N; ++n) {
      const F a = splat(p[n * KEY_CHUNK + j]);
      for (int k = 0; k < V; ++k) s[n][k] = s[n][k] + a * v[k];
    }
  }
  for (int n = 0; n < N; ++n) {
    if (common.end < KEY_CHUNK) add_own(n, greatest(common.first, common.end), seen[n].end);
    for (int k = 0; k < V; ++k) store(o + n * stride + k * W, s[n][k]);
  }
}

// A hint only: `p + ahead` may lie outside of the cache.
STOKER_INLINE void prefetch(const uint8_t* p, int64_t ahead) {
  const uintptr_t at = reinterpret_cast<uintptr_t>(p) + static_cast<uintptr_t>(ahead);
  __builtin_prefetch(reinterpret_cast<const void*>(at), 0, 2);
}

STOKER_INLINE F halves_at(const uint8_t* p) { return load_halves(reinterpret_cast<const uint16_t*>(p)); }

// A cache of binary16. k: [d][64], v: [64][d]; queries as float32 [d][N] for each N that work together.
struct HalfCache {
  static constexpr int64_t bytes(int64_t values) { return 2 * values; }

  static constexpr int64_t query_bytes(int d) { return 4 * static_cast<int64_t>(d); }

  template <int N>
  STOKER_INLINE void prepare(const AttentionJob& job, const int64_t* query, uint8_t* out) {
    auto* to = reinterpret_cast<float*>(out);
    for (int n = 0; n < N; ++n)
      for (int i = 0; i < job.head_dim; ++i) to[i * N + n] = job.q[query[n] * job.head_dim + i];
  }

  // One head of one position.
  static void put(const StoreKvJob& job, const float* k, const float* v, uint8_t* keys, uint8_t* values,
                  int slot) {
    auto* to = reinterpret_cast<uint16_t*>(keys) + slot;
    auto* row = reinterpret_cast<uint16_t*>(values) + slot * job.head_dim;
    for (int i = 0; i < job.head_dim; i += W) {
      store_halves(row + i, load<F>(v + i));
      uint16_t halves[W];
      store_halves(halves, load<F>(k + i));
      for (int j = 0; j < W; ++j) to[(i + j) * KEY_CHUNK] = halves[j];
    }
  }

  template <int N>
  STOKER_INLINE void scores(const uint8_t* queries, int d, const uint8_t* keys, int64_t ahead, float scale,
                            float* s) {
    const auto* q = reinterpret_cast<const float*>(queries);
    for (int part = 0; part < KEY_CHUNK; part += PART) {
      const uint8_t* k = keys + 2 * part;
      F sum[N][2] = {};
      for (int i = 0; i < d; ++i, k += 2 * KEY_CHUNK) {
        prefetch(k, ahead);
        const F a = halves_at(k), b = halves_at(k + 2 * W);
        for (int n = 0; n < N; ++n) {
          const F x = splat(q[i * N + n]);
          sum[n][0] = sum[n][0] + x * a;
          sum[n][1] = sum[n][1] + x * b;
        }
      }
      for (int n = 0; n < N; ++n)
        for (int v = 0; v < 2; ++v) store(s + n * KEY_CHUNK + part + v * W, sum[n][v] * splat(scale));
    }
  }

  // The first dv of the d values of each row.
  template <int N>
  STOKER_INLINE void values(const uint8_t* v, int d, int dv, const float* p, const Seen* seen, const float* c,
                            int64_t ahead, float* o, int64_t stride) {
    int i = 0;
    for (; i + PART <= dv; i += PART)
      add_values<N, 2>(o + i, stride, c, p, seen, [&](int64_t j, int k) {
        const uint8_t* at = v + 2 * (j * d + i + k * W);
        if (k == 0) prefetch(at, ahead);
        return halves_at(at);
      });
    if (i < dv)
      add_values<N, 1>(o + i, stride, c, p, seen,
                       [&](int64_t j, int) { return halves_at(v + 2 * (j * d + i)); });
  }
};

// One span of keys for `count` queries; the records at `states` receive m, l and o.
template <class Cache>
STOKER_INLINE void attend_span(const AttentionJob& job, int64_t span, const uint8_t* queries, float* states,
                               int64_t query_bytes) {
  const int d = job.head_dim, dv = job.value_dim, heads = job.head1 - job.head0;
  const int count = static_cast<int>(job.row1 - job.row0) * heads;
  const int64_t record = attention_record(dv);
  float m[ATTENTION_QUERIES], l[ATTENTION_QUERIES];
  for (int f = 0; f < count; ++f) {
    m[f] = -__builtin_inff();
    l[f] = 0.0f;
    std::memset(states + f * record + RECORD_HEAD, 0, static_cast<size_t>(dv) * sizeof(float));
  }
  const int64_t head_bytes = Cache::bytes(static_cast<int64_t>(KEY_CHUNK) * d);
  const int64_t chunk_bytes = head_bytes * job.kv_heads;
  const int64_t first = greatest(span * SPAN_CHUNKS, first_key(job.start + job.row0, job.window) / KEY_CHUNK);
  const int64_t end = least((span + 1) * SPAN_CHUNKS, (job.start + job.row1 - 1) / KEY_CHUNK + 1);
  for (int64_t chunk = first; chunk < end; ++chunk) {
    const int64_t at = chunk % (job.rows / KEY_CHUNK) * chunk_bytes + job.kv_head * head_bytes;
    for_queries(count, [&](auto number, int f) {
      constexpr int N = decltype(number)::value;
      Seen seen[N];
      for (int n = 0; n < N; ++n) seen[n] = seen_of(job.start + job.row0 + (f + n) / heads, job.window, chunk);
      const int64_t ahead = f == 0 ? chunk_bytes : 0;
      alignas(64) float p[N * KEY_CHUNK], c[W];
      Cache::template scores<N>(queries + f * query_bytes, d, job.k_cache + at, ahead, job.scale, p);
      softmax<N>(p, seen, m + f, l + f, c);
      Cache::template values<N>(job.v_cache + at, d, dv, p, seen, c, ahead,
                                states + f * record + RECORD_HEAD, record);
    });
  }
  for (int f = 0; f < count; ++f) {
    states[f * record] = m[f];
    states[f * record + 1] = l[f];
  }
}

// Join the state of the next span to that of all before it.
STOKER_INLINE void join_states(float* state, const float* next, int d) {
  const float top = next[0] > state[0] ? next[0] : state[0];
  const F a = exp_of(splat(state[0] - top)), b = exp_of(splat(next[0] - top));
  state[1] = state[1] * a[0] + next[1] * b[0];
  state[0] = top;
  for (int i = RECORD_HEAD; i < RECORD_HEAD + d; i += W)
    store(state + i, load<F>(state + i) * a + load<F>(next + i) * b);
}

STOKER_INLINE void finish_state(float* state, const float* sink, int d, float* out) {
  if (sink != nullptr) {
    const float top = *sink > state[0] ? *sink : state[0];
    const F a = exp_of(splat(state[0] - top));
    state[1] = state[1] * a[0] + exp_of(splat(*sink - top))[0];
    for (int i = RECORD_HEAD; i < RECORD_HEAD + d; i += W) store(state + i, load<F>(state + i) * a);
  }
  for (int i = 0; i < d; i += W) store(out + i, load<F>(state + RECORD_HEAD + i) / splat(state[1]));
}

static void join_attention(float* state, const float* next, int64_t stride, int64_t spans, const float* sink,
                           int dv, float* out) {
  for (int64_t s = 0; s < spans; ++s) join_states(state, next + s * stride, dv);
  if (out != nullptr) finish_state(state, sink, dv, out);
}

template <class Cache>
static void attention(const AttentionJob& job) {
  const int dv = job.value_dim, heads = job.head1 - job.head0;
  const int count = static_cast<int>(job.row1 - job.row0) * heads;
  const int64_t record = attention_record(dv), query_bytes = Cache::query_bytes(job.head_dim);
  const auto query_of = [&](int f) {  // which one of q and out
    return (job.row0 + f / heads) * job.heads + job.head0 + f % heads;
  };
  uint8_t* queries = job.scratch;
  for_queries(count, [&](auto number, int f) {
    constexpr int N = decltype(number)::value;
    int64_t query[N];
    for (int n = 0; n < N; ++n) query[n] = query_of(f + n);
    Cache::template prepare<N>(job, query, queries + f * query_bytes);
  });
  if (job.states != nullptr) {
    attend_span<Cache>(job, job.span, queries, job.states, query_bytes);
    return;
  }
  auto* states = reinterpret_cast<float*>(queries + count * query_bytes);
  float* next = states + count * record;
  const int64_t first = first_key(job.start + job.row0, job.window) / KEY_SPAN;
  attend_span<Cache>(job, first, queries, states, query_bytes);
  const int64_t last = (job.start + job.row1 - 1) / KEY_SPAN;
  for (int64_t span = first + 1; span <= last; ++span) {
    attend_span<Cache>(job, span, queries, next, query_bytes);
    for (int f = 0; f < count; ++f) {
      const int64_t position = job.start + job.row0 + f / heads;
      float *state = states + f * record, *own = next + f * record;
      if (first_key(position, job.window) >= span * KEY_SPAN)
        std::memcpy(state, own, static_cast<size_t>(record) * sizeof(float));
      else if (position >= span * KEY_SPAN)
        join_states(state, own, dv);
    }
  }
  for (int f = 0; f < count; ++f)
    finish_state(states + f * record, job.sinks == nullptr ? nullptr : job.sinks + job.head0 + f % heads, dv,
                 job.out + query_of(f) * dv);
}

// Whole chunks follow each other; a chunk holds its key/value heads one after the other.
template <class Cache>
static void store_kv(const StoreKvJob& job) {
  const int d = job.head_dim, slot = static_cast<int>(job.position % KEY_CHUNK);
  const int64_t head_bytes = Cache::bytes(static_cast<int64_t>(KEY_CHUNK) * d);
  for (int h = 0; h < job.kv_heads; ++h) {
    const int64_t at = (job.position / KEY_CHUNK * job.kv_heads + h) * head_bytes;
    Cache::put(job, job.k + h * d, job.v + h * d, job.k_cache + at, job.v_cache + at, slot);
  }
}

}  // namespace STOKER_ISA
