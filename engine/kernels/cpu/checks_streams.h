// The arguments of operations over streams and over chosen positions. Included by module.cpp, behind what all
// checks share.

Checked inject(const Engine&, handle streams_, handle x_, handle logits_) {
  const char* call = "inject";
  const Array x(call, "x", x_, Kind::f32, {ANY, ANY});
  const Array logits(call, "logits", logits_, Kind::f32, {x.size(0), ANY});
  const int64_t count = logits.size(1);
  const Array streams(call, "streams", streams_, Kind::f32, {x.size(0), count * x.size(1)}, true);
  return {[streams = streams.data<float>(), x = x.data<float>(), logits = logits.data<float>(), n = x.size(0), count,
           cols = x.size(1)](Engine& e, int64_t) { e.inject(streams, x, logits, n, count, cols); }};
}

Checked keyed_values(const Engine&, handle key_, handle query_, handle value_, handle out_) {
  const char* call = "keyed_values";
  const Array value(call, "value", value_, Kind::f32, {ANY, ANY});
  const Array key(call, "key", key_, Kind::f32, {value.size(0), ANY});
  const int64_t cols = value.size(1), count = cols > 0 ? key.size(1) / cols : 0;
  require(count > 0 && count * cols == key.size(1), call, "the columns of key must be a multiple of those of value");
  const Array query(call, "query", query_, Kind::f32, {value.size(0), key.size(1)});
  const Array out(call, "out", out_, Kind::f32, {value.size(0), key.size(1)}, true);
  return {[key = key.data<float>(), query = query.data<float>(), value = value.data<float>(), n = value.size(0),
           count, cols, out = out.data<float>()](
      Engine& e, int64_t) { e.keyed_values(key, query, value, n, count, cols, out); }};
}

Checked store_rows(const Engine&, handle x_, handle rows_, int64_t start) {
  const char* call = "store_rows";
  const Array x(call, "x", x_, Kind::f32, {ANY, ANY});
  const Array rows(call, "rows", rows_, Kind::f16, {ANY, x.size(1)}, true);
  check_heads(call, 1, x.size(1));
  const int64_t room = check_span(call, start, x.size(0), rows.size(0));
  return {[x = x.data<float>(), n = x.size(0), cols = x.size(1), to = rows.data<uint16_t>() + start * x.size(1)](
              Engine& e, int64_t at) { e.store_rows(x, n, cols, to + at * cols); },
          room};
}

Checked choose_blocks(const Engine&, handle q_, handle raw_, handle keys_, int64_t start, int ratio, int64_t blocks,
                      handle weight_, float eps, handle cos_, handle sin_, handle chosen_) {
  const char* call = "choose_blocks";
  const Array raw(call, "raw", raw_, Kind::f16, {ANY, ANY});
  const int64_t dim = raw.size(1);
  check_heads(call, 1, dim);
  const Array q(call, "q", q_, Kind::f32, {ANY, ANY});
  const int64_t heads = q.size(1) / dim;
  require(heads > 0 && heads <= MAX_INDEX_HEADS && heads * dim == q.size(1), call,
          "q must have 1 to " + std::to_string(MAX_INDEX_HEADS) + " heads as wide as the raw keys");
  require(ratio > 0 && blocks > 0, call, "ratio and blocks must be positive");
  require(raw.size(0) / ratio <= SCRATCH_BYTES / 4, call, "the context has too many blocks");
  const Array keys(call, "keys", keys_, Kind::f32, {raw.size(0) / ratio, dim}, true);
  const Array weight(call, "weight", weight_, Kind::f32, {dim});
  const Array cos(call, "cos", cos_, Kind::f32, {ANY, ANY});
  const Array sin(call, "sin", sin_, Kind::f32, {cos.size(0), cos.size(1)});
  require(2 * cos.size(1) <= dim, call, "cos and sin rotate more than a key holds");
  const Array chosen(call, "chosen", chosen_, Kind::i32, {q.size(0), (blocks + 1) * ratio - 1}, true);
  const int64_t room = check_span(call, start, q.size(0), std::min(raw.size(0), cos.size(0)));
  const ChooseArgs args = {q.data<float>(),
                           raw.data<uint16_t>(),
                           keys.data<float>(),
                           weight.data<float>(),
                           cos.data<float>(),
                           sin.data<float>(),
                           chosen.data<int32_t>(),
                           q.size(0),
                           start,
                           cos.size(1),
                           blocks,
                           static_cast<int>(heads),
                           static_cast<int>(dim),
                           ratio,
                           eps};
  return {[args](Engine& e, int64_t at) {
            ChooseArgs a = args;
            a.start += at;
            e.choose_blocks(a);
          },
          room};
}

Checked attention_chosen(const Engine&, handle q_, handle k_cache, handle v_cache, int64_t start, int kv_heads,
                         int head_dim, float scale, handle chosen_, handle out_) {
  const char* call = "attention_chosen";
  check_heads(call, kv_heads, head_dim);
  const int64_t kv_cols = static_cast<int64_t>(kv_heads) * head_dim;
  const Array q(call, "q", q_, Kind::f32, {ANY, ANY});
  require(q.size(1) > 0 && q.size(1) % kv_cols == 0, call,
          "the columns of q must be a multiple of kv_heads * head_dim");
  const Array out(call, "out", out_, Kind::f32, {q.size(0), q.size(1)}, true);
  const Array chosen(call, "chosen", chosen_, Kind::i32, {q.size(0), ANY});
  const Caches caches(call, k_cache, v_cache, kv_heads, head_dim, false);
  const int64_t room = check_span(call, start, q.size(0), caches.k.size(0));
  AttentionArgs args = {};
  args.q = q.data<float>();
  args.k_cache = caches.k.data<uint8_t>();
  args.v_cache = caches.v.data<uint8_t>();
  args.format = caches.format;
  args.out = out.data<float>();
  args.n = q.size(0);
  args.start = start;
  args.heads = static_cast<int>(q.size(1) / head_dim);
  args.kv_heads = kv_heads;
  args.head_dim = head_dim;
  args.scale = scale;
  const auto* ids = chosen.data<int32_t>();
  const int64_t width = chosen.size(1), ctx = caches.k.size(0);
  return {[args, ids, width](Engine& e, int64_t at) {
            AttentionArgs a = args;
            a.start += at;
            e.attention_chosen(a, ids, width);
          },
          room, [=, n = q.size(0)] {
            for (int64_t i = 0; i < n; ++i) {
              const int32_t* row = ids + i * width;
              const int32_t* end = std::find_if(row, row + width, [](int32_t p) { return p < 0; });
              require(end != row && std::all_of(end, row + width, [](int32_t p) { return p < 0; }), "attention_chosen",
                      "a row of chosen must hold positions, then -1");
              check_ids("attention_chosen", row, end - row, ctx);
            }
            return true;
          }};
}
