// Checks of array arguments: type, contiguity, shape.
#include "arrays.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

namespace stoker {

namespace {

struct KindInfo {
  const char* name;
  int64_t bytes;
  const char* codes;  // of the struct module; those of integers differ between systems, so the size decides
};

constexpr KindInfo KINDS[] = {
    {"float32", 4, "f"}, {"float16 or uint16", 2, "eH"}, {"int32", 4, "il"},
    {"uint64", 8, "QL"}, {"uint8", 1, "B"},
};

bool matches(const Py_buffer& view, const KindInfo& kind) {
  const char* f = view.format != nullptr ? view.format : "B";
  if (*f == '@' || *f == '=' || *f == '<') ++f;
  if (f[0] == '\0' || f[1] != '\0') return false;
  return view.itemsize == kind.bytes && std::strchr(kind.codes, f[0]) != nullptr;
}

template <class Size>
std::string shape_text(const Size* sizes, const Size* end) {
  std::string s;
  for (; sizes != end; ++sizes)
    s += (s.empty() ? "" : ", ") + (*sizes == ANY ? std::string("any") : std::to_string(*sizes));
  return "(" + s + ")";
}

}  // namespace

Array::Array(const char* call, const char* name, nanobind::handle object, Kind kind,
             std::initializer_list<int64_t> shape, bool writable) {
  const int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
  const KindInfo& info = KINDS[static_cast<int>(kind)];
  Py_buffer view;
  if (PyObject_GetBuffer(object.ptr(), &view, flags) != 0) {
    PyErr_Clear();
    require(false, call, name, " must be a ", writable ? "writable " : "", "C-contiguous numpy array of ",
            info.name);
  }
  const std::unique_ptr<Py_buffer, decltype(&PyBuffer_Release)> release(&view, PyBuffer_Release);
  require(matches(view, info), call, name, " must be ", info.name, ", is buffer type '",
          view.format != nullptr ? view.format : "B", "'");
  const Py_ssize_t *sizes = view.shape, *end = sizes + view.ndim;
  const auto fits = [](int64_t asked, int64_t is) { return asked == ANY || asked == is; };
  if (!std::equal(shape.begin(), shape.end(), sizes, end, fits))
    require(false, call, name, " must have shape ", shape_text(shape.begin(), shape.end()), ", has ",
            shape_text(sizes, end));
  data_ = view.buf;
  std::copy(sizes, end, shape_);
}

}  // namespace stoker
