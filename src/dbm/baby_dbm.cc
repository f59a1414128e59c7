#include "hako/dbm/baby_dbm.h"

namespace hako {

template class BabyDBM<>;
template class OrderedOperations<BabyDBM<>, BytewiseComparator>;
template class TreeOperations<BabyDBM<>, storage::PageSlab, BytewiseComparator>;
template class index::PageTree<storage::PageSlab, BytewiseComparator>;

}  // namespace hako
