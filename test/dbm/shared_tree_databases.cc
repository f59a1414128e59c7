#include "dbm/shared_databases.h"

namespace hako {
HAKO_SHARED_TREE_DATABASES();
}  // namespace hako
