#include "hako/dbm/any_tree.h"
#include "tool/other_trees.h"

namespace hako::tool {

void AddBinaryNumberTrees() {
  AddTreeToAnyDBM<SignedBigEndianComparator>();
  AddTreeToAnyDBM<FloatBigEndianComparator>();
}

}  // namespace hako::tool
