#include "hako/dbm/tiny_dbm.h"

namespace hako {

template class TinyDBM<>;
template class ReadOperations<TinyDBM<>>;
template class Operations<TinyDBM<>>;
template class MultiOperations<TinyDBM<>>;
template class HashCursor<TinyDBM<>, hash::BucketIndex<internal::TinySpace>, internal::TinySpace>;
template class HashOperations<TinyDBM<>, internal::TinySpace>;
template class EngineOperations<TinyDBM<>, internal::TinySpace, hash::BucketIndex<internal::TinySpace>>;
template class hash::BucketIndex<internal::TinySpace>;

}  // namespace hako
