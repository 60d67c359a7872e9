// What the checks of several calls share (module.cpp, module_sequence.cpp).
#pragma once

#include <cstdint>

#include "arrays.h"
#include "program.h"

namespace stoker {

namespace nb = nanobind;
using nb::handle;

inline const FormatOps& find_format(const OpTable& ops, const char* call, int id) {
  for (int i = 0; i < ops.format_count; ++i)
    if (ops.formats[i].id == id) return ops.formats[i];
  throw BadArgument(std::string(call) + ": no kernel for tensor format " + std::to_string(id));
}

inline void check_shape(const char* call, const FormatOps& format, int64_t rows, int64_t cols) {
  require(rows > 0 && cols > 0 && cols % format.stored == 0 && cols <= MAX_COLS, call,
          "a matrix of ", rows, " x ", cols, " is not possible in ", format.name, " (columns: a multiple of ",
          format.stored, ", at most ", MAX_COLS, ")");
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
  require(start >= 0 && start <= ctx - n, call,
          "positions ", start, "..", start + n - 1, " are not in a context of ", ctx);
  return ctx - start - n;
}

inline void check_ids(const char* call, const int32_t* p, int64_t n, int64_t limit) {
  for (int64_t i = 0; i < n; ++i)
    require(p[i] >= 0 && p[i] < limit, call, "id ", p[i], " is not in 0..", limit - 1);
}

inline void check_heads(const char* call, int64_t heads, int64_t head_dim) {
  require(heads > 0 && head_dim > 0 && head_dim % 16 == 0 && head_dim <= MAX_HEAD_DIM, call,
          "head_dim is ", head_dim, ", must be a multiple of 16, at most ", MAX_HEAD_DIM);
}

// What is left of a call that `run` does, its positions moved on.
template <class Args>
Checked moving(const Args& args, int64_t room, void (Engine::*run)(const Args&)) {
  return {[args, run](Engine& e, int64_t at) {
            Args a = args;
            a.start += at;
            (e.*run)(a);
          },
          room};
}

// The values of an array, null for an empty one.
inline const float* optional(const char* call, const char* name, handle object,
                             std::initializer_list<int64_t> shape) {
  return nb::len(object) == 0 ? nullptr : static_cast<float*>(Array(call, name, object, Kind::f32, shape));
}

// The calls of module_sequence.cpp.
void define_sequence(nb::class_<Engine>& engine, nb::class_<Program>& program);

}  // namespace stoker
