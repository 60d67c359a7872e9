// How work is cut: matrices by rows (and many tokens by tiles), the rest by rows of activations; operations
// along the positions are in sequence.cpp, over the logits in logits.cpp. No cut goes through a sum, so
// results do not depend on it.
#include "engine.h"

#include "contract.h"

#include <algorithm>

namespace stoker {

namespace {

constexpr int64_t UNIT_BYTES = 48 << 10;  // weights of one unit in decoding: 4 microseconds of reading
constexpr int64_t BATCH = 4;  // units in a row for one thread, but for the last ones: the processor's own
                              // prefetch follows 192 KiB better than every second 48
constexpr int64_t ROW_STEP = 32;          // units start at multiples of the widest row tile

// Tokens of one unit, whose sums stay in the first-level cache: of blocks of 32 all eight partial sums are in
// use at a time. Multiples of the tokens that are multiplied at once.
constexpr int64_t MOST_TOKENS = 60;
int64_t most_tokens(const MatrixRef& w) { return w.format->block == 32 ? 36 : MOST_TOKENS; }

int64_t round_up(int64_t v, int64_t step) { return (v + step - 1) / step * step; }

// Rows of one unit: about UNIT_BYTES of weights, and at least four units per thread where possible.
int64_t unit_rows(int64_t rows, int64_t row_bytes, int64_t others, int threads) {
  const int64_t by_bytes = UNIT_BYTES / std::max<int64_t>(row_bytes, 1);
  const int64_t by_share = rows * others / (4 * static_cast<int64_t>(threads));
  return round_up(std::clamp<int64_t>(std::min(by_bytes, by_share), 1, 256), ROW_STEP);
}

}  // namespace

Engine::Engine(const OpTable& ops, int threads) : ops_(ops), pool_(threads) {
  scratch_ = scratch_buffer_.at_least(SCRATCH_BYTES * pool_.threads());
}

void Engine::prepare(ActRows& rows, const float* x, int64_t n, int64_t cols, int block) {
  rows.acts.resize(static_cast<size_t>(n));
  if (block == 1) {
    for (int64_t i = 0; i < n; ++i) rows.acts[i] = {x + i * cols, nullptr, nullptr, nullptr, nullptr};
    return;
  }
  const int64_t held = cols / block + BLOCK_LANES - 1;  // blocks, with the cyclic ones
  const int64_t scales = round_up(held * block, 64);
  const int64_t sums16 = scales + round_up(held * 4, 64);
  const int64_t sums32 = sums16 + round_up(held * (block / 16) * 2, 64);
  const int64_t stride = sums32 + round_up(held * (block / 32) * 2, 64);
  uint8_t* storage = rows.storage.at_least(stride * n);
  for_rows(n, cols, [&](int64_t i, int) {
    uint8_t* p = storage + i * stride;
    const ActOut out = {reinterpret_cast<int8_t*>(p), reinterpret_cast<float*>(p + scales),
                        reinterpret_cast<int16_t*>(p + sums16), reinterpret_cast<int16_t*>(p + sums32)};
    rows.acts[i] = {x + i * cols, out.codes, out.scales, out.sums16, out.sums32};
    ops_.quantise(x + i * cols, cols, block, out);
  });
}

void Engine::matmul(const std::vector<Product>& products, const float* x, int64_t n) {
  const Call call(busy_);
  const auto count = static_cast<int64_t>(products.size());
  const auto tiles = [n](const MatrixRef& w) { return (n + most_tokens(w) - 1) / most_tokens(w); };
  int64_t bytes = 0, rows = 0, units = 0;
  for (const Product& p : products) {
    bytes += p.w.rows * p.w.row_bytes();
    rows += p.w.rows;
  }
  const int64_t others = (n + MOST_TOKENS - 1) / MOST_TOKENS;
  const int64_t step = unit_rows(rows, bytes / std::max<int64_t>(rows, 1), others, pool_.threads());
  outs_.resize(static_cast<size_t>(n * count));
  first_.resize(static_cast<size_t>(count) + 1);
  for (int64_t i = 0; i < count; ++i) {
    const Product& p = products[i];
    bool prepared = false;
    for (int64_t j = 0; j < i; ++j) prepared |= products[j].w.format->block == p.w.format->block;
    if (!prepared) prepare(x_for(p.w), x, n, p.w.cols, p.w.format->block);
    for (int64_t t = 0; t < n; ++t) outs_[i * n + t] = p.out + t * p.w.rows;
    first_[i] = units;
    units += (p.w.rows + step - 1) / step * tiles(p.w);
  }
  first_[count] = units;
  const auto body = [&](int64_t unit, int thread) {
    int64_t i = 0;
    while (unit >= first_[i + 1]) ++i;
    const MatrixRef& w = products[i].w;
    const int64_t most = most_tokens(w), at = unit - first_[i];
    const int64_t row = at / tiles(w) * step, token = at % tiles(w) * most;
    w.format->rows({w.data, w.cols, row, std::min(row + step, w.rows), x_for(w).acts.data() + token,
                    outs_.data() + i * n + token, std::min(most, n - token), scratch(thread)});
  };
  pool_.run(units, body, BATCH);
}

template <class Body>
void Engine::for_groups(const MatrixRef& w, int64_t row_bytes, const Body& body) {
  const auto groups = static_cast<int64_t>(groups_.size());
  const int64_t step = unit_rows(w.rows, row_bytes, groups, pool_.threads()), most = most_tokens(w);
  const int64_t parts = (w.rows + step - 1) / step;
  const auto unit_body = [&](int64_t unit, int thread) {
    const Group& g = groups_[unit / parts];
    const int64_t row = unit % parts * step, end = std::min(row + step, w.rows);
    for (int64_t t = 0; t < g.size; t += most)
      body(Part{g, row, end, g.first + t, std::min(most, g.size - t), thread});
  };
  pool_.run(groups * parts, unit_body, BATCH);
}

void Engine::head_matmul(const MatrixRef& w, int64_t heads, const float* x, int64_t n, float* out) {
  const Call call(busy_);
  const int64_t one = w.rows / heads;
  prepare(x_for(w), x, n * heads, w.cols, w.format->block);
  gathered_.resize(static_cast<size_t>(n * heads));
  outs_.resize(static_cast<size_t>(n * heads));
  groups_.clear();
  for (int64_t h = 0; h < heads; ++h) {
    groups_.push_back({0, h, h * n, n});
    for (int64_t t = 0; t < n; ++t) {
      gathered_[h * n + t] = x_for(w).acts[t * heads + h];
      outs_[h * n + t] = out + (t * heads + h) * one;
    }
  }
  MatrixRef first = w;
  first.rows = one;
  for_groups(first, w.row_bytes(), [&](const Part& p) {
    MatrixRef matrix = first;
    matrix.data += p.group.index * one * w.row_bytes();
    multiply(matrix, p, gathered_.data(), outs_.data());
  });
}

void Engine::rms_norm(const float* x, const float* weight, float eps, int64_t n, int64_t cols, float* out,
                      int64_t groups) {
  for_rows(n, cols, [&](int64_t i, int) {
    ops_.rms_norm(x + i * cols, weight + i % groups * cols, eps, cols, out + i * cols);
  });
}

void Engine::rope(const RopeArgs& a) {
  const auto rotate = a.adjacent ? ops_.rotate_adjacent : ops_.rotate;
  const int64_t work = a.weight != nullptr ? a.head_dim : 2 * a.half;
  for_rows(a.n, work * a.heads, [&](int64_t i, int) {
    const int64_t at = (a.start + i) * a.half;
    for (int64_t h = i * a.heads; h < (i + 1) * a.heads; ++h) {
      float* head = a.x + h * a.head_dim;
      if (a.weight != nullptr) ops_.rms_norm(head, a.weight, a.eps, a.head_dim, head);
      rotate(head + a.first, a.cos + at, a.sin + at, a.half);
    }
  });
}

void Engine::route(const float* logits, int64_t n, int64_t count, int64_t used, const Routing& r,
                   int32_t* ids, float* weights) {
  for_rows(n, count * used, [&](int64_t i, int thread) {
    ops_.route(logits + i * count, count, used, r, ids + i * used, weights + i * used,
               reinterpret_cast<float*>(scratch(thread)));
  });
}

// Two jobs on all threads: gate and up with the activation, then down.
void Engine::experts(const ExpertsArgs& a) {
  const Call call(busy_);
  // Sort the pairs by expert, in token order; pairs whose expert is not there now are left out.
  first_.assign(static_cast<size_t>(a.count) + 1, 0);
  const int64_t all = a.n * a.used;
  for (int64_t p = 0; p < all; ++p)
    if (a.base[a.ids[p]] != 0) ++first_[a.ids[p] + 1];
  groups_.clear();
  for (int64_t e = 0; e < a.count; ++e) {
    if (first_[e + 1] != 0) groups_.push_back({a.base[e], e, first_[e], first_[e + 1]});
    first_[e + 1] += first_[e];
  }
  const int64_t pairs = first_[a.count];
  if (pairs == 0) return;
  pairs_.resize(static_cast<size_t>(pairs));
  for (int64_t p = 0; p < all; ++p)
    if (a.base[a.ids[p]] != 0) pairs_[first_[a.ids[p]]++] = p;

  const int64_t embd = a.gate.cols, ff = a.gate.rows;
  const bool same = a.gate.format->block == a.up.format->block;
  ActRows &gate_x = x_for(a.gate.in(0)), &up_x = x_for(a.up.in(0));
  prepare(gate_x, a.x, a.n, embd, a.gate.format->block);
  if (!same) prepare(up_x, a.x, a.n, embd, a.up.format->block);
  float* hidden = hidden_.floats(2 * pairs * ff);
  gathered_.resize(static_cast<size_t>(2 * pairs));  // of gate, then of up
  outs_.resize(static_cast<size_t>(2 * pairs));
  for (int64_t i = 0; i < pairs; ++i) {
    gathered_[i] = gate_x.acts[pairs_[i] / a.used];
    gathered_[pairs + i] = up_x.acts[pairs_[i] / a.used];
    outs_[i] = hidden + i * ff;
    outs_[pairs + i] = hidden + (pairs + i) * ff;
  }
  for_groups(a.gate.in(0), a.gate.in(0).row_bytes() + a.up.in(0).row_bytes(), [&](const Part& p) {
    multiply(a.gate.in(p.group.slot), p, gathered_.data(), outs_.data());
    multiply(a.up.in(p.group.slot), p, gathered_.data() + pairs, outs_.data() + pairs);
    for (int64_t i = p.first; i < p.first + p.size; ++i) {
      float *gate = outs_[i], *up = outs_[pairs + i];
      add_bias(gate, a.gate_bias, ff, p);
      add_bias(up, a.up_bias, ff, p);
      ops_.glu[a.activation](gate + p.row0, up + p.row0, p.row1 - p.row0);
    }
  });
  prepare(hidden_rows_, hidden, pairs, ff, a.down.format->block);
  for (int64_t i = 0; i < pairs; ++i) outs_[i] = a.y + pairs_[i] * embd;
  for_groups(a.down.in(0), a.down.in(0).row_bytes(), [&](const Part& p) {
    multiply(a.down.in(p.group.slot), p, hidden_rows_.acts.data(), outs_.data());
    for (int64_t i = p.first; i < p.first + p.size; ++i) add_bias(outs_[i], a.down_bias, embd, p);
  });
}

void Engine::combine(const float* y, const float* weights, int64_t n, int64_t used, int64_t cols,
                     float* out) {
  for_rows(n, cols * used, [&](int64_t i, int) {
    ops_.combine(y + i * used * cols, weights + i * used, used, cols, out + i * cols);
  });
}

void Engine::add(float* a, const float* b, int64_t size) {
  for_parts(size, [&](int64_t at, int64_t some) { ops_.add(a + at, b + at, some); });
}

void Engine::fill(float* x, float value, int64_t size) {
  for_parts(size, [&](int64_t at, int64_t some) { std::fill(x + at, x + at + some, value); });
}

void Engine::scale(float* x, float factor, int64_t size) {
  for_parts(size, [&](int64_t at, int64_t some) {
    for (int64_t i = at; i < at + some; ++i) x[i] *= factor;
  });
}

void Engine::inject(float* streams, const float* x, const float* logits, int64_t n, int64_t count,
                    int64_t cols) {
  for_rows(n, count * cols, [&](int64_t i, int) {
    ops_.inject(streams + i * count * cols, x + i * cols, logits + i * count, count, cols);
  });
}

void Engine::keyed_values(const float* key, const float* query, const float* value, int64_t n, int64_t count,
                          int64_t cols, float* out) {
  for_rows(n, count * cols, [&](int64_t i, int) {
    const int64_t at = i * count * cols;
    ops_.keyed_values(key + at, query + at, value + i * cols, count, cols, out + at);
  });
}

void Engine::add_row(float* a, const float* b, int64_t n, int64_t cols) {
  for_rows(n, cols, [&](int64_t i, int) { ops_.add(a + i * cols, b, cols); });
}

void Engine::glu(float* gate, const float* up, int64_t size, Activation activation) {
  for_parts(size, [&](int64_t at, int64_t some) { ops_.glu[activation](gate + at, up + at, some); });
}

void Engine::gate(Gate kind, float* x, const float* gate, int64_t n, int64_t cols, int64_t gates) {
  const bool each = gates == cols;
  const int64_t parts = each ? 1 : gates, part = cols / parts;
  for_rows(n, cols, [&](int64_t i, int) {
    for (int64_t p = 0; p < parts; ++p)
      ops_.gates[kind](x + i * cols + p * part, gate + i * gates + p, !each, part);
  });
}

void Engine::delta_gates(float* decay, float* beta, const float* rate, const float* bias, int64_t n,
                         int64_t heads) {
  for_rows(n, heads, [&](int64_t i, int) {
    ops_.delta_gates(decay + i * heads, beta + i * heads, rate, bias, heads);
  });
}

void Engine::embed(const MatrixRef& w, const int32_t* ids, int64_t n, float* out) {
  for_rows(n, w.cols, [&](int64_t i, int) {
    w.format->dequantise(w.data + ids[i] * w.row_bytes(), w.cols, out + i * w.cols);
  });
}

}  // namespace stoker
