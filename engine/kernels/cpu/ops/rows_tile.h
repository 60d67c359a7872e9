// Rows of quantised weights times many activation rows: the shape of reading a prompt, bound by arithmetic.
//
// A tile is W rows times 256 columns, unpacked once (rows_unpack.h) and then used for every token. A vector
// lane is a row, so nothing has to be reduced across lanes. Unpacking knows the format; multiplying knows
// only its Shape, so 24 formats share a few multiply loops. R tiles and up to TOKENS tokens are multiplied at
// once: a vector of codes is loaded once for TOKENS tokens, four broadcast activations once for R tiles, and
// the integer sums of a block stay in registers. Minima and offsets cost one 16-bit dot product per two sums
// of activations.
// The terms of block b go to partial sum b mod 8 as in decoding: vectors [8][tokens][R] in the scratch.
#pragma once

#include "rows_blocks.h"
#include "rows_unpack.h"

namespace STOKER_ISA {

constexpr int TILE_FROM = 3;  // tokens from which a tile pays
constexpr bool MANY_REGISTERS = W != 8;  // 32, not 16
constexpr int R = MANY_REGISTERS ? 2 : 1;       // tiles side by side, and
constexpr int TOKENS = MANY_REGISTERS ? 6 : 4;  // tokens: what the registers hold

// Per lane: acc + the sum p * the sub-scale s, an int32. With FITS16 p fits 16 bits and the upper half of s is
// zero; without SUMS32 both halves of s hold the sub-scale.
template <bool FITS16>
STOKER_INLINE I tile_scaled(I acc, I p, I s) {
  return FITS16 ? tile_dot2(acc, p, s) : acc + p * s;
}

STOKER_INLINE I word(const void* p) { return splat_int(load<int32_t>(p)); }

// p = the sums of the products of WORDS words from word `at` of the tiles.
template <Shape S, int WORDS, int N>
STOKER_INLINE void add_words(I (&p)[R][N], const Tile* tiles, const Act* acts, int64_t unit, int at) {
  STOKER_UNROLL
  for (int k = 0; k < WORDS; ++k) {
    I w[R];
    STOKER_UNROLL
    for (int r = 0; r < R; ++r) w[r] = load<I>(tiles[r].codes + (at + k) * W);
    STOKER_UNROLL
    for (int t = 0; t < N; ++t) {
      const I x = word(acts[t].codes + unit * 256 + 4 * (at + k));
      STOKER_UNROLL
      for (int r = 0; r < R; ++r) p[r][t] = tile_add<S.wide>(p[r][t], w[r], x);
    }
  }
}

// The first terms find nothing in the sums.
template <int N>
STOKER_INLINE void add_terms(const F (&terms)[R][N], float* sums, bool first) {
  STOKER_UNROLL
  for (int t = 0; t < N; ++t) {
    STOKER_UNROLL
    for (int r = 0; r < R; ++r) {
      float* sum = sums + (t * R + r) * W;
      store(sum, (first ? F{} : load<F>(sum)) + terms[r][t]);
    }
  }
}

// One term block of 256.
template <Shape S, int N>
STOKER_INLINE void super_block(const Tile* tiles, const Act* acts, int64_t block, float* sums) {
  I isum[R][N] = {};
  for (int g = 0; g < 64 / S.run; ++g) {
    I p[R][N] = {};
    add_words<S, S.run>(p, tiles, acts, block, g * S.run);
    STOKER_UNROLL
    for (int r = 0; r < R; ++r) {
      const I s = load<I>(tiles[r].scales + g * S.run / (S.group / 4) * W);
      STOKER_UNROLL
      for (int t = 0; t < N; ++t) isum[r][t] = tile_scaled<S.fits16>(isum[r][t], p[r][t], s);
    }
  }
  F terms[R][N];
  STOKER_UNROLL
  for (int t = 0; t < N; ++t) {
    const F dx = splat(acts[t].scales[block]);
    const int16_t* xsums = S.correction == 32 ? acts[t].sums32 + block * 8 : acts[t].sums16 + block * 16;
    STOKER_UNROLL
    for (int r = 0; r < R; ++r) {
      I c = S.mins ? I{} : isum[r][t];
      if constexpr (S.correction != 0) {
        STOKER_UNROLL
        for (int g = 0; g < 128 / S.correction; ++g)
          c = tile_dot2(c, load<I>(tiles[r].corrections + g * W), word(xsums + 2 * g));
      }
      terms[r][t] = (load<F>(tiles[r].d) * dx) * to_float(S.mins ? isum[r][t] : c);
      if constexpr (S.mins) terms[r][t] = terms[r][t] - (load<F>(tiles[r].dmin) * dx) * to_float(c);
    }
  }
  add_terms<N>(terms, sums, block < BLOCK_LANES);
}

// `live` term blocks of 32: eight, or fewer at the end of a row. They share no scale, so the codes' offset
// is where the sums start.
template <Shape S, int N>
STOKER_INLINE void small_blocks(const Tile* tiles, const Act* acts, int64_t unit, int64_t live, int offset,
                                float* sums, int64_t step) {
  constexpr int halves = S.halves ? 2 : 1;
  int32_t start[N][8 * halves];
  float xsum[N][8];
  for (int t = 0; t < N; ++t) {
    const int16_t* s = S.halves ? acts[t].sums16 + unit * 16 : acts[t].sums32 + unit * 8;
    for (int i = 0; i < 8 * halves; i += 8)
      store(start[t] + i, __builtin_convertvector(load<H8>(s + i), I8) * -offset);
    if constexpr (S.mins) store(xsum[t], to_float8(__builtin_convertvector(load<H8>(s), I8)));
  }
  for (int b = 0; b < live; ++b) {
    F terms[R][N];
    STOKER_UNROLL
    for (int h = 0; h < halves; ++h) {
      I p[R][N];
      STOKER_UNROLL
      for (int t = 0; t < N; ++t) {
        STOKER_UNROLL
        for (int r = 0; r < R; ++r) p[r][t] = splat_int(start[t][b * halves + h]);
      }
      if constexpr (SUMS32) {
        add_words<S, S.run>(p, tiles, acts, unit, (b * halves + h) * S.run);
      } else {
        STOKER_UNROLL
        for (int g = 0; g < 8 / halves / S.run; ++g) {
          I q[R][N] = {};
          add_words<S, S.run>(q, tiles, acts, unit, b * 8 + h * 4 + g * S.run);
          STOKER_UNROLL
          for (int t = 0; t < N; ++t) {
            STOKER_UNROLL
            for (int r = 0; r < R; ++r) p[r][t] = tile_scaled<true>(p[r][t], q[r][t], splat_int(0x10001));
          }
        }
      }
      STOKER_UNROLL
      for (int t = 0; t < N; ++t) {
        const F dx = splat(acts[t].scales[unit * 8 + b]);
        STOKER_UNROLL
        for (int r = 0; r < R; ++r) {
          const F v = (load<F>(tiles[r].d + (b * halves + h) * W) * dx) * to_float(p[r][t]);
          terms[r][t] = h == 0 ? v : terms[r][t] + v;
          if constexpr (S.mins)
            terms[r][t] = terms[r][t] - (load<F>(tiles[r].dmin + b * W) * dx) * splat(xsum[t][b]);
        }
      }
    }
    add_terms<N>(terms, sums + b * step, unit == 0);
  }
}

// The weights that the next tiles are made of: so many bytes of each of R * W rows.
struct Coming {
  uintptr_t w;  // the last ones may lie outside the matrix: only a hint
  int64_t row_bytes, bytes;
};

// Ask for a part of them with each token: all at once they would wait for one another.
STOKER_INLINE void ask(const Coming& c, int64_t token, int64_t end, int64_t tokens) {
  for (int64_t i = R * W * token / tokens; i < R * W * end / tokens; ++i)
    for (int64_t at = 0; at < c.bytes; at += 64)
      __builtin_prefetch(reinterpret_cast<const void*>(c.w + i * c.row_bytes + at), 0, 2);
}

template <Shape S, int N>
STOKER_INLINE int64_t use_tiles(const Tile* tiles, const RowsJob& job, int64_t token, int64_t unit,
                                int64_t live, int offset, float* sums, const Coming& coming) {
  const int64_t step = job.tokens * R * W;
  for (; token + N <= job.tokens; token += N) {
    float* s = sums + token * R * W;
    ask(coming, token, token + N, job.tokens);
    if constexpr (S.super)
      super_block<S, N>(tiles, job.acts + token, unit, s + unit % BLOCK_LANES * step);
    else
      small_blocks<S, N>(tiles, job.acts + token, unit, live, offset, s, step);
  }
  return token;
}

// All tokens times R tiles: one function per shape, shared by the formats.
template <Shape S>
__attribute__((noinline)) static void multiply(const Tile* tiles, const RowsJob& job, int64_t unit,
                                               int64_t live, int offset, float* sums, const Coming& coming) {
  int64_t token = use_tiles<S, TOKENS>(tiles, job, 0, unit, live, offset, sums, coming);
  token = use_tiles<S, 2>(tiles, job, token, unit, live, offset, sums, coming);
  use_tiles<S, 1>(tiles, job, token, unit, live, offset, sums, coming);
}

template <class Fmt>
static void rows_tiled(const RowsJob& job) {
  constexpr int64_t per_unit = 256 / Fmt::BLOCK, unit_bytes = bytes_of<Fmt>(per_unit);
  const int64_t blocks = job.cols / Fmt::BLOCK, row_bytes = bytes_of<Fmt>(blocks);
  float* sums = reinterpret_cast<float*>(job.scratch);  // [8][tokens][R][W]
  Tile tiles[R];
  for (int64_t row = job.row0; row < job.row1; row += R * W) {
    for (int64_t lane = blocks; lane < BLOCK_LANES; ++lane)  // of a short row
      std::memset(sums + lane * job.tokens * R * W, 0, static_cast<size_t>(job.tokens) * R * W * sizeof(float));
    for (int64_t done = 0, unit = 0; done < blocks; done += per_unit, ++unit) {
      const int64_t live = blocks - done < per_unit ? blocks - done : per_unit;
      for (int r = 0; r < R; ++r) {
        const uint8_t* rows[W];
        uint8_t padded[W][unit_bytes];
        for (int i = 0; i < W; ++i) {  // rows that do not exist repeat the last one
          const int64_t at = row + r * W + i < job.row1 ? row + r * W + i : job.row1 - 1;
          rows[i] = job.w + at * row_bytes + unit * unit_bytes;
          if (live < per_unit) {  // the row ends here: complete it with zeros
            std::memset(padded[i], 0, unit_bytes);
            std::memcpy(padded[i], rows[i], static_cast<size_t>(bytes_of<Fmt>(live)));
            rows[i] = padded[i];
          }
        }
        unpack<Fmt>({rows, 0}, tiles[r]);
      }
      const bool last = done + per_unit >= blocks;  // of these rows
      const uint8_t* next = job.w + (last ? (row + R * W) * row_bytes : row * row_bytes + (unit + 1) * unit_bytes);
      const Coming coming = {reinterpret_cast<uintptr_t>(next), row_bytes, unit_bytes};
      multiply<shape_of<Fmt>()>(tiles, job, unit, live, TILE_OFFSET<Fmt>, sums, coming);
    }
    for (int64_t t = 0; t < job.tokens; ++t)
      for (int r = 0; r < R && row + r * W < job.row1; ++r) {
        const float* s = sums + (t * R + r) * W;
        F v[8];
        for (int i = 0; i < 8; ++i) v[i] = load<F>(s + i * job.tokens * R * W);
        const F a = (v[0] + v[4]) + (v[2] + v[6]), b = (v[1] + v[5]) + (v[3] + v[7]);
        const int64_t at = row + r * W, left = job.row1 - at;
        store_some(job.outs[t] + at, a + b, left < W ? static_cast<int>(left) : W);
      }
  }
}

template <class Fmt>
static void rows_quantised(const RowsJob& job) {
  if (job.tokens >= TILE_FROM)
    rows_tiled<Fmt>(job);
  else
    for (int64_t t = 0; t < job.tokens; ++t) one_token<Fmt>(job, t);
}

}  // namespace STOKER_ISA
