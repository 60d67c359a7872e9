// Any processor: no intrinsics, no flags beyond the compiler's baseline.
#define STOKER_ISA scalar
#include "vec_scalar.h"

#include "../ops/table.h"

const stoker::OpTable stoker::scalar_table = scalar::make_table("scalar");
