#include "hako/dbm/database_home.h"

namespace hako {

template class DatabaseHome<MemoryMapParallelFile>;

}  // namespace hako
