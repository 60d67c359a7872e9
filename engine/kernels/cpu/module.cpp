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

#include "arrays.h"
#include "checks.h"
#include "contract.h"
#include "engine.h"
#include "isa.h"
#include "program.h"

namespace nb = nanobind;

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
  return {[products = std::move(products), x = x.data<float>(), n = x.size(0)](
      Engine& e, int64_t) { e.matmul(products, x, n); }};
}

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

Checked rms_norm(const Engine&, handle x_, handle weight_, float eps, handle out_) {
  const Array x("rms_norm", "x", x_, Kind::f32, {ANY, ANY});
  const Array weight("rms_norm", "weight", weight_, Kind::f32, {ANY});
  const int64_t groups = x.size(1) > 0 ? weight.size(0) / x.size(1) : 0;
  require(groups > 0 && groups * x.size(1) == weight.size(0) && x.size(0) % groups == 0, "rms_norm",
          "weight has " + std::to_string(weight.size(0)) + " values, must have those of a row of x, or of some rows "
          "that x is made of");
  const Array out("rms_norm", "out", out_, Kind::f32, {x.size(0), x.size(1)}, true);
  return {[x = x.data<float>(), w = weight.data<float>(), eps, n = x.size(0), cols = x.size(1),
           out = out.data<float>(), groups](
      Engine& e, int64_t) { e.rms_norm(x, w, eps, n, cols, out, groups); }};
}

Checked head_norm_rope(const Engine&, handle x_, int heads, int head_dim, handle weight_, float eps, handle cos_,
                    handle sin_, int64_t start) {
  const char* call = "head_norm_rope";
  check_heads(call, heads, head_dim);
  const Array x(call, "x", x_, Kind::f32, {ANY, static_cast<int64_t>(heads) * head_dim}, true);
  const Array weight(call, "weight", weight_, Kind::f32, {head_dim});
  const Array cos(call, "cos", cos_, Kind::f32, {ANY, ANY});
  const Array sin(call, "sin", sin_, Kind::f32, {cos.size(0), cos.size(1)});
  require(2 * cos.size(1) <= head_dim, call, "cos and sin rotate more than head_dim values");
  const int64_t room = check_span(call, start, x.size(0), cos.size(0));
  return {[=, x = x.data<float>(), n = x.size(0), w = weight.data<float>(), cos = cos.data<float>(),
           sin = sin.data<float>(), half = cos.size(1)](Engine& e, int64_t at) {
            e.head_norm_rope(x, n, heads, head_dim, w, eps, cos, sin, half, start + at);
          },
          room};
}

Checked rope(const Engine&, handle x_, int heads, int head_dim, int first, bool adjacent, handle cos_,
             handle sin_, int64_t start) {
  const char* call = "rope";
  require(heads > 0 && head_dim > 0, call, "there is no head");
  const Array x(call, "x", x_, Kind::f32, {ANY, static_cast<int64_t>(heads) * head_dim}, true);
  const Array cos(call, "cos", cos_, Kind::f32, {ANY, ANY});
  const Array sin(call, "sin", sin_, Kind::f32, {cos.size(0), cos.size(1)});
  require(first >= 0 && first + 2 * cos.size(1) <= head_dim, call, "cos and sin rotate more than a head has");
  const int64_t room = check_span(call, start, x.size(0), cos.size(0));
  const RopeArgs args = {x, cos, sin, x.size(0), start, cos.size(1), heads, head_dim, first, adjacent};
  return {[args](Engine& e, int64_t at) {
            RopeArgs a = args;
            a.start += at;
            e.rope(a);
          },
          room};
}

// The values of an array, null for an empty one.
const float* optional(const char* call, const char* name, handle object,
                      std::initializer_list<int64_t> shape) {
  return nb::len(object) == 0 ? nullptr : Array(call, name, object, Kind::f32, shape).data<float>();
}

Checked route(const Engine&, handle logits_, int64_t used, handle ids_, handle weights_, bool sigmoid,
              bool normalise, float scale, int64_t groups, int64_t groups_used, handle bias,
              handle selection_bias, handle expert_scale) {
  const Array logits("route", "logits", logits_, Kind::f32, {ANY, ANY});
  require(used > 0 && used <= logits.size(1), "route",
          std::to_string(used) + " of " + std::to_string(logits.size(1)) + " experts is not possible");
  const int64_t count = logits.size(1);
  require(count <= MAX_EXPERTS, "route", "too many experts");
  require(groups > 0 && groups_used > 0 && groups_used <= groups && count % groups == 0 &&
              groups_used * (count / groups) >= used,
          "route",
          std::to_string(groups_used) + " of " + std::to_string(groups) + " groups of " + std::to_string(count) +
              " experts is not possible");
  const Array ids("route", "ids", ids_, Kind::i32, {logits.size(0), used}, true);
  const Array weights("route", "weights", weights_, Kind::f32, {logits.size(0), used}, true);
  const Routing r = {sigmoid, normalise, scale, groups, groups_used, optional("route", "bias", bias, {count}),
                     optional("route", "selection_bias", selection_bias, {count}),
                     optional("route", "expert_scale", expert_scale, {count})};
  return {[=, logits = logits.data<float>(), n = logits.size(0), ids = ids.data<int32_t>(),
           weights = weights.data<float>()](Engine& e, int64_t) {
    e.route(logits, n, count, used, r, ids, weights);
  }};
}

