#include "hako/dbm/any_tree.h"
#include "tool/other_trees.h"

namespace hako::tool {

void AddTextTrees() {
  AddTreeToAnyDBM<CaseInsensitiveComparator>();
  AddTreeToAnyDBM<HexadecimalComparator>();
}

}  // namespace hako::tool
