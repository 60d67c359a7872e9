// Rows of unquantised weights times activations (contract, point 4). Four tokens share each loaded weight.
#pragma once

namespace STOKER_ISA {

template <class Fmt, int TOKENS>
STOKER_INLINE void float_row(const uint8_t* w, int64_t cols, const Act* acts, float* const* outs, int64_t r) {
  F s[TOKENS][PER32] = {};
  int64_t j = 0;
  for (; j + FLOAT_LANES <= cols; j += FLOAT_LANES)
    for (int k = 0; k < PER32; ++k) {
      const F a = Fmt::weights(w + (j + k * W) * Fmt::BYTES);
      for (int t = 0; t < TOKENS; ++t) s[t][k] = s[t][k] + a * load<F>(acts[t].x + j + k * W);
    }
  for (int t = 0; t < TOKENS; ++t) {
    float* lanes = reinterpret_cast<float*>(s[t]);
    for (int64_t i = j; i < cols; ++i) {
      float lane = load<float>(lanes + (i - j));
      lane = lane + Fmt::weight(w + i * Fmt::BYTES) * acts[t].x[i];
      store(lanes + (i - j), lane);
    }
    outs[t][r] = tree32(s[t]);
  }
}

template <class Fmt>
static void rows_float(const RowsJob& job) {
  for (int64_t r = job.row0; r < job.row1; ++r) {
    const uint8_t* w = job.w + r * job.cols * Fmt::BYTES;
    int64_t t = 0;
    for (; t + 4 <= job.tokens; t += 4) float_row<Fmt, 4>(w, job.cols, job.acts + t, job.outs + t, r);
    for (; t < job.tokens; ++t) float_row<Fmt, 1>(w, job.cols, job.acts + t, job.outs + t, r);
  }
}

template <class Fmt>
static void dequantise_float(const uint8_t* row, int64_t cols, float* out) {
  for (int64_t i = 0; i < cols; ++i) out[i] = Fmt::weight(row + i * Fmt::BYTES);
}

}  // namespace STOKER_ISA
