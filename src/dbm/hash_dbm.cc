#include "hako/dbm/hash_dbm.h"

namespace hako {

template class HashDBM<>;
template class Operations<HashDBM<>>;
template class MultiOperations<HashDBM<>>;
template class HashCursor<HashDBM<>, hash::BucketIndex<hash::RecordHeap<MemoryMapParallelFile>>, hash::RecordHeap<MemoryMapParallelFile>>;
template class FileOperations<HashDBM<>, MemoryMapParallelFile, HashOptions>;
template class LogOperations<HashDBM<>, MemoryMapParallelFile, HashOptions>;
template class HashOperations<HashDBM<>, hash::RecordHeap<MemoryMapParallelFile>>;
template class EngineOperations<HashDBM<>, hash::RecordHeap<MemoryMapParallelFile>,
                                hash::BucketIndex<hash::RecordHeap<MemoryMapParallelFile>>>;
template class hash::HeapFile<MemoryMapParallelFile>;
template class hash::HeapIndex<MemoryMapParallelFile>;
template class hash::MappedRecords<MemoryMapParallelFile>;
template class hash::RecordHeap<MemoryMapParallelFile>;
template class hash::BucketIndex<hash::RecordHeap<MemoryMapParallelFile>>;

}  // namespace hako
