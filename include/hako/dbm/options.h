// Options of the DBMs: plain structs, validated once at Open. Sizes in bytes.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "hako/dbm/dbm.h"

namespace hako {

// Bytes that the user may keep in a database file beside the records; zero at first. The engine never looks at them.
using UserMetadata = std::array<std::byte, 64>;

struct HashOptions {
  // How many records are expected; 0 = unknown. Only a hint, used when the file is created: the table grows by itself in any case.
  std::uint64_t num_records = 0;
  // Records are aligned to 2^align_pow bytes, fixed when the file is created: 3 to 6. The file can grow to 2^(32 + align_pow) bytes,
  // 32 GiB by default; beyond that, updates fail with ResourceExhausted.
  int align_pow = 3;
  // Seed of the key hash and the record checks, fixed when the file is created; 0 = drawn from the system's entropy.
  std::uint64_t seed = 0;
  // What every update survives when it returns, of whatever operation; SetOptions can ask for more.
  Durability durability = Durability::kProcess;
  // How often the database synchronizes by itself what has been changed, from a thread of its own, so that a power cut costs no more than
  // what came after the last time; 0 = only when told to. A failure is told to the next update, as that of Synchronize is.
  std::chrono::milliseconds sync_interval{0};
  // The space of replaced and removed records is used again after the next synchronization, because a crash of the machine may bring them
  // back. Once such records of more than 4 KiB each take this many bytes, and an eighth of what live records take, the database
  // synchronizes by itself, from a thread that it starts then; 0 = only when told to. No update waits for the device, but while twice as
  // much waits, a Set of a value of more than 8 KiB takes up to 10 ms longer. Smaller records never cause it, since random updates of small
  // records are much slower after each synchronization; their file grows to twice what lived in it at the last one. Of what is replaced
  // before the first synchronization of a new file nothing waits.
  // A larger number makes it faster to replace such records, and the file larger. Where half of 100 MB of live data may wait instead of an
  // eighth, the file is 2.3 instead of 1.5 times as large as its values, of 16 KiB, and their replacement has been seen to take a quarter
  // of the time, as it seldom waits for a synchronization. The default keeps files small.
  std::uint64_t reclaim_bytes = std::uint64_t{16} << 20;
  // On a file that is not mapped: bytes that the first read of a record takes, in the hope that it is all of it; 0 = what records have
  // lately been found to take.
  std::uint64_t min_read_size = 0;
};

struct TinyOptions {
  // How many records are expected; 0 = unknown. Only a hint: the table grows by itself.
  std::uint64_t num_records = 0;
  // Records are aligned to 2^align_pow bytes: 2 to 6. The database can grow to 2^(32 + align_pow) bytes, 16 GiB by default.
  int align_pow = 2;
  std::uint64_t seed = 0;  // of the key hash; 0 = drawn from the system's entropy
};

struct BabyOptions {
  // A page is divided when it would take more bytes than this, 128 to 8192; a value longer than a quarter of it lies outside of the page.
  unsigned page_size = 8192;
  // Address space, 1 MiB to somewhat below 512 GiB, of which only what is used takes memory; beyond it updates fail with
  // ResourceExhausted.
  std::uint64_t max_bytes = std::uint64_t{32} << 30;
};

struct TreeOptions {
  // A page is divided when it would take more bytes than this, 128 to 8192; a value longer than a quarter of it lies outside of the page.
  // Fixed when the file is created.
  unsigned page_size = 8192;
  // Memory for pages and for what says where they are, at least 1 MiB. Pages that were changed since the last checkpoint take about three
  // quarters of it: as they approach that, each update of another page pauses, for up to 4 milliseconds, so that updates slow down to the
  // speed of the device. While the device stands still they go on with these pauses, which double with each 4 MiB, or eighth of the cache,
  // beyond. For each page of the file, in memory or not, there are about 100 bytes.
  // A ProcessMulti of more pages than an eighth of it holds them all in memory beside it, until a checkpoint has written them. Values that
  // lie outside of pages take memory beside it too, until a checkpoint has written them: while they take more than an eighth of it, a
  // thread that has set another one waits for a checkpoint.
  std::uint64_t cache_bytes = std::uint64_t{256} << 20;
  // So many bytes of changed pages, or half of cache_bytes, cause a checkpoint.
  std::uint64_t checkpoint_bytes = std::uint64_t{128} << 20;
  // What every update survives when it returns, of whatever operation; SetOptions can ask for more.
  Durability durability = Durability::kProcess;
  // How often there is a checkpoint in any case, if something has changed; 0 = only as said above.
  std::chrono::milliseconds sync_interval{0};
  // Bytes that the first read of a page takes; 0 = all, as the page map knows how many there are. Only to measure what knowing it is worth.
  std::uint64_t min_read_size = 0;
};

}  // namespace hako
