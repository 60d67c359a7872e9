// The Python module engine.kernels.cpu._cpu: checks every argument, then calls the engine without the GIL.
//
// engine/kernels/table.py is the typed face of this; the meaning of each operation is in contract.h.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>

#include "arrays.h"
#include "contract.h"
#include "engine.h"
#include "isa.h"

namespace nb = nanobind;

namespace stoker {
namespace {

using nb::handle;

const FormatOps& find_format(const OpTable& ops, const char* call, int id) {
  for (int i = 0; i < ops.format_count; ++i)
    if (ops.formats[i].id == id) return ops.formats[i];
  throw BadArgument(std::string(call) + ": no kernel for tensor format " + std::to_string(id));
}

void check_shape(const char* call, const FormatOps& format, int64_t rows, int64_t cols) {
  require(rows > 0 && cols > 0 && cols % format.stored == 0 && cols <= MAX_COLS, call,
          "a matrix of " + std::to_string(rows) + " x " + std::to_string(cols) + " is not possible in " +
              format.name + " (columns: a multiple of " + std::to_string(format.stored) + ", at most " +
              std::to_string(MAX_COLS) + ")");
}

MatrixRef matrix(const OpTable& ops, const char* call, uint64_t address, int format_id, int64_t rows,
                 int64_t cols) {
  const FormatOps& format = find_format(ops, call, format_id);
  check_shape(call, format, rows, cols);
  require(address != 0, call, "the matrix has no address");
  return {reinterpret_cast<const uint8_t*>(static_cast<uintptr_t>(address)), &format, rows, cols};
}

struct PyExpertMatrix {
  int64_t offset;
  int format_id;
  int64_t rows, cols;
};

ExpertMatrixRef expert_matrix(const OpTable& ops, const PyExpertMatrix& m) {
  const FormatOps& format = find_format(ops, "experts", m.format_id);
  check_shape("experts", format, m.rows, m.cols);
  require(m.offset >= 0, "experts", "a matrix offset is negative");
  return {m.offset, &format, m.rows, m.cols};
}

void check_ids(const char* call, const Array& ids, int64_t n, int64_t limit) {
  const auto* p = ids.data<const int32_t>();
  for (int64_t i = 0; i < n; ++i)
    require(p[i] >= 0 && p[i] < limit, call,
            "id " + std::to_string(p[i]) + " is not in 0.." + std::to_string(limit - 1));
}

void check_heads(const char* call, int64_t heads, int64_t head_dim) {
  require(heads > 0 && head_dim > 0 && head_dim % 16 == 0 && head_dim <= MAX_HEAD_DIM, call,
          "head_dim is " + std::to_string(head_dim) + ", must be a multiple of 16, at most " +
              std::to_string(MAX_HEAD_DIM));
}

void check_span(const char* call, int64_t start, int64_t n, int64_t ctx) {
  require(start >= 0 && start + n <= ctx, call,
          "positions " + std::to_string(start) + ".." + std::to_string(start + n - 1) +
              " are not in a context of " + std::to_string(ctx));
}

// jobs: a list of (address, format id, rows, columns, out).
void matmul(Engine& e, const nb::list& jobs, handle x_) {
  const Array x("matmul", "x", x_, Kind::f32, {ANY, ANY});
  std::vector<Product> products;
  std::vector<std::unique_ptr<Array>> outs;
  for (handle job_ : jobs) {
    const auto job = nb::cast<nb::tuple>(job_);
    const MatrixRef w = matrix(e.ops(), "matmul", nb::cast<uint64_t>(job[0]), nb::cast<int>(job[1]),
                               nb::cast<int64_t>(job[2]), nb::cast<int64_t>(job[3]));
    require(x.size(1) == w.cols, "matmul",
            "x has " + std::to_string(x.size(1)) + " columns, the matrix has " + std::to_string(w.cols));
    outs.push_back(std::make_unique<Array>("matmul", "out", job[4], Kind::f32,
                                           std::initializer_list<int64_t>{x.size(0), w.rows}, true));
    products.push_back({w, outs.back()->data<float>()});
  }
  nb::gil_scoped_release free;
  e.matmul(products, x.data<float>(), x.size(0));
}

void rms_norm(Engine& e, handle x_, handle weight_, float eps, handle out_) {
  const Array x("rms_norm", "x", x_, Kind::f32, {ANY, ANY});
  const Array weight("rms_norm", "weight", weight_, Kind::f32, {x.size(1)});
  const Array out("rms_norm", "out", out_, Kind::f32, {x.size(0), x.size(1)}, true);
  nb::gil_scoped_release free;
  e.rms_norm(x.data<float>(), weight.data<float>(), eps, x.size(0), x.size(1), out.data<float>());
}

void head_norm_rope(Engine& e, handle x_, int heads, int head_dim, handle weight_, float eps, handle cos_,
                    handle sin_, int64_t start) {
  const char* call = "head_norm_rope";
  check_heads(call, heads, head_dim);
  const Array x(call, "x", x_, Kind::f32, {ANY, static_cast<int64_t>(heads) * head_dim}, true);
  const Array weight(call, "weight", weight_, Kind::f32, {head_dim});
  const Array cos(call, "cos", cos_, Kind::f32, {ANY, ANY});
  const Array sin(call, "sin", sin_, Kind::f32, {cos.size(0), cos.size(1)});
  require(2 * cos.size(1) <= head_dim, call, "cos and sin rotate more than head_dim values");
  check_span(call, start, x.size(0), cos.size(0));
  nb::gil_scoped_release free;
  e.head_norm_rope(x.data<float>(), x.size(0), heads, head_dim, weight.data<float>(), eps, cos.data<float>(),
                   sin.data<float>(), cos.size(1), start);
}

struct Caches {
  Array k, v;
  Caches(const char* call, handle k_, handle v_, int64_t cols, bool writable)
      : k(call, "k_cache", k_, Kind::f16, {ANY, cols}, writable),
        v(call, "v_cache", v_, Kind::f16, {k.size(0), cols}, writable) {
    require(k.size(0) % KEY_CHUNK == 0, call,
            "the cache holds " + std::to_string(k.size(0)) + " positions, must be a multiple of 64");
  }
};

void store_kv(Engine& e, handle k_, handle v_, handle k_cache, handle v_cache, int64_t start) {
  const char* call = "store_kv";
  const Array k(call, "k", k_, Kind::f32, {ANY, ANY});
  const Array v(call, "v", v_, Kind::f32, {k.size(0), k.size(1)});
  require(k.size(1) % 16 == 0, call, "the columns of k must be a multiple of 16");
  const Caches caches(call, k_cache, v_cache, k.size(1), true);
  check_span(call, start, k.size(0), caches.k.size(0));
  nb::gil_scoped_release free;
  e.store_kv(k.data<float>(), v.data<float>(), caches.k.data<uint16_t>(), caches.v.data<uint16_t>(),
             k.size(0), k.size(1), start);
}

void attention(Engine& e, handle q_, handle k_cache, handle v_cache, int64_t start, int kv_heads,
               int head_dim, float scale, handle out_) {
  const char* call = "attention";
  check_heads(call, kv_heads, head_dim);
  const int64_t kv_cols = static_cast<int64_t>(kv_heads) * head_dim;
  const Array q(call, "q", q_, Kind::f32, {ANY, ANY});
  require(q.size(1) > 0 && q.size(1) % kv_cols == 0, call,
          "the columns of q must be a multiple of kv_heads * head_dim");
  const Array out(call, "out", out_, Kind::f32, {q.size(0), q.size(1)}, true);
  const Caches caches(call, k_cache, v_cache, kv_cols, false);
  check_span(call, start, q.size(0), caches.k.size(0));
  nb::gil_scoped_release free;
  e.attention({q.data<float>(), caches.k.data<uint16_t>(), caches.v.data<uint16_t>(), out.data<float>(),
               q.size(0), start, static_cast<int>(q.size(1) / head_dim), kv_heads, head_dim, scale});
}

void route(Engine& e, handle logits_, int64_t used, handle ids_, handle weights_) {
  const Array logits("route", "logits", logits_, Kind::f32, {ANY, ANY});
  require(used > 0 && used <= logits.size(1), "route",
          std::to_string(used) + " of " + std::to_string(logits.size(1)) + " experts is not possible");
  require(logits.size(1) <= MAX_COLS, "route", "too many experts");
  const Array ids("route", "ids", ids_, Kind::i32, {logits.size(0), used}, true);
  const Array weights("route", "weights", weights_, Kind::f32, {logits.size(0), used}, true);
  nb::gil_scoped_release free;
  e.route(logits.data<float>(), logits.size(0), logits.size(1), used, ids.data<int32_t>(),
          weights.data<float>());
}

void experts(Engine& e, handle x_, handle ids_, handle base_, const PyExpertMatrix& gate,
             const PyExpertMatrix& up, const PyExpertMatrix& down, handle y_) {
  const char* call = "experts";
  const ExpertsArgs m = {nullptr,
                         nullptr,
                         nullptr,
                         0,
                         0,
                         0,
                         expert_matrix(e.ops(), gate),
                         expert_matrix(e.ops(), up),
                         expert_matrix(e.ops(), down),
                         nullptr};
  require(gate.rows == up.rows && gate.cols == up.cols && down.cols == gate.rows && down.rows == gate.cols,
          call, "gate, up and down do not fit together");
  const Array x(call, "x", x_, Kind::f32, {ANY, gate.cols});
  const Array ids(call, "ids", ids_, Kind::i32, {x.size(0), ANY});
  const Array base(call, "base", base_, Kind::u64, {ANY});
  const Array y(call, "y", y_, Kind::f32, {x.size(0), ids.size(1), gate.cols}, true);
  check_ids(call, ids, x.size(0) * ids.size(1), base.size(0));
  nb::gil_scoped_release free;
  e.experts({x.data<float>(), ids.data<int32_t>(), base.data<uint64_t>(), x.size(0), ids.size(1),
             base.size(0), m.gate, m.up, m.down, y.data<float>()});
}

void combine(Engine& e, handle y_, handle weights_, handle out_) {
  const Array y("combine", "y", y_, Kind::f32, {ANY, ANY, ANY});
  const Array weights("combine", "weights", weights_, Kind::f32, {y.size(0), y.size(1)});
  const Array out("combine", "out", out_, Kind::f32, {y.size(0), y.size(2)}, true);
  require(y.size(1) > 0, "combine", "y has no experts");
  nb::gil_scoped_release free;
  e.combine(y.data<float>(), weights.data<float>(), y.size(0), y.size(1), y.size(2), out.data<float>());
}

void add(Engine& e, handle a_, handle b_) {
  const Array a("add", "a", a_, Kind::f32, {ANY, ANY}, true);
  const Array b("add", "b", b_, Kind::f32, {a.size(0), a.size(1)});
  nb::gil_scoped_release free;
  e.add(a.data<float>(), b.data<float>(), a.size(0) * a.size(1));
}

void embed(Engine& e, uint64_t address, int format, int64_t rows, int64_t cols, handle ids_, handle out_) {
  const MatrixRef w = matrix(e.ops(), "embed", address, format, rows, cols);
  const Array ids("embed", "ids", ids_, Kind::i32, {ANY});
  const Array out("embed", "out", out_, Kind::f32, {ids.size(0), cols}, true);
  check_ids("embed", ids, ids.size(0), rows);
  nb::gil_scoped_release free;
  e.embed(w, ids.data<int32_t>(), ids.size(0), out.data<float>());
}

std::vector<std::string> available_isas() {
  std::vector<std::string> names;
  for (const OpTable* t : available_tables()) names.emplace_back(t->name);
  return names;
}

// Type numbers of the tensor formats that the engine computes with.
std::vector<int> formats(const Engine& e) {
  std::vector<int> ids;
  for (int i = 0; i < e.ops().format_count; ++i) ids.push_back(e.ops().formats[i].id);
  return ids;
}

std::unique_ptr<Engine> make_engine(int threads, const std::string& isa) {
  require(threads >= 1 && threads <= 1024, "Kernels",
          "threads must be 1..1024, is " + std::to_string(threads));
  for (const OpTable* t : available_tables())
    if (isa == "auto" || isa == t->name) return std::make_unique<Engine>(*t, threads);
  throw BadArgument("Kernels: the instruction set '" + isa + "' is unknown or not on this processor");
}

}  // namespace
}  // namespace stoker

