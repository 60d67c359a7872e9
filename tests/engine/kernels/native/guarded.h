// Arrays that end where the memory ends: a read or write behind the last element faults. Before the first one it
// faults from the page before on, with the address sanitizer at once.
#pragma once

#include <sanitizer/asan_interface.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <utility>

template <class T>
class Guarded {
 public:
  explicit Guarded(int64_t n) : n_(n) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t bytes = static_cast<size_t>(n) * sizeof(T);
    const size_t usable = (std::max<size_t>(bytes, 1) + page - 1) / page * page;
    mapped_ = page + usable + page;
    void* p = mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    base_ = static_cast<uint8_t*>(p);
    if (p == MAP_FAILED || mprotect(base_ + page, usable, PROT_READ | PROT_WRITE) != 0) {
      std::perror("guarded memory");
      std::exit(2);
    }
    data_ = reinterpret_cast<T*>(base_ + page + usable - bytes);
    ASAN_POISON_MEMORY_REGION(base_ + page, usable - bytes);
  }
  ~Guarded() {
    ASAN_UNPOISON_MEMORY_REGION(base_, mapped_);
    munmap(base_, mapped_);
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  T* data() const { return data_; }
  int64_t size() const { return n_; }
  T& operator[](int64_t i) { return data_[i]; }

 private:
  int64_t n_;
  size_t mapped_;
  uint8_t* base_;
  T* data_;
};

using Random = std::mt19937_64;

enum class Bytes { any, zeros, ones, low, high };  // what weights are filled with
constexpr Bytes BYTE_KINDS[] = {Bytes::any, Bytes::zeros, Bytes::ones, Bytes::low, Bytes::high};

inline void fill(Guarded<uint8_t>& bytes, Bytes kind, Random& random) {
  constexpr int patterns[] = {0, 0x00, 0xff, 0x7f, 0x80};
  std::memset(bytes.data(), patterns[static_cast<int>(kind)], static_cast<size_t>(bytes.size()));
  for (int64_t i = 0; i < bytes.size(); ++i)
    if (kind == Bytes::any || random() % 8 == 0) bytes[i] = static_cast<uint8_t>(random());
}

// Mostly normal values; some rows are tiny, huge, or hold an infinity.
inline void fill(Guarded<float>& values, int64_t row, Random& random) {
  std::normal_distribution<float> normal;
  float scale = 1.0f;
  for (int64_t i = 0; i < values.size(); ++i) {
    if (i % row == 0) scale = random() % 8 == 0 ? 0x1p-122f : random() % 8 == 0 ? 1e30f : 1.0f;
    values[i] = normal(random) * scale;
    if (random() % 4096 == 0) values[i] = -__builtin_inff();
  }
}
