// The pool's protocol. A job is open while epoch_ is odd. A worker announces itself in inside_ and then
// looks at epoch_ again; the caller closes the job and then waits for inside_ to reach zero. Both
// sides use sequentially consistent operations, so either the worker sees the job closed or the caller sees
// the worker inside. In the same way a worker that sleeps announces itself in sleepers_ before it looks whether
// epoch_ has moved on, and the caller opens the job before it looks for sleepers: none sleeps through a job.
#include "pool.h"

#include <algorithm>

#include "float_mode.h"

#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#endif

namespace stoker {

namespace {

constexpr int SPINS = 4000;  // about 50-200 microseconds, then a worker sleeps
constexpr int CALLER_SPINS = 2000;

inline void relax() {
#if defined(__x86_64__) || defined(_M_X64)
  _mm_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("yield");
#endif
}

}  // namespace

Pool::Pool(int threads) : Pool() {  // so ~Pool() ends the threads there are if another one does not start
  workers_.reserve(static_cast<size_t>(threads > 1 ? threads - 1 : 0));
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
}

Pool::~Pool() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    quit_.store(true);
  }
  wake_.notify_all();
  for (std::thread& t : workers_) t.join();
}

void Pool::take_units(int thread) {
  const int64_t tail = 2 * batch_ * threads();
  for (;;) {
    const int64_t some = units_ - next_.load(std::memory_order_relaxed) > tail ? batch_ : 1;
    const int64_t first = next_.fetch_add(some, std::memory_order_relaxed);
    if (first >= units_) return;
    for (int64_t unit = first; unit < std::min(first + some, units_); ++unit) call_(body_, unit, thread);
  }
}

void Pool::run_erased(int64_t units, Call call, const void* body) {
  if (units <= 0) return;
  if (units == 1 || workers_.empty()) {
    for (int64_t unit = 0; unit < units; ++unit) call(body, unit, 0);
    return;
  }
  call_ = call;
  body_ = body;
  units_ = units;
  next_.store(0, std::memory_order_relaxed);
  epoch_.fetch_add(1);  // open
  if (sleepers_.load() > 0) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
    }
    wake_.notify_all();
  }
  take_units(0);
  epoch_.fetch_add(1);  // closed: all units are taken
  for (int spins = 0; inside_.load() != 0; ++spins) {
    if (spins < CALLER_SPINS)
      relax();
    else
      std::this_thread::yield();
  }
}

void Pool::work(int thread) {
  const FloatMode mode;
  uint64_t done = 0;
  while (!quit_.load(std::memory_order_relaxed)) {
    uint64_t epoch = epoch_.load(std::memory_order_acquire);
    const auto idle = [&] { return epoch == done || epoch % 2 == 0; };
    for (int spins = 0; idle() && spins < SPINS; ++spins) {
      relax();
      epoch = epoch_.load(std::memory_order_acquire);
    }
    if (idle()) {
      std::unique_lock<std::mutex> lock(mutex_);
      sleepers_.fetch_add(1);
      wake_.wait(lock, [&] { return quit_.load() || epoch_.load() != epoch; });
      sleepers_.fetch_sub(1);
      continue;  // the job that woke it may be over by now: spin until the next one
    }
    inside_.fetch_add(1);
    if (epoch_.load() == epoch) take_units(thread);
    inside_.fetch_sub(1);
    done = epoch;
  }
}

}  // namespace stoker
