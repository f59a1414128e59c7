#include "hako/dbm/array_dbm.h"

#include "hako/dbm/memory_array_dbm.h"

namespace hako {

HAKO_ARRAY_DBM_TEMPLATES(, MemoryMapParallelFile);

template class MemoryArrayDBM<>;
template class MemoryHome<MemoryArrayDBM<>, MemoryMapParallelFile, MemoryArrayOptions>;
template class ReadOperations<MemoryArrayDBM<>>;
template class Operations<MemoryArrayDBM<>>;
template class MultiOperations<MemoryArrayDBM<>>;
template class OrderedOperations<MemoryArrayDBM<>, RecordKeyComparator>;
template class ArrayOperations<MemoryArrayDBM<>, internal::ArraySpace>;
template class EngineOperations<MemoryArrayDBM<>, internal::ArraySpace, array::PageArray<internal::ArraySpace>>;
template class array::PageArray<internal::ArraySpace>;

}  // namespace hako
