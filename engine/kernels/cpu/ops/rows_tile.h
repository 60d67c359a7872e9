// Rows of quantised weights times many activation rows: the shape of reading a prompt, bound by arithmetic.
//
// A tile is W rows times 256 columns, unpacked once and then used for every token: codes as [64][W] words
// of four codes each, so a vector lane is a row and nothing has to be reduced across lanes; the sub-scales
// as [groups][W]. Up to TOKENS tokens share each loaded vector of codes, whose four activations are
// broadcast from memory. Minima and offsets cost one 16-bit dot product per two sums of activations.
// The terms of block b go to partial sum b mod 8 as in decoding: eight vectors per token, in the scratch.
#pragma once

#include "rows_blocks.h"

namespace STOKER_ISA {

constexpr int TILE_FROM = 3;             // tokens from which a tile pays
constexpr int TOKENS = W == 16 ? 8 : 4;  // what the registers hold

template <class Fmt>
struct alignas(64) Tile {
  static constexpr bool SUPER = Fmt::BLOCK == 256;
  static constexpr int GROUPS = SUPER ? 16 : 8;  // 16: no format has smaller groups
  int32_t codes[64 * W];
  int32_t scales[GROUPS * W];
  int32_t offsets[8 * W];  // pairs of OFFSET * sub-scale
  int32_t minima[4 * W];   // pairs of sub-minima
  float d[8 * W];          // per block; a super-block has one
  float dmin[W];
};

template <class Fmt, int PART>
STOKER_INLINE void unpack_part(const uint8_t* const* rows, int64_t last_block, Tile<Fmt>& tile) {
  B64 codes[W];
  for (int r = 0; r < W; ++r) {
    if constexpr (Fmt::BLOCK == 256) {
      codes[r] = unsigned_codes<Fmt, PART>(rows[r]);
    } else {
      const int64_t b = 2 * PART < last_block ? 2 * PART : last_block;
      const int64_t c = 2 * PART + 1 < last_block ? 2 * PART + 1 : last_block;
      codes[r] = Fmt::pair(rows[r] + bytes_of<Fmt>(b), rows[r] + bytes_of<Fmt>(c));
      if constexpr (Fmt::WIDE) codes[r] = flipped(codes[r]);
    }
  }
  transpose(codes, tile.codes + PART * 16 * W);
}

STOKER_INLINE int32_t pair_of(int lo, int hi) {
  return static_cast<int32_t>(static_cast<uint32_t>(lo & 0xffff) | static_cast<uint32_t>(hi) << 16);
}

// The binary16 values at the same place of W rows.
STOKER_INLINE void unpack_halves(const uint8_t* const* rows, int64_t at, float* out) {
  uint16_t h[W];
  for (int r = 0; r < W; ++r) h[r] = load<uint16_t>(rows[r] + at);
  store(out, load_halves(h));
}

// rows: the unit's first block in each of W rows; last_block: 7, or less at the end of short rows.
template <class Fmt>
STOKER_INLINE void unpack_tile(const uint8_t* const* rows, int64_t last_block, Tile<Fmt>& tile) {
  unpack_part<Fmt, 0>(rows, last_block, tile);
  unpack_part<Fmt, 1>(rows, last_block, tile);
  unpack_part<Fmt, 2>(rows, last_block, tile);
  unpack_part<Fmt, 3>(rows, last_block, tile);
  if constexpr (Fmt::BLOCK == 256) {
    for (int r = 0; r < W; ++r) {
      int16_t s[16];
      store_scales(s, Fmt::scales(rows[r]));
      for (int g = 0; g < 256 / Fmt::GROUP; ++g) tile.scales[g * W + r] = s[g * (Fmt::GROUP / 16)];
      constexpr int offset = unsigned_offset<Fmt>;
      if constexpr (offset != 0)
        for (int g = 0; g < 8; ++g)
          tile.offsets[g * W + r] = pair_of(offset * s[2 * g], offset * s[2 * g + 1]);
      if constexpr (Fmt::MINS) {
        store_scales(s, Fmt::mins(rows[r]));
        for (int g = 0; g < 4; ++g) tile.minima[g * W + r] = pair_of(s[4 * g], s[4 * g + 2]);
      }
    }
    for (int r = 0; r < W; ++r) tile.d[r] = Fmt::d(rows[r], 0);
    if constexpr (Fmt::MINS) unpack_halves(rows, Fmt::DMIN_AT, tile.dmin);
  } else {
    for (int64_t b = 0; b <= last_block; ++b) unpack_halves(rows, b * Fmt::BYTES + Fmt::D_AT, tile.d + b * W);
  }
}

STOKER_INLINE I word(const void* p) { return splat_int(load<int32_t>(p)); }

// One super-block: partial sum `lane` of N tokens.
template <class Fmt, int N>
STOKER_INLINE void super_block(const Tile<Fmt>& tile, const Act* acts, int64_t block, float* sums) {
  constexpr int step = Fmt::GROUP / 4;
  I isum[N] = {};
  for (int g = 0; g < 256 / Fmt::GROUP; ++g) {
    I p[N] = {};
    STOKER_UNROLL
    for (int k = 0; k < step; ++k) {
      const I w = load<I>(tile.codes + (g * step + k) * W);
      STOKER_UNROLL
      for (int t = 0; t < N; ++t)
        p[t] = tile_dot<false>(p[t], w, word(acts[t].codes + block * 256 + 4 * (g * step + k)));
    }
    const I s = load<I>(tile.scales + g * W);
    STOKER_UNROLL
    for (int t = 0; t < N; ++t) isum[t] += p[t] * s;
  }
  const F d = load<F>(tile.d), dmin = load<F>(tile.dmin);
  STOKER_UNROLL
  for (int t = 0; t < N; ++t) {
    if constexpr (unsigned_offset<Fmt> != 0) {
      I off = {};
      STOKER_UNROLL
      for (int g = 0; g < 8; ++g)
        off = tile_dot2(off, load<I>(tile.offsets + g * W), word(acts[t].sums16 + block * 16 + 2 * g));
      isum[t] -= off;
    }
    const F dx = splat(acts[t].scales[block]);
    F term = (d * dx) * to_float(isum[t]);
    if constexpr (Fmt::MINS) {
      I msum = {};
      STOKER_UNROLL
      for (int g = 0; g < 4; ++g)
        msum = tile_dot2(msum, load<I>(tile.minima + g * W), word(acts[t].sums32 + block * 8 + 2 * g));
      term = term - (dmin * dx) * to_float(msum);
    }
    float* sum = sums + (t * BLOCK_LANES + block % BLOCK_LANES) * W;
    store(sum, load<F>(sum) + term);
  }
}

// Eight blocks of 32 (fewer at the end of a row): all partial sums of N tokens.
template <class Fmt, int N>
STOKER_INLINE void small_blocks(const Tile<Fmt>& tile, const Act* acts, int64_t unit, int64_t last_block,
                                float* sums) {
  constexpr int offset = Fmt::WIDE ? WIDE_BIAS : Fmt::OFFSET;
  for (int64_t b = 0; b <= last_block; ++b) {
    I p[N] = {};
    STOKER_UNROLL
    for (int k = 0; k < 8; ++k) {
      const I w = load<I>(tile.codes + (b * 8 + k) * W);
      STOKER_UNROLL
      for (int t = 0; t < N; ++t)
        p[t] = tile_dot<Fmt::WIDE>(p[t], w, word(acts[t].codes + unit * 256 + 4 * (b * 8 + k)));
    }
    const F d = load<F>(tile.d + b * W);
    STOKER_UNROLL
    for (int t = 0; t < N; ++t) {
      if constexpr (offset != 0) p[t] -= splat_int(offset * acts[t].sums32[unit * 8 + b]);
      const F term = (d * splat(acts[t].scales[unit * 8 + b])) * to_float(p[t]);
      float* sum = sums + (t * BLOCK_LANES + b) * W;
      store(sum, load<F>(sum) + term);
    }
  }
}

template <class Fmt, int N>
STOKER_INLINE void use_tile(const Tile<Fmt>& tile, const Act* acts, int64_t unit, int64_t last_block,
                            float* sums) {
  if constexpr (Fmt::BLOCK == 256)
    super_block<Fmt, N>(tile, acts, unit, sums);
  else
    small_blocks<Fmt, N>(tile, acts, unit, last_block, sums);
}

template <class Fmt>
static void rows_tiled(const RowsJob& job) {
  const int64_t blocks = job.cols / Fmt::BLOCK, per_unit = 256 / Fmt::BLOCK;
  const int64_t units = (blocks + per_unit - 1) / per_unit, row_bytes = bytes_of<Fmt>(blocks);
  float* sums = reinterpret_cast<float*>(job.scratch);  // [tokens][8][W]
  Tile<Fmt> tile;
  for (int64_t r = job.row0; r < job.row1; r += W) {
    const int64_t live = job.row1 - r < W ? job.row1 - r : W;
    std::memset(sums, 0, static_cast<size_t>(job.tokens) * BLOCK_LANES * W * sizeof(float));
    for (int64_t u = 0; u < units; ++u) {
      const uint8_t* rows[W];
      for (int i = 0; i < W; ++i)  // rows that do not exist repeat the last one
        rows[i] = job.w + (r + (i < live ? i : live - 1)) * row_bytes + u * bytes_of<Fmt>(per_unit);
      const int64_t last_block = (blocks - u * per_unit < per_unit ? blocks - u * per_unit : per_unit) - 1;
      unpack_tile<Fmt>(rows, last_block, tile);
      int64_t t = 0;
      for (; t + TOKENS <= job.tokens; t += TOKENS)
        use_tile<Fmt, TOKENS>(tile, job.acts + t, u, last_block, sums + t * BLOCK_LANES * W);
      for (; t + 2 <= job.tokens; t += 2)
        use_tile<Fmt, 2>(tile, job.acts + t, u, last_block, sums + t * BLOCK_LANES * W);
      for (; t < job.tokens; ++t)
        use_tile<Fmt, 1>(tile, job.acts + t, u, last_block, sums + t * BLOCK_LANES * W);
    }
    for (int64_t t = 0; t < job.tokens; ++t) {
      const float* s = sums + t * BLOCK_LANES * W;
      F v[8];
      for (int i = 0; i < 8; ++i) v[i] = load<F>(s + i * W);
      const F a = (v[0] + v[4]) + (v[2] + v[6]), b = (v[1] + v[5]) + (v[3] + v[7]);
      store_some(job.outs[t] + r, a + b, static_cast<int>(live));
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
