// hako, an embedded key-value store. This header includes every public header; a program may
// include only those that it uses. Start with dbm/dbm.h.
//
// Layers. A folder includes only folders below it; hash/ does not include tree/ or array/.
//   table/    rows of named columns, indices, queries, over a tree        namespace hako, hako::table
//   dbm/      the databases and their operations; programs include these  namespace hako
//   array/    the array of numbered records, on the spaces of the tree    hako::array
//   hash/     the hash table and its spaces, in memory and in a file      hako::hash
//   tree/     the B+ tree and its spaces, in memory and in a file         hako::tree
//   update/   how an engine decides on updates, and logs them             hako::update
//   log/      the record log: updates in order, group commit              hako::log
//   storage/  shared: reserved memory, snapshots, superblocks             hako::storage
//   text/     records as text: CSV, TSV, JSON Lines, dumps                hako, hako::text
//   format/   on-disk structs and small pure functions                    hako::format
//   file/     devices: mapped, positional, in memory, chosen at run time  hako
//   sync/     locks, versions, per-thread state                           hako::sync
//   base/     errors, hashing, byte order, keyword tables                 hako
// Everything in a nested namespace, or called internal, may change with any version.
//
// dbm/ combines an engine with a space, which stores its records or pages:
//
//   engine                 concept              space in memory      space in a file
//   hash/bucket_index.h    hash/record_space.h  hash/memory/record_arena.h  hash/file/record_heap.h
//                                               = dbm/tiny_dbm.h     = dbm/hash_dbm.h
//   tree/page_tree.h       tree/page_space.h    tree/memory/page_arena.h    tree/file/buffer_pool.h
//                                               = dbm/baby_dbm.h     on tree/file/page_store.h
//                                                                    = dbm/tree_dbm.h
//   array/page_array.h     tree/page_space.h    as the tree          as the tree
//                                               = dbm/memory_array_dbm.h
//                                                                    = dbm/array_dbm.h
//
// Vocabulary. Each word has one meaning.
//   record    A key and its value, as stored.
//   block     The space of one record. Its size follows from the record's (format/size_class.h). A
//             free block holds no record.
//   handle    The 32-bit name of a block: its offset in units of the database's alignment. 0 names
//             no block.
//   line      64 bytes, one cache line, with a lock and a version: a bucket of the hash table
//             (format::BucketLine) or the data that a search needs before it reads a page of the
//             tree (format::PageLine).
//   bucket    A line with ten entries of a tag and a handle. The hash of a key selects one by
//             number; further entries lie in overflow buckets chained to it. The first bucket's
//             lock guards the whole chain.
//   page      A node of the tree: keys in order, of variable size. Leaf pages hold records; inner
//             pages hold the ids of their children. The lock of a page's line guards the page.
//   fence     The bound of a page's key range, stored in the page: from the low fence, inclusive,
//             to the high fence, exclusive. A key equal to a fence need not exist.
//   slot      A fixed place for one item: a handle in a bucket line, a key in a page, a superblock
//             in a file.
//   writer    The state that one thread has in one database (sync/writer_states.h).
//   extent    A piece of a file or arena, at least 16 KiB, allocated as a whole for records or for
//             lines (hash/file/extent_file.h).
//   chunk     A part of an extent taken at once and then divided: by one thread into blocks, or by
//             the table into buckets.
//   epoch     The time from one hard Synchronize to the next, and its number. After a machine crash
//             the database returns to the last durable epoch.
//   stamp     16 bits of a record in a file: whether it is live, and since which epoch
//             (format/stamp.h). Recovery decides by stamps which records survive.
#pragma once

#include "hako/base/comparator.h"
#include "hako/base/keyword_table.h"
#include "hako/base/status.h"
#include "hako/dbm/any_dbm.h"
#include "hako/dbm/any_options.h"
#include "hako/dbm/array_dbm.h"
#include "hako/dbm/baby_dbm.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/expiry.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/dbm/key_space.h"
#include "hako/dbm/log_summary.h"
#include "hako/dbm/memory_array_dbm.h"
#include "hako/dbm/operations.h"
#include "hako/dbm/options.h"
#include "hako/dbm/ordered_operations.h"
#include "hako/dbm/positional_array_dbm.h"
#include "hako/dbm/positional_hash_dbm.h"
#include "hako/dbm/positional_tree_dbm.h"
#include "hako/dbm/read_operations.h"
#include "hako/dbm/restore.h"
#include "hako/dbm/salvage.h"
#include "hako/dbm/search.h"
#include "hako/dbm/snapshot.h"
#include "hako/dbm/tiny_dbm.h"
#include "hako/dbm/transaction.h"
#include "hako/dbm/transfer.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/dbm/write_batch.h"
#include "hako/file/any_file.h"
#include "hako/file/file.h"
#include "hako/file/memory_file.h"
#include "hako/file/memory_map_parallel_file.h"
#include "hako/file/path.h"
#include "hako/file/positional_parallel_file.h"
#include "hako/file/replace_file.h"
#include "hako/table/condition.h"
#include "hako/table/query.h"
#include "hako/table/query_text.h"
#include "hako/table/row.h"
#include "hako/table/schema.h"
#include "hako/table/table_dbm.h"
#include "hako/table/table_transaction.h"
#include "hako/table/value.h"
#include "hako/text/csv.h"
#include "hako/text/record_text.h"
#include "hako/version.h"
