// A check of the kernels without Python: every operation, every format and every instruction set of this
// processor, on arrays between unmapped pages, with any bytes as weights. Results must equal those of
// the scalar kernels bit for bit, at any number of threads; the pool must hand out every unit once.
//
//   check            everything          check threads       the pool and the expert layers only
//
// Built with sanitizers, and for other processors under an emulator, by ../test_native.py.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "contract.h"
#include "engine.h"
#include "guarded.h"
#include "isa.h"

namespace {

using namespace stoker;

std::vector<std::unique_ptr<Engine>> engines;  // the first one is the reference: scalar, one thread
int failures = 0;

void same(const std::string& what, const Guarded<float>& got, const std::vector<float>& want, const Engine& e) {
  for (int64_t i = 0; i < got.size(); ++i) {
    const float a = got.data()[i], b = want[static_cast<size_t>(i)];
    if (std::memcmp(&a, &b, sizeof a) == 0 || (a != a && b != b)) continue;
    std::printf("%s, %s, %d threads: value %lld is %a instead of %a\n", what.c_str(), e.ops().name, e.threads(),
                static_cast<long long>(i), a, b);
    ++failures;
    return;
  }
}

// Runs `body(engine, out)` on every engine with the same contents of out; all results must be equal.
void on_all(const std::string& what, int64_t out_size, const std::function<void(Engine&, float*)>& body,
            const float* before = nullptr) {
  std::vector<float> want;
  for (const auto& e : engines) {
    Guarded<float> out(out_size);
    for (int64_t i = 0; i < out_size; ++i) out[i] = before != nullptr ? before[i] : 7.0f;
    body(*e, out.data());
    if (want.empty()) want.assign(out.data(), out.data() + out_size);
    same(what, out, want, *e);
  }
}

const FormatOps& format_of(const Engine& e, int i) { return e.ops().formats[i]; }

MatrixRef matrix(const Engine& e, int format, const uint8_t* data, int64_t rows, int64_t cols) {
  return {data, &format_of(e, format), rows, cols};
}

void check_format(int f, Random& random) {
  const FormatOps& format = format_of(*engines[0], f);
  const std::string name = format.name;
  constexpr int64_t least[] = {1, 3, 8, 11};  // columns, in blocks; unquantised rows get odd widths
  for (int64_t blocks : least) {
    const int64_t cols = format.block == 1 ? blocks * 13 : blocks * format.stored;
    const int64_t rows = 1 + static_cast<int64_t>(random() % 40);
    for (Bytes kind : BYTE_KINDS) {
      const int64_t row_bytes = matrix(*engines[0], f, nullptr, rows, cols).row_bytes();
      Guarded<uint8_t> w(rows * row_bytes);
      fill(w, kind, random);
      std::vector<int32_t> ids;
      for (int64_t r = 0; r < rows; ++r) ids.push_back(static_cast<int32_t>(rows - 1 - r));
      on_all(name + " embed", rows * cols, [&](Engine& e, float* out) {
        e.embed(matrix(e, f, w.data(), rows, cols), ids.data(), rows, out);
      });
      const int64_t counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 35};
      for (int64_t n : counts) {
        if (kind != Bytes::any && n != 1 && n != 7) continue;
        Guarded<float> x(n * cols);
        fill(x, cols, random);
        on_all(name + " matmul of " + std::to_string(n), n * rows, [&](Engine& e, float* out) {
          e.matmul({{matrix(e, f, w.data(), rows, cols), out}}, x.data(), n);
        });
      }
    }
  }
}

