#include "tool/other_trees.h"

namespace hako::tool {

void AddOtherTrees() {
  AddNumberTrees();
  AddBinaryNumberTrees();
  AddTextTrees();
  AddCompressedTrees();
}

}  // namespace hako::tool
