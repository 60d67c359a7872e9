// The Python module engine.kernels.cpu._cpu: checks every argument, then calls the engine without the GIL.
//
// Each function here checks the arguments of one operation and returns what is left to do (program.h).
// engine/kernels/table.py is the typed face of this; the meaning of each operation is in contract.h.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <system_error>

#include "arrays.h"
#include "checks.h"
#include "engine.h"
#include "isa.h"
#include "program.h"

namespace stoker {
namespace {

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

// jobs: a list of (address, format id, rows, columns, out).
Checked matmul(const Engine& e, const nb::list& jobs, handle x_) {
  const Array x("matmul", "x", x_, Kind::f32, {ANY, ANY});
  std::vector<Product> products;
  for (handle job_ : jobs) {
    const auto job = nb::cast<nb::tuple>(job_);
    const MatrixRef w = matrix(e.ops(), "matmul", nb::cast<uint64_t>(job[0]), nb::cast<int>(job[1]),
                               nb::cast<int64_t>(job[2]), nb::cast<int64_t>(job[3]));
    require(x.size(1) == w.cols, "matmul", "x has ", x.size(1), " columns, the matrix has ", w.cols);
    products.push_back({w, Array("matmul", "out", job[4], Kind::f32, {x.size(0), w.rows}, true)});
  }
  return {[products = std::move(products), x](Engine& e, int64_t) { e.matmul(products, x, x.size(0)); }};
}

Checked head_matmul(const Engine& e, uint64_t address, int format, int64_t rows, int64_t cols, int64_t heads,
                    handle x_, handle out_) {
  const char* call = "head_matmul";
  const MatrixRef w = matrix(e.ops(), call, address, format, rows, cols);
  require(heads > 0 && rows % heads == 0, call, rows, " rows do not divide into ", heads, " heads");
  const Array x(call, "x", x_, Kind::f32, {ANY, heads * cols});
  const Array out(call, "out", out_, Kind::f32, {x.size(0), rows}, true);
  return {[=](Engine& e, int64_t) { e.head_matmul(w, heads, x, x.size(0), out); }};
}

Checked rms_norm(const Engine&, handle x_, handle weight_, float eps, handle out_) {
  const char* call = "rms_norm";
  const Array x(call, "x", x_, Kind::f32, {ANY, ANY});
  const Array weight(call, "weight", weight_, Kind::f32, {ANY});
  const int64_t n = x.size(0), cols = x.size(1), groups = cols > 0 ? weight.size() / cols : 0;
  require(groups > 0 && groups * cols == weight.size() && n % groups == 0, call, "weight has ", weight.size(),
          " values, must have those of a row of x, or of some rows that x is made of");
  const Array out(call, "out", out_, Kind::f32, {n, cols}, true);
  return {[=](Engine& e, int64_t) { e.rms_norm(x, weight, eps, n, cols, out, groups); }};
}

Checked rotating(const char* call, handle x_, int heads, int head_dim, int first, bool adjacent, handle cos_,
                 handle sin_, int64_t start, const float* weight, float eps) {
  const Array x(call, "x", x_, Kind::f32, {ANY, static_cast<int64_t>(heads) * head_dim}, true);
  const Array cos(call, "cos", cos_, Kind::f32, {ANY, ANY});
  const Array sin(call, "sin", sin_, Kind::f32, {cos.size(0), cos.size(1)});
  const int64_t n = x.size(0), half = cos.size(1), room = check_span(call, start, n, cos.size(0));
  require(first >= 0 && first + 2 * half <= head_dim, call, "cos and sin rotate more than a head has");
  const RopeArgs args = {x, cos, sin, n, start, half, heads, head_dim, first, adjacent, weight, eps};
  return moving(args, room, &Engine::rope);
}

Checked head_norm_rope(const Engine&, handle x, int heads, int head_dim, handle weight_, float eps,
                       handle cos, handle sin, int64_t start) {
  check_heads("head_norm_rope", heads, head_dim);
  const Array weight("head_norm_rope", "weight", weight_, Kind::f32, {head_dim});
  return rotating("head_norm_rope", x, heads, head_dim, 0, false, cos, sin, start, weight, eps);
}

Checked rope(const Engine&, handle x, int heads, int head_dim, int first, bool adjacent, handle cos,
             handle sin, int64_t start) {
  require(heads > 0 && head_dim > 0, "rope", "there is no head");
  return rotating("rope", x, heads, head_dim, first, adjacent, cos, sin, start, nullptr, 0.0f);
}

Checked route(const Engine&, handle logits_, int64_t used, handle ids_, handle weights_, bool sigmoid,
              bool normalise, float scale, int64_t groups, int64_t groups_used, handle bias,
              handle selection_bias, handle expert_scale) {
  const char* call = "route";
  const Array logits(call, "logits", logits_, Kind::f32, {ANY, ANY});
  const int64_t n = logits.size(0), count = logits.size(1);
  require(used > 0 && used <= count, call, used, " of ", count, " experts is not possible");
  require(count <= MAX_EXPERTS, call, "too many experts");
  require(groups > 0 && groups_used > 0 && groups_used <= groups && count % groups == 0 &&
              groups_used * (count / groups) >= used,
          call, groups_used, " of ", groups, " groups of ", count, " experts is not possible");
  const Array ids(call, "ids", ids_, Kind::i32, {n, used}, true);
  const Array weights(call, "weights", weights_, Kind::f32, {n, used}, true);
  const Routing r = {sigmoid, normalise, scale, groups, groups_used, optional(call, "bias", bias, {count}),
                     optional(call, "selection_bias", selection_bias, {count}),
                     optional(call, "expert_scale", expert_scale, {count})};
  return {[=](Engine& e, int64_t) { e.route(logits, n, count, used, r, ids, weights); }};
}

Activation activation_of(const char* call, int number) {
  require(number >= 0 && number < ACTIVATIONS, call, "there is no activation ", number);
  return static_cast<Activation>(number);
}

Checked experts(const Engine& e, handle x_, handle ids_, handle base_, const PyExpertMatrix& gate,
                const PyExpertMatrix& up, const PyExpertMatrix& down, handle y_, int activation,
                handle gate_bias, handle up_bias, handle down_bias) {
  const char* call = "experts";
  require(gate.rows == up.rows && gate.cols == up.cols && down.cols == gate.rows && down.rows == gate.cols,
          call, "gate, up and down do not fit together");
  const Array x(call, "x", x_, Kind::f32, {ANY, gate.cols});
  const Array ids(call, "ids", ids_, Kind::i32, {x.size(0), ANY});
  const Array base(call, "base", base_, Kind::u64, {ANY});
  const Array y(call, "y", y_, Kind::f32, {x.size(0), ids.size(1), gate.cols}, true);
  const int64_t count = base.size();
  const ExpertsArgs args = {x, ids, base, x.size(0), ids.size(1), count, expert_matrix(e.ops(), gate),
                            expert_matrix(e.ops(), up), expert_matrix(e.ops(), down), y,
                            activation_of(call, activation),
                            optional(call, "gate_bias", gate_bias, {count, gate.rows}),
                            optional(call, "up_bias", up_bias, {count, up.rows}),
                            optional(call, "down_bias", down_bias, {count, down.rows})};
  return {[args](Engine& e, int64_t) { e.experts(args); }, NO_LIMIT, [args] {
            check_ids("experts", args.ids, args.n * args.used, args.count);
            return std::all_of(args.ids, args.ids + args.n * args.used,
                               [&](int32_t id) { return args.base[id] != 0; });
          }};
}

Checked combine(const Engine&, handle y_, handle weights_, handle out_) {
  const Array y("combine", "y", y_, Kind::f32, {ANY, ANY, ANY});
  const int64_t n = y.size(0), used = y.size(1), cols = y.size(2);
  const Array weights("combine", "weights", weights_, Kind::f32, {n, used});
  const Array out("combine", "out", out_, Kind::f32, {n, cols}, true);
  require(used > 0, "combine", "y has no experts");
  return {[=](Engine& e, int64_t) { e.combine(y, weights, n, used, cols, out); }};
}

Checked add(const Engine&, handle a_, handle b_) {
  const Array a("add", "a", a_, Kind::f32, {ANY, ANY}, true);
  const Array b("add", "b", b_, Kind::f32, {a.size(0), a.size(1)});
  return {[=](Engine& e, int64_t) { e.add(a, b, a.size()); }};
}

Checked fill(const Engine&, handle x_, float value) {
  const Array x("fill", "x", x_, Kind::f32, {ANY, ANY}, true);
  return {[=](Engine& e, int64_t) { e.fill(x, value, x.size()); }};
}

Checked scale(const Engine&, handle x_, float factor) {
  const Array x("scale", "x", x_, Kind::f32, {ANY, ANY}, true);
  return {[=](Engine& e, int64_t) { e.scale(x, factor, x.size()); }};
}

Checked add_row(const Engine&, handle a_, handle b_) {
  const Array a("add_row", "a", a_, Kind::f32, {ANY, ANY}, true);
  const Array b("add_row", "b", b_, Kind::f32, {a.size(1)});
  return {[=](Engine& e, int64_t) { e.add_row(a, b, a.size(0), a.size(1)); }};
}

Checked glu(const Engine&, handle gate_, handle up_, int activation) {
  const Array gate("glu", "gate", gate_, Kind::f32, {ANY, ANY}, true);
  const Array up("glu", "up", up_, Kind::f32, {gate.size(0), gate.size(1)});
  const Activation kind = activation_of("glu", activation);
  return {[=](Engine& e, int64_t) { e.glu(gate, up, gate.size(), kind); }};
}

template <Gate KIND>
Checked gate(const Engine&, handle x_, handle gate_) {
  const char* call = KIND == GATE_SIGMOID ? "sigmoid_gate" : "softplus_gate";
  const Array x(call, "x", x_, Kind::f32, {ANY, ANY}, true);
  const Array gate(call, "gate", gate_, Kind::f32, {x.size(0), ANY});
  const int64_t n = x.size(0), cols = x.size(1), gates = gate.size(1);
  require(gates > 0 && cols % gates == 0, call, "gate has ", gates, " columns, must divide the ", cols,
          " of x");
  return {[=](Engine& e, int64_t) { e.gate(KIND, x, gate, n, cols, gates); }};
}

Checked delta_gates(const Engine&, handle decay_, handle beta_, handle rate_, handle bias_) {
  const char* call = "delta_gates";
  const Array decay(call, "decay", decay_, Kind::f32, {ANY, ANY}, true);
  const int64_t n = decay.size(0), heads = decay.size(1);
  const Array beta(call, "beta", beta_, Kind::f32, {n, heads}, true);
  const Array rate(call, "rate", rate_, Kind::f32, {heads});
  const Array bias(call, "bias", bias_, Kind::f32, {heads});
  return {[=](Engine& e, int64_t) { e.delta_gates(decay, beta, rate, bias, n, heads); }};
}

Checked total(const Engine&, handle x_, handle out_) {
  const Array x("total", "x", x_, Kind::f32, {ANY});
  const Array out("total", "out", out_, Kind::f32, {2}, true);
  require(x.size() > 0, "total", "there is no logit");
  return {[=](Engine& e, int64_t) { e.total(x, x.size(), out); }};
}

Checked best(const Engine&, handle x_, handle ids_, handle values_) {
  const Array x("best", "x", x_, Kind::f32, {ANY});
  const Array ids("best", "ids", ids_, Kind::i32, {ANY}, true);
  const int64_t n = x.size(), k = ids.size();
  const Array values("best", "values", values_, Kind::f32, {k}, true);
  require(k > 0 && k <= n && n <= INT32_MAX, "best", "the best ", k, " of ", n, " are not possible");
  return {[=](Engine& e, int64_t) { e.best(x, n, k, ids, values); }};
}

Checked embed(const Engine& e, uint64_t address, int format, int64_t rows, int64_t cols, handle ids_,
              handle out_) {
  const MatrixRef w = matrix(e.ops(), "embed", address, format, rows, cols);
  const Array ids("embed", "ids", ids_, Kind::i32, {ANY});
  const Array out("embed", "out", out_, Kind::f32, {ids.size(), cols}, true);
  return {[=](Engine& e, int64_t) { e.embed(w, ids, ids.size(), out); }, NO_LIMIT, [=] {
            check_ids("embed", ids, ids.size(), rows);
            return true;
          }};
}

Checked inject(const Engine&, handle streams_, handle x_, handle logits_) {
  const char* call = "inject";
  const Array x(call, "x", x_, Kind::f32, {ANY, ANY});
  const Array logits(call, "logits", logits_, Kind::f32, {x.size(0), ANY});
  const int64_t n = x.size(0), count = logits.size(1), cols = x.size(1);
  const Array streams(call, "streams", streams_, Kind::f32, {n, count * cols}, true);
  return {[=](Engine& e, int64_t) { e.inject(streams, x, logits, n, count, cols); }};
}

Checked keyed_values(const Engine&, handle key_, handle query_, handle value_, handle out_) {
  const char* call = "keyed_values";
  const Array value(call, "value", value_, Kind::f32, {ANY, ANY});
  const Array key(call, "key", key_, Kind::f32, {value.size(0), ANY});
  const int64_t n = value.size(0), cols = value.size(1), count = cols > 0 ? key.size(1) / cols : 0;
  require(count > 0 && count * cols == key.size(1), call,
          "the columns of key must be a multiple of those of value");
  const Array query(call, "query", query_, Kind::f32, {n, key.size(1)});
  const Array out(call, "out", out_, Kind::f32, {n, key.size(1)}, true);
  return {[=](Engine& e, int64_t) { e.keyed_values(key, query, value, n, count, cols, out); }};
}

std::vector<std::pair<std::string, bool>> built_isas() {
  std::vector<std::pair<std::string, bool>> isas;
  for (const BuiltTable& t : built_tables()) isas.emplace_back(t.table->name, t.usable);
  return isas;
}

// Type numbers of the tensor formats that the engine computes with.
std::vector<int> formats(const Engine& e) {
  std::vector<int> ids;
  for (int i = 0; i < e.ops().format_count; ++i) ids.push_back(e.ops().formats[i].id);
  return ids;
}

std::unique_ptr<Engine> make_engine(int threads, const std::string& isa) try {
  require(threads >= 1 && threads <= 1024, "Kernels", "threads must be 1..1024, is ", threads);
  for (const OpTable* t : available_tables())
    if (isa == "auto" || isa == t->name) return std::make_unique<Engine>(*t, threads);
  throw BadArgument("Kernels: the instruction set '" + isa + "' is unknown or not on this processor");
} catch (const std::system_error& error) {
  throw BadArgument("Kernels: the system does not start " + std::to_string(threads) + " threads (" +
                    error.code().message() + "). Use fewer, with --threads");
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
  m.def("built_isas", &built_isas);
  nb::class_<PyExpertMatrix>(m, "ExpertMatrix")
      .def(nb::init<int64_t, int, int64_t, int64_t>(), nb::arg("offset"), nb::arg("format_id"),
           nb::arg("rows"), nb::arg("cols"));
  nb::class_<Engine> engine(m, "Engine");
  engine.def(nb::new_(&make_engine), nb::arg("threads"), nb::arg("isa"))
      .def_prop_ro("isa", [](const Engine& e) { return e.ops().name; })
      .def_prop_ro("threads", &Engine::threads)
      .def_prop_ro("formats", &formats);
  nb::class_<Program> program(m, "Program");
  program.def(nb::init<Engine&>(), nb::keep_alive<1, 2>())
      .def("run", &Program::run)
      .def("__len__", &Program::size);
  define<&matmul>(engine, program, "matmul");
  define<&head_matmul>(engine, program, "head_matmul");
  define<&rms_norm>(engine, program, "rms_norm");
  define<&head_norm_rope>(engine, program, "head_norm_rope");
  define<&rope>(engine, program, "rope");
  define<&route>(engine, program, "route");
  define<&experts>(engine, program, "experts");
  define<&combine>(engine, program, "combine");
  define<&add>(engine, program, "add");
  define<&fill>(engine, program, "fill");
  define<&scale>(engine, program, "scale");
  define<&inject>(engine, program, "inject");
  define<&keyed_values>(engine, program, "keyed_values");
  define<&add_row>(engine, program, "add_row");
  define<&glu>(engine, program, "glu");
  define<&gate<GATE_SIGMOID>>(engine, program, "sigmoid_gate");
  define<&gate<GATE_SOFTPLUS>>(engine, program, "softplus_gate");
  define<&delta_gates>(engine, program, "delta_gates");
  define<&embed>(engine, program, "embed");
  define<&total>(engine, program, "total");
  define<&best>(engine, program, "best");
  define_sequence(engine, program);
}
