// A cache of latent rows: one row of binary16 per position, the key of every head, whose first values are the
// value as well (contract, point 7c).
//
// Rows lie as they are read for the values, so a score is a sum along the row: in 32 lanes and their tree, which
// a row of some hundred values makes cheap. A vector of a row is converted once for several queries.
#pragma once

namespace STOKER_ISA {

constexpr int ROW_QUERIES = W == 16 ? 8 : 2;  // with PER32 vectors each, the accumulators fit the registers

// The queries of a job and two states of each fit its scratch.
static_assert(ATTENTION_QUERIES * 4 * (MAX_LATENT_ROW + 2 * attention_record(MAX_LATENT_ROW)) <= SCRATCH_BYTES);

// The trees of 32 of N sums. Of eight in vectors of 16 lanes a step takes halves of two sums at once.
template <int N, class V>
STOKER_INLINE void trees(const V (&sum)[N][PER32], float* out) {
  if constexpr (N == 8 && W == 16) {
    V a[8], b[4], c[2];
    for (int i = 0; i < 8; ++i) a[i] = sum[i][0] + sum[i][1];
    for (int i = 0; i < 4; ++i)
      b[i] = __builtin_shufflevector(a[2 * i], a[2 * i + 1], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
             __builtin_shufflevector(a[2 * i], a[2 * i + 1], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
    for (int i = 0; i < 2; ++i)
      c[i] = __builtin_shufflevector(b[2 * i], b[2 * i + 1], 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
             __builtin_shufflevector(b[2 * i], b[2 * i + 1], 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
    const V d = __builtin_shufflevector(c[0], c[1], 0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29) +
                __builtin_shufflevector(c[0], c[1], 2, 3, 6, 7, 10, 11, 14, 15, 18, 19, 22, 23, 26, 27, 30, 31);
    store(out, __builtin_shufflevector(d, d, 0, 2, 4, 6, 8, 10, 12, 14) +
                   __builtin_shufflevector(d, d, 1, 3, 5, 7, 9, 11, 13, 15));
  } else {
    for (int i = 0; i < N; ++i) out[i] = tree32(sum[i]);
  }
}

struct LatentCache : HalfCache {
  // Queries as float32 [N][d]: what `tail` holds follows the values of q.
  template <int N>
  STOKER_INLINE void prepare(const AttentionJob& job, const int64_t* query, uint8_t* out) {
    const int64_t d = job.head_dim, dv = job.value_dim;
    for (int n = 0; n < N; ++n) {
      auto* to = reinterpret_cast<float*>(out) + n * d;
      std::memcpy(to, job.q + query[n] * dv, static_cast<size_t>(dv) * sizeof(float));
      std::memcpy(to + dv, job.tail + query[n] * (d - dv), static_cast<size_t>(d - dv) * sizeof(float));
    }
  }

  template <int N>
  STOKER_INLINE void scores(const uint8_t* queries, int d, const uint8_t* keys, int64_t ahead, float scale,
                            float* s) {
    constexpr int GROUP = N < ROW_QUERIES ? N : ROW_QUERIES;
    for (int j = 0; j < KEY_CHUNK; ++j) {
      const uint8_t* row = keys + 2 * static_cast<int64_t>(j) * d;
      for (int first = 0; first < N; first += GROUP) {
        const float* q = reinterpret_cast<const float*>(queries) + static_cast<int64_t>(first) * d;
        F sum[GROUP][PER32] = {};
        for (int i = 0; i < d; i += FLOAT_LANES) {
          prefetch(row + 2 * i, ahead);
          for (int k = 0; k < PER32 && i + k * W < d; ++k) {
            const F x = halves_at(row + 2 * (i + k * W));
            for (int n = 0; n < GROUP; ++n) sum[n][k] = sum[n][k] + load<F>(q + n * d + i + k * W) * x;
          }
        }
        float score[GROUP];
        trees<GROUP>(sum, score);
        for (int n = 0; n < GROUP; ++n) s[(first + n) * KEY_CHUNK + j] = score[n] * scale;
      }
    }
  }
};

// `row` = c[latent], then tail[more].
static void store_latent(const float* c, int64_t latent, const float* tail, int64_t more, uint16_t* row) {
  for (int64_t i = 0; i < latent; i += W) store_halves(row + i, load<F>(c + i));
  for (int64_t i = 0; i < more; i += W) store_halves(row + latent + i, load<F>(tail + i));
}

}  // namespace STOKER_ISA
