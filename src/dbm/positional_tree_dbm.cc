#include "hako/dbm/positional_tree_dbm.h"

namespace hako {

HAKO_TREE_DBM_TEMPLATES(, PositionalParallelFile);

}  // namespace hako
