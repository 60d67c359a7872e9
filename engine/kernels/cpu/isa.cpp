// Detection by the compiler's runtime, which also asks the operating system for the wide registers.
#include "isa.h"

namespace stoker {

std::vector<const OpTable*> available_tables() {
  std::vector<const OpTable*> tables;
#if defined(STOKER_X86)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (avx512 && __builtin_cpu_supports("avx512vnni")) tables.push_back(&avx512vnni_table);
  if (avx512) tables.push_back(&avx512_table);
  if (avx2) tables.push_back(&avx2_table);
#endif
  tables.push_back(&scalar_table);
  return tables;
}

}  // namespace stoker
