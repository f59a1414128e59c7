// RowNumbers: gives numbers to the rows of a table with text indices, for posting lists
// (table/posting_block.h).
//
//   03 BLOCK  the keys of the rows with the numbers BLOCK * kKeysOfBlock and up; 4 bytes, big-endian
//
// A row gets its number when a text index first needs it, and keeps it until it is removed, also when
// no text index is left. The number is stored in the row (NumberOfRow, table/row.h) and, with the row's
// key, in a key block, in the same step as the row.
//
// Numbers of removed rows are given again once there are many, so numbers stay dense. A query that has read
// a number in a posting list looks its row up later; until all queries that ran when the row was removed have
// ended, its number is kept back. Numbers that are free when the table is opened are found by a scan, of which
// each new number makes a small part.
//
// Rows often come in the order of their keys, and an index that is made on a full table numbers them so. The
// scan therefore also notes the keys of each zone of numbers (table/row_zones.h), and a query can find its
// first rows by key without reading whole posting lists.
//
// Threads: all functions but Open are thread-safe. A mutex is held for a moment, and not while blocks are
// read. A thread that takes a number, and keeps it or gives it back, holds the WriterGate or the mutex of the
// catalogue meanwhile, so RetireAll does not come between.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "hako/base/status.h"
#include "hako/dbm/any_model.h"
#include "hako/sync/mutex.h"
#include "hako/table/posting_block.h"
#include "hako/table/row_zones.h"

namespace hako::table {

class RowNumbers {
 public:
  explicit RowNumbers(internal::AnyDatabase& store) : store_(store) {}

  // Finds the numbers of a table that is opened. Until then it is as one without rows.
  Status Open();
  // Returns a number that no row has, for the row of this key.
  StatusOr<RowNumber> Take(std::string_view key);
  // Takes back numbers that were not stored: see TakenNumbers.
  void GiveBack(std::span<const RowNumber> numbers) noexcept;
  // Announces the numbers of rows that a step is about to remove, so that the scan does not find them free
  // before Retire takes them back. Nothing more is needed if the step fails.
  void Announce(std::span<const RowNumber> numbers);
  // Takes back the numbers of rows that were removed. REQUIRES: they were announced (unchecked: once the scan
  // has passed them nothing is known of them)
  void Retire(std::span<const RowNumber> numbers) noexcept;
  // All rows have been removed. REQUIRES: no writer runs (unchecked here: the caller has the gate)
  void RetireAll();
  // A number that RetireAll changes. Numbers that were taken before must not be stored after it, nor given back.
  std::uint64_t Generation();

  // Whether the keys of all zones are known, and these are in order (RowZones::HasOrder). Continues the scan for
  // some milliseconds if they are not known.
  bool KnowsOrder(bool is_reversed);
  std::size_t NumZones();
  // See RowZones. REQUIRES: KnowsOrder has returned true
  void SeeNextZones(RowZones::Seen& seen, std::size_t count, std::string_view from, std::string_view to,
                    std::vector<RowZones::Zone>* zones);

  // No number that a query finds between Begin and End is given to another row before End. Begin returns
  // what End needs.
  unsigned Begin();
  void End(unsigned epoch);

 private:
  static constexpr std::size_t kFreeMax = std::size_t{1} << 16;

  static constexpr std::uint64_t kNumbersMax = std::numeric_limits<RowNumber>::max();
  struct ScanPart {
    std::uint64_t begin;       // scanned_
    std::uint64_t scans_from;  // scans_from_ when the scan began
    std::array<KeyBlock, 2> blocks;
  };

  std::optional<ScanPart> BeginScan() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Status Scan(ScanPart& part, std::size_t num_parts) ABSL_LOCKS_EXCLUDED(mutex_);
  Status ReadPart(ScanPart& part) ABSL_LOCKS_EXCLUDED(mutex_);
  bool NotePart(ScanPart& part) ABSL_LOCKS_EXCLUDED(mutex_);
  void CompactFree() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsScarce() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::size_t NumFree() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return free_.size() - first_free_; }
  bool IsUnscanned(RowNumber number) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return number < scan_end_ && number >= scanned_; }

  internal::AnyDatabase& store_;
  sync::Mutex mutex_;
  std::uint64_t next_ ABSL_GUARDED_BY(mutex_) = 0;  // above all numbers that were given
  // Numbers in [scanned_, scan_end_) are not known to be taken or free, except those of known_: they
  // were free or kept back since.
  std::uint64_t scanned_ ABSL_GUARDED_BY(mutex_) = 0, scan_end_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_scanning_ ABSL_GUARDED_BY(mutex_) = false;      // a thread reads key blocks from scanned_ on
  std::uint64_t scans_from_ ABSL_GUARDED_BY(mutex_) = 0;  // the first epoch in which the scan may go on
  std::unordered_set<RowNumber> known_ ABSL_GUARDED_BY(mutex_);
  std::vector<RowNumber> free_ ABSL_GUARDED_BY(mutex_);  // those from first_free_ on, the longest free first
  std::size_t first_free_ ABSL_GUARDED_BY(mutex_) = 0;
  RowZones zones_ ABSL_GUARDED_BY(mutex_);  // of the rows that were scanned, or got their numbers since Open
  bool knows_zones_ ABSL_GUARDED_BY(mutex_) = true;
  // Queries that began, and numbers of rows that were removed, in this epoch and in the one before.
  std::uint64_t epoch_ ABSL_GUARDED_BY(mutex_) = 2;
  std::array<std::uint64_t, 2> num_queries_ ABSL_GUARDED_BY(mutex_) = {};
  std::array<std::vector<RowNumber>, 2> retired_ ABSL_GUARDED_BY(mutex_);
};

// The numbers that a step takes. Unless it keeps them, they are given back.
class TakenNumbers {
 public:
  explicit TakenNumbers(RowNumbers& numbers) : numbers_(numbers) {}
  TakenNumbers(const TakenNumbers&) = delete;
  ~TakenNumbers() { numbers_.GiveBack(taken_); }
  StatusOr<RowNumber> Take(std::string_view key) {
    taken_.reserve(taken_.size() < taken_.capacity() ? 0 : 2 * taken_.size() + 1);
    HAKO_ASSIGN_OR_RETURN(const RowNumber number, numbers_.Take(key));
    taken_.push_back(number);
    return number;
  }
  void Keep() { taken_.clear(); }
  const std::vector<RowNumber>& numbers() const { return taken_; }

 private:
  RowNumbers& numbers_;
  std::vector<RowNumber> taken_;
};

// Keeps numbers from being given again until the end of the scope.
class NumbersInUse {
 public:
  explicit NumbersInUse(RowNumbers& numbers) : numbers_(numbers), epoch_(numbers.Begin()) {}
  NumbersInUse(const NumbersInUse&) = delete;
  ~NumbersInUse() { numbers_.End(epoch_); }

 private:
  RowNumbers& numbers_;
  const unsigned epoch_;
};

}  // namespace hako::table