Activation activation_of(const char* call, int number) {
  require(number >= 0 && number < ACTIVATIONS, call, "there is no activation " + std::to_string(number));
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
  const int64_t count = base.size(0);
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
  const Array weights("combine", "weights", weights_, Kind::f32, {y.size(0), y.size(1)});
  const Array out("combine", "out", out_, Kind::f32, {y.size(0), y.size(2)}, true);
  require(y.size(1) > 0, "combine", "y has no experts");
  return {[y = y.data<float>(), w = weights.data<float>(), n = y.size(0), used = y.size(1), cols = y.size(2),
           out = out.data<float>()](Engine& e, int64_t) { e.combine(y, w, n, used, cols, out); }};
}

Checked add(const Engine&, handle a_, handle b_) {
  const Array a("add", "a", a_, Kind::f32, {ANY, ANY}, true);
  const Array b("add", "b", b_, Kind::f32, {a.size(0), a.size(1)});
  return {[a = a.data<float>(), b = b.data<float>(), size = a.size(0) * a.size(1)](
      Engine& e, int64_t) { e.add(a, b, size); }};
}

Checked fill(const Engine&, handle x_, float value) {
  const Array x("fill", "x", x_, Kind::f32, {ANY, ANY}, true);
  return {[x = x.data<float>(), value, size = x.size(0) * x.size(1)](
      Engine& e, int64_t) { e.fill(x, value, size); }};
}

Checked scale(const Engine&, handle x_, float factor) {
  const Array x("scale", "x", x_, Kind::f32, {ANY, ANY}, true);
  return {[x = x.data<float>(), factor, size = x.size(0) * x.size(1)](
      Engine& e, int64_t) { e.scale(x, factor, size); }};
}

Checked add_row(const Engine&, handle a_, handle b_) {
  const Array a("add_row", "a", a_, Kind::f32, {ANY, ANY}, true);
  const Array b("add_row", "b", b_, Kind::f32, {a.size(1)});
  return {[a = a.data<float>(), b = b.data<float>(), n = a.size(0), cols = a.size(1)](
      Engine& e, int64_t) { e.add_row(a, b, n, cols); }};
}

Checked glu(const Engine&, handle gate_, handle up_, int activation) {
  const Array gate("glu", "gate", gate_, Kind::f32, {ANY, ANY}, true);
  const Array up("glu", "up", up_, Kind::f32, {gate.size(0), gate.size(1)});
  return {[gate = gate.data<float>(), up = up.data<float>(), size = gate.size(0) * gate.size(1),
           kind = activation_of("glu", activation)](Engine& e, int64_t) { e.glu(gate, up, size, kind); }};
}

template <Gate KIND>
Checked gate(const Engine&, handle x_, handle gate_) {
  const char* call = KIND == GATE_SIGMOID ? "sigmoid_gate" : "softplus_gate";
  const Array x(call, "x", x_, Kind::f32, {ANY, ANY}, true);
  const Array gate(call, "gate", gate_, Kind::f32, {x.size(0), ANY});
  require(gate.size(1) > 0 && x.size(1) % gate.size(1) == 0, call,
          "gate has " + std::to_string(gate.size(1)) + " columns, must divide the " + std::to_string(x.size(1)) +
              " of x");
  return {[x = x.data<float>(), gate = gate.data<float>(), n = x.size(0), cols = x.size(1),
           gates = gate.size(1)](Engine& e, int64_t) { e.gate(KIND, x, gate, n, cols, gates); }};
}

Checked delta_gates(const Engine&, handle decay_, handle beta_, handle rate_, handle bias_) {
  const char* call = "delta_gates";
  const Array decay(call, "decay", decay_, Kind::f32, {ANY, ANY}, true);
  const Array beta(call, "beta", beta_, Kind::f32, {decay.size(0), decay.size(1)}, true);
  const Array rate(call, "rate", rate_, Kind::f32, {decay.size(1)});
  const Array bias(call, "bias", bias_, Kind::f32, {decay.size(1)});
  return {[decay = decay.data<float>(), beta = beta.data<float>(), rate = rate.data<float>(),
           bias = bias.data<float>(), n = decay.size(0), heads = decay.size(1)](
      Engine& e, int64_t) { e.delta_gates(decay, beta, rate, bias, n, heads); }};
}

Checked total(const Engine&, handle x_, handle out_) {
  const Array x("total", "x", x_, Kind::f32, {ANY});
  const Array out("total", "out", out_, Kind::f32, {2}, true);
  require(x.size(0) > 0, "total", "there is no logit");
  return {[x = x.data<float>(), n = x.size(0), out = out.data<float>()](
      Engine& e, int64_t) { e.total(x, n, out); }};
}

