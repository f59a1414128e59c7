#include "hako/dbm/baby_dbm.h"

namespace hako {

template class BabyDBM<>;
template class Operations<BabyDBM<>>;
template class MultiOperations<BabyDBM<>>;
template class TreeCursor<BabyDBM<>, tree::PageTree<tree::PageArena, BytewiseComparator>, BytewiseComparator>;
template class OrderedOperations<BabyDBM<>, BytewiseComparator>;
template class TreeOperations<BabyDBM<>, tree::PageArena, BytewiseComparator>;
template class EngineOperations<BabyDBM<>, tree::PageArena, tree::PageTree<tree::PageArena, BytewiseComparator>>;
template class tree::PageTree<tree::PageArena, BytewiseComparator>;

}  // namespace hako