void check_experts(Random& random) {
  constexpr int64_t count = 5, used = 3, embd = 512, ff = 256;
  const int formats = engines[0]->ops().format_count;
  for (int f = 0; f < formats; ++f) {
    const int g = (f + 3) % formats;  // gate, up and down may differ
    const auto bytes = [&](int format, int64_t rows, int64_t cols) {
      return rows * matrix(*engines[0], format, nullptr, rows, cols).row_bytes();
    };
    const int64_t up_at = bytes(f, ff, embd), down_at = up_at + bytes(g, ff, embd);
    const int64_t slot = down_at + bytes(f, embd, ff);
    std::vector<std::unique_ptr<Guarded<uint8_t>>> slots;
    std::vector<uint64_t> base;
    for (int64_t i = 0; i < count; ++i) {
      slots.push_back(std::make_unique<Guarded<uint8_t>>(slot));
      fill(*slots.back(), Bytes::any, random);
      base.push_back(i == 2 ? 0 : reinterpret_cast<uint64_t>(slots.back()->data()));
    }
    for (int64_t n : {1, 5, 70}) {
      Guarded<float> x(n * embd);
      fill(x, embd, random);
      std::vector<int32_t> ids;
      for (int64_t i = 0; i < n * used; ++i) ids.push_back(static_cast<int32_t>(random() % count));
      const std::string what = std::string("experts of ") + format_of(*engines[0], f).name;
      Guarded<float> biases(count * (2 * ff + embd));
      fill(biases, embd, random);
      const float* bias = f % 2 == 0 ? nullptr : biases.data();
      on_all(what, n * used * embd, [&](Engine& e, float* y) {
        const ExpertMatrixRef gate = {0, &format_of(e, f), ff, embd}, up = {up_at, &format_of(e, g), ff, embd},
                              down = {down_at, &format_of(e, f), embd, ff};
        e.experts({x.data(), ids.data(), base.data(), n, used, count, gate, up, down, y,
                   static_cast<Activation>(f % ACTIVATIONS), bias, bias == nullptr ? bias : bias + count * ff,
                   bias == nullptr ? bias : bias + 2 * count * ff});
      });
    }
  }
}

void check_attention(Random& random) {
  struct Shape {
    int heads, kv_heads, head_dim;
    int64_t ctx, start, n;
  };
  const Shape shapes[] = {{1, 1, 16, 64, 0, 1},     {3, 1, 48, 128, 63, 2}, {8, 2, 128, 192, 100, 35},
                          {40, 2, 64, 256, 190, 9}, {5, 5, 512, 64, 63, 1}, {7, 1, 112, 320, 0, 70},
                          {6, 2, 32, 1152, 1022, 5}};  // the last one in spans that are joined
  for (const Shape& s : shapes) {
    const int64_t kv_cols = static_cast<int64_t>(s.kv_heads) * s.head_dim, seen = s.start + s.n;
    const int64_t cols = static_cast<int64_t>(s.heads) * s.head_dim;
    Guarded<float> k(seen * kv_cols), v(seen * kv_cols), q(s.n * cols), sinks(s.heads);
    fill(k, kv_cols, random);
    fill(v, kv_cols, random);
    fill(q, cols, random);
    fill(sinks, s.heads, random);
    for (const KvFormat format : {KV_F16, KV_Q8_0})
      for (const int64_t window : {NO_WINDOW, int64_t{3}, int64_t{70}, int64_t{513}}) {
        if (format == KV_Q8_0 && s.head_dim % 32 != 0) continue;
        // With a window a ring of so many rows.
        const int64_t rows = window == NO_WINDOW ? s.ctx : (window - 1 + s.n + 63) / 64 * 64;
        const int64_t bytes = rows * (format == KV_Q8_0 ? kv_cols / 32 * 34 : 2 * kv_cols);
        on_all(format == KV_Q8_0 ? "attention over Q8_0" : "attention", s.n * cols, [&](Engine& e, float* out) {
          Guarded<uint8_t> keys(bytes), values(bytes);
          for (int64_t at = 0; at < seen; at += rows)
            e.store_kv({k.data() + at * kv_cols, v.data() + at * kv_cols, keys.data(), values.data(), format,
                        std::min(rows, seen - at), at, rows, s.kv_heads, s.head_dim});
          e.attention({q.data(), keys.data(), values.data(), format, out, s.n, s.start, rows, s.heads,
                       s.kv_heads, s.head_dim, 0.125f, window, window == NO_WINDOW ? nullptr : sinks.data()});
        });
      }
  }
}

