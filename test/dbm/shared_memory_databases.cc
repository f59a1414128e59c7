#include "dbm/shared_databases.h"

namespace hako {
HAKO_SHARED_MEMORY_DATABASES();
}  // namespace hako
