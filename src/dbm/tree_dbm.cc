#include "hako/dbm/tree_dbm.h"

namespace hako {

HAKO_TREE_DBM_TEMPLATES(, MemoryMapParallelFile);
HAKO_TREE_DBM_PATH_TEMPLATES(, MemoryMapParallelFile);

}  // namespace hako
