// Options of the DBMs: plain structs, validated once at Open (InvalidArgument). Sizes are in bytes.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "hako/base/function_ref.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/expiry.h"
#include "hako/file/file.h"

namespace hako {

// Bytes that the application may store in a database file beside the records; initially zero. hako
// does not interpret them.
using UserMetadata = std::array<std::byte, 64>;

// The type (GetType) of a tree whose records are those of a table (table/table_dbm.h).
inline constexpr std::uint32_t kTableType = 0x686b7462;  // "hktb"

// A value of the option log_archive, instead of a directory: ends the history of the database. Its
// archive is not changed.
inline constexpr char kNoLogArchive[] = "none";

// Options of HashDBM.
struct HashOptions {
  // Expected number of records; 0 = unknown. A hint, used when the file is created: the table grows
  // by itself.
  std::uint64_t num_records = 0;
  // Records are aligned to 2^align_pow bytes, 3 to 6; fixed when the file is created. The file can
  // grow to 2^(32 + align_pow) bytes, 32 GiB by default; beyond that, updates return
  // ResourceExhausted. A mapped file is also limited by FileOptions::reserve_bytes.
  int align_pow = 3;
  // Seed of the key hash and the record checks, fixed when the file is created; 0 = random.
  std::uint64_t seed = 0;
  // Durability of every update once it has returned; SetOptions can ask for more. kPower, and
  // kProcess on a file that is not mapped, keep a log in a file beside the database (dbm/hash_dbm.h).
  Durability durability = Durability::kProcess;
  // With kProcess, keep the log on a mapped file, too: then WaitDurable (dbm/database_home.h) makes
  // any number of updates durable by one sync of the log, instead of synchronizing the whole file.
  bool keep_log = false;
  // Also synchronize once this many bytes were logged since the last time, at least 64 KiB. This
  // bounds the log and the time that Open takes after a crash.
  std::uint64_t log_bytes = std::uint64_t{64} << 20;
  // Keep each segment of the log that is no longer needed in this directory, which must exist. With
  // a copy of the database the archive restores every later state (dbm/restore.h). No other
  // database may use the directory. "" = no archive. A database that has an archive can be opened
  // for writing only with it, or with kNoLogArchive, which ends its history. An archive requires a
  // log, so a mapped HashDBM with kProcess then keeps a log, too.
  std::string log_archive = {};
  // Interval at which a background thread makes a hard synchronization if anything has changed, so
  // that a power cut loses at most the updates since the last one; 0 = only when requested. After a
  // failure the database refuses updates, as after a failed Synchronize.
  std::chrono::milliseconds sync_interval{0};
  // The space of replaced and removed records is reused only after the next synchronization,
  // because a machine crash may bring them back. A background thread synchronizes once replaced and
  // removed records of more than 4 KiB each take this many bytes, and an eighth of the space of
  // live records; 0 = only when requested. Updates do not wait for the device. But once twice as
  // much space waits for a synchronization, a Set of a value of more than 8 KiB takes up to 10 ms
  // longer.
  //
  // Smaller records never start a synchronization, because random updates of small records are much
  // slower after one. A file of small records grows to twice its live size at the last
  // synchronization. Space freed before the first synchronization of a new file is reused at once.
  //
  // A larger value makes replacing such records faster and the file larger. With 100 MB of live
  // values of 16 KiB, a wait for half instead of an eighth of the live bytes made the file 2.3
  // instead of 1.5 times as large as the values, and replacement four times as fast. The default
  // keeps files small.
  std::uint64_t reclaim_bytes = std::uint64_t{16} << 20;
  // Unmapped files: the size of the first read of a record, which should suffice for most records;
  // 0 = estimated from recent records.
  std::uint64_t min_read_size = 0;
  // Records may expire (dbm/expiry.h); fixed when the database is created, and stored in the file.
  // `clock` returns the time in milliseconds since 1970, and must be thread-safe; nullptr = the
  // system's clock.
  bool expiry = false;
  Expiry::Clock clock = nullptr;
  // What to do with a file that a killed process had mapped, and that was copied or mounted again
  // since (file/file.h). Only one Open needs it; the next one is normal again.
  UnprovenUpdates unproven_updates = UnprovenUpdates::kRefuse;
};

// Options of TinyDBM.
struct TinyOptions {
  // Expected number of records; 0 = unknown. A hint: the table grows by itself.
  std::uint64_t num_records = 0;
  // Records are aligned to 2^align_pow bytes, 2 to 6. The database can grow to 2^(32 + align_pow)
  // bytes, 16 GiB by default, or to its share of the address space if that is less
  // (base/address_space.h); beyond that, updates return ResourceExhausted.
  int align_pow = 2;
  std::uint64_t seed = 0;  // of the key hash; 0 = random
  // For a database opened with a path; see HashOptions. kProcess and kPower keep a log.
  Durability durability = Durability::kProcess;
  // Write a snapshot once this many bytes were logged since the last one, at least 64 KiB. This
  // bounds the log and the time that Open takes after a crash. Each snapshot writes all records.
  std::uint64_t log_bytes = std::uint64_t{64} << 20;
  std::string log_archive = {};  // see HashOptions
  bool expiry = false;           // see HashOptions
  Expiry::Clock clock = nullptr;
  // The limits of all memory that the database takes, at least 1 MiB, and of its records, at least
  // 1000; 0 = no limit. Beyond the limits the database evicts records that were not used lately:
  // see dbm/tiny_dbm.h. If capacity_bytes is less than 256 KiB for each writing thread, the
  // database may exceed it by 10 KiB for each thread.
  std::uint64_t capacity_bytes = 0;
  std::uint64_t capacity_records = 0;
  // Called with the key and the value of each record that is evicted, in the thread whose update needs
  // room, before that update has returned, with the record's bucket locked. Like a visitor it must
  // be short, and must not use the database. Several threads may call it at the same time. It is
  // not called for records that have expired, that are removed in another way, or that Open evicts.
  // It costs an indirect call for each eviction. REQUIRES: the function object exists until the
  // database is closed (unchecked: objects do not tell)
  OwnedFunction<void(std::string_view key, std::string_view value)> on_eviction = {};
};

// Options of BabyDBM.
struct BabyOptions {
  // A page is split when it would exceed this many bytes, 128 to 8192. Values longer than a quarter
  // of it are stored out of line.
  unsigned page_size = 8192;
  // Address space to reserve, from 1 MiB to slightly below 512 GiB; less if the share of the
  // database is less (base/address_space.h). Only the used part takes memory. Updates that would
  // need more return ResourceExhausted.
  std::uint64_t max_bytes = std::uint64_t{32} << 30;
  // See TinyOptions.
  Durability durability = Durability::kProcess;
  std::uint64_t log_bytes = std::uint64_t{64} << 20;
  std::string log_archive = {};
  bool expiry = false;
  Expiry::Clock clock = nullptr;
  // See TinyOptions and dbm/baby_dbm.h.
  std::uint64_t capacity_bytes = 0;
  std::uint64_t capacity_records = 0;
  OwnedFunction<void(std::string_view key, std::string_view value)> on_eviction = {};
  // Memory that all snapshots of the database together may take for records that were changed since they were taken
  // (dbm/snapshot.h); 0 = no limit. Beyond it the oldest snapshot is cancelled.
  std::uint64_t snapshot_bytes = std::uint64_t{256} << 20;
};

// Options of TreeDBM.
struct TreeOptions {
  // A page is split when it would exceed this many bytes, 128 to 8192. Values longer than a quarter
  // of it are stored out of line. Fixed when the file is created.
  unsigned page_size = 8192;
  // Memory for cached pages and for the tables that locate them, at least 1 MiB. The tables take
  // about 100 bytes for each page of the file, cached or not. If the database's share of the
  // address space is less (base/address_space.h), half of that share is used.
  //
  // Pages changed since the last checkpoint (dirty pages) may take about three quarters of the
  // memory for pages. As dirty pages approach that limit, each update that dirties another page
  // pauses for up to 4 ms, which slows updates to the speed of the device. While the device stalls,
  // updates continue with longer pauses, which double with each further eighth of the limit, or
  // each 4 MiB if that is more.
  //
  // Two kinds of data take memory beyond cache_bytes until a checkpoint has written them: the pages
  // of a ProcessMulti that changes more than an eighth of the cache, and values stored out of line.
  // While such values exceed an eighth of the cache, a thread that has set another one waits for a
  // checkpoint.
  std::uint64_t cache_bytes = std::uint64_t{256} << 20;
  // Start a checkpoint once this many bytes of pages are dirty; 0, or more than half of cache_bytes:
  // half of cache_bytes. Random updates change most pages again between two checkpoints, so rarer
  // checkpoints write less. With a log, log_bytes bounds the time between them, too.
  std::uint64_t checkpoint_bytes = 0;
  // Durability of every update once it has returned; SetOptions can ask for more. More than kNone
  // keeps a log in a file beside the database (dbm/tree_dbm.h).
  Durability durability = Durability::kProcess;
  // Also start a checkpoint once this many bytes were logged since the last one, at least 64 KiB.
  // This bounds the log and the time that Open takes after a crash. An update takes 16 bytes, and
  // the bytes of its key and value. Open repeats 200,000 to 400,000 updates of random keys a second
  // if it must load their leaves. While a checkpoint runs, the log may grow to twice the bound. A
  // larger bound makes loads in random order faster, because each checkpoint writes most pages.
  std::uint64_t log_bytes = std::uint64_t{128} << 20;
  std::string log_archive = {};  // see HashOptions
  // Interval at which a background thread makes a checkpoint if anything has changed; 0 = only by
  // checkpoint_bytes, log_bytes, Synchronize and Close.
  std::chrono::milliseconds sync_interval{0};
  bool expiry = false;  // see HashOptions
  Expiry::Clock clock = nullptr;
  // The type that the file must have, and that a new file gets. A tree of another type is refused
  // and not changed. nullopt = any type except kTableType.
  std::optional<std::uint32_t> type = std::nullopt;
  // Without `type`: allows opening a table as a plain tree. Updates through the tree can make rows
  // and indices disagree.
  bool raw = false;
  std::uint64_t snapshot_bytes = std::uint64_t{256} << 20;  // see BabyOptions
  // Bytes of the file that may wait for readers of older checkpoints in other processes (file/readers_file.h)
  // before they are reused; 0 = no limit. If a reader of an older checkpoint is there when the database is opened for
  // writing, all free space of the file may be waiting for it. Beyond the limit the readers of the oldest checkpoints are cut off at the
  // next checkpoint: their reads of pages that they have not cached return Aborted until they Refresh.
  std::uint64_t reader_bytes = std::uint64_t{1} << 30;
  // How long a reader of an older checkpoint may keep space, since it was opened, or since its last Refresh that found no newer
  // one; 0 = no limit. A reader beyond the limit is cut off in the same way, at the next checkpoint. `clock`, if
  // set, also tells this time, and must then be that of the readers, too.
  std::chrono::milliseconds reader_age{0};
};

// Options of ArrayDBM.
struct ArrayOptions {
  // Bytes of each record, 1 to kRecordWidthMax; fixed when the file is created. 0 = the width of an
  // existing file. A width that differs from that of the file is an error.
  unsigned width = 0;
  // Memory for cached pages and for the tables that locate them, at least 1 MiB; see
  // TreeOptions::cache_bytes. Directory pages take memory beyond it (dbm/array_dbm.h).
  std::uint64_t cache_bytes = std::uint64_t{256} << 20;
  // See TreeOptions.
  std::uint64_t checkpoint_bytes = 0;
  Durability durability = Durability::kProcess;
  std::uint64_t log_bytes = std::uint64_t{128} << 20;
  std::string log_archive = {};
  std::chrono::milliseconds sync_interval{0};
  std::uint64_t snapshot_bytes = std::uint64_t{256} << 20;  // see BabyOptions
  std::uint64_t reader_bytes = std::uint64_t{1} << 30;      // see TreeOptions
  std::chrono::milliseconds reader_age{0};                  // see TreeOptions
};

// Options of MemoryArrayDBM.
struct MemoryArrayOptions {
  unsigned width = 0;                                 // bytes of each record, 1 to kRecordWidthMax
  std::uint64_t max_bytes = std::uint64_t{32} << 30;  // see BabyOptions::max_bytes
  // See TinyOptions.
  Durability durability = Durability::kProcess;
  std::uint64_t log_bytes = std::uint64_t{64} << 20;
  std::string log_archive = {};
  std::uint64_t snapshot_bytes = std::uint64_t{256} << 20;  // see BabyOptions
};

}  // namespace hako
