#include "hako/dbm/positional_hash_dbm.h"

namespace hako {

template class HashDBM<PositionalParallelFile>;
template class Operations<HashDBM<PositionalParallelFile>>;
template class MultiOperations<HashDBM<PositionalParallelFile>>;
template class HashCursor<HashDBM<PositionalParallelFile>, hash::BucketIndex<hash::RecordHeap<PositionalParallelFile>>,
                          hash::RecordHeap<PositionalParallelFile>>;
template class FileOperations<HashDBM<PositionalParallelFile>, PositionalParallelFile, HashOptions>;
template class LogOperations<HashDBM<PositionalParallelFile>, PositionalParallelFile, HashOptions>;
template class HashOperations<HashDBM<PositionalParallelFile>, hash::RecordHeap<PositionalParallelFile>>;
template class EngineOperations<HashDBM<PositionalParallelFile>, hash::RecordHeap<PositionalParallelFile>,
                                hash::BucketIndex<hash::RecordHeap<PositionalParallelFile>>>;
template class hash::HeapFile<PositionalParallelFile>;
template class hash::HeapIndex<PositionalParallelFile>;
template class hash::PositionalRecords<PositionalParallelFile>;
template class hash::RecordHeap<PositionalParallelFile>;
template class hash::BucketIndex<hash::RecordHeap<PositionalParallelFile>>;
template class hash::PendingSets<hash::RecordHeap<PositionalParallelFile>, Action>;

}  // namespace hako
