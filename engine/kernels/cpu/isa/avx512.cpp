// Processors with AVX-512 F, BW, DQ and VL, without VNNI or VBMI.
#define STOKER_ISA avx512
#define STOKER_VNNI 0
#include "vec_avx512.h"

#include "../ops/table.h"

const stoker::OpTable stoker::avx512_table = avx512::make_table("avx512");