// Some queries see all positions, others choose among blocks; keys and values of those are copied.
void check_chosen(Random& random) {
  constexpr int heads = 6, kv_heads = 2, head_dim = 64, index_heads = 3, dim = 48, ratio = 4;
  constexpr int64_t blocks = 20, start = 60, n = 70, ctx = 192, half = 8, cols = heads * head_dim;
  constexpr int64_t kv_cols = kv_heads * head_dim, seen = start + n, width = (blocks + 1) * ratio - 1;
  Guarded<float> k(seen * kv_cols), v(seen * kv_cols), q(n * cols), key(seen * dim), index_q(n * index_heads * dim);
  Guarded<float> weight(dim), cos(seen * half), sin(seen * half);
  for (auto* x : {&k, &v, &q, &key, &index_q, &weight, &cos, &sin}) fill(*x, 16, random);
  for (KvFormat format : {KV_F16, KV_Q8_0})
    on_all("attention_chosen", n * cols + n * width, [&](Engine& e, float* out) {
      Guarded<uint8_t> k_cache(ctx * kv_cols * 2), v_cache(ctx * kv_cols * 2);
      Guarded<uint16_t> raw(seen * dim);
      Guarded<int32_t> chosen(n * width);
      e.store_kv({k.data(), v.data(), k_cache.data(), v_cache.data(), format, seen, 0, ctx, kv_heads, head_dim});
      e.store_latent({key.data(), key.data(), raw.data(), seen, 0, dim, 0});
      Guarded<float> keys(seen / ratio * dim);  // those of blocks before the first query are random
      std::copy(key.data(), key.data() + keys.size(), keys.data());
      e.choose_blocks({index_q.data(), raw.data(), keys.data(), weight.data(), cos.data(), sin.data(),
                       chosen.data(), n, start, half, blocks, index_heads, dim, ratio, 1e-6f});
      AttentionArgs args = {};
      args.q = q.data();
      args.k_cache = k_cache.data();
      args.v_cache = v_cache.data();
      args.format = format;
      args.out = out;
      args.n = n;
      args.start = start;
      args.rows = ctx;
      args.heads = heads;
      args.kv_heads = kv_heads;
      args.head_dim = head_dim;
      args.scale = 0.125f;
      e.attention_chosen(args, chosen.data(), width);
      for (int64_t i = 0; i < n * width; ++i) out[n * cols + i] = static_cast<float>(chosen[i]);
    });
}

void check_latent(Random& random) {
  struct Shape {
    int heads, latent, more;
    int64_t ctx, start, n;
  };
  const Shape shapes[] = {{1, 16, 0, 64, 0, 1}, {20, 512, 64, 128, 63, 2}, {7, 48, 16, 640, 550, 35}};
  for (const Shape& s : shapes) {
    const int64_t width = s.latent + s.more, seen = s.start + s.n;
    Guarded<float> c(seen * s.latent), tail(seen * s.more), q(s.n * s.heads * s.latent), q_tail(s.n * s.heads * s.more);
    fill(c, s.latent, random);
    fill(tail, s.more, random);
    fill(q, s.latent, random);
    fill(q_tail, s.more, random);
    on_all("latent attention", s.n * s.heads * s.latent, [&](Engine& e, float* out) {
      Guarded<uint16_t> cache(s.ctx * width);
      auto* bytes = reinterpret_cast<uint8_t*>(cache.data());
      e.store_latent({c.data(), tail.data(), cache.data(), seen, 0, s.latent, s.more});
      AttentionArgs args = {q.data(), bytes, bytes, KV_LATENT, out, s.n, s.start, s.ctx, s.heads, 1,
                            static_cast<int>(width), 0.125f};
      args.tail = q_tail.data();
      args.value_dim = s.latent;
      e.attention(args);
    });
  }
}

