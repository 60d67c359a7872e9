// Any processor: no intrinsics, no flags beyond the compiler's baseline.
#define STOKER_ISA scalar
#include "vec_scalar.h"

#include "../ops/table.h"

namespace stoker {
extern const OpTable scalar_table;
const OpTable scalar_table = scalar::make_table("scalar");
}  // namespace stoker
