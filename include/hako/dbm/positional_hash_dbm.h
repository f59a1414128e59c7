// HashDBM on a file that is read and written by position, compiled in the library. A program that
// includes this header beside dbm/hash_dbm.h does not compile it again.
#pragma once

#include "hako/dbm/hash_dbm.h"
#include "hako/file/positional_parallel_file.h"

namespace hako {

HAKO_HASH_DBM_TEMPLATES(extern, PositionalParallelFile, hash::PositionalRecords);
extern template class hash::PendingSets<hash::RecordHeap<PositionalParallelFile>, Action>;

}  // namespace hako
