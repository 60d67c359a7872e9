// A cache of Q8_0: blocks of 32 dimensions with one binary16 scale (contract, point 7b).
//
// Scores are integer products of queries quantised the same way: four dimensions of a key lie side by
// side, so one instruction takes W keys times four dimensions. For the values the weight of a key is
// multiplied by its scale first, 64 keys at once, and the codes are only converted.
// Keys of a chunk: codes [d / 4][64][4], scales [d / 32][64]. Values: codes [64][d], scales [d / 32][64].
#pragma once

namespace STOKER_ISA {

// Per lane: acc + the products of four signed codes (of keys with WIDE_BIAS) and four of a query.
STOKER_INLINE I dot_codes(I acc, I keys, I query) {
  if constexpr (SUMS32)
    return tile_add<true>(acc, keys, query);
  else
    return tile_dot2(acc, tile_add<true>(I{}, keys, query), splat_int(0x00010001));
}

struct Q8Cache {
  static constexpr int64_t bytes(int64_t values) { return values / 32 * 34; }
  static constexpr int64_t query_bytes(int d) { return d + d / 32 * 8; }

  // Codes [d / 4][N][4], scales [d / 32][N], what WIDE_BIAS adds to each block's sum [d / 32][N].
  template <int N>
  STOKER_INLINE void prepare(const AttentionJob& job, const int64_t* query, uint8_t* out) {
    const int d = job.head_dim;
    uint8_t* scales = out + N * d;
    uint8_t* bias = scales + N * d / 8;
    for (int n = 0; n < N; ++n)
      for (int b = 0; b < d / 32; ++b) {
        int8_t codes[32];
        float scale;
        quantise_block(job.q + query[n] * d + 32 * b, 32, codes, &scale);
        int32_t sum = 0;
        for (int i = 0; i < 32; ++i) sum += codes[i];
        for (int i = 0; i < 8; ++i) std::memcpy(out + ((8 * b + i) * N + n) * 4, codes + 4 * i, 4);
        store(scales + 4 * (b * N + n), scale);
        store(bias + 4 * (b * N + n), WIDE_BIAS * sum);
      }
  }

  // One head of one position.
  static void put(const StoreKvJob& job, const float* k, const float* v, uint8_t* keys, uint8_t* values,
                  int slot) {
    const int d = job.head_dim;
    for (int b = 0; b < d / 32; ++b) {
      int8_t codes[32];
      const int scale_at = KEY_CHUNK * d + 2 * (b * KEY_CHUNK + slot);
      store_scale(quantised(k + 32 * b, codes), keys + scale_at);
      for (int i = 0; i < 8; ++i)
        std::memcpy(keys + ((8 * b + i) * KEY_CHUNK + slot) * 4, codes + 4 * i, 4);
      store_scale(quantised(v + 32 * b, codes), values + scale_at);
      std::memcpy(values + slot * d + 32 * b, codes, 32);
    }
  }

  template <int N>
  STOKER_INLINE void scores(const uint8_t* queries, int d, const uint8_t* keys, int64_t ahead, float scale,
                            float* s) {
    const uint8_t* query_scales = queries + N * d;
    const uint8_t* bias = query_scales + N * d / 8;
    for (int part = 0; part < KEY_CHUNK; part += PART) {
      F sum[N][2] = {};
      for (int b = 0; b < d / 32; ++b) {
        I isum[N][2];
        for (int n = 0; n < N; ++n)
          for (int v = 0; v < 2; ++v) isum[n][v] = splat_int(-load<int32_t>(bias + 4 * (b * N + n)));
        for (int i = 8 * b; i < 8 * b + 8; ++i) {
          const uint8_t* k = keys + (i * KEY_CHUNK + part) * 4;
          I a = load<I>(k), c = load<I>(k + 4 * W);
          prefetch(k, ahead);
          prefetch(k + 4 * W, ahead);
          if constexpr (WIDE_BIAS != 0) {
            const I flip = splat_int(static_cast<int32_t>(0x80808080u));
            a ^= flip;
            c ^= flip;
          }
          for (int n = 0; n < N; ++n) {
            const I x = splat_int(load<int32_t>(queries + 4 * (i * N + n)));
            isum[n][0] = dot_codes(isum[n][0], a, x);
            isum[n][1] = dot_codes(isum[n][1], c, x);
          }
        }
        const uint8_t* key_scales = keys + KEY_CHUNK * d + 2 * (b * KEY_CHUNK + part);
        for (int v = 0; v < 2; ++v) {
          const F dk = halves_at(key_scales + 2 * v * W);
          for (int n = 0; n < N; ++n)
            sum[n][v] =
                sum[n][v] + (splat(load<float>(query_scales + 4 * (b * N + n))) * dk) * to_float(isum[n][v]);
        }
      }
      for (int n = 0; n < N; ++n)
        for (int v = 0; v < 2; ++v) store(s + n * KEY_CHUNK + part + v * W, sum[n][v] * splat(scale));
    }
  }

  template <int N>
  STOKER_INLINE void values(const uint8_t* v, int d, int, const float* p, const Seen* seen, const float* c,
                            int64_t ahead, float* o, int64_t stride) {
    alignas(64) float scaled[N * KEY_CHUNK];
    for (int b = 0; b < d / 32; ++b) {
      for (int j = 0; j < KEY_CHUNK; j += W) {
        const F dv = halves_at(v + KEY_CHUNK * d + 2 * (b * KEY_CHUNK + j));
        for (int n = 0; n < N; ++n) {
          store(scaled + n * KEY_CHUNK + j, load<F>(p + n * KEY_CHUNK + j) * dv);
        }
      }
      for (int i = 32 * b; i < 32 * b + 32; i += PART)
        add_values<N, 2>(o + i, stride, c, scaled, seen, [&](int64_t j, int k) {
          const uint8_t* at = v + j * d + i + k * W;
          if (k == 0) prefetch(at, ahead);
          return to_float(load_codes(at));
        });
    }
  }

 private:
  STOKER_INLINE float quantised(const float* x, int8_t* codes) {
    float scale;
    quantise_block(x, 32, codes, &scale);
    return scale;
  }

  STOKER_INLINE void store_scale(float scale, uint8_t* to) { store(to, float_to_half(scale)); }
};

}  // namespace STOKER_ISA
