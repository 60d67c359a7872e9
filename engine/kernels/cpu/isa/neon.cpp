// Any 64-bit ARM processor.
#define STOKER_ISA neon
#define STOKER_DOT 0
#include "vec_neon.h"

#include "../ops/table.h"

const stoker::OpTable stoker::neon_table = neon::make_table("neon");
