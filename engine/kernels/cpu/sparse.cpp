// Attention over chosen positions: which ones, and their keys and values side by side (contract, point 7d).
//
// The chosen keys and values are copied into a small cache of the same layout, and attention walks over that
// as over any other: a query of many sees a few thousand positions, whatever the context. Where a query sees
// all positions, nothing is copied and the bits are the same.
#include "contract.h"
#include "engine.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace stoker {

namespace {

constexpr int64_t SCORED_ROWS = 16;  // queries that are scored at a time

const FormatOps& f32(const OpTable& ops) {
  const auto same = [](const FormatOps& f) { return f.id == 0; };
  return *std::find_if(ops.formats, ops.formats + ops.format_count, same);
}

// Of `lines` rows with KEY_CHUNK items each: the items at `at` become those at `to_at`.
void copy_items(uint8_t* to, int64_t to_at, const uint8_t* from, int64_t at, int64_t lines, int64_t item,
                int64_t items) {
  for (int64_t l = 0; l < lines; ++l) {
    uint8_t* target = to + (l * KEY_CHUNK + to_at) * item;
    const uint8_t* source = from + (l * KEY_CHUNK + at) * item;
    if (items * item == 8)  // a block of four: no call for so little
      std::memcpy(target, source, 8);
    else
      std::memcpy(target, source, static_cast<size_t>(items * item));
  }
}

}  // namespace

// The keys of blocks with a position from `start` on, up to block `end`.
void Engine::block_keys(const ChooseArgs& a, int64_t end) {
  const int64_t first = a.start / a.ratio;
  for_rows(end - first, a.ratio * a.dim, [&](int64_t i, int) {
    const int64_t position = (first + i) * a.ratio;
    float* key = a.keys + (first + i) * a.dim;
    ops_.mean_halves(a.raw + position * a.dim, a.ratio, a.dim, key);
    ops_.rms_norm(key, a.weight, a.eps, a.dim, key);
    ops_.rotate(key, a.cos + position * a.half, a.sin + position * a.half, a.half);
  });
}

void Engine::choose_blocks(const ChooseArgs& a) {
  if (a.n == 0) return;
  const Call call(busy_);
  const auto whole = [&](int64_t i) { return (a.start + i + 1) / a.ratio; };  // blocks that query i sees
  const int64_t most = whole(a.n - 1);
  block_keys(a, most);
  for (int64_t first = 0; first < a.n; first += SCORED_ROWS) {
    const int64_t rows = std::min(SCORED_ROWS, a.n - first), heads = rows * a.heads;
    const bool scored = whole(first + rows - 1) > a.blocks;
    float* products = products_.floats(scored ? heads * most : 0);  // [most][heads of the rows]
    const auto* queries = reinterpret_cast<const uint8_t*>(a.q + first * a.heads * a.dim);
    if (scored) matmul({{{queries, &f32(ops_), heads, a.dim}, products}}, a.keys, most);
    for_rows(rows, most * a.heads, [&](int64_t row, int thread) {
      const int64_t i = first + row, seen = a.start + i + 1, blocks = whole(i);
      int32_t *out = a.chosen + i * a.width(), *end = out + a.width();
      int64_t tail = 0;  // the first position that needs no choice
      if (blocks > a.blocks) {
        auto* score = reinterpret_cast<float*>(scratch(thread));
        auto* order = reinterpret_cast<int32_t*>(score + blocks);
        for (int64_t b = 0; b < blocks; ++b) {
          const float* of_heads = products + b * heads + row * a.heads;
          score[b] = 0.0f;
          for (int h = 0; h < a.heads; ++h) score[b] += of_heads[h] > 0.0f ? of_heads[h] : 0.0f;
        }
        std::iota(order, order + blocks, 0);
        std::nth_element(order, order + a.blocks, order + blocks, [&](int32_t x, int32_t y) {
          return score[x] > score[y] || (score[x] == score[y] && x < y);
        });
        std::sort(order, order + a.blocks);
        for (int64_t b = 0; b < a.blocks; ++b, out += a.ratio)
          std::iota(out, out + a.ratio, order[b] * a.ratio);
        tail = blocks * a.ratio;
      }
      std::iota(out, out + (seen - tail), static_cast<int32_t>(tail));
      std::fill(out + (seen - tail), end, -1);
    });
  }
}

// Keys and values of the `count` chosen positions, as the first ones of another cache.
void Engine::gather(const AttentionArgs& a, const int32_t* chosen, int64_t count, uint8_t* keys,
                    uint8_t* values) {
  const int64_t d = a.head_dim, codes = KEY_CHUNK * d;
  const bool q8 = a.format == KV_Q8_0;
  const int64_t head_bytes = q8 ? codes / 32 * 34 : 2 * codes, chunks = (count + KEY_CHUNK - 1) / KEY_CHUNK;
  for_rows(chunks * a.kv_heads, codes, [&](int64_t unit, int) {
    const int64_t chunk = unit / a.kv_heads, head = unit % a.kv_heads;
    uint8_t *k = keys + unit * head_bytes, *v = values + unit * head_bytes;
    const int32_t* own = chosen + chunk * KEY_CHUNK;
    const int64_t size = std::min<int64_t>(KEY_CHUNK, count - chunk * KEY_CHUNK);
    for (int64_t j = 0, run; j < size; j += run) {
      const int64_t slot = own[j] % KEY_CHUNK;
      run = 1;  // positions that follow each other in one chunk
      while (j + run < size && slot + run < KEY_CHUNK && own[j + run] == own[j] + run) ++run;
      const int64_t from = (own[j] / KEY_CHUNK * a.kv_heads + head) * head_bytes;
      const uint8_t *k_from = a.k_cache + from, *v_from = a.v_cache + from;
      copy_items(k, j, k_from, slot, q8 ? d / 4 : d, q8 ? 4 : 2, run);
      copy_items(v, j, v_from, slot, 1, q8 ? d : 2 * d, run);
      if (!q8) continue;
      copy_items(k + codes, j, k_from + codes, slot, d / 32, 2, run);
      copy_items(v + codes, j, v_from + codes, slot, d / 32, 2, run);
    }
  });
}

void Engine::attention_chosen(const AttentionArgs& a, const int32_t* chosen, int64_t width) {
  const Call call(busy_);
  const int64_t cols = static_cast<int64_t>(a.heads) * a.head_dim;
  const auto count = [&](int64_t i) {
    const int32_t* row = chosen + i * width;
    return std::partition_point(row, row + width, [](int32_t p) { return p >= 0; }) - row;
  };
  AttentionArgs part = a;
  part.n = 0;  // queries at the start that see every position
  while (part.n < a.n && count(part.n) == a.start + part.n + 1) ++part.n;
  attention(part);
  const int64_t chunks = (width + KEY_CHUNK - 1) / KEY_CHUNK;
  const int64_t bytes = chunks * KEY_CHUNK * 2 * a.kv_heads * a.head_dim;
  uint8_t *keys = chosen_keys_.at_least(bytes), *values = chosen_values_.at_least(bytes);
  part.k_cache = keys;
  part.v_cache = values;
  int64_t i = part.n;
  for (part.n = 1; i < a.n; ++i) {
    gather(a, chosen + i * width, count(i), keys, values);
    part.q = a.q + i * cols;
    part.out = a.out + i * cols;
    part.start = count(i) - 1;
    attention(part);
  }
}

}  // namespace stoker
