// ARM processors with the dot product instructions (ARMv8.2 option; Apple M, Snapdragon X, ...).
#define STOKER_ISA neondot
#define STOKER_DOT 1
#include "vec_neon.h"

#include "../ops/table.h"

const stoker::OpTable stoker::neondot_table = neondot::make_table("neondot");
