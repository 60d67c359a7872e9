// Operations along the positions of a timeline: the key/value cache, attention, and the recurrent layers.
//
// Attention is cut by key/value head and by groups of queries; for a few queries also by spans of keys,
// whose states are then joined in order. So a long context keeps all threads busy whatever their number.
#include "contract.h"
#include "engine.h"

#include <algorithm>

namespace stoker {

void Engine::store_kv(const StoreKvArgs& a) {
  const int64_t cols = static_cast<int64_t>(a.kv_heads) * a.head_dim;
  for_rows(a.n, cols, [&](int64_t i, int thread) {
    StoreKvJob one = {a, (a.start + i) % a.rows, scratch(thread)};
    one.k += i * cols;
    one.v += i * cols;
    ops_.store_kv[a.format](one);
  });
}

void Engine::store_latent(const StoreLatentArgs& a) {
  const int64_t cols = a.latent + a.more;
  for_rows(a.n, cols, [&](int64_t i, int) {
    uint16_t* row = a.cache + (a.start + i) * cols;
    ops_.store_latent(a.c + i * a.latent, a.latent, a.tail + i * a.more, a.more, row);
  });
}

void Engine::attention(const AttentionArgs& a) {
  if (a.n == 0) return;
  const Call call(busy_);
  const int value_dim = a.format == KV_LATENT ? a.value_dim : a.head_dim;
  const int group = a.heads / a.kv_heads, threads = pool_.threads();
  const int64_t row_parts = (a.n + ATTENTION_ROWS - 1) / ATTENTION_ROWS;
  const int64_t first_span = first_key(a.start, a.window) / KEY_SPAN;
  const int64_t spans = (a.start + a.n - 1) / KEY_SPAN + 1 - first_span;
  const bool split = row_parts == 1 && spans > 1 && threads > 1;
  const int64_t row_units = split ? spans : row_parts;
  int step = std::min(group, ATTENTION_HEADS);
  const auto head_parts = [&] { return (group + step - 1) / step; };
  while (step > 1 && threads > 1 && row_units * a.kv_heads * head_parts() < 2 * threads)
    step = (step + 1) / 2;
  const int64_t per_row = static_cast<int64_t>(a.kv_heads) * head_parts();
  const int64_t record = attention_record(value_dim), span_size = a.n * a.heads * record;
  float* states = states_.floats(split ? spans * span_size : 0);
  pool_.run(row_units * per_row, [&](int64_t unit, int thread) {
    const int kv_head = static_cast<int>(unit % per_row / head_parts());
    const int first = static_cast<int>(unit % head_parts()) * step;
    const int head0 = kv_head * group + first, head1 = kv_head * group + std::min(first + step, group);
    // The last queries see the most keys: start with them. The last span may be short: end with it.
    const int64_t row = split ? 0 : (row_parts - 1 - unit / per_row) * ATTENTION_ROWS;
    const int64_t span = split ? unit / per_row : 0;
    AttentionJob part = {a, row, std::min(row + ATTENTION_ROWS, a.n), head0, head1, kv_head,
                         split ? states + span * span_size + a.n * head0 * record : nullptr, first_span + span,
                         scratch(thread)};
    part.value_dim = value_dim;
    ops_.attention[a.format](part);
  });
  if (!split) return;
  for_rows(a.n * a.heads, spans * value_dim, [&](int64_t i, int) {
    const int64_t row = i / a.heads;
    const int head = static_cast<int>(i % a.heads), first = head % group / step * step;
    const int head0 = head - head % group + first, count = std::min(step, group - first);
    const int64_t own = first_key(a.start + row, a.window) / KEY_SPAN;  // its first span
    const int64_t query = a.n * head0 + row * count + head - head0;
    ops_.join_attention(states + (own - first_span) * span_size + query * record, span_size,
                        (a.start + row) / KEY_SPAN + 1 - own, a.sinks == nullptr ? nullptr : a.sinks + head,
                        value_dim, a.out + i * value_dim);
  });
}

void Engine::conv_step(const ConvJob& all) {
  constexpr int64_t step = 256;
  for_rows((all.channels + step - 1) / step, all.tokens * step, [&](int64_t i, int) {
    ConvJob part = all;
    part.channels0 = i * step;
    part.channels1 = std::min((i + 1) * step, all.channels);
    ops_.conv_step(part);
  });
}

void Engine::delta_net(const DeltaArgs& a) {
  const int64_t keys = static_cast<int64_t>(a.k_heads) * a.dk;
  const int64_t row = 2 * keys + static_cast<int64_t>(a.v_heads) * a.dv;
  const int repeats = a.v_heads / a.k_heads;
  for_rows(a.v_heads, static_cast<int64_t>(a.dk) * a.dv * a.n, [&](int64_t head, int thread) {
    const float* q = a.qkv + (a.tiled ? head % a.k_heads : head / repeats) * a.dk;
    ops_.delta_net({q, q + keys, a.qkv + 2 * keys + head * a.dv, a.g + head, a.beta + head,
                    a.state + head * a.dk * a.dv, a.out + head * a.dv, a.n, row, a.v_heads, a.dk, a.dv, a.eps,
                    a.scale, scratch(thread)});
  });
}

}  // namespace stoker
