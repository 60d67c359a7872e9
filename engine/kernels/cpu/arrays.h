// Arguments from Python: views of C-contiguous arrays by the buffer protocol, checked with readable errors.
//
// The buffer protocol instead of DLPack: it costs a tenth of a microsecond per array, and a decode step
// passes thousands.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>

namespace stoker {

// Becomes engine.errors.KernelError in Python.
struct BadArgument : std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class Kind { f32, f16, i32, u64, u8 };

constexpr int64_t ANY = -1;

class Array {
 public:
  // `shape`: the size asked for in each dimension, ANY where free.
  Array(const char* call, const char* name, nanobind::handle object, Kind kind,
        std::initializer_list<int64_t> shape, bool writable = false);
  ~Array() { PyBuffer_Release(&view_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  int64_t size(int dim) const { return view_.shape[dim]; }
  int64_t bytes() const { return view_.len; }
  template <class T>
  T* data() const {
    return static_cast<T*>(view_.buf);
  }
  template <class T>
  operator T*() const {
    return data<T>();
  }

 private:
  Py_buffer view_;
};

// Bytes of an item; 0 for what is no array.
int64_t item_size(nanobind::handle object);

// Throws BadArgument "call: message" unless the condition holds.
void require(bool condition, const char* call, const std::string& message);

}  // namespace stoker
