// Which instruction sets this build has and this processor runs, best first.
#pragma once

#include <vector>

#include "optable.h"

namespace stoker {

std::vector<const OpTable*> available_tables();

}  // namespace stoker
