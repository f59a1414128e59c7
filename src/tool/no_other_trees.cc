// Replaces other_trees.cc in a tool that is built without trees of other orders and codecs
// (HAKO_TOOL_OTHER_TREES).
#include "tool/other_trees.h"

namespace hako::tool {

void AddOtherTrees() {}

}  // namespace hako::tool
