// Checks of the calls along the positions of a timeline, as in module.cpp: caches, attention, recurrent
// layers.
#include <algorithm>

#include "checks.h"
#include "contract.h"

namespace stoker {

namespace {

void check_positions(const char* call, int64_t held) {
  require(held % KEY_CHUNK == 0, call, "the cache holds ", held, " positions, must be a multiple of 64");
}

// The type of the arrays tells the format: bytes are Q8_0.
struct Caches {
  KvFormat format;
  Array k, v;
  Caches(const char* call, handle k_, handle v_, int kv_heads, int head_dim, bool writable)
      : format(nb::getattr(k_, "itemsize", nb::none()).equal(nb::int_(1)) ? KV_Q8_0 : KV_F16),
        k(call, "k_cache", k_, kind(), {ANY, columns(static_cast<int64_t>(kv_heads) * head_dim)}, writable),
        v(call, "v_cache", v_, kind(), {k.size(0), k.size(1)}, writable) {
    require(format == KV_F16 || head_dim % 32 == 0, call, "head_dim must be a multiple of 32 for Q8_0");
    check_positions(call, k.size(0));
  }

 private:
  Kind kind() const { return format == KV_Q8_0 ? Kind::u8 : Kind::f16; }
  int64_t columns(int64_t values) const { return format == KV_Q8_0 ? values / 32 * 34 : values; }
};

// What attention over all positions and over chosen ones have in common.
struct Attending {
  AttentionArgs args;
  int64_t room;
  Attending(const char* call, handle q_, handle k_cache, handle v_cache, int64_t start, int kv_heads,
            int head_dim, float scale, handle out_, int64_t window = 0) {
    check_heads(call, kv_heads, head_dim);
    const int64_t kv_cols = static_cast<int64_t>(kv_heads) * head_dim;
    const Array q(call, "q", q_, Kind::f32, {ANY, ANY});
    require(q.size(1) > 0 && q.size(1) % kv_cols == 0, call,
            "the columns of q must be a multiple of kv_heads * head_dim");
    const Array out(call, "out", out_, Kind::f32, {q.size(0), q.size(1)}, true);
    const Caches caches(call, k_cache, v_cache, kv_heads, head_dim, false);
    const int64_t rows = caches.k.size(0);
    const bool ring = window > 0 && window <= rows - q.size(0) + 1;
    room = check_span(call, start, q.size(0), ring ? NO_LIMIT : rows);
    args = {q, caches.k, caches.v, caches.format, out, q.size(0), start, rows,
            static_cast<int>(q.size(1) / head_dim), kv_heads, head_dim, scale};
  }
};

// Rows of `latent` values and some more.
struct LatentRows : Array {
  LatentRows(const char* call, handle cache, int64_t latent, int64_t more, bool writable)
      : Array(call, "cache", cache, Kind::f16, {ANY, latent + more}, writable) {
    require(latent > 0 && latent % 16 == 0 && more % 16 == 0 && latent + more <= MAX_LATENT_ROW, call,
            "rows are ", latent, " and ", more, " values wide, must be multiples of 16 and together at most ",
            MAX_LATENT_ROW);
    check_positions(call, size(0));
  }
};

Checked store_kv(const Engine&, handle k_, handle v_, handle k_cache, handle v_cache, int64_t start,
                 int head_dim) {
  const char* call = "store_kv";
  check_heads(call, 1, head_dim);
  const Array k(call, "k", k_, Kind::f32, {ANY, ANY});
  const Array v(call, "v", v_, Kind::f32, {k.size(0), k.size(1)});
  require(k.size(1) > 0 && k.size(1) <= MAX_COLS && k.size(1) % head_dim == 0, call,
          "the columns of k must be a multiple of head_dim");
  const int kv_heads = static_cast<int>(k.size(1) / head_dim);
  const Caches caches(call, k_cache, v_cache, kv_heads, head_dim, true);
  const int64_t rows = caches.k.size(0), room = check_span(call, start, k.size(0), NO_LIMIT);
  require(k.size(0) <= rows, call, k.size(0), " positions do not fit ", rows);
  const StoreKvArgs args = {k, v, caches.k, caches.v, caches.format, k.size(0), start, rows, kv_heads, head_dim};
  return moving(args, room, &Engine::store_kv);
}

Checked attention(const Engine&, handle q, handle k_cache, handle v_cache, int64_t start, int kv_heads,
                  int head_dim, float scale, handle out, int64_t window, handle sinks) {
  const char* call = "attention";
  Attending a(call, q, k_cache, v_cache, start, kv_heads, head_dim, scale, out, window);
  require(window >= 0, call, "the window is negative");
  if (window > 0) a.args.window = window;
  a.args.sinks = optional(call, "sinks", sinks, {a.args.heads});
  return moving(a.args, a.room, &Engine::attention);
}

Checked conv_step(const Engine&, handle x_, handle state_, handle weight_, handle out_) {
  const char* call = "conv_step";
  const Array x(call, "x", x_, Kind::f32, {ANY, ANY});
  const Array state(call, "state", state_, Kind::f32, {ANY, x.size(1)}, true);
  const int64_t dilation = state.size(0) / (CONV_TAPS - 1);
  require(state.size(0) == CONV_TAPS - 1 || state.size(0) == 3 * (CONV_TAPS - 1), call,
          "state must have 3 rows, or 9 for inputs 3 tokens apart");
  const Array weight(call, "weight", weight_, Kind::f32, {CONV_TAPS, x.size(1)});
  const Array out(call, "out", out_, Kind::f32, {x.size(0), x.size(1)}, true);
  const ConvJob args = {x, weight, state, out, x.size(0), x.size(1), 0, 0, static_cast<int>(dilation)};
  return {[args](Engine& e, int64_t) { e.conv_step(args); }};
}

Checked delta_net(const Engine&, handle qkv_, handle g_, handle beta_, handle state_, int k_heads, bool tiled,
                  float eps, float scale, handle out_) {
  const char* call = "delta_net";
  const Array state(call, "state", state_, Kind::f32, {ANY, ANY, ANY}, true);
  const int64_t v_heads = state.size(0), dk = state.size(1), dv = state.size(2);
  check_heads(call, v_heads, dk);
  check_heads(call, v_heads, dv);
  require(k_heads > 0 && v_heads % k_heads == 0, call, v_heads, " value heads do not share ", k_heads,
          " key heads");
  const Array qkv(call, "qkv", qkv_, Kind::f32, {ANY, 2 * k_heads * dk + v_heads * dv});
  const Array g(call, "g", g_, Kind::f32, {qkv.size(0), v_heads});
  const Array beta(call, "beta", beta_, Kind::f32, {g.size(0), g.size(1)});
  const Array out(call, "out", out_, Kind::f32, {qkv.size(0), v_heads * dv}, true);
  const DeltaArgs args = {qkv, g, beta, state, out, qkv.size(0), k_heads, static_cast<int>(v_heads),
                          static_cast<int>(dk), static_cast<int>(dv), tiled, eps, scale};
  return {[args](Engine& e, int64_t) { e.delta_net(args); }};
}

Checked choose_blocks(const Engine&, handle q_, handle raw_, handle keys_, int64_t start, int ratio,
                      int64_t blocks, handle weight_, float eps, handle cos_, handle sin_, handle chosen_) {
  const char* call = "choose_blocks";
  const Array raw(call, "raw", raw_, Kind::f16, {ANY, ANY});
  const int64_t dim = raw.size(1);
  check_heads(call, 1, dim);
  const Array q(call, "q", q_, Kind::f32, {ANY, ANY});
  const int64_t heads = q.size(1) / dim;
  require(heads > 0 && heads <= MAX_INDEX_HEADS && heads * dim == q.size(1), call,
          "q must have 1 to ", MAX_INDEX_HEADS, " heads as wide as the raw keys");
  require(ratio > 0 && blocks > 0, call, "ratio and blocks must be positive");
  require(raw.size(0) / ratio <= SCRATCH_BYTES / 8, call, "the context has too many blocks");
  const Array keys(call, "keys", keys_, Kind::f32, {raw.size(0) / ratio, dim}, true);
  const Array weight(call, "weight", weight_, Kind::f32, {dim});
  const Array cos(call, "cos", cos_, Kind::f32, {ANY, ANY});
  const Array sin(call, "sin", sin_, Kind::f32, {cos.size(0), cos.size(1)});
  require(2 * cos.size(1) <= dim, call, "cos and sin rotate more than a key holds");
  const Array chosen(call, "chosen", chosen_, Kind::i32, {q.size(0), (blocks + 1) * ratio - 1}, true);
  const int64_t room = check_span(call, start, q.size(0), std::min(raw.size(0), cos.size(0)));
  const ChooseArgs args = {q, raw, keys, weight, cos, sin, chosen, q.size(0), start, cos.size(1), blocks,
                           static_cast<int>(heads), static_cast<int>(dim), ratio, eps};
  return moving(args, room, &Engine::choose_blocks);
}

Checked attention_chosen(const Engine&, handle q, handle k_cache, handle v_cache, int64_t start, int kv_heads,
                         int head_dim, float scale, handle chosen_, handle out) {
  const char* call = "attention_chosen";
  const Attending a(call, q, k_cache, v_cache, start, kv_heads, head_dim, scale, out);
  const Array chosen(call, "chosen", chosen_, Kind::i32, {a.args.n, ANY});
  const int64_t ctx = start + a.args.n + a.room;
  return {[=, args = a.args](Engine& e, int64_t at) {
            AttentionArgs moved = args;
            moved.start += at;
            e.attention_chosen(moved, chosen, chosen.size(1));
          },
          a.room,
          [=] {
            const auto none = [](int32_t position) { return position < 0; };
            const int32_t* row = chosen;
            for (int64_t i = 0; i < chosen.size(0); ++i, row += chosen.size(1)) {
              const int32_t* end = std::find_if(row, row + chosen.size(1), none);
              require(end != row && std::all_of(end, row + chosen.size(1), none), call,
                      "a row of chosen must hold positions, then -1");
              check_ids(call, row, end - row, ctx);
            }
            return true;
          }};
}

Checked store_latent(const Engine&, handle c_, handle tail_, handle cache_, int64_t start) {
  const char* call = "store_latent";
  const Array c(call, "c", c_, Kind::f32, {ANY, ANY});
  const Array tail(call, "tail", tail_, Kind::f32, {c.size(0), ANY});
  const LatentRows cache(call, cache_, c.size(1), tail.size(1), true);
  const int64_t room = check_span(call, start, c.size(0), cache.size(0));
  const StoreLatentArgs args = {c, tail, cache, c.size(0), start, c.size(1), tail.size(1)};
  return moving(args, room, &Engine::store_latent);
}

Checked latent_attention(const Engine&, handle q_, handle tail_, handle cache_, int64_t start, int64_t heads,
                         float scale, handle out_) {
  const char* call = "latent_attention";
  const Array q(call, "q", q_, Kind::f32, {ANY, ANY});
  const Array tail(call, "tail", tail_, Kind::f32, {q.size(0), ANY});
  require(heads > 0 && q.size(1) % heads == 0 && tail.size(1) % heads == 0, call,
          "the columns of q and tail must be multiples of the ", heads, " heads");
  const int64_t latent = q.size(1) / heads, more = tail.size(1) / heads;
  const LatentRows cache(call, cache_, latent, more, false);
  const Array out(call, "out", out_, Kind::f32, {q.size(0), q.size(1)}, true);
  const int64_t room = check_span(call, start, q.size(0), cache.size(0));
  AttentionArgs args = {q, cache, cache, KV_LATENT, out, q.size(0), start, cache.size(0),
                        static_cast<int>(heads), 1, static_cast<int>(latent + more), scale};
  args.tail = tail;
  args.value_dim = static_cast<int>(latent);
  return moving(args, room, &Engine::attention);
}

}  // namespace

void define_sequence(nb::class_<Engine>& engine, nb::class_<Program>& program) {
  define<&store_kv>(engine, program, "store_kv");
  define<&attention>(engine, program, "attention");
  define<&store_latent>(engine, program, "store_latent");
  define<&latent_attention>(engine, program, "latent_attention");
  define<&conv_step>(engine, program, "conv_step");
  define<&delta_net>(engine, program, "delta_net");
  define<&choose_blocks>(engine, program, "choose_blocks");
  define<&attention_chosen>(engine, program, "attention_chosen");
}

}  // namespace stoker
