// Gated DeltaNet: the causal convolution and the recurrent step (contract, point 10).
//
// The state of a head is a matrix [dk][dv]; every column of it lives alone. So a vector holds W columns,
// sums over dk run in order without a reduction, and a slice of four vectors stays in the first-level cache
// while all tokens of the call walk over it: the state is read from and written to memory once per call.
#pragma once

namespace STOKER_ISA {

constexpr int SLICE = 4;  // vectors: enough running sums to hide the latency of an addition

template <int D>  // tokens from one input to the next
STOKER_INLINE void conv_channels(const ConvJob& job) {
  constexpr int LAST = (CONV_TAPS - 1) * D;
  for_vectors(job.channels1 - job.channels0, [&](int64_t at, int some) {
    const int64_t c = job.channels0 + at;
    F w[CONV_TAPS], u[LAST + 1];
    for (int j = 0; j < CONV_TAPS; ++j) w[j] = load_some(job.weight + j * job.channels + c, some);
    for (int j = 0; j < LAST; ++j) u[j] = load_some(job.state + j * job.channels + c, some);
    for (int64_t t = 0; t < job.tokens; ++t) {
      u[LAST] = load_some(job.x + t * job.channels + c, some);
      F s = {};
      for (int j = 0; j < CONV_TAPS; ++j) s = s + w[j] * u[j * D];
      store_some(job.out + t * job.channels + c, silu(s), some);
      for (int j = 0; j < LAST; ++j) u[j] = u[j + 1];
    }
    for (int j = 0; j < LAST; ++j) store_some(job.state + j * job.channels + c, u[j], some);
  });
}

static void conv_step(const ConvJob& job) {
  if (job.dilation == 1)
    conv_channels<1>(job);
  else
    conv_channels<3>(job);
}

// out = x / |x|, times scale.
STOKER_INLINE void unit_vector(const float* x, int n, float eps, float scale, float* out) {
  const F r = splat(1.0f / __builtin_sqrtf(dot32(x, x, n) + eps));
  for (int i = 0; i < n; i += W) store(out + i, (load<F>(x + i) * r) * splat(scale));
}

// V vectors of columns, from column j on, over all tokens. q, k: [tokens][dk], unit vectors.
template <int V>
STOKER_INLINE void delta_columns(const DeltaJob& job, int64_t tokens, int64_t first, const float* q,
                                 const float* k, const float* decay, int j) {
  const int dk = job.dk, dv = job.dv;
  float* state = job.state + j;
  for (int64_t t = 0; t < tokens; ++t, q += dk, k += dk) {
    const F a = splat(decay[t]);
    F s[V] = {};
    for (int i = 0; i < dk; ++i)
      for (int x = 0; x < V; ++x) s[x] = s[x] + (load<F>(state + i * dv + x * W) * a) * splat(k[i]);
    const F beta = splat(job.beta[(first + t) * job.v_heads]);
    const float* v = job.v + (first + t) * job.row + j;
    F e[V], o[V] = {};
    for (int x = 0; x < V; ++x) e[x] = (load<F>(v + x * W) - s[x]) * beta;
    for (int i = 0; i < dk; ++i)
      for (int x = 0; x < V; ++x) {
        float* at = state + i * dv + x * W;
        const F updated = load<F>(at) * a + e[x] * splat(k[i]);
        store(at, updated);
        o[x] = o[x] + updated * splat(q[i]);
      }
    for (int x = 0; x < V; ++x) store(job.out + (first + t) * job.v_heads * dv + j + x * W, o[x]);
  }
}

static void delta_net(const DeltaJob& job) {
  const int dk = job.dk;
  auto* decay = reinterpret_cast<float*>(job.scratch);
  float* q = decay + DELTA_TOKENS;
  float* k = q + DELTA_TOKENS * dk;
  for (int64_t first = 0; first < job.tokens; first += DELTA_TOKENS) {
    const int64_t tokens = job.tokens - first < DELTA_TOKENS ? job.tokens - first : DELTA_TOKENS;
    for (int64_t t = 0; t < tokens; ++t) {
      unit_vector(job.q + (first + t) * job.row, dk, job.eps, job.scale, q + t * dk);
      unit_vector(job.k + (first + t) * job.row, dk, job.eps, 1.0f, k + t * dk);
      decay[t] = exp_of(splat(job.g[(first + t) * job.v_heads]))[0];
    }
    int j = 0;
    for (; j + SLICE * W <= job.dv; j += SLICE * W) delta_columns<SLICE>(job, tokens, first, q, k, decay, j);
    for (; j < job.dv; j += W) delta_columns<1>(job, tokens, first, q, k, decay, j);
  }
}

}  // namespace STOKER_ISA
