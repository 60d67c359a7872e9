// Processors with AVX2 and F16C (2013 on).
#define STOKER_ISA avx2
#define STOKER_VNNI 0
#include "vec_avx2.h"

#include "../ops/table.h"

const stoker::OpTable stoker::avx2_table = avx2::make_table("avx2");
