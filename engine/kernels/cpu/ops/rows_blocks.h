// Rows of quantised weights times one activation row: the shape of decoding, bound by memory.
//
// The unit is an octet: 8 consecutive blocks become one vector of 8 terms, so one tree of shuffles turns 8
// integer accumulators into a vector, and the float part of the contract costs a few instructions per 8
// blocks. Where a row is a whole number of octets, lane i is partial sum i. Otherwise octets run on
// across row ends (the blocks of a matrix are contiguous, and the quantised activations go on
// cyclically); the terms go through the scratch and are added row by row.
#pragma once

namespace STOKER_ISA {

STOKER_INLINE Act act_from(const Act& a, int64_t phase, int block) {
  return {nullptr, a.codes + phase * block, a.scales + phase, a.sums16 + phase * (block / 16),
          a.sums32 + phase * (block / 32)};
}

template <class Fmt>
STOKER_INLINE Acc block_sum(const uint8_t* b, const int8_t* x, const int16_t* sums16) {
  const S16 scales = Fmt::scales(b);
  Acc s = no_sum();
  s = dot_scaled<0>(s, Fmt::template codes<0>(b), x, scales);
  s = dot_scaled<1>(s, Fmt::template codes<1>(b), x + 64, scales);
  s = dot_scaled<2>(s, Fmt::template codes<2>(b), x + 128, scales);
  s = dot_scaled<3>(s, Fmt::template codes<3>(b), x + 192, scales);
  if constexpr (Fmt::OFFSET != 0) s = minus_offset<Fmt::OFFSET>(s, scales, sums16);
  return s;
}

// Ask for the octet some 4 KiB ahead. The processor's own prefetch stops at page ends, which come every
// few rows; past the end of a matrix there usually is the next one to come.
template <class Fmt>
STOKER_INLINE void prefetch_octet(const uint8_t* w) {
  const uintptr_t ahead = reinterpret_cast<uintptr_t>(w) + 4096;  // may lie outside the array: only a hint
  constexpr int bytes = bytes_of<Fmt>(BLOCK_LANES);
  STOKER_UNROLL
  for (int i = 0; i < bytes; i += 64)
    __builtin_prefetch(reinterpret_cast<const void*>(ahead + i));
}

// The terms of 8 consecutive blocks at w.
template <class Fmt>
STOKER_INLINE F8 octet(const uint8_t* w, const Act& a) {
  const F8 dx = load<F8>(a.scales), d = Fmt::d8(w);
  if constexpr (Fmt::BLOCK == 256) {
    Acc sums[8];
    STOKER_UNROLL
    for (int j = 0; j < 8; ++j)
      sums[j] = block_sum<Fmt>(w + j * Fmt::BYTES, a.codes + 256 * j, a.sums16 + 16 * j);
    const F8 t = (d * dx) * to_float8(reduce(sums));
    if constexpr (!Fmt::MINS) {
      return t;
    } else {
      MinAcc mins[8];
      STOKER_UNROLL
      for (int j = 0; j < 8; ++j) mins[j] = min_sum(Fmt::mins(w + j * Fmt::BYTES), a.sums16 + 16 * j);
      return t - (Fmt::dmin8(w) * dx) * to_float8(reduce_mins(mins));
    }
  } else {
    PairAcc sums[4];
    STOKER_UNROLL
    for (int j = 0; j < 4; ++j) {
      const uint8_t* b = w + bytes_of<Fmt>(2 * j);
      const uint8_t* c = Fmt::STORED == 64 ? b : b + Fmt::BYTES;
      sums[j] = dot_pair<Fmt::WIDE>(Fmt::pair(b, c), a.codes + 64 * j);
    }
    const I8 xsum = __builtin_convertvector(load<H8>(a.sums32), I8);
    constexpr int offset = Fmt::WIDE ? WIDE_BIAS : Fmt::OFFSET;
    I8 isum = reduce_pairs(sums);
    if constexpr (offset != 0) isum -= xsum * offset;
    const F8 t = (d * dx) * to_float8(isum);
    if constexpr (Fmt::MINS)
      return t - (Fmt::dmin8(w) * dx) * to_float8(xsum);
    else
      return t;
  }
}

template <class Fmt>
STOKER_INLINE void one_token(const RowsJob& job, int64_t token) {
  const Act& a = job.acts[token];
  float* out = job.outs[token];
  const int64_t blocks = job.cols / Fmt::BLOCK;
  const uint8_t* w = job.w + job.row0 * bytes_of<Fmt>(blocks);
  if (blocks % BLOCK_LANES == 0) {
    for (int64_t r = job.row0; r < job.row1; ++r) {
      F8 s = {};
      for (int64_t b = 0; b < blocks; b += BLOCK_LANES, w += bytes_of<Fmt>(BLOCK_LANES)) {
        prefetch_octet<Fmt>(w);
        s = s + octet<Fmt>(w, act_from(a, b, Fmt::BLOCK));
      }
      out[r] = tree8(s);
    }
    return;
  }
  float* terms = reinterpret_cast<float*>(job.scratch);
  const I8 lane = {0, 1, 2, 3, 4, 5, 6, 7};
  const int64_t turn = BLOCK_LANES % blocks;  // how far the phase moves with each octet
  for (int64_t r = job.row0; r < job.row1; r += 8) {
    const int64_t rows = job.row1 - r < 8 ? job.row1 - r : 8;
    const int64_t total = rows * blocks;
    int64_t f = 0, phase = 0;
    for (; f + BLOCK_LANES <= total; f += BLOCK_LANES, w += bytes_of<Fmt>(BLOCK_LANES)) {
      prefetch_octet<Fmt>(w);
      store(terms + f, octet<Fmt>(w, act_from(a, phase, Fmt::BLOCK)));
      phase += turn;
      if (phase >= blocks) phase -= blocks;
    }
    if (f < total) {  // the last blocks of the last rows: complete the octet with zeros
      uint8_t padded[bytes_of<Fmt>(BLOCK_LANES)] = {};
      std::memcpy(padded, w, static_cast<size_t>(bytes_of<Fmt>(total - f)));
      store(terms + f, octet<Fmt>(padded, act_from(a, phase, Fmt::BLOCK)));
    }
    for (int64_t i = 0; i < rows; ++i) {
      const float* t = terms + i * blocks;
      F8 s = {};
      int64_t b = 0;
      for (; b + BLOCK_LANES <= blocks; b += BLOCK_LANES) s = s + load<F8>(t + b);
      const F8 last = lane < static_cast<int>(blocks - b) ? load<F8>(t + b) : F8{};
      out[r + i] = tree8(s + last);
    }
  }
}

// x = (d * sub-scale) * code - dmin * sub-minimum.
template <class Fmt>
static void dequantise_blocks(const uint8_t* row, int64_t cols, float* out) {
  constexpr bool super = Fmt::BLOCK == 256;
  for (int64_t at = 0; at < cols; at += Fmt::STORED, row += Fmt::BYTES) {
    uint8_t q[256];
    int16_t scales[16], mins[16];
    if constexpr (super) {
      store64(q, Fmt::template codes<0>(row));
      store64(q + 64, Fmt::template codes<1>(row));
      store64(q + 128, Fmt::template codes<2>(row));
      store64(q + 192, Fmt::template codes<3>(row));
      store_scales(scales, Fmt::scales(row));
      if constexpr (Fmt::MINS) store_scales(mins, Fmt::mins(row));
    } else {
      store64(q, Fmt::pair(row, row));
    }
    for (int i = 0; i < Fmt::STORED; ++i) {
      const int code = Fmt::WIDE ? static_cast<int8_t>(q[i]) : q[i] - Fmt::OFFSET;
      float scale = Fmt::d(row, i / Fmt::BLOCK);
      if constexpr (Fmt::HALVES)
        if (i % 32 >= 16) scale = Fmt::e(row, i / 32);
      if constexpr (super) scale = scale * static_cast<float>(scales[i / 16]);
      float x = scale * static_cast<float>(code);
      if constexpr (Fmt::MINS)
        x = x - Fmt::dmin(row, i / Fmt::BLOCK) * static_cast<float>(super ? mins[i / 16] : 1);
      out[at + i] = x;
    }
  }
}

}  // namespace STOKER_ISA
