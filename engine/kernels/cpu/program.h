// Calls whose arguments are checked once: they run at once, or are noted in a program and run many times.
//
// A decoded token is some hundred short operations, and handing each over from Python costs as much as
// the small ones take. A program is their list: one call from Python, one release of its lock, and
// the threads of the pool find the next job before they fall asleep. It is data, not code: the model's
// graph stays in Python and says what is noted.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "arrays.h"
#include "engine.h"

namespace stoker {

constexpr int64_t NO_LIMIT = INT64_MAX;

// What is left of a call behind the checks of its arguments.
struct Checked {
  std::function<void(Engine&, int64_t at)> run;  // `at` is added to the call's position
  int64_t room = NO_LIMIT;  // the greatest possible `at`
  // Looks at ids, which change from run to run: throws for those out of range; false when an expert
  // has no address. Empty where there is nothing to look at.
  std::function<bool()> ready = {};
};

class Program {
 public:
  explicit Program(Engine& engine) : engine_(engine) {}

  const Engine& engine() const { return engine_; }
  int64_t size() const { return static_cast<int64_t>(calls_.size()); }

  void add(Checked call, nanobind::object arguments) {
    room_ = std::min(room_, call.room);
    calls_.push_back(std::move(call));
    kept_.push_back(std::move(arguments));
  }

  // Runs calls first, first + 1, ... `at` positions further on than they were noted. Returns the number
  // of the first call that was not ready, which it left alone, else size().
  int64_t run(int64_t at, int64_t first) {
    require(at >= 0 && at <= room_, "run", "position ", at, " is not in the context");
    require(first >= 0 && first <= size(), "run", "there is no call ", first);
    nanobind::gil_scoped_release free;
    for (int64_t i = first; i < size(); ++i) {
      const Checked& call = calls_[static_cast<size_t>(i)];
      if (call.ready && !call.ready()) return i;
      call.run(engine_, at);
    }
    return size();
  }

 private:
  Engine& engine_;
  int64_t room_ = NO_LIMIT;
  std::vector<Checked> calls_;
  std::vector<nanobind::object> kept_;  // the arrays of the calls
};

// The two uses of a function that checks arguments.
template <auto check>
struct Op;

template <class... A, Checked (*check)(const Engine&, A...)>
struct Op<check> {
  static void now(Engine& engine, A... arguments) {
    const Checked call = check(engine, arguments...);
    nanobind::gil_scoped_release free;
    if (call.ready) call.ready();
    call.run(engine, 0);
  }
  static void note(Program& program, A... arguments) {
    program.add(check(program.engine(), arguments...), nanobind::make_tuple(arguments...));
  }
};

// An operation of the engine, and of the program that notes it.
template <auto check>
void define(nanobind::class_<Engine>& engine, nanobind::class_<Program>& program, const char* name) {
  engine.def(name, &Op<check>::now);
  program.def(name, &Op<check>::note);
}

}  // namespace stoker
