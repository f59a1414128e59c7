#include "hako/dbm/positional_array_dbm.h"

namespace hako {

HAKO_ARRAY_DBM_TEMPLATES(, PositionalParallelFile);

}  // namespace hako
