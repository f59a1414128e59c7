// Apart from the databases, whose code the compiler inlines less the more there is in a file.
#include "hako/dbm/memory_home.h"

#include "hako/dbm/baby_dbm.h"
#include "hako/dbm/tiny_dbm.h"

namespace hako {

template class MemoryHome<TinyDBM<>, MemoryMapParallelFile, TinyOptions>;
template class MemoryHome<BabyDBM<>, MemoryMapParallelFile, BabyOptions>;

}  // namespace hako
