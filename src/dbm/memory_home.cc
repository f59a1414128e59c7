// In a separate file, because the compiler inlines less of the code of a database if its file has
// more code.
#include "hako/dbm/memory_home.h"

#include "hako/dbm/baby_dbm.h"
#include "hako/dbm/tiny_dbm.h"

namespace hako {

template class MemoryHome<TinyDBM<>, MemoryMapParallelFile, TinyOptions>;
template class MemoryHome<BabyDBM<>, MemoryMapParallelFile, BabyOptions>;

}  // namespace hako
