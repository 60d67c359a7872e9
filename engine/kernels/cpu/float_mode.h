// The floating-point mode of the contract: round to nearest even, keep subnormals.
//
// Other libraries may switch a thread to flushing subnormals (torch.set_flush_denormal, objects linked with
// -ffast-math), and new threads inherit the mode of their creator. So every call of the engine and every
// worker sets its own mode; a call restores the caller's.
#pragma once

#include <cstdint>

#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#endif

namespace stoker {

class FloatMode {
 public:
#if defined(__x86_64__) || defined(_M_X64)
  FloatMode() : before_(_mm_getcsr()) { _mm_setcsr(0x1f80); }  // the reset value: all exceptions masked
  ~FloatMode() { _mm_setcsr(before_); }

 private:
  unsigned before_;
#elif defined(__aarch64__)
  FloatMode() {
    __asm__ __volatile__("mrs %0, fpcr" : "=r"(before_));
    __asm__ __volatile__("msr fpcr, %0" : : "r"(uint64_t{0}));
  }
  ~FloatMode() { __asm__ __volatile__("msr fpcr, %0" : : "r"(before_)); }

 private:
  uint64_t before_;
#else
  FloatMode() = default;
#endif
 public:
  FloatMode(const FloatMode&) = delete;
  FloatMode& operator=(const FloatMode&) = delete;
};

}  // namespace stoker
