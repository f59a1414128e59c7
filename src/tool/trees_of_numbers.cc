#include "hako/dbm/any_tree.h"
#include "tool/other_trees.h"

namespace hako::tool {

void AddNumberTrees() {
  AddTreeToAnyDBM<DecimalComparator>();
  AddTreeToAnyDBM<RealNumberComparator>();
}

}  // namespace hako::tool
