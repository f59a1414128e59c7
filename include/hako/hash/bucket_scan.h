// A scan of all records of a BucketIndex, one bucket at a time, beside writers.
//
// Each step visits one of the buckets that existed when the scan began, together with the buckets
// split off from it since. So a record that exists during the whole scan is seen exactly once, even
// if the table grows. The records of the bucket are copied and checked; the buffers are reused for
// the next one. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "hako/base/inline.h"
#include "hako/base/prefetch.h"
#include "hako/base/status.h"
#include "hako/hash/bucket_index.h"
#include "hako/hash/copy_buffer.h"
#include "hako/hash/record_view.h"

namespace hako::hash {

template <class Space>
class BucketScan {
 public:
  explicit BucketScan(const BucketIndex<Space>& index) : space_(&index.space()), table_(&index.lines()) {}

  // Moves to the first bucket.
  void Start() { StartPart(table_->num_lines(), 0, 1); }
  // Moves to the first bucket of one of `parts` equal parts of the `lines` buckets. The scans of
  // all parts together visit all records.
  void StartPart(std::uint64_t lines, std::uint64_t part, std::uint64_t parts) {
    Clear();
    lines_ = lines;
    next_ = lines * part / parts;
    end_ = lines * (part + 1) / parts;
  }
  // Moves to the bucket of a hash.
  void StartAt(std::uint64_t hash) {
    Start();
    next_ = TableShape::Of(lines_).IndexOf(hash);
  }
  void Stop() {
    Clear();
    next_ = end_;
  }

  // Copies the records of the next bucket. Returns false at the end. After an error, SkipDamage may
  // be called.
  StatusOr<bool> Step();
  // Makes the next Step continue after the damage that the last one returned: in the same bucket
  // without the damaged record, or in the next bucket if a chain is broken. Returns false if the
  // last Step did not fail.
  bool SkipDamage() {
    if (!std::exchange(failed_, false)) return false;
    if (damaged_ == 0) return true;
    skipped_.push_back(damaged_);
    --next_;
    return true;
  }

  // The bucket that the next Step visits.
  std::uint64_t next() const { return next_; }
  std::size_t size() const { return size_; }
  HAKO_INLINE std::string_view key(std::size_t i) const { return records_[i].key(); }
  HAKO_INLINE std::string_view value(std::size_t i) const { return records_[i].value(); }

 private:
  using Line = format::BucketLine;
  // How many steps ahead a bucket, its records, and the rest of long records are prefetched.
  static constexpr std::uint64_t kLineAhead = 8;
  static constexpr std::uint64_t kRecordsAhead = 4;
  static constexpr std::uint64_t kRestAhead = 2;
  static constexpr std::size_t kLongRecord = 48;
  static constexpr std::uint64_t kReadTogether = 8;  // buckets read into the file's cache at once

  void Clear() {
    size_ = 0;
    buffer_.Clear();
  }
  void PrefetchAfter(std::uint64_t first) const;
  void ReadTogether(std::uint64_t first) const;
  bool CopyFamily(std::uint64_t first, bool lock_them, Status* status);
  HAKO_INLINE Status CopyChain(std::uint64_t index, bool lock_it, bool* raced);
  template <class C>
  [[gnu::flatten]] std::uint32_t CopyLine(Line& line, std::uint32_t header, const C& is_current);

