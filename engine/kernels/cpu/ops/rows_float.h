// Rows of unquantised weights times activations (contract, point 4).
//
// The 32 partial sums of a row are PER32 vectors. One token's are summed in one pass over the row, which comes
// from memory; those of several rows and tokens in PER32 passes, so that they fit the registers and every
// loaded vector is used several times.
#pragma once

namespace STOKER_ISA {

template <class Fmt, int ROWS, int TOKENS>
STOKER_INLINE void float_tile(const RowsJob& job, int64_t row, int64_t token) {
  const int64_t whole = job.cols / FLOAT_LANES * FLOAT_LANES;
  const Act* acts = job.acts + token;
  const uint8_t* w[ROWS];
  for (int r = 0; r < ROWS; ++r)  // rows that do not exist repeat the last one
    w[r] = job.w + (row + r < job.row1 ? row + r : job.row1 - 1) * job.cols * Fmt::BYTES;
  F sums[ROWS][TOKENS][PER32];
  constexpr int AT_ONCE = ROWS * TOKENS == 1 ? PER32 : 1;
  for (int first = 0; first < PER32; first += AT_ONCE) {
    F s[AT_ONCE][ROWS][TOKENS] = {};
    for (int64_t j = first * W; j < whole; j += FLOAT_LANES) {
      if constexpr (AT_ONCE > 1) prefetch<FLOAT_LANES * Fmt::BYTES>(*w + j * Fmt::BYTES);
      STOKER_UNROLL
      for (int k = 0; k < AT_ONCE; ++k) {
        F a[ROWS];
        STOKER_UNROLL
        for (int r = 0; r < ROWS; ++r) a[r] = Fmt::weights(w[r] + (j + k * W) * Fmt::BYTES);
        STOKER_UNROLL
        for (int t = 0; t < TOKENS; ++t) {
          const F x = load<F>(acts[t].x + j + k * W);
          STOKER_UNROLL
          for (int r = 0; r < ROWS; ++r) s[k][r][t] = s[k][r][t] + a[r] * x;
        }
      }
    }
    STOKER_UNROLL
    for (int r = 0; r < ROWS; ++r) {
      STOKER_UNROLL
      for (int t = 0; t < TOKENS; ++t)
        for (int k = 0; k < AT_ONCE; ++k) sums[r][t][first + k] = s[k][r][t];
    }
  }
  for (int r = 0; r < ROWS && row + r < job.row1; ++r)
    for (int t = 0; t < TOKENS; ++t) {
      float* lanes = reinterpret_cast<float*>(sums[r][t]);
      for (int64_t j = whole; j < job.cols; ++j) {
        const float product = Fmt::weight(w[r] + j * Fmt::BYTES) * acts[t].x[j];
        store(lanes + (j - whole), load<float>(lanes + (j - whole)) + product);
      }
      job.outs[token + t][row + r] = tree32(sums[r][t]);
    }
}

template <class Fmt>
static void rows_float(const RowsJob& job) {
  constexpr int rows = 4, tokens = W == 16 ? 6 : 2;
  int64_t t = 0;
  for (; t + tokens <= job.tokens; t += tokens)
    for (int64_t r = job.row0; r < job.row1; r += rows) float_tile<Fmt, rows, tokens>(job, r, t);
  for (; t < job.tokens; ++t)
    for (int64_t r = job.row0; r < job.row1; ++r) float_tile<Fmt, 1, 1>(job, r, t);
}

template <class Fmt>
static void dequantise_float(const uint8_t* row, int64_t cols, float* out) {
  for (int64_t i = 0; i < cols; ++i) out[i] = Fmt::weight(row + i * Fmt::BYTES);
}

}  // namespace STOKER_ISA
