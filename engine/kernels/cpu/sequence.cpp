// Operations along the positions of a timeline: the key/value cache, attention, and the recurrent layers.
//
// Attention is cut by key/value head and by groups of queries; for a few queries also by spans of keys,
// whose states are then joined in order, some spans at a time. So a long context keeps all threads busy
// whatever their number, and needs no more memory for that.
#include "contract.h"
#include "engine.h"

#include <algorithm>

namespace stoker {

constexpr int64_t STATES_BYTES = 4 << 20;  // of the states of spans, or more if three take more

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
  const int64_t record = attention_record(value_dim), span_size = a.n * a.heads * record;
  const int64_t held = std::min(spans, std::max<int64_t>(3, STATES_BYTES / (4 * span_size)));  // spans
  const bool split = row_parts == 1 && spans > 1 && threads > 1;
  const int64_t row_units = split ? held : row_parts;
  int step = std::min(group, ATTENTION_HEADS);
  const auto head_parts = [&] { return (group + step - 1) / step; };
  while (step > 1 && threads > 1 && row_units * a.kv_heads * head_parts() < 2 * threads)
    step = (step + 1) / 2;
  const int64_t per_row = static_cast<int64_t>(a.kv_heads) * head_parts();
  const auto attend = [&](int64_t part, int64_t row, int64_t span, float* states, int thread) {
    const int kv_head = static_cast<int>(part / head_parts());
    const int first = static_cast<int>(part % head_parts()) * step;
    const int head0 = kv_head * group + first, head1 = kv_head * group + std::min(first + step, group);
    AttentionJob job = {a, row, std::min(row + ATTENTION_ROWS, a.n), head0, head1, kv_head,
                        split ? states + a.n * head0 * record : nullptr, span, scratch(thread)};
    job.value_dim = value_dim;
    ops_.attention[a.format](job);
  };
  if (!split) {  // the last queries see the most keys: start with them
    pool_.run(row_parts * per_row, [&](int64_t unit, int thread) {
      attend(unit % per_row, (row_parts - 1 - unit / per_row) * ATTENTION_ROWS, 0, nullptr, thread);
    });
    return;
  }
  // As many spans at a time as are held; the last one may be short: end with it. The states of the first two
  // stay: a query's first span is one of them, and all later ones are joined to it.
  float* states = states_.floats(held * span_size);
  for (int64_t from = 0, to; from < spans; from = to) {
    const int64_t kept = from == 0 ? 0 : 2;
    float* records = states + kept * span_size;
    to = std::min(spans, from + held - kept);
    pool_.run((to - from) * per_row, [&](int64_t unit, int thread) {
      const int64_t span = unit / per_row;
      attend(unit % per_row, 0, first_span + from + span, records + span * span_size, thread);
    });
    for_rows(a.n * a.heads, (to - from) * value_dim, [&](int64_t i, int) {
      const int64_t position = a.start + i / a.heads, end = position / KEY_SPAN + 1 - first_span;
      if (end <= from) return;
      const int head = static_cast<int>(i % a.heads), first = head % group / step * step;
      const int head0 = head - head % group + first, count = std::min(step, group - first);
      const int64_t query = (a.n * head0 + i / a.heads * count + head - head0) * record;
      const int64_t own = first_key(position, a.window) / KEY_SPAN - first_span;  // its first
      const int64_t next = std::max(from, own + 1);
      ops_.join_attention(states + own * span_size + query, records + (next - from) * span_size + query,
                          span_size, std::min(end, to) - next, a.sinks == nullptr ? nullptr : a.sinks + head,
                          value_dim, end <= to ? a.out + i * value_dim : nullptr);
    });
  }
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
