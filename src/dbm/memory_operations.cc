// Apart from the databases, whose code the compiler inlines less the more there is in a file.
#include "hako/dbm/memory_operations.h"

#include "hako/dbm/baby_dbm.h"
#include "hako/dbm/tiny_dbm.h"

namespace hako {

template class MemoryOperations<TinyDBM<>, MemoryMapParallelFile, TinyOptions>;
template Status FileOperations<TinyDBM<>, MemoryMapParallelFile, TinyOptions>::Close();
template class MemoryOperations<BabyDBM<>, MemoryMapParallelFile, BabyOptions>;
template Status FileOperations<BabyDBM<>, MemoryMapParallelFile, BabyOptions>::Close();

}  // namespace hako
