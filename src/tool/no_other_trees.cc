// In place of the trees of other orders and codecs, where the tool is built without them
// (HAKO_TOOL_OTHER_TREES).
#include "tool/other_trees.h"

namespace hako::tool {

void AddOtherTrees() {}

}  // namespace hako::tool