void check_delta_net(Random& random) {
  struct Shape {
    int k_heads, v_heads, dk, dv;
    int64_t n;
  };
  const Shape shapes[] = {{1, 1, 16, 16, 1}, {2, 4, 48, 80, 5}, {1, 3, 32, 128, 130}};
  for (const Shape& s : shapes) {
    const int64_t row = 2 * s.k_heads * s.dk + s.v_heads * s.dv, outs = s.n * s.v_heads * s.dv;
    Guarded<float> qkv(s.n * row), g(s.n * s.v_heads), beta(s.n * s.v_heads), before(s.v_heads * s.dk * s.dv);
    for (auto* x : {&qkv, &g, &beta, &before}) fill(*x, s.dk, random);
    for (const bool tiled : {false, true})
      on_all("delta_net", outs + before.size(), [&](Engine& e, float* out) {
        Guarded<float> state(before.size());
        std::copy(before.data(), before.data() + before.size(), state.data());
        e.delta_net({qkv.data(), g.data(), beta.data(), state.data(), out, s.n, s.k_heads, s.v_heads, s.dk,
                     s.dv, tiled, 1e-6f, 0.25f});
        std::copy(state.data(), state.data() + state.size(), out + outs);
      });
  }
}

void check_head_matmul(Random& random) {
  for (int f = 0; f < engines[0]->ops().format_count; ++f) {
    constexpr int64_t heads = 3, rows = 37, n = 66;
    const int64_t cols = format_of(*engines[0], f).stored * 2;
    Guarded<uint8_t> w(heads * rows * matrix(*engines[0], f, nullptr, rows, cols).row_bytes());
    fill(w, Bytes::any, random);
    Guarded<float> x(n * heads * cols);
    fill(x, cols, random);
    on_all(std::string("head_matmul of ") + format_of(*engines[0], f).name, n * heads * rows,
           [&](Engine& e, float* out) {
             e.head_matmul(matrix(e, f, w.data(), heads * rows, cols), heads, x.data(), n, out);
           });
  }
}

void check_rows(Random& random) {
  for (int64_t cols : {1, 2, 7, 16, 31, 33, 100, 129, 2049}) {
    constexpr int64_t n = 9;
    Guarded<float> x(n * cols), w(cols), more(n * 3 * cols), weights(n * 3), logits(n * cols);
    fill(x, cols, random);
    fill(w, cols, random);
    fill(more, cols, random);
    fill(weights, 3, random);
    fill(logits, cols, random);
    on_all("rms_norm", n * cols,
           [&](Engine& e, float* out) { e.rms_norm(x.data(), w.data(), 1e-6f, n, cols, out); });
    on_all("rms_norm of groups", n * 3 * cols, [&](Engine& e, float* out) {
      e.rms_norm(more.data(), more.data(), 1e-6f, n * 3, cols, out, 3);
    });
    on_all("inject", n * 3 * cols,
           [&](Engine& e, float* out) { e.inject(out, x.data(), weights.data(), n, 3, cols); }, more.data());
    on_all("keyed_values", n * 3 * cols, [&](Engine& e, float* out) {
      e.keyed_values(more.data(), more.data(), x.data(), n, 3, cols, out);
    });
    on_all("fill", n * cols, [&](Engine& e, float* out) { e.fill(out, -0.0f, n * cols); });
    on_all("delta_gates", 2 * n * cols, [&](Engine& e, float* out) {
      e.delta_gates(out, out + n * cols, w.data(), x.data(), n, cols);
    }, more.data());
    on_all("scale", n * cols, [&](Engine& e, float* out) { e.scale(out, 0.3f, n * cols); }, x.data());
    on_all("conv_step", n * cols, [&](Engine& e, float* out) {
      Guarded<float> state(9 * cols);
      std::copy(more.data(), more.data() + 9 * cols, state.data());
      e.conv_step({x.data(), more.data(), state.data(), out, n, cols, 0, 0, 3});
    });
    on_all("add", n * cols, [&](Engine& e, float* out) { e.add(out, more.data(), n * cols); }, x.data());
    on_all("add_row", n * cols, [&](Engine& e, float* out) { e.add_row(out, w.data(), n, cols); }, x.data());
    for (const Gate gate : {GATE_SIGMOID, GATE_SOFTPLUS})
      for (const int64_t gates : {int64_t{1}, cols})
        on_all("gate", n * cols,
               [&](Engine& e, float* out) { e.gate(gate, out, more.data(), n, cols, gates); }, x.data());
    on_all("combine", n * cols,
           [&](Engine& e, float* out) { e.combine(more.data(), weights.data(), n, 3, cols, out); }, x.data());
    for (int act = 0; act < ACTIVATIONS; ++act)
      on_all("glu", n * cols,
             [&](Engine& e, float* out) { e.ops().glu[act](out, more.data(), n * cols); }, x.data());
    const int64_t used = std::min<int64_t>(cols, 8);
    const int64_t groups = cols % 3 == 0 && cols / 3 >= used ? 3 : 1;
    for (const Routing& r : {Routing{}, Routing{true, false, 2.5f, groups, 1, w.data(), w.data(), w.data()}})
      on_all("route", n * used * 2, [&](Engine& e, float* out) {
        Guarded<int32_t> ids(n * used);
        e.route(logits.data(), n, cols, used, r, ids.data(), out);
        for (int64_t i = 0; i < n * used; ++i) out[n * used + i] = static_cast<float>(ids[i]);
      });
    on_all("total", 2, [&](Engine& e, float* out) { e.total(logits.data(), n * cols, out); });
    const int64_t best = std::min<int64_t>(n * cols, 40);
    on_all("best", 2 * best, [&](Engine& e, float* out) {
      Guarded<int32_t> ids(best);
      e.best(logits.data(), n * cols, best, ids.data(), out);
      for (int64_t i = 0; i < best; ++i) out[best + i] = static_cast<float>(ids[i]);
    });
    if (cols % 16 != 0) continue;
    const int64_t half = cols / 2 - 3;
    Guarded<float> cos(n * half), sin(n * half);
    fill(cos, half, random);
    fill(sin, half, random);
    on_all("head_norm_rope", n * cols, [&](Engine& e, float* out) {
      e.rope({out, cos.data(), sin.data(), n, 0, half, 1, static_cast<int>(cols), 0, false, w.data(), 1e-6f});
    }, x.data());
    on_all("rope", n * cols, [&](Engine& e, float* out) {
      e.rope({out, cos.data(), sin.data(), n, 0, half, 1, static_cast<int>(cols), 6, true});
    }, x.data());
  }
}

