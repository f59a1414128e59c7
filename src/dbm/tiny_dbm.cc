#include "hako/dbm/tiny_dbm.h"

namespace hako {

template class TinyDBM<>;
template class index::BucketIndex<storage::RecordArena>;

}  // namespace hako
