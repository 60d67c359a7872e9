// From blocks to tiles: W rows times 256 columns, a vector lane for each row.
//
// Most formats say how a block becomes codes in a few words (twice32, shifted, masked, either, ...). These
// words are defined here once more, on W rows at a time: Rows stands for a place in each of W blocks, BW
// for 64 codes of each. So the same line of a format unpacks one row for decoding and W rows for a prompt,
// and only raw bytes are transposed, never codes. What a format says only of a single row (codebooks) is
// done row by row and then transposed.
#pragma once

namespace STOKER_ISA {

struct alignas(64) Tile {
  int32_t codes[64 * W];       // [64][W] words of four codes
  int32_t scales[16 * W];      // per group, as tile_scaled() wants them
  int32_t corrections[8 * W];  // pairs of int16: sub-minima, or -offset * sub-scale
  float d[16 * W];             // per term block (per half of one with HALVES)
  float dmin[8 * W];
};

// All that the multiply loops know of a format.
struct Shape {
  bool super;      // one term block of 256 codes with sub-scales, or eight of 32 without
  bool wide;       // tile_add() takes signed codes
  bool fits16;     // what tile_scaled() scales fits 16 bits
  bool mins;       // a second float term for minima
  bool halves;     // a second float term for codes 16..31
  int run;         // words of four codes that may be added before they are scaled
  int group;       // codes that share a sub-scale
  int correction;  // codes that share half a correction pair; 0: none
};

// What is taken off the codes in a tile.
template <class Fmt>
constexpr int TILE_OFFSET = Fmt::WIDE ? WIDE_BIAS : unsigned_offset<Fmt>;

template <class Fmt>
constexpr Shape shape_of() {
  constexpr bool super = Fmt::BLOCK == 256, wide = Fmt::WIDE && WIDE_BIAS == 0;
  const int limit = Fmt::SIGNED ? 127 : Fmt::WIDE ? 128 + WIDE_BIAS : Fmt::LIMIT;
  Shape s = {super, wide, super, Fmt::MINS, Fmt::HALVES, 0, Fmt::HALVES ? 16 : 32, 0};
  if constexpr (super) {
    s.group = Fmt::GROUP;
    s.correction = Fmt::MINS ? Fmt::MIN_GROUP : TILE_OFFSET<Fmt> != 0 ? Fmt::GROUP : 0;
  }
  s.run = s.group / 4;
  if (!SUMS32)
    while (s.run * 2 * limit * 127 > 32767) s.run /= 2;
  else if (SCALES16 && super && limit * 16 * 127 <= 32767)
    s.run = 4;
  else
    s.fits16 = false;
  return s;
}

// The place `at` in each of W blocks.
struct Rows {
  const uint8_t* const* row;
  int64_t at;
};
STOKER_INLINE Rows operator+(Rows p, int64_t by) { return {p.row, p.at + by}; }

// 64 codes of each row.
struct BW {
  I word[16];
};
// 16 int16 of each row.
struct SW {
  I pair[8];
};
// Eight bytes of each row.
struct OctW {
  I low, high;
};

STOKER_INLINE BW pair32(Rows p, Rows q) {
  BW x;
  quarter(p.row, p.at, x.word);
  quarter(p.row, p.at + 16, x.word + 4);
  quarter(q.row, q.at, x.word + 8);
  quarter(q.row, q.at + 16, x.word + 12);
  return x;
}
STOKER_INLINE BW load64(Rows p) { return pair32(p, p + 32); }

STOKER_INLINE BW twice32(Rows p) {
  BW x;
  quarter(p.row, p.at, x.word);
  quarter(p.row, p.at + 16, x.word + 4);
  STOKER_UNROLL
  for (int i = 0; i < 8; ++i) x.word[8 + i] = x.word[i];
  return x;
}

STOKER_INLINE BW masked(BW x, uint8_t mask) {
  STOKER_UNROLL
  for (int i = 0; i < 16; ++i) x.word[i] &= mask * 0x01010101;
  return x;
}

STOKER_INLINE BW either(BW x, const BW& y) {
  STOKER_UNROLL
  for (int i = 0; i < 16; ++i) x.word[i] |= y.word[i];
  return x;
}

template <int BITS>
STOKER_INLINE I shifted_word(I x) {
  return BITS < 0 ? x >> -BITS : x << BITS;
}
template <int LO, int HI>
STOKER_INLINE BW shifted(BW x) {
  STOKER_UNROLL
  for (int i = 0; i < 8; ++i) {
    x.word[i] = shifted_word<LO>(x.word[i]);
    x.word[8 + i] = shifted_word<HI>(x.word[8 + i]);
  }
  return x;
}

STOKER_INLINE BW nibble_pair(Rows p, Rows q) {
  BW x;
  quarter(p.row, p.at, x.word);
  quarter(q.row, q.at, x.word + 8);
  STOKER_UNROLL
  for (int i = 0; i < 4; ++i) {
    x.word[4 + i] = x.word[i] >> 4;
    x.word[12 + i] = x.word[8 + i] >> 4;
  }
  return masked(x, 0x0f);
}

// Each eight bytes have the low nibbles of 8 codes, then their high nibbles those of the next 8.
STOKER_INLINE BW nibbles_by_8(Rows p) {
  I w[8];
  quarter(p.row, p.at, w);
  quarter(p.row, p.at + 16, w + 4);
  BW x;
  STOKER_UNROLL
  for (int i = 0; i < 16; ++i) x.word[i] = w[i / 4 * 2 + i % 2] >> (i % 4 < 2 ? 0 : 4);
  return masked(x, 0x0f);
}

// Bytes are bytes, in whichever order: 64 of them at a time.
STOKER_INLINE BW looked_up(BW x, const int8_t* table) {
  for (size_t i = 0; i < sizeof x; i += 64) {
    uint8_t* p = reinterpret_cast<uint8_t*>(&x) + i;
    store64(p, looked_up(load64(p), table));
  }
  return x;
}

STOKER_INLINE OctW k_scales(Rows p) {
  I w[4];
  quarter(p.row, p.at, w);
  return {k_low(w[0]), k_high(w[0], w[2])};
}
STOKER_INLINE OctW k_mins(Rows p) {
  I w[4];
  quarter(p.row, p.at, w);
  return {k_low(w[1]), k_high(w[1], w[2] >> 4)};
}

STOKER_INLINE SW scales_of_32(OctW bytes) {
  SW s;
  STOKER_UNROLL
  for (int i = 0; i < 8; ++i) {
    const I b = ((i < 4 ? bytes.low : bytes.high) >> (i % 4 * 8)) & 255;
    s.pair[i] = b | (b << 16);
  }
  return s;
}

STOKER_INLINE SW scales_of_16(Rows p) {
  I w[4];
  quarter(p.row, p.at, w);
  SW s;
  STOKER_UNROLL
  for (int i = 0; i < 4; ++i) {
    s.pair[2 * i] = (((w[i] << 24) >> 24) & 0xffff) | (((w[i] << 16) >> 24) << 16);
    s.pair[2 * i + 1] = (((w[i] << 8) >> 24) & 0xffff) | ((w[i] >> 24) << 16);
  }
  return s;
}

STOKER_INLINE I byte_at(Rows p) {
  int32_t b[W];
  for (int r = 0; r < W; ++r) b[r] = p.row[r][p.at];
  return load<I>(b);
}

STOKER_INLINE F half_at(Rows p) {
  uint16_t h[W];
  STOKER_UNROLL
  for (int r = 0; r < W; ++r) h[r] = load<uint16_t>(p.row[r] + p.at);
  return load_halves(h);
}

// The words for a value that a format gives row by row: row(r) writes the bytes of row r.
template <int BYTES, class Row>
STOKER_INLINE void by_row(I* words, Row row) {
  alignas(64) uint8_t flat[W][BYTES];
  const uint8_t* rows[W];
  for (int r = 0; r < W; ++r) {
    row(r, flat[r]);
    rows[r] = flat[r];
  }
  STOKER_UNROLL
  for (int i = 0; i < BYTES; i += 16) quarter(rows, i, words + i / 4);
}

template <class Fmt, int PART>
STOKER_INLINE BW codes_of(Rows p) {
  BW x;
  if constexpr (Fmt::BLOCK == 32) {
    const Rows b = p + bytes_of<Fmt>(2 * PART), c = Fmt::STORED == 64 ? b : b + Fmt::BYTES;
    if constexpr (requires { Fmt::pair(b, c); })
      x = Fmt::pair(b, c);
    else
      by_row<64>(x.word, [&](int r, uint8_t* to) {
        store64(to, Fmt::pair(b.row[r] + b.at, c.row[r] + c.at));
      });
  } else if constexpr (requires { Fmt::template codes<PART>(p); }) {
    x = Fmt::template codes<PART>(p);
  } else {
    by_row<64>(x.word, [&](int r, uint8_t* to) { store64(to, unsigned_codes<Fmt, PART>(p.row[r] + p.at)); });
  }
  if constexpr (Fmt::WIDE && WIDE_BIAS != 0) {
    STOKER_UNROLL
    for (int i = 0; i < 16; ++i) x.word[i] ^= static_cast<int32_t>(0x80808080u);
  }
  return x;
}

// Two parts before the first store, so that the compiler sees what they share.
template <class Fmt, int PART>
STOKER_INLINE void unpack_codes(Rows p, Tile& __restrict tile) {
  const BW x = codes_of<Fmt, PART>(p), y = codes_of<Fmt, PART + 1>(p);
  STOKER_UNROLL
  for (int i = 0; i < 16; ++i) store(tile.codes + (PART * 16 + i) * W, x.word[i]);
  STOKER_UNROLL
  for (int i = 0; i < 16; ++i) store(tile.codes + (PART * 16 + 16 + i) * W, y.word[i]);
}

template <class Fmt>
STOKER_INLINE SW scales_of(Rows p) {
  if constexpr (requires { SW{Fmt::scales(p)}; }) {
    return Fmt::scales(p);
  } else {
    SW s;
    by_row<32>(s.pair, [&](int r, uint8_t* to) {
      store_scales(reinterpret_cast<int16_t*>(to), Fmt::scales(p.row[r] + p.at));
    });
    return s;
  }
}

template <class Fmt>
STOKER_INLINE SW mins_of(Rows p) {
  if constexpr (requires { SW{Fmt::mins(p)}; }) {
    return Fmt::mins(p);
  } else {
    SW s;
    by_row<32>(s.pair, [&](int r, uint8_t* to) {
      store_scales(reinterpret_cast<int16_t*>(to), Fmt::mins(p.row[r] + p.at));
    });
    return s;
  }
}

// value(b, i) of each row.
template <class Value>
STOKER_INLINE F each_row(Rows p, int i, Value value) {
  if constexpr (requires { F{value(p, i)}; }) {
    return value(p, i);
  } else {
    float d[W];
    for (int r = 0; r < W; ++r) d[r] = value(p.row[r] + p.at, i);
    return load<F>(d);
  }
}

#define STOKER_EACH_ROW(p, i, name) \
  each_row(p, i, [](auto b, int n) -> decltype(Fmt::name(b, n)) { return Fmt::name(b, n); })

// A sub-scale in the upper half, as tile_scaled() wants it: as int32, as lower half, or as both halves.
template <bool FITS16>
STOKER_INLINE I scale_form(I upper) {
  const I s = upper >> 16;
  if constexpr (!SUMS32) return (s & 0xffff) | (s << 16);
  return FITS16 ? s & 0xffff : s;
}

typedef int16_t Halves __attribute__((vector_size(4 * STOKER_LANES)));

template <class Fmt>
STOKER_INLINE void unpack_scales(Rows p, Tile& __restrict tile) {
  constexpr Shape S = shape_of<Fmt>();
  SW s = scales_of<Fmt>(p);
  STOKER_UNROLL
  for (int i = 0; i < 8; ++i) {
    if constexpr (S.group == 16) {
      store(tile.scales + 2 * i * W, scale_form<S.fits16>(s.pair[i] << 16));
      store(tile.scales + (2 * i + 1) * W, scale_form<S.fits16>(s.pair[i]));
    } else {
      store(tile.scales + i * W, scale_form<S.fits16>(s.pair[i]));
    }
  }
  if constexpr (S.correction != 0) {
    if constexpr (Fmt::MINS) s = mins_of<Fmt>(p);
    STOKER_UNROLL
    for (int i = 0; i < 128 / S.correction; ++i) {
      I c = s.pair[i];
      if constexpr (S.correction == 32) c = (s.pair[2 * i] & 0xffff) | (s.pair[2 * i + 1] << 16);
      if constexpr (!Fmt::MINS) c = bits<I>(bits<Halves>(c) * static_cast<int16_t>(-TILE_OFFSET<Fmt>));
      store(tile.corrections + i * W, c);
    }
  }
}

// 256 columns of W rows.
template <class Fmt>
__attribute__((noinline)) static void unpack(Rows p, Tile& __restrict tile) {
  constexpr int per_stored = Fmt::STORED / Fmt::BLOCK;
  STOKER_UNROLL
  for (int b = 0; b < 256 / Fmt::BLOCK; ++b) {
    const Rows at = p + b / per_stored * Fmt::BYTES;
    const int i = b % per_stored;
    store(tile.d + (Fmt::HALVES ? 2 * b : b) * W, STOKER_EACH_ROW(at, i, d));
    if constexpr (Fmt::HALVES) store(tile.d + (2 * b + 1) * W, STOKER_EACH_ROW(at, i, e));
    if constexpr (Fmt::MINS) store(tile.dmin + b * W, STOKER_EACH_ROW(at, i, dmin));
  }
  unpack_codes<Fmt, 0>(p, tile);
  unpack_codes<Fmt, 2>(p, tile);
  if constexpr (Fmt::BLOCK == 256) unpack_scales<Fmt>(p, tile);
}

#undef STOKER_EACH_ROW

}  // namespace STOKER_ISA
