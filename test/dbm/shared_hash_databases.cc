#include "dbm/shared_databases.h"

namespace hako {
HAKO_SHARED_HASH_DATABASES();
}  // namespace hako
