// Rows of quantised weights times one activation row: the shape of decoding, bound by memory.
//
// The unit is an octet: 8 consecutive blocks become one vector of 8 terms, so one tree of shuffles turns 8
// integer accumulators into a vector, and the float part of the contract costs a few instructions per 8
// blocks. Where a row is a whole number of octets, lane i is partial sum i. Otherwise octets run on
// across row ends (the blocks of a matrix are contiguous, and the quantised activations go on
// cyclically); the terms go through the scratch and are added row by row.
#pragma once

namespace STOKER_ISA {

template <class Fmt>
STOKER_INLINE Act act_from(const Act& a, int64_t phase) {
  return {nullptr, a.codes + phase * Fmt::X_BYTES, a.scales + phase, a.sums16 + phase * (Fmt::BLOCK / 16),
          a.sums32 + phase * (Fmt::BLOCK / 32)};
}

// The activations as octet() wants them, in the scratch where the format has an order of its own.
template <class Fmt>
STOKER_INLINE Act arranged(const Act& a, int64_t blocks, uint8_t* scratch) {
  if constexpr (Fmt::X_BYTES == Fmt::BLOCK) {
    return a;
  } else {
    static_assert(SCRATCH_BYTES / 2 >= (MAX_COLS / Fmt::BLOCK + BLOCK_LANES) * Fmt::X_BYTES);
    static_assert(SCRATCH_BYTES / 2 >= 3 * X_STEP);
    int8_t* codes = reinterpret_cast<int8_t*>(scratch + SCRATCH_BYTES / 2);
    const int64_t count = blocks % BLOCK_LANES == 0 ? blocks : blocks + BLOCK_LANES - 1;
    for (int64_t b = 0; b < count; ++b)
      Fmt::arrange(a.codes + b * Fmt::BLOCK, a.sums16 + b * (Fmt::BLOCK / 16), codes + b * Fmt::X_BYTES);
    return {a.x, codes, a.scales, a.sums16, a.sums32};
  }
}

template <class Fmt, int PART>
STOKER_INLINE Acc add_part(Acc s, const uint8_t* b, const int8_t* x, S16 scales) {
  const B64 codes = Fmt::template codes<PART>(b);
  if constexpr (Fmt::SIGNED)
    return dot_scaled_signed<PART>(s, codes, Fmt::template signs<PART>(b), x + 64 * PART, scales);
  else
    return dot_scaled<PART>(s, codes, x + 64 * PART, scales);
}

template <class Fmt>
STOKER_INLINE Acc block_sum(const uint8_t* b, const int8_t* x, const int16_t* sums16) {
  const S16 scales = Fmt::scales(b);
  Acc s = no_sum();
  s = add_part<Fmt, 0>(s, b, x, scales);
  s = add_part<Fmt, 1>(s, b, x, scales);
  s = add_part<Fmt, 2>(s, b, x, scales);
  s = add_part<Fmt, 3>(s, b, x, scales);
  if constexpr (Fmt::OFFSET != 0) s = minus_offset<Fmt::OFFSET>(s, scales, sums16);
  return s;
}

// Ask for the lines that lie some 3 KiB beyond BYTES bytes at w: the PART-th of so many PARTS of them. The
// processor's own prefetch stops at page ends, which come every few rows; past the end of a matrix there
// usually is the next one to come. Into the second-level cache, each line once, and a few between much
// arithmetic: twenty requests at once wait for one another, and cost a third of the speed.
template <int BYTES, int PARTS = 1>
STOKER_INLINE void prefetch(const uint8_t* w, int part = 0) {
  constexpr int lines = (BYTES + 63) / 64;
  const uintptr_t ahead = reinterpret_cast<uintptr_t>(w) + 3072;  // may lie outside the array: only a hint
  STOKER_UNROLL
  for (int i = lines * part / PARTS; i < lines * (part + 1) / PARTS; ++i)
    __builtin_prefetch(reinterpret_cast<const void*>(ahead + 64 * i), 0, 2);
}

template <class Fmt>
STOKER_INLINE QuadAcc quad_sum(const uint8_t* b, const int8_t* x) {
  const auto nibbles = [b](int j) { return load<B16>(b + j * Fmt::BYTES + Fmt::NIBBLES_AT); };
  const B64 q = quarters(nibbles(0), nibbles(1), nibbles(2), nibbles(3));
  return dot_quad<Fmt::WIDE>(Fmt::template quad<false>(q, b), Fmt::template quad<true>(q, b), x, X_STEP);
}

// With sub-scales and minima of 32 codes each.
template <class Fmt>
STOKER_INLINE Acc block_sum_of_32(const uint8_t* b, B16 scales_and_mins, const int8_t* x) {
  const Spread scales = spread_of_32(scales_and_mins);
  Acc s = dot_spread<0>(no_sum(), Fmt::template codes<0>(b), x, scales);
  s = dot_spread<1>(s, Fmt::template codes<1>(b), x + 64, scales);
  s = dot_spread<2>(s, Fmt::template codes<2>(b), x + 128, scales);
  return dot_spread<3>(s, Fmt::template codes<3>(b), x + 192, scales);
}

// The terms of 8 consecutive blocks at w.
template <class Fmt>
STOKER_INLINE F8 octet(const uint8_t* w, const Act& a) {
  constexpr int bytes = bytes_of<Fmt>(8);
  const auto scaled = [&a](F8 d, I8 sum) { return (d * load<F8>(a.scales)) * to_float8(sum); };
  if constexpr (requires { Fmt::scales_and_mins(w); }) {
    Acc sums[8];
    B16 scales_and_mins[8];
    STOKER_UNROLL
    for (int j = 0; j < 8; ++j) {
      const uint8_t* b = w + j * Fmt::BYTES;
      prefetch<bytes, 8>(w, j);
      scales_and_mins[j] = Fmt::scales_and_mins(b);
      sums[j] = block_sum_of_32<Fmt>(b, scales_and_mins[j], a.codes + 256 * j);
    }
    const I8 msum = min_sums(scales_and_mins, a.sums32);
    return scaled(Fmt::d8(w), reduce(sums)) - scaled(Fmt::dmin8(w), msum);
  } else if constexpr (Fmt::BLOCK == 256) {
    Acc sums[8];
    STOKER_UNROLL
    for (int j = 0; j < 8; ++j) {
      prefetch<bytes, 8>(w, j);
      if constexpr (Fmt::X_BYTES == Fmt::BLOCK)
        sums[j] = block_sum<Fmt>(w + j * Fmt::BYTES, a.codes + 256 * j, a.sums16 + 16 * j);
      else if constexpr (requires { Fmt::own_sum(w, a.codes); })
        sums[j] = Fmt::own_sum(w + j * Fmt::BYTES, a.codes + j * Fmt::X_BYTES);
      else if (j % 2 == 0)
        Fmt::own_sums(w + j * Fmt::BYTES, a.codes + j * Fmt::X_BYTES, sums + j);
    }
    const F8 t = scaled(Fmt::d8(w), reduce(sums));
    if constexpr (!Fmt::MINS) {
      return t;
    } else {
      MinAcc mins[8];
      STOKER_UNROLL
      for (int j = 0; j < 8; ++j) mins[j] = min_sum(Fmt::mins(w + j * Fmt::BYTES), a.sums16 + 16 * j);
      return t - scaled(Fmt::dmin8(w), reduce_mins(mins));
    }
  } else if constexpr (Fmt::NIBBLES_AT >= 0) {
    prefetch<bytes>(w);
    const I8 isum = reduce_quads(quad_sum<Fmt>(w, a.codes), quad_sum<Fmt>(w + 4 * Fmt::BYTES, a.codes + 64));
    const F8 t = scaled(Fmt::d8(w), isum);
    if constexpr (Fmt::MINS)
      return t - scaled(Fmt::dmin8(w), __builtin_convertvector(load<H8>(a.sums32), I8));
    else
      return t;
  } else if constexpr (Fmt::HALVES) {
    QuadAcc sums[4];
    STOKER_UNROLL
    for (int j = 0; j < 4; ++j) {
      const uint8_t* b = w + j * Fmt::BYTES;
      prefetch<bytes, 4>(w, j);
      sums[j] = dot_runs(Fmt::pair(b, b), a.codes + 64 * j);
    }
    I8 first, last;
    reduce_runs(sums, first, last);
    const I8 both = load<I8>(a.sums16);  // the sums of both halves of a block, 16 bits each
    first -= ((both << 16) >> 16) * Fmt::OFFSET;
    last -= (both >> 16) * Fmt::OFFSET;
    return scaled(Fmt::d8(w), first) + scaled(Fmt::e8(w), last);
  } else {
    PairAcc sums[4];
    STOKER_UNROLL
    for (int j = 0; j < 4; ++j) {
      const uint8_t* b = w + bytes_of<Fmt>(2 * j);
      prefetch<bytes, 4>(w, j);
      const uint8_t* c = Fmt::STORED == 64 ? b : b + Fmt::BYTES;
      sums[j] = dot_pair<Fmt::WIDE>(Fmt::pair(b, c), a.codes + 64 * j);
    }
    constexpr int offset = Fmt::WIDE ? WIDE_BIAS : Fmt::OFFSET;
    I8 isum = reduce_pairs(sums);
    if constexpr (offset != 0) isum -= __builtin_convertvector(load<H8>(a.sums32), I8) * offset;
    return scaled(Fmt::d8(w), isum);
  }
}

template <class Fmt>
STOKER_INLINE void one_token(const RowsJob& job, int64_t token) {
  const int64_t blocks = job.cols / Fmt::BLOCK;
  const Act a = arranged<Fmt>(job.acts[token], blocks, job.scratch);
  float* out = job.outs[token];
  const uint8_t* w = job.w + job.row0 * bytes_of<Fmt>(blocks);
  if (blocks % BLOCK_LANES == 0) {
    for (int64_t r = job.row0; r < job.row1; ++r) {
      F8 s = {};
      for (int64_t b = 0; b < blocks; b += BLOCK_LANES, w += bytes_of<Fmt>(BLOCK_LANES))
        s = s + octet<Fmt>(w, act_from<Fmt>(a, b));
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
      store(terms + f, octet<Fmt>(w, act_from<Fmt>(a, phase)));
      phase += turn;
      if (phase >= blocks) phase -= blocks;
    }
    if (f < total) {  // the last blocks of the last rows: complete the octet with zeros
      uint8_t padded[bytes_of<Fmt>(BLOCK_LANES)] = {};
      std::memcpy(padded, w, static_cast<size_t>(bytes_of<Fmt>(total - f)));
      store(terms + f, octet<Fmt>(padded, act_from<Fmt>(a, phase)));
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

// The codes as unsigned bytes, and what they are too large by. Signed codebooks: biased by 64.
template <class Fmt>
constexpr int unsigned_offset = Fmt::SIGNED ? 64 : Fmt::OFFSET;

template <class Fmt, int PART>
STOKER_INLINE B64 unsigned_codes(const uint8_t* b) {
  const B64 codes = Fmt::template codes<PART>(b);
  if constexpr (Fmt::SIGNED)
    return biased(codes, Fmt::template signs<PART>(b));
  else
    return codes;
}

// x = (d * sub-scale) * code - dmin * sub-minimum.
template <class Fmt>
static void dequantise_blocks(const uint8_t* row, int64_t cols, float* out) {
  constexpr bool super = Fmt::BLOCK == 256;
  for (int64_t at = 0; at < cols; at += Fmt::STORED, row += Fmt::BYTES) {
    uint8_t q[256];
    int16_t scales[16], mins[16];
    if constexpr (super) {
      store64(q, unsigned_codes<Fmt, 0>(row));
      store64(q + 64, unsigned_codes<Fmt, 1>(row));
      store64(q + 128, unsigned_codes<Fmt, 2>(row));
      store64(q + 192, unsigned_codes<Fmt, 3>(row));
      store_scales(scales, Fmt::scales(row));
      if constexpr (Fmt::MINS) store_scales(mins, Fmt::mins(row));
    } else {
      store64(q, Fmt::pair(row, row));
    }
    for (int i = 0; i < Fmt::STORED; ++i) {
      const int code = Fmt::WIDE ? static_cast<int8_t>(q[i]) : q[i] - unsigned_offset<Fmt>;
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
