// Instructions per weight and token of every format, as a Markdown table: decode (one token) / prompt (16
// tokens), for the best and the simplest vector instruction set of this processor. Some minutes: a step takes
// microseconds.
//
// A child process multiplies a matrix by the tokens; its parent steps through it instruction by instruction.
// So the count is exact, needs no counters of the processor, and knows every instruction that it has.
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "contract.h"
#include "engine.h"
#include "guarded.h"
#include "isa.h"

namespace {

using namespace stoker;

constexpr int64_t ROWS = 32, COLS = 2048;

// Instructions of the child between two stops that it asks for.
int64_t count_steps(pid_t child) {
  int status = 0;
  int64_t steps = -1;  // from the first stop to the second
  bool counting = false;
  for (;;) {
    if (waitpid(child, &status, 0) < 0 || WIFEXITED(status) || WIFSIGNALED(status)) return -1;
    if (WSTOPSIG(status) == SIGUSR1) {
      if (counting) return steps;
      counting = true;
    }
    steps += counting;
    ptrace(counting ? PTRACE_SINGLESTEP : PTRACE_CONT, child, nullptr, nullptr);
  }
}

double per_weight(const OpTable& ops, int format, int64_t tokens) {
  const pid_t child = fork();
  if (child == 0) {
    Engine engine(ops, 1);
    const MatrixRef shape = {nullptr, &ops.formats[format], ROWS, COLS};
    Random random(1);
    Guarded<uint8_t> w(ROWS * shape.row_bytes());
    fill(w, Bytes::any, random);
    Guarded<float> x(tokens * COLS), out(tokens * ROWS);
    fill(x, COLS, random);
    const std::vector<Product> products = {{{w.data(), shape.format, ROWS, COLS}, out.data()}};
    engine.matmul(products, x.data(), tokens);  // buffers have grown
    ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    raise(SIGUSR1);
    engine.matmul(products, x.data(), tokens);
    raise(SIGUSR1);
    _exit(0);
  }
  const int64_t steps = count_steps(child);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  return static_cast<double>(steps) / static_cast<double>(ROWS * COLS * tokens);
}

}  // namespace

int main() {
  const std::vector<const OpTable*> all = available_tables();
  const std::vector<const OpTable*> tables = {all.front(), all[all.size() - 2]};  // the last is scalar
  std::string head = "| format |", line = "| --- |";
  for (const OpTable* t : tables) {
    head += " " + std::string(t->name) + " |";
    line += " --- |";
  }
  std::printf("%s\n%s\n", head.c_str(), line.c_str());
  for (int f = 0; f < tables[0]->format_count; ++f) {
    std::printf("| %s |", tables[0]->formats[f].name);
    for (const OpTable* t : tables)
      std::printf(" %.3f / %.3f |", per_weight(*t, f, 1), per_weight(*t, f, 16));
    std::printf("\n");
    std::fflush(stdout);
  }
}
