// The most products of int8 that one thread reaches: what the speed of prompts is measured against.
//
// Twelve sums in registers, so that the four or five cycles of a sum are hidden; no memory is touched.
#include <immintrin.h>

#include <chrono>
#include <cstdio>

int main() {
  constexpr int SUMS = 12, ROUNDS = 1'000'000;
  double best = 0;
  for (int run = 0; run < 20; ++run) {
    __m512i sums[SUMS] = {}, weights = _mm512_set1_epi8(3), x = _mm512_set1_epi8(5);
    for (__m512i& sum : sums) __asm__ volatile("" : "+v"(sum));  // no two are known to be equal
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < ROUNDS; ++i) {
#pragma GCC unroll 12
      for (int j = 0; j < SUMS; ++j) sums[j] = _mm512_dpbusd_epi32(sums[j], weights, x);
      __asm__ volatile("" : "+v"(weights), "+v"(x));  // the compiler must not see through it
    }
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    for (__m512i& sum : sums) __asm__ volatile("" : : "v"(sum));
    const double speed = 64.0 * SUMS * ROUNDS / spent.count() / 1e9;
    best = speed > best ? speed : best;
  }
  std::printf("%.0f G products of int8 per second\n", best);
}