void check_pool(Random& random) {
  for (int round = 0; round < 40; ++round) {
    Pool pool(1 + round % 5);
    for (int job = 0; job < 200; ++job) {
      const auto units = static_cast<int64_t>(random() % 60);
      std::vector<std::atomic<int>> done(static_cast<size_t>(units));
      int64_t sum = 0;  // written by the caller, read by workers, and the other way round
      std::vector<int64_t> out(static_cast<size_t>(units));
      pool.run(units, [&](int64_t unit, int thread) {
        if (thread < 0 || thread >= pool.threads()) std::abort();
        done[static_cast<size_t>(unit)].fetch_add(1);
        out[static_cast<size_t>(unit)] = unit;
      });
      for (int64_t i = 0; i < units; ++i) {
        sum += out[static_cast<size_t>(i)];
        if (done[static_cast<size_t>(i)] != 1) ++failures;
      }
      if (sum != units * (units - 1) / 2) ++failures;
      if (random() % 64 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bool all = argc < 2 || std::string(argv[1]) != "threads";
  std::vector<const OpTable*> tables = available_tables();
  std::reverse(tables.begin(), tables.end());
  engines.push_back(std::make_unique<Engine>(*tables[0], 1));
  if (all)
    for (const OpTable* t : tables) engines.push_back(std::make_unique<Engine>(*t, 2));
  engines.push_back(std::make_unique<Engine>(*tables.back(), 4));
  Random random(1);
  if (all) {
    for (int f = 0; f < tables[0]->format_count; ++f) check_format(f, random);
    check_attention(random);
    check_chosen(random);
    check_latent(random);
    check_delta_net(random);
    check_head_matmul(random);
    check_rows(random);
  }
  check_experts(random);
  check_pool(random);
  for (const auto& e : engines) std::printf("%s with %d threads\n", e->ops().name, e->threads());
  std::printf("%d formats, %d failures\n", tables[0]->format_count, failures);
  return failures == 0 ? 0 : 1;
}