Checked best(const Engine&, handle x_, handle ids_, handle values_) {
  const Array x("best", "x", x_, Kind::f32, {ANY});
  const Array ids("best", "ids", ids_, Kind::i32, {ANY}, true);
  const Array values("best", "values", values_, Kind::f32, {ids.size(0)}, true);
  require(ids.size(0) > 0 && ids.size(0) <= x.size(0) && x.size(0) <= INT32_MAX, "best",
          "the best " + std::to_string(ids.size(0)) + " of " + std::to_string(x.size(0)) + " are not possible");
  return {[x = x.data<float>(), n = x.size(0), k = ids.size(0), ids = ids.data<int32_t>(),
           values = values.data<float>()](Engine& e, int64_t) { e.best(x, n, k, ids, values); }};
}

Checked embed(const Engine& e, uint64_t address, int format, int64_t rows, int64_t cols, handle ids_, handle out_) {
  const MatrixRef w = matrix(e.ops(), "embed", address, format, rows, cols);
  const Array ids("embed", "ids", ids_, Kind::i32, {ANY});
  const Array out("embed", "out", out_, Kind::f32, {ids.size(0), cols}, true);
  return {[w, ids = ids.data<int32_t>(), n = ids.size(0), out = out.data<float>()](
              Engine& e, int64_t) { e.embed(w, ids, n, out); },
          NO_LIMIT, [ids = ids.data<int32_t>(), n = ids.size(0), rows] {
            check_ids("embed", ids, n, rows);
            return true;
          }};
}

Checked inject(const Engine&, handle streams_, handle x_, handle logits_) {
  const char* call = "inject";
  const Array x(call, "x", x_, Kind::f32, {ANY, ANY});
  const Array logits(call, "logits", logits_, Kind::f32, {x.size(0), ANY});
  const int64_t count = logits.size(1);
  const Array streams(call, "streams", streams_, Kind::f32, {x.size(0), count * x.size(1)}, true);
  return {[streams = streams.data<float>(), x = x.data<float>(), logits = logits.data<float>(), n = x.size(0), count,
           cols = x.size(1)](Engine& e, int64_t) { e.inject(streams, x, logits, n, count, cols); }};
}

Checked keyed_values(const Engine&, handle key_, handle query_, handle value_, handle out_) {
  const char* call = "keyed_values";
  const Array value(call, "value", value_, Kind::f32, {ANY, ANY});
  const Array key(call, "key", key_, Kind::f32, {value.size(0), ANY});
  const int64_t cols = value.size(1), count = cols > 0 ? key.size(1) / cols : 0;
  require(count > 0 && count * cols == key.size(1), call, "the columns of key must be a multiple of those of value");
  const Array query(call, "query", query_, Kind::f32, {value.size(0), key.size(1)});
  const Array out(call, "out", out_, Kind::f32, {value.size(0), key.size(1)}, true);
  return {[key = key.data<float>(), query = query.data<float>(), value = value.data<float>(), n = value.size(0),
           count, cols, out = out.data<float>()](
      Engine& e, int64_t) { e.keyed_values(key, query, value, n, count, cols, out); }};
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

std::unique_ptr<Engine> make_engine(int threads, const std::string& isa) {
  require(threads >= 1 && threads <= 1024, "Kernels",
          "threads must be 1..1024, is " + std::to_string(threads));
  for (const OpTable* t : available_tables())
    if (isa == "auto" || isa == t->name) return std::make_unique<Engine>(*t, threads);
  throw BadArgument("Kernels: the instruction set '" + isa + "' is unknown or not on this processor");
}

// An operation of the engine, and of the program that notes it.
template <auto check>
void define(nb::class_<Engine>& engine, nb::class_<Program>& program, const char* name) {
  engine.def(name, &Op<check>::now);
  program.def(name, &Op<check>::note);
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
  define<&store_kv>(engine, program, "store_kv");
  define<&attention>(engine, program, "attention");
  define<&store_latent>(engine, program, "store_latent");
  define<&latent_attention>(engine, program, "latent_attention");
  define<&conv_step>(engine, program, "conv_step");
  define<&delta_net>(engine, program, "delta_net");
  define<&route>(engine, program, "route");
  define<&experts>(engine, program, "experts");
  define<&combine>(engine, program, "combine");
  define<&add>(engine, program, "add");
  define<&fill>(engine, program, "fill");
  define<&scale>(engine, program, "scale");
  define<&inject>(engine, program, "inject");
  define<&keyed_values>(engine, program, "keyed_values");
  define<&choose_blocks>(engine, program, "choose_blocks");
  define<&attention_chosen>(engine, program, "attention_chosen");
  define<&add_row>(engine, program, "add_row");
  define<&glu>(engine, program, "glu");
  define<&gate<GATE_SIGMOID>>(engine, program, "sigmoid_gate");
  define<&gate<GATE_SOFTPLUS>>(engine, program, "softplus_gate");
  define<&delta_gates>(engine, program, "delta_gates");
  define<&embed>(engine, program, "embed");
  define<&total>(engine, program, "total");
  define<&best>(engine, program, "best");
}
