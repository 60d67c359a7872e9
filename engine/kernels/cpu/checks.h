// What the checks of several calls share (module.cpp), and the calls that are checked in files of their own.
#pragma once

#include <cstdint>
#include <string>

#include "arrays.h"
#include "program.h"

namespace stoker {

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

// module_latent.cpp
Checked head_matmul(const Engine& e, uint64_t address, int format, int64_t rows, int64_t cols, int64_t heads,
                    nanobind::handle x, nanobind::handle out);
Checked store_latent(const Engine& e, nanobind::handle c, nanobind::handle tail, nanobind::handle cache,
                     int64_t start);
Checked latent_attention(const Engine& e, nanobind::handle q, nanobind::handle tail, nanobind::handle cache,
                         int64_t start, int64_t heads, float scale, nanobind::handle out);

}  // namespace stoker
