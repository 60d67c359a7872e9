// Processors with AVX-512 VNNI, VBMI and GFNI (Ice Lake, Zen 4 and later).
#define STOKER_ISA avx512vnni
#define STOKER_VNNI 1
#include "vec_avx512.h"

#include "../ops/table.h"

const stoker::OpTable stoker::avx512vnni_table = avx512vnni::make_table("avx512vnni");
