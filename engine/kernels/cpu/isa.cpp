// Detection by cpuid and xgetbv: what the processor has and the operating system saves. Not by the
// compiler's __builtin_cpu_supports, whose runtime part is missing from some Clang toolchains. On ARM the
// system tells; every 64-bit Mac and Windows computer of today has the dot product.
#include "isa.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace stoker {

#if defined(__x86_64__)
namespace {

struct Features {
  bool avx2 = false, avxvnni = false, avx512 = false, avx512vnni = false;
};

bool has(unsigned reg, int bit) { return ((reg >> bit) & 1u) != 0; }

Features detect() {
  Features f;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || !has(c, 27)) return f;  // OSXSAVE: xgetbv may be used
  const bool halves = has(c, 28) && has(c, 29);                      // AVX, F16C
  unsigned saved = 0, high = 0;
  __asm__ __volatile__("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return f;
  f.avx2 = halves && has(b, 5) && (saved & 0x06) == 0x06;
  f.avx512 = f.avx2 && has(b, 16) && has(b, 17) && has(b, 30) && has(b, 31) &&  // F, DQ, BW, VL
             (saved & 0xe0) == 0xe0;
  f.avx512vnni = f.avx512 && has(c, 11) && has(c, 1) && has(c, 8);  // VNNI, VBMI, GFNI
  f.avxvnni = f.avx2 && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && has(a, 4);
  return f;
}

}  // namespace
#elif defined(__aarch64__)
namespace {

bool has_dot_product() {
#if defined(__linux__)
  return (getauxval(AT_HWCAP) & (1u << 20)) != 0;  // HWCAP_ASIMDDP
#else
  return true;
#endif
}

}  // namespace
#endif

std::vector<BuiltTable> built_tables() {
#if defined(__x86_64__)
  const Features f = detect();
  return {{&avx512vnni_table, f.avx512vnni},
          {&avx512_table, f.avx512},
          {&avxvnni_table, f.avxvnni},
          {&avx2_table, f.avx2},
          {&scalar_table, true}};
#elif defined(__aarch64__)
  return {{&neondot_table, has_dot_product()}, {&neon_table, true}, {&scalar_table, true}};
#else
  return {{&scalar_table, true}};
#endif
}

std::vector<const OpTable*> available_tables() {
  std::vector<const OpTable*> tables;
  for (const BuiltTable& built : built_tables())
    if (built.usable) tables.push_back(built.table);
  return tables;
}

}  // namespace stoker