NB_MODULE(_cpu, m) {
  using namespace stoker;
  nb::set_leak_warnings(false);  // an engine that lives until the interpreter's end is no mistake
  nb::register_exception_translator([](const std::exception_ptr& p, void*) {
    try {
      std::rethrow_exception(p);
    } catch (const BadArgument& bad) {
      PyErr_SetString(nb::module_::import_("engine.errors").attr("KernelError").ptr(), bad.what());
    }
  });
  m.def("available_isas", &available_isas);
  nb::class_<PyExpertMatrix>(m, "ExpertMatrix")
      .def(nb::init<int64_t, int, int64_t, int64_t>(), nb::arg("offset"), nb::arg("format_id"),
           nb::arg("rows"), nb::arg("cols"));
  nb::class_<Engine>(m, "Engine")
      .def(nb::new_(&make_engine), nb::arg("threads"), nb::arg("isa"))
      .def_prop_ro("isa", [](const Engine& e) { return e.ops().name; })
      .def_prop_ro("threads", &Engine::threads)
      .def_prop_ro("formats", &formats)
      .def("matmul", &matmul)
      .def("rms_norm", &rms_norm)
      .def("head_norm_rope", &head_norm_rope)
      .def("store_kv", &store_kv)
      .def("attention", &attention)
      .def("route", &route)
      .def("experts", &experts)
      .def("combine", &combine)
      .def("add", &add)
      .def("embed", &embed);
}
