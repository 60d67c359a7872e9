// What the checks of several calls share (module.cpp), and the calls that are checked in files of their own.
#pragma once

#include <cstdint>
#include <string>

#include "arrays.h"
#include "program.h"

namespace stoker {

using nanobind::handle;

inline const FormatOps& find_format(const OpTable& ops, const char* call, int id) {
  for (int i = 0; i < ops.format_count; ++i)
    if (ops.formats[i].id == id) return ops.formats[i];
  throw BadArgument(std::string(call) + ": no kernel for tensor format " + std::to_string(id));
}

inline void check_shape(const char* call, const FormatOps& format, int64_t rows, int64_t cols) {
  require(rows > 0 && cols > 0 && cols % format.stored == 0 && cols <= MAX_COLS, call,
          "a matrix of " + std::to_string(rows) + " x " + std::to_string(cols) + " is not possible in " +
              format.name + " (columns: a multiple of " + std::to_string(format.stored) + ", at most " +
              std::to_string(MAX_COLS) + ")");
}

inline MatrixRef matrix(const OpTable& ops, const char* call, uint64_t address, int format_id, int64_t rows,
                        int64_t cols) {
  const FormatOps& format = find_format(ops, call, format_id);
  check_shape(call, format, rows, cols);
  require(address != 0, call, "the matrix has no address");
  return {reinterpret_cast<const uint8_t*>(static_cast<uintptr_t>(address)), &format, rows, cols};
}

// Returns how many positions are left behind the span.
inline int64_t check_span(const char* call, int64_t start, int64_t n, int64_t ctx) {
  require(start >= 0 && start + n <= ctx, call,
          "positions " + std::to_string(start) + ".." + std::to_string(start + n - 1) +
              " are not in a context of " + std::to_string(ctx));
  return ctx - start - n;
}

inline void check_ids(const char* call, const int32_t* p, int64_t n, int64_t limit) {
  for (int64_t i = 0; i < n; ++i)
    require(p[i] >= 0 && p[i] < limit, call,
            "id " + std::to_string(p[i]) + " is not in 0.." + std::to_string(limit - 1));
}

inline void check_heads(const char* call, int64_t heads, int64_t head_dim) {
  require(heads > 0 && head_dim > 0 && head_dim % 16 == 0 && head_dim <= MAX_HEAD_DIM, call,
          "head_dim is " + std::to_string(head_dim) + ", must be a multiple of 16, at most " +
              std::to_string(MAX_HEAD_DIM));
}

// module_sequence.cpp
Checked store_kv(const Engine& e, handle k, handle v, handle k_cache, handle v_cache, int64_t start,
                 int head_dim);
Checked attention(const Engine& e, handle q, handle k_cache, handle v_cache, int64_t start, int kv_heads,
                  int head_dim, float scale, handle out, int64_t window, handle sinks);
Checked conv_step(const Engine& e, handle x, handle state, handle weight, handle out);
Checked delta_net(const Engine& e, handle qkv, handle g, handle beta, handle state, int k_heads, bool tiled,
                  float eps, float scale, handle out);
Checked choose_blocks(const Engine& e, handle q, handle raw, handle keys, int64_t start, int ratio,
                      int64_t blocks, handle weight, float eps, handle cos, handle sin, handle chosen);
Checked attention_chosen(const Engine& e, handle q, handle k_cache, handle v_cache, int64_t start,
                         int kv_heads, int head_dim, float scale, handle chosen, handle out);
Checked store_latent(const Engine& e, handle c, handle tail, handle cache, int64_t start);
Checked latent_attention(const Engine& e, handle q, handle tail, handle cache, int64_t start, int64_t heads,
                         float scale, handle out);

}  // namespace stoker
