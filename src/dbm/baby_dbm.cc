#include "hako/dbm/baby_dbm.h"

namespace hako {

template class BabyDBM<>;
template class ReadOperations<BabyDBM<>>;
template class Operations<BabyDBM<>>;
template class MultiOperations<BabyDBM<>>;
template class TreeCursor<BabyDBM<>, tree::PageTree<internal::BabySpace, BytewiseComparator>, BytewiseComparator>;
template class OrderedOperations<BabyDBM<>, BytewiseComparator>;
template class TreeOperations<BabyDBM<>, internal::BabySpace, BytewiseComparator>;
template class EngineOperations<BabyDBM<>, internal::BabySpace, tree::PageTree<internal::BabySpace, BytewiseComparator>>;
template class tree::PageTree<internal::BabySpace, BytewiseComparator>;

}  // namespace hako
