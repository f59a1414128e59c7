#include "hako/dbm/tiny_dbm.h"

namespace hako {

template class TinyDBM<>;
template class HashOperations<TinyDBM<>, hash::RecordArena>;
template class hash::BucketIndex<hash::RecordArena>;

}  // namespace hako
