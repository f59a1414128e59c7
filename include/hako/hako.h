// hako, an embedded key-value engine: every public header. A program may as well include only those it uses.
//
// Where what is
//   dbm/      the databases and all that they do: dbm.h, operations.h. A program includes these.          namespace hako
//   hash/     the hash table and its two homes, in memory and in a file                                   hako::hash
//   tree/     the B+ tree and its two homes, in memory and in a file                                      hako::tree
//   storage/  what both use: reserved memory, snapshots, the superblocks of a file                        hako::storage
//   text/     records as text: TSV, JSON Lines, dumps                                                     hako, hako::text
//   format/   the bytes on the device, as structs and small pure functions                                hako::format
//   file/     devices: mapped, read and written by offset, in memory, chosen at run time                  hako
//   sync/     locks, versions and per-thread state                                                        hako::sync
//   base/     errors, hashing, byte order                                                                 hako
// A folder includes only folders below it. hash/ and tree/ do not include each other; dbm/ puts engine, home and file together:
//
//   engine, and the concept of its home        home in memory              home in a file
//   hash/bucket_index.h   hash/record_space.h  hash/record_arena.h         hash/record_heap.h
//                                              = dbm/tiny_dbm.h            = dbm/hash_dbm.h
//   tree/page_tree.h      tree/page_space.h    tree/page_arena.h            tree/buffer_pool.h over tree/page_store.h
//                                              = dbm/baby_dbm.h            = dbm/tree_dbm.h
//
// Start with dbm/dbm.h.
// What is in a namespace of its own, or called internal, may change with any version.
//
// Words, each with one meaning
//   record    a key and its value, as stored.
//   block     the space that one record takes; its size follows from the record's (format/size_class.h). A block without a record is free.
//   handle    the 32-bit name of a block: its offset, in units of the database's alignment. 0 names none.
//   line      64 bytes, one cache line, with a lock. In a hash table it is ten entries of a tag and a handle (format/bucket_format.h): a
//             home line is found by number, an overflow line holds what does not fit there. In a tree it is what a search needs before it
//             touches the page that it names (format/page_format.h).
//   bucket    the records of one home line and of the overflow lines chained to it. The home line's lock is the bucket's.
//   page      a node of a tree: keys in order, as many bytes as they take. A leaf is a page that holds records; the others, inner pages,
//             hold the ids of the pages below them. The lock of a page's line is the page's.
//   fence     the bound of the keys that belong to a page, stored in it, whether or not there is such a key: from the low fence on, and
//             below the high one.
//   slot      a fixed place that holds one of its kind: a handle in a line, a key in a page, a superblock in a file, what one thread owns
//             in a database.
//   extent    a piece of a file or an arena that is given out whole, at least 64 KiB, for records or for lines (hash/extent_file.h).
//   chunk     what of that is taken at once to be divided further: by one thread for its blocks, by the table for its home lines.
//   epoch     the time from one hard Synchronize to the next, and its number. After a crash of the machine the last durable epoch is back.
//   stamp     16 bits of a record in a file: whether it lives, and since which epoch (format/stamp.h). They decide what comes back.
#pragma once

#include "hako/base/comparator.h"
#include "hako/base/status.h"
#include "hako/dbm/any_dbm.h"
#include "hako/dbm/any_options.h"
#include "hako/dbm/baby_dbm.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/dbm/operations.h"
#include "hako/dbm/options.h"
#include "hako/dbm/ordered_operations.h"
#include "hako/dbm/search.h"
#include "hako/dbm/tiny_dbm.h"
#include "hako/dbm/transfer.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/file/any_file.h"
#include "hako/file/file.h"
#include "hako/file/memory_file.h"
#include "hako/file/memory_map_parallel_file.h"
#include "hako/file/path.h"
#include "hako/file/positional_parallel_file.h"
#include "hako/file/replace_file.h"
#include "hako/text/record_text.h"
#include "hako/version.h"
