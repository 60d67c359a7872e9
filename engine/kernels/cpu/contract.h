// The arithmetic contract of Stoker's kernels, and the constants that fix it.
//
// Every implementation (this library at every instruction set, engine/kernels/reference.py, and the
// GPU kernels) computes exactly this, so results are equal bit for bit. All float operations are IEEE
// binary32, rounded to nearest even, each rounded on its own: no fused multiply-add, no flushing of
// subnormals (float_mode.h), no reassociation. "NaN" below means some NaN; its sign and payload are not
// fixed.
//
// 1. Quantised activations. A row of float32 is cut into blocks as long as the weight format's term blocks
//    (32 or 256 values; NVFP4 and Q2_0 store two term blocks of 32 together). amax = largest |x| of the block, taken on the bit patterns.
//      amax not finite (some Inf or NaN):  scale = NaN, codes = 0     (every sum that uses it is NaN)
//      amax < 2^-120:                      scale = 0,   codes = 0     (127 / amax could overflow)
//      else: scale = amax / 127; inv = 127 / amax; code = round_half_even(x * inv), in -127..127.
// 2. Block term. isum = sum of (sub-scale * code_w * code_x) over the block, an exact int32; the fixed
//    offset of a format (Q6_K: 32, Q4_0: 8) is part of code_w. Formats with minima have
//    msum = sum of (sub-minimum * code_x), also exact.
//      t = (d * dx) * float(isum)                                     without minima
//      t = (d * dx) * float(isum) - (dmin * dx) * float(msum)         with minima
//      t = (d0 * dx) * float(i0) + (d1 * dx) * float(i1)              NVFP4: halves of 16 values
// 3. Row sum. Eight partial sums start at +0; the term of block b is added to partial sum b mod 8, in
//    the order of b. Then s[i] += s[i + 4] (i < 4), s[i] += s[i + 2] (i < 2), s[0] + s[1].
// 4. F32, F16 and BF16 weights: 32 partial sums from +0; partial j mod 32 += w[j] * x[j] in the order of
//    j. Then the tree (i, i + 16), (i, i + 8), (i, i + 4), (i, i + 2), (i, i + 1): "the tree of 32".
// 5. exp(x): x > 88 counts as 88; x < -87 gives +0; NaN stays NaN. n = round_half_even(x * LOG2E);
//    r = (x - n * LN2_HI) - n * LN2_LO; g = Horner over EXP_POLY in r; ((r * r) * g + r) + 1, then an
//    exact multiplication by 2^n. exp(0) is exactly 1. SiLU(x) = x / (1 + exp(-x)), sigmoid(x) =
//    1 / (1 + exp(-x)). softplus(x) = max(x, 0) + (s + s) * (Horner over LOG1P_POLY in s * s), with t = exp(-|x|)
//    and s = t / (t + 2).
// 6. RMS norm: s = sum of x[j] * x[j] as in 4; r = 1 / sqrt(s / n + eps); out[j] = (x[j] * r) * w[j]. With g groups
//    of weights row i takes group i mod g.
//    Rotation of pairs that lie half the rotated values apart (NEOX) or side by side (NORM):
//    a' = a * cos - b * sin, b' = b * cos + a * sin.
// 7. Attention of one head, keys and values in binary16. Keys go in spans of 512, and in chunks of 64 within
//    a span, both aligned to absolute positions. A span starts with m = -Inf, l = 0, o[] = 0; per chunk, over
//    its visible keys:
//      score = (sum over i = 0, 1, .. of q[i] * k[i], one running sum from +0) * scale
//      M = max(m, scores) (NaN never wins), c = exp(m - M), p = exp(score - M), invisible p = +0
//      l = l * c + (sum of the 64 p as in 4);  o[i] = o[i] * c, then o[i] += p * v[i] key by key; m = M
//    Then the spans in their order: state (m, l, o) and the next span's (m', l', o') become
//      M = max(m, m'), a = exp(m - M), b = exp(m' - M): l = l * a + l' * b, o[i] = o[i] * a + o'[i] * b
//    out[i] = o[i] / l. Spans may be computed in any order. With a window of w the query at position p sees
//    the keys p - w < j <= p: chunks and spans without a visible key are left out, so the first state is that
//    of the first span with one. A cache of R rows holds position p in row p mod R, so a query may see no
//    position R or more before the last one stored. A head with a sink s has behind the last span, once per query,
//      M = max(m, s) (NaN never wins), a = exp(m - M): l = l * a + exp(s - M), o[i] = o[i] * a
// 7b. The same over a Q8_0 cache: keys, values and queries in blocks of 32 dimensions, codes and scales as
//    in 1, the scales of the cache (dk, dv) rounded to binary16, that of the query (dq) not.
//      score = (sum over blocks, one running sum from +0, of (dq * dk) * float(isum)) * scale
//      o[i] += (p * dv) * float(code)
// 7c. Over a cache of latent rows in binary16: one row per position is the key of every head, its first values
//    are the value as well. As 7, but for score = (sum of q[i] * k[i] as in 4) * scale.
// 7d. Over chosen positions: in ascending order they take the places 0, 1, 2, .. of the keys of 7.
//    Chosen by blocks of r positions, from those that are whole: the key of a block is the mean of its r raw keys
//    (binary16; a running sum, divided by r), normed as in 6, rotated at the block's first position. score =
//    running sum from +0 over the query heads of max(q . k as in 4, +0), NaN counts as +0. The best blocks are
//    chosen, the lower one on ties, and all positions behind the last whole block.
// 8. Router: z = logit, + bias where there is one. p of a softmax: M = max of z (NaN never wins; from -Inf),
//    e = exp(z - M), p = e / (sum of e as in 4). Or p = sigmoid(z). Score = p, + selection bias where there is
//    one. "The best" of some values: the largest not yet taken, the lower id on ties (the first one not taken,
//    unless a later one is greater). Of several groups each has the score of its best, with a sigmoid +
//    that of its second best (where it has two); outside the best `groups used` of them scores count as -Inf. Then `used` times:
//    the best score. w = p / max(sum of the taken p in that order, 2^-14), or w = p where weights are not
//    renormalised; then w * scale; then, where experts have scales, w * theirs.
// 9. Experts: g = gate(x), u = up(x), each + the expert's bias where there is one. One of
//      h = SiLU(g) * u
//      h = g / (1 + exp(-(g * (GELU_LINEAR + GELU_CUBIC * (g * g))))) * u
//      h = g' / (1 + exp(-(g' * GLU_SLOPE))) * (u' + 1), g' = g, at most 7; u' = u, at least -7 and at most 7
//    y = down(h), + bias. Combination per token: c = w0 * y0, then c += wk * yk in router order, then out += c.
//
// 10. Gated DeltaNet. Convolution over the last 4 inputs u of a channel, or the last 4 that are d tokens apart,
//    oldest first: one running sum from +0 of w[j] * u[j], then SiLU. Step of a value head with state S[dk][dv], sums over i = 0, 1, .. from +0:
//      q = (q * rq) * scale, k = k * rk, with r = 1 / sqrt(s + eps), s = the sum of squares as in 4
//      S[i][j] = S[i][j] * exp(g);  e[j] = (v[j] - sum of S[i][j] * k[i]) * beta
//      S[i][j] = S[i][j] + e[j] * k[i];  o[j] = sum of S[i][j] * q[i]
//    Its gates: g = rate * softplus(g' + bias), beta = sigmoid(beta'). A gate on what attention gives is
//    x * sigmoid(g) or x * softplus(g), one g for each value or for each so many values in a row.
// 11. Total of n logits: spans of 512 of them, each with M = max (NaN never wins) and l = sum of exp(x - M) as
//    in 4, or of exp(x) where M = -Inf; those with more than -Inf are joined in their order as in 7. Gives M (+0 for either zero) and l of all:
//    log(l) + M is the logarithm of the sum of all exp(x).
// 12. Streams: R_c[j] = R_c[j] + x[j] * w, w = 2 * sigmoid(logit_c / number of streams). Values by key, for each
//    stream: s = (key . query as in 4) / sqrt(n); g = sqrt(max(|s|, 1e-6)) with the sign of s, 0 for s = 0;
//    out[j] = value[j] * sigmoid(g).
//
// Work is split over rows, heads, experts and tokens, never inside a sum.
#pragma once

