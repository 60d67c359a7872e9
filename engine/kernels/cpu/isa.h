// Which instruction sets this build has and this processor runs, best first.
#pragma once

#include <vector>

#include "optable.h"

namespace stoker {

struct BuiltTable {
  const OpTable* table;
  bool usable;  // on this processor
};

std::vector<BuiltTable> built_tables();
std::vector<const OpTable*> available_tables();  // the usable ones

}  // namespace stoker
