// Checks of array arguments: type, contiguity, shape.
#include "arrays.h"

namespace stoker {

namespace {

const char* kind_name(Kind kind) {
  switch (kind) {
    case Kind::f32:
      return "float32";
    case Kind::f16:
      return "float16 or uint16";
    case Kind::i32:
      return "int32";
    case Kind::u64:
      return "uint64";
    case Kind::u8:
      return "uint8";
  }
  return "";
}

// struct-module codes; the native integer codes differ between systems, so the item size decides.
bool matches(const Py_buffer& view, Kind kind) {
  const char* f = view.format != nullptr ? view.format : "B";
  if (*f == '@' || *f == '=' || *f == '<') ++f;
  if (f[0] == '\0' || f[1] != '\0') return false;
  switch (kind) {
    case Kind::f32:
      return f[0] == 'f';
    case Kind::f16:
      return view.itemsize == 2 && (f[0] == 'e' || f[0] == 'H');
    case Kind::i32:
      return view.itemsize == 4 && (f[0] == 'i' || f[0] == 'l');
    case Kind::u64:
      return view.itemsize == 8 && (f[0] == 'Q' || f[0] == 'L');
    case Kind::u8:
      return f[0] == 'B';
  }
  return false;
}

std::string shape_text(const int64_t* sizes, size_t n) {
  std::string s = "(";
  for (size_t i = 0; i < n; ++i) {
    if (i > 0) s += ", ";
    s += sizes[i] == ANY ? std::string("any") : std::to_string(sizes[i]);
  }
  return s + ")";
}

}  // namespace

int64_t item_size(nanobind::handle object) {
  Py_buffer view;
  if (PyObject_GetBuffer(object.ptr(), &view, PyBUF_FORMAT) != 0) {
    PyErr_Clear();
    return 0;
  }
  const int64_t size = view.itemsize;
  PyBuffer_Release(&view);
  return size;
}

void require(bool condition, const char* call, const std::string& message) {
  if (!condition) throw BadArgument(std::string(call) + ": " + message);
}

Array::Array(const char* call, const char* name, nanobind::handle object, Kind kind,
             std::initializer_list<int64_t> shape, bool writable) {
  const int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
  const std::string what = std::string(call) + ": " + name;
  if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) {
    PyErr_Clear();
    throw BadArgument(what + " must be a " + (writable ? "writable " : "") + "C-contiguous numpy array of " +
                      kind_name(kind));
  }
  std::string problem;
  if (!matches(view_, kind)) {
    problem = what + " must be " + kind_name(kind) + ", is buffer type '" +
              (view_.format != nullptr ? view_.format : "B") + "'";
  } else {
    bool same = view_.ndim == static_cast<int>(shape.size());
    for (int i = 0; same && i < view_.ndim; ++i) {
      const int64_t asked = shape.begin()[i];
      same = asked == ANY || asked == view_.shape[i];
    }
    if (!same) {
      std::string is = "(";
      for (int i = 0; i < view_.ndim; ++i) is += (i > 0 ? ", " : "") + std::to_string(view_.shape[i]);
      problem = what + " must have shape " + shape_text(shape.begin(), shape.size()) + ", has " + is + ")";
    }
  }
  if (!problem.empty()) {
    PyBuffer_Release(&view_);
    throw BadArgument(problem);
  }
}

}  // namespace stoker