#include <cstdint>

namespace stoker {

constexpr float LOG2E = 0x1.715476p+0f;
constexpr float LN2_HI = 0x1.63p-1f;        // 355/512: n * LN2_HI is exact for |n| < 2^15
constexpr float LN2_LO = -0x1.bd0106p-13f;  // ln 2 - LN2_HI
constexpr float EXP_LOWEST = -87.0f;
constexpr float EXP_HIGHEST = 88.0f;
// (exp(r) - 1 - r) / r^2 on |r| <= ln(2) / 2, interpolated at the Chebyshev nodes; highest power first.
constexpr float EXP_POLY[6] = {0x1.a12528p-13f, 0x1.6d4362p-10f, 0x1.1110e0p-7f,
                               0x1.5554e8p-5f,  0x1.555556p-3f,  0.5f};
// atanh(s) / s in u = s * s on u <= 1/9, interpolated likewise: ln(1 + t) = 2 atanh(t / (t + 2)).
constexpr float LOG1P_POLY[5] = {0x1.2055eep-3f, 0x1.1e5cfcp-3f, 0x1.99da14p-3f, 0x1.5554e2p-2f, 1.0f};
// GELU by tanh: (1 + tanh(t)) / 2 = 1 / (1 + exp(-2 t)), here 2 t = g * (linear + cubic * g^2).
constexpr float GELU_LINEAR = 0x1.988454p+0f;  // 2 sqrt(2 / pi)
constexpr float GELU_CUBIC = 0x1.2444f2p-4f;   // 0.044715 of it
constexpr float GLU_LIMIT = 7.0f;    // of gpt-oss, as is the slope
constexpr float GLU_SLOPE = 1.702f;
constexpr float ROUND_MAGIC = 12582912.0f;  // 1.5 * 2^23: (v + M) - M rounds half to even, |v| < 2^22
constexpr float TINY_AMAX = 0x1p-120f;
constexpr float LEAST_WEIGHT_SUM = 0x1p-14f;
constexpr float LEAST_MATCH = 1e-6f;
constexpr int KEY_CHUNK = 64;    // keys that attention walks at a time
constexpr int SPAN_CHUNKS = 8;   // chunks of a span of keys: spans are independent of each other
constexpr int KEY_SPAN = KEY_CHUNK * SPAN_CHUNKS;
constexpr int CONV_TAPS = 4;     // inputs of the causal convolution
constexpr int FLOAT_LANES = 32;  // partial sums of a float row
constexpr int BLOCK_LANES = 8;   // partial sums of a row of blocks

}  // namespace stoker
