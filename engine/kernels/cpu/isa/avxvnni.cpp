// Processors with AVX-VNNI but not AVX-512 (Alder Lake to Arrow Lake, ...).
#define STOKER_ISA avxvnni
#define STOKER_VNNI 1
#include "vec_avx2.h"

#include "../ops/table.h"

const stoker::OpTable stoker::avxvnni_table = avxvnni::make_table("avxvnni");
