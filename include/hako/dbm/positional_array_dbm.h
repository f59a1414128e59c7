// ArrayDBM on a file that is read and written by position, compiled in the library. A program that includes
// this header beside dbm/array_dbm.h does not compile it again.
#pragma once

#include "hako/dbm/array_dbm.h"
#include "hako/file/positional_parallel_file.h"

namespace hako {

extern template class tree::BufferPool<PositionalParallelFile>;
extern template class tree::Checkpointer<PositionalParallelFile>;
extern template class PoolHome<PositionalParallelFile>;
HAKO_ARRAY_DBM_TEMPLATES(extern, PositionalParallelFile);

}  // namespace hako
