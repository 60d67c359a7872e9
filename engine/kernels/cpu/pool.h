// A pool of threads for short jobs: the caller works too, units are handed out one by one.
//
// A decode step makes hundreds of jobs of some ten microseconds. So an idle worker spins briefly before
// it sleeps (a wake-up costs as much as a job), and a job ends when its units are done: a worker that
// did not wake up in time is not waited for, so a foreign busy thread costs its share and no more.
//
// The slow cores of a hybrid processor take fewer units. A job ends at most one unit of the slowest core
// after the last one was taken: some 48 KiB of weights (engine.cpp), 4 microseconds, 8 at half speed.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace stoker {

class Pool {
 public:
  explicit Pool(int threads);  // including the caller; std::system_error if the system refuses one
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // body(unit, thread) for every unit in 0..units-1; thread is 0 for the caller. One job at a time. A thread
  // takes `batch` units at a time, near the end single ones.
  template <class Body>
  void run(int64_t units, const Body& body, int64_t batch = 1) {
    batch_ = batch;
    run_erased(
        units, [](const void* b, int64_t unit, int thread) { (*static_cast<const Body*>(b))(unit, thread); },
        &body);
  }

 private:
  Pool() = default;
  using Call = void (*)(const void*, int64_t, int);

  void run_erased(int64_t units, Call call, const void* body);
  void work(int thread);
  void take_units(int thread);

  std::vector<std::thread> workers_;
  // The job; written only while no worker is inside one.
  Call call_ = nullptr;
  const void* body_ = nullptr;
  int64_t units_ = 0, batch_ = 1;
  alignas(64) std::atomic<int64_t> next_{0};
  alignas(64) std::atomic<uint64_t> epoch_{0};  // odd while a job is open
  alignas(64) std::atomic<int> inside_{0};      // workers that look at the job
  std::atomic<int> sleepers_{0};
  std::atomic<bool> quit_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
};

}  // namespace stoker
