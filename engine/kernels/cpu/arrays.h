// Arguments from Python: views of C-contiguous arrays by the buffer protocol, checked with readable errors.
//
// The buffer protocol instead of DLPack: it costs a tenth of a microsecond per array, and a decode step
// passes thousands.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <initializer_list>
#include <sstream>
#include <stdexcept>

namespace stoker {

// Becomes engine.errors.KernelError in Python.
struct BadArgument : std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class Kind { f32, f16, i32, u64, u8 };

constexpr int64_t ANY = -1;
constexpr int MAX_DIMS = 3;

// Where an array lies and its shape; whoever keeps this keeps the Python object too.
class Array {
 public:
  // `shape`: the size asked for in each dimension, ANY where free.
  Array(const char* call, const char* name, nanobind::handle object, Kind kind,
        std::initializer_list<int64_t> shape, bool writable = false);

  int64_t size(int dim) const { return shape_[dim]; }
  int64_t size() const { return shape_[0] * shape_[1] * shape_[2]; }
  template <class T>
  operator T*() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_;
  int64_t shape_[MAX_DIMS] = {1, 1, 1};
};

// Throws BadArgument "call: parts" unless the condition holds.
template <class... Parts>
void require(bool condition, const char* call, const Parts&... parts) {
  if (condition) return;
  std::ostringstream message;
  ((message << call << ": ") << ... << parts);
  throw BadArgument(message.str());
}

}  // namespace stoker
