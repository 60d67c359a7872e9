// Any 64-bit ARM processor.
#define STOKER_ISA neon
#define STOKER_DOT 0
#include "vec_neon.h"

#include "../ops/table.h"

namespace stoker {
extern const OpTable neon_table;
const OpTable neon_table = neon::make_table("neon");
}  // namespace stoker
