// HashDBM on a file that is read and written by position, compiled in the library. A program that
// includes this header beside dbm/hash_dbm.h does not compile it again.
#pragma once

#include "hako/dbm/hash_dbm.h"
#include "hako/file/positional_parallel_file.h"

namespace hako {

extern template class HashDBM<PositionalParallelFile>;
extern template class Operations<HashDBM<PositionalParallelFile>>;
extern template class MultiOperations<HashDBM<PositionalParallelFile>>;
extern template class HashCursor<HashDBM<PositionalParallelFile>, hash::BucketIndex<hash::RecordHeap<PositionalParallelFile>>,
                                 hash::RecordHeap<PositionalParallelFile>>;
extern template class FileOperations<HashDBM<PositionalParallelFile>, PositionalParallelFile, HashOptions>;
extern template class LogOperations<HashDBM<PositionalParallelFile>, PositionalParallelFile, HashOptions>;
extern template class HashOperations<HashDBM<PositionalParallelFile>, hash::RecordHeap<PositionalParallelFile>>;
extern template class EngineOperations<HashDBM<PositionalParallelFile>, hash::RecordHeap<PositionalParallelFile>,
                                       hash::BucketIndex<hash::RecordHeap<PositionalParallelFile>>>;
extern template class hash::HeapFile<PositionalParallelFile>;
extern template class hash::HeapIndex<PositionalParallelFile>;
extern template class hash::PositionalRecords<PositionalParallelFile>;
extern template class hash::RecordHeap<PositionalParallelFile>;
extern template class hash::BucketIndex<hash::RecordHeap<PositionalParallelFile>>;
extern template class hash::PendingSets<hash::RecordHeap<PositionalParallelFile>, Action>;

}  // namespace hako
