// hako, an embedded key-value engine: every public header. A program may as well include only those it uses.
//
// Where what is
//   dbm/      the databases, HashDBM and TinyDBM, and what all of them do: dbm.h, operations.h       namespace hako
//   index/    the engine that finds a record by its key; knows no file and no storage                hako::index
//   storage/  where records and lines lie: in the extents of a file, or in memory; free space        hako::storage
//   format/   the bytes on the device, as structs and small pure functions                           hako::format
//   file/     devices: mapped, read and written by offset, in memory, chosen at run time             hako
//   sync/     locks, versions and per-thread state                                                   hako::sync
//   base/     errors, hashing, byte order                                                            hako
// A folder includes only folders below it, and index/ and storage/ do not know each other: dbm/ brings them together. Start with dbm/dbm.h.
// What is in a namespace of its own, or called internal, may change with any version.
//
// Words, each with one meaning
//   record    a key and its value, as stored.
//   block     the space that one record takes; its size follows from the record's (format/size_class.h). A block without a record is free.
//   handle    the 32-bit name of a block: its offset, in units of the database's alignment. 0 names none.
//   line      64 bytes, one cache line: ten entries of a tag and a handle, and a lock (format/bucket_format.h). A home line is found by
//             number; an overflow line holds what does not fit there.
//   bucket    the records of one home line and of the overflow lines chained to it. The home line's lock is the bucket's.
//   slot      a fixed place that holds one of its kind: a handle in a line, a superblock in a file, what one thread owns in a database.
//   extent    a piece of a file or an arena that is given out whole, at least 64 KiB, for records or for lines (storage/extent_file.h).
//   chunk     what of that is taken at once to be divided further: by one thread for its blocks, by the table for its home lines.
//   epoch     the time from one hard Synchronize to the next, and its number. After a crash of the machine the last durable epoch is back.
//   stamp     16 bits of a record in a file: whether it lives, and since which epoch (format/stamp.h). They decide what comes back.
#pragma once

#include "hako/base/status.h"
#include "hako/dbm/any_dbm.h"
#include "hako/dbm/any_options.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/dbm/operations.h"
#include "hako/dbm/options.h"
#include "hako/dbm/record_text.h"
#include "hako/dbm/search.h"
#include "hako/dbm/tiny_dbm.h"
#include "hako/dbm/transfer.h"
#include "hako/file/any_file.h"
#include "hako/file/file.h"
#include "hako/file/memory_file.h"
#include "hako/file/memory_map_parallel_file.h"
#include "hako/file/path.h"
#include "hako/file/positional_parallel_file.h"
#include "hako/version.h"
