#include "hako/dbm/tiny_dbm.h"

namespace hako {

template class TinyDBM<>;
template class hash::BucketIndex<hash::RecordArena>;

}  // namespace hako
