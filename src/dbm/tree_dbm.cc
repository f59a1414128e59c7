#include "hako/dbm/tree_dbm.h"

namespace hako {

HAKO_TREE_DBM_TEMPLATES(, MemoryMapParallelFile);

}  // namespace hako
