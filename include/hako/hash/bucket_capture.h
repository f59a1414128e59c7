// A scan that shows the records that a BucketIndex has at one moment, while writers continue.
//
// BucketIndex::BeginCapture fixes the moment, with the writers stopped. From then on each writer
// that has locked a bucket calls Capture before it changes anything there. Capture copies the
// records of the bucket, unless the scan has passed it or it was captured before. A split captures
// the bucket that it divides. So the scan shows each bucket of the moment once: as it was captured
// or, if no writer has changed it, as the scan finds it.
//
// Each step shows the records captured since the last step first, so only these need memory.
//
// Capture and Fail are thread-safe. One thread calls the other functions.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/hash/bucket_index.h"
#include "hako/hash/bucket_scan.h"
#include "hako/sync/mutex.h"

namespace hako::hash {

template <class Space>
class BucketCapture {
 public:
  explicit BucketCapture(const BucketIndex<Space>& index) : scan_(index) {}
  BucketCapture(const BucketCapture&) = delete;

  // Begins with this number of buckets.
  void Begin(std::uint64_t lines) {
    lines_ = lines;
    is_done_ = std::vector<std::atomic<std::uint64_t>>(lines / 64 + 1);
    scan_.StartPart(lines, 0, 1);
  }
  // Copies the records of a bucket: for_each(visit) calls visit(key, value) for each that it can read, and
  // returns the first error.
  // REQUIRES: the calling writer has locked the bucket, and not yet changed it (checked in CaptureIfAsked)
  template <class ForEach>
  void Capture(std::uint64_t bucket, ForEach&& for_each) noexcept {
    if (IsDone(bucket)) return;
    sync::MutexLock lock(mutex_);
    if (IsDone(bucket) || !error_.ok()) return;
    error_.Update(CatchNoMemory([&] {
      return for_each([&](std::string_view key, std::string_view value)
                          ABSL_NO_THREAD_SAFETY_ANALYSIS { captured_.emplace_back(key, value); });
    }));
    SetDone(bucket);
  }
  // Call this when the scan can no longer show the moment.
  void Fail(const Status& why) {
    sync::MutexLock lock(mutex_);
    error_.Update(why);
  }

  BucketCapture& capture() { return *this; }
  // Moves to the next record. Returns false at the end. After DataLoss, SkipDamage may be called.
  StatusOr<bool> Next() {
    for (++at_; at_ >= size(); at_ = 0) {
      HAKO_ASSIGN_OR_RETURN(const bool more, Step());
      if (!more) return false;
    }
    return true;
  }
  std::string_view key() const { return shows_captured_ ? std::string_view(shown_[at_].first) : scan_.key(at_); }
  std::string_view value() const { return shows_captured_ ? std::string_view(shown_[at_].second) : scan_.value(at_); }
  // Makes the next call of Next continue after the damage that the last call returned.
  bool SkipDamage() {
    if (scan_.SkipDamage()) return true;
    sync::MutexLock lock(mutex_);  // a writer may have found it
    if (!absl::IsDataLoss(error_)) return false;
    error_ = absl::OkStatus();
    return true;
  }

 private:
  // Whether the bucket was captured or passed. True for a bucket that was split off since the
  // moment: its records belong to a bucket that the split captured.
  bool IsDone(std::uint64_t bucket) const {
    return bucket >= lines_ || (is_done_[bucket / 64].load(std::memory_order_acquire) >> bucket % 64 & 1) != 0;
  }
  void SetDone(std::uint64_t bucket) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    is_done_[bucket / 64].fetch_or(std::uint64_t{1} << bucket % 64, std::memory_order_release);
  }
  std::size_t size() const { return shows_captured_ ? shown_.size() : scan_.size(); }

  // Moves to the records that were captured meanwhile, or to those of the next bucket.
  StatusOr<bool> Step() {
    for (;;) {
      {
        sync::MutexLock lock(mutex_);
        HAKO_RETURN_IF_ERROR(error_);
        shown_.clear();
        shown_.swap(captured_);
      }
      shows_captured_ = !shown_.empty();
      if (shows_captured_) return true;
      const std::uint64_t bucket = scan_.next();
      HAKO_ASSIGN_OR_RETURN(const bool more, scan_.Step());
      if (!more) {
        sync::MutexLock lock(mutex_);
        if (captured_.empty()) return error_.ok() ? StatusOr<bool>(false) : error_;
        continue;
      }
      sync::MutexLock lock(mutex_);
      if (IsDone(bucket)) continue;  // the bucket may have changed before it was copied
      SetDone(bucket);
      return true;
    }
  }

  BucketScan<Space> scan_;
  std::uint64_t lines_ = 0;
  bool shows_captured_ = false;
  std::size_t at_ = ~std::size_t{0};
  using Records = std::vector<std::pair<std::string, std::string>>;
  Records shown_;
  std::vector<std::atomic<std::uint64_t>> is_done_;  // by bucket: captured, or passed by the scan
  sync::Mutex mutex_;
  Records captured_ ABSL_GUARDED_BY(mutex_);
  Status error_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hako::hash