  Space* space_;
  const LineTable<Space>* table_;
  std::uint64_t lines_ = 0;  // when the scan began
  std::uint64_t next_ = 0;   // the next bucket to visit
  std::uint64_t end_ = 0;
  bool failed_ = false;                 // whether the last Step failed
  std::uint32_t damaged_ = 0;           // the record for which it failed; 0 = none
  std::vector<std::uint32_t> skipped_;  // damaged records to skip
  bool long_records_ = false;
  std::size_t size_ = 0;  // records of this bucket, the first of `records_`
  std::vector<RecordCopy> records_;
  CopyBuffer buffer_;
};

template <class Space>
StatusOr<bool> BucketScan<Space>::Step() {
  Clear();
  if (next_ >= end_) return false;
  const std::uint64_t first = next_++;
  damaged_ = 0;
  if (first + kLineAhead < lines_) PrefetchAfter(first);
  if constexpr (Space::kReadsAhead) {
    if (first % kReadTogether == 0 && space_->CachedRecords() != 0) ReadTogether(first);
  }
  sync::Backoff backoff;
  Status status;
  while (!CopyFamily(first, backoff.count() >= LineTable<Space>::kOptimisticTries, &status)) {
    Clear();
    backoff.Pause();
  }
  failed_ = !status.ok();
  if (failed_) return status;
  long_records_ = size_ != 0 && key(0).size() + value(0).size() > kLongRecord;
  return true;
}

template <class Space>
HAKO_INLINE void BucketScan<Space>::PrefetchAfter(std::uint64_t first) const {
  const LineTable<Space>& lines = *table_;
  Prefetch(&lines.Home(first + kLineAhead));
  Line& line = lines.Home(first + kRecordsAhead);
  const std::uint32_t header = LoadHeader(line);
  for (unsigned i = 0; i < EntriesIn(header); ++i) space_->Prefetch(LoadSlot(line, i));
  if (HasLink(header)) Prefetch(lines.Overflow(LoadSlot(line, format::kLinkEntry)));
  Line* near = &lines.Home(first + kRestAhead);
  const std::uint32_t near_header = LoadHeader(*near);
  if (long_records_) {
    for (unsigned i = 0; i < EntriesIn(near_header); ++i) space_->PrefetchRest(LoadSlot(*near, i));
  }
  if (!HasLink(near_header)) return;
  near = lines.Overflow(LoadSlot(*near, format::kLinkEntry));
  if (near == nullptr) return;
  for (unsigned i = 0; i < format::kLinkEntry; ++i) space_->Prefetch(LoadSlot(*near, i));
}

// Reads the records of the next buckets, but only into the file's cache, because a bucket may name
// other records by the time that it is visited.
template <class Space>
void BucketScan<Space>::ReadTogether(std::uint64_t first) const {
  typename Space::Ahead ahead;
  for (std::uint64_t index = first; index < std::min(first + kReadTogether, end_); ++index) {
    unsigned links = 0;
    for (Line* line = &table_->Home(index); line != nullptr && links < 2; ++links) {
      const std::uint32_t header = LoadHeader(*line);
      for (unsigned i = 0; i < EntriesIn(header); ++i) space_->Want(ahead, LoadSlot(*line, i));
      line = HasLink(header) ? table_->Overflow(LoadSlot(*line, format::kLinkEntry)) : nullptr;
    }
  }
  space_->Read(ahead);
}

// Copies the records of a bucket and of the buckets split off from it since. Returns false if a
// writer interfered.
template <class Space>
HAKO_INLINE bool BucketScan<Space>::CopyFamily(std::uint64_t first, bool lock_them, Status* status) {
  bool raced = false;
  const std::uint64_t n = table_->num_lines();
  const std::uint64_t step = n == lines_ ? n : std::uint64_t{1} << TableShape::Of(lines_).DepthOf(first);
  for (std::uint64_t index = first; index < n && !raced && status->ok(); index += step) *status = CopyChain(index, lock_them, &raced);
  // A bucket that was split off in the meantime may have taken records that were not yet seen.
  const std::uint64_t now = table_->num_lines();
  return !raced && (now == n || (n != lines_ && (now - 1 - first) / step == (n - 1 - first) / step));
}

template <class Space>
HAKO_INLINE Status BucketScan<Space>::CopyChain(std::uint64_t index, bool lock_it, bool* raced) {
  Line* line = &table_->Home(index);
  sync::VersionLock lock(line->header);
  std::optional<sync::LockHolder> holder;
  if (lock_it) {
    lock.Lock();
    holder.emplace(lock);
  }
  const std::uint32_t version = lock.ReadVersion();
  const auto is_current = [&] { return lock_it || lock.IsCurrent(version); };
  Status status;
  std::uint32_t damaged = 0;
  *raced = !lock_it && (version & sync::VersionLock::kLocked) != 0;
  if (!*raced) [[likely]] {
    unsigned hops = 0;
    for (std::uint32_t header = version; (damaged = CopyLine(*line, header, is_current)) == 0 && HasLink(header);) {
      StatusOr<Line*> next = table_->NextLine(*line, header, &hops);
      if (!next.ok()) {
        status = next.status();
        break;
      }
      line = *next;
      header = LoadHeader(*line);
    }
    // Without the lock damage may be due to a writer, even if the version is unchanged: a writer
    // that ends without a change restores the version.
    *raced = !is_current() || (damaged != 0 && !lock_it);
    if (damaged != 0 && !*raced) status = space_->DamageAt(damaged_ = damaged);
  }
  return *raced ? absl::OkStatus() : status;
}

// Returns the handle of a record that does not validate; 0 if all do.
template <class Space>
template <class C>
std::uint32_t BucketScan<Space>::CopyLine(Line& line, std::uint32_t header, const C& is_current) {
  if (size_ + format::kLineEntries > records_.size()) records_.resize(2 * size_ + 2 * format::kLineEntries);
  RecordCopy* copy = records_.data() + size_;
  std::uint32_t damaged = 0;
  const unsigned entries = EntriesIn(header);
  for (unsigned i = 0; i < entries; ++i) {
    const std::uint32_t handle = LoadSlot(line, i);
    if (handle == 0) continue;
    if (space_->CopyRecord(handle, is_current, buffer_, copy) != Match::kYes) [[unlikely]] {
      if (std::find(skipped_.begin(), skipped_.end(), handle) != skipped_.end()) continue;
      damaged = handle;
      break;
    }
    ++copy;
  }
  size_ = static_cast<std::size_t>(copy - records_.data());
  return damaged;
}

}  // namespace hako::hash
