#include "hako/dbm/tiny_dbm.h"

namespace hako {

template class TinyDBM<>;
template class Operations<TinyDBM<>>;
template class MultiOperations<TinyDBM<>>;
template class HashCursor<TinyDBM<>, hash::BucketIndex<hash::RecordArena>, hash::RecordArena>;
template class HashOperations<TinyDBM<>, hash::RecordArena>;
template class EngineOperations<TinyDBM<>, hash::RecordArena, hash::BucketIndex<hash::RecordArena>>;
template class hash::BucketIndex<hash::RecordArena>;

}  // namespace hako
