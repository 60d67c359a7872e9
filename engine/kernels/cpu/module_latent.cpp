// The calls of latent attention, as in module.cpp.
#include "checks.h"
#include "contract.h"

namespace stoker {

using nanobind::handle;

Checked head_matmul(const Engine& e, uint64_t address, int format, int64_t rows, int64_t cols, int64_t heads,
                    handle x_, handle out_) {
  const char* call = "head_matmul";
  const MatrixRef w = matrix(e.ops(), call, address, format, rows, cols);
  require(heads > 0 && rows % heads == 0, call,
          std::to_string(rows) + " rows do not divide into " + std::to_string(heads) + " heads");
  const Array x(call, "x", x_, Kind::f32, {ANY, heads * cols});
  const Array out(call, "out", out_, Kind::f32, {x.size(0), rows}, true);
  return {[w, heads, x = x.data<float>(), n = x.size(0), out = out.data<float>()](
      Engine& e, int64_t) { e.head_matmul(w, heads, x, n, out); }};
}

namespace {

// Rows of `latent` values and some more.
struct LatentRows : Array {
  LatentRows(const char* call, handle cache, int64_t latent, int64_t more, bool writable)
      : Array(call, "cache", cache, Kind::f16, {ANY, latent + more}, writable) {
    require(latent > 0 && latent % 16 == 0 && more % 16 == 0 && latent + more <= MAX_LATENT_ROW, call,
            "rows are " + std::to_string(latent) + " and " + std::to_string(more) +
                " values wide, must be multiples of 16 and together at most " + std::to_string(MAX_LATENT_ROW));
    require(size(0) % KEY_CHUNK == 0, call,
            "the cache holds " + std::to_string(size(0)) + " positions, must be a multiple of 64");
  }
};

}  // namespace

Checked store_latent(const Engine&, handle c_, handle tail_, handle cache_, int64_t start) {
  const char* call = "store_latent";
  const Array c(call, "c", c_, Kind::f32, {ANY, ANY});
  const Array tail(call, "tail", tail_, Kind::f32, {c.size(0), ANY});
  const LatentRows cache(call, cache_, c.size(1), tail.size(1), true);
  const int64_t room = check_span(call, start, c.size(0), cache.size(0));
  const StoreLatentArgs args = {c.data<float>(), tail.data<float>(), cache.data<uint16_t>(), c.size(0), start,
                                c.size(1),       tail.size(1)};
  return {[args](Engine& e, int64_t at) {
            StoreLatentArgs a = args;
            a.start += at;
            e.store_latent(a);
          },
          room};
}

Checked latent_attention(const Engine&, handle q_, handle tail_, handle cache_, int64_t start, int64_t heads,
                         float scale, handle out_) {
  const char* call = "latent_attention";
  const Array q(call, "q", q_, Kind::f32, {ANY, ANY});
  const Array tail(call, "tail", tail_, Kind::f32, {q.size(0), ANY});
  require(heads > 0 && q.size(1) % heads == 0 && tail.size(1) % heads == 0, call,
          "the columns of q and tail must be multiples of the " + std::to_string(heads) + " heads");
  const int64_t latent = q.size(1) / heads, more = tail.size(1) / heads;
  const LatentRows cache(call, cache_, latent, more, false);
  const Array out(call, "out", out_, Kind::f32, {q.size(0), q.size(1)}, true);
  const int64_t room = check_span(call, start, q.size(0), cache.size(0));
  AttentionArgs args = {q.data<float>(), cache.data<uint8_t>(), cache.data<uint8_t>(), KV_LATENT,
                        out.data<float>(), q.size(0), start, static_cast<int>(heads), 1,
                        static_cast<int>(latent + more), scale};
  args.tail = tail.data<float>();
  args.value_dim = static_cast<int>(latent);
  return {[args](Engine& e, int64_t at) {
            AttentionArgs a = args;
            a.start += at;
            e.attention(a);
          },
          room};
}

}  // namespace stoker
