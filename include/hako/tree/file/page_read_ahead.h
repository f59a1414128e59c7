// Loads the pages that scans and replays request, in background threads. While one of the threads
// waits for the device, the others install pages.
//
// Thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "hako/sync/background_thread.h"
#include "hako/sync/mutex.h"
#include "hako/tree/lock_order.h"

namespace hako::tree {

class PageReadAhead {
 public:
  // load(ids, level) is called in a background thread, with at most `together` ids.
  PageReadAhead(std::size_t together, std::function<void(std::span<const std::uint32_t>, int)> load)
      : together_(together), load_(std::move(load)) {}
  PageReadAhead(const PageReadAhead&) = delete;
  PageReadAhead& operator=(const PageReadAhead&) = delete;

  // Queues the pages. Returns false, and queues none, if too much is already queued, no thread can
  // be started, or Stop was called.
  bool Request(std::span<const std::uint32_t> ids, int level) {
    sync::MutexLock lock(mutex_);
    // If too much is queued, the device is slower than the scan.
    if (queue_.size() > kQueueMax || is_stopped_) return false;
    // Inner pages come first, because they name more pages that will be needed.
    queue_.insert(level > 0 ? queue_.begin() : queue_.end(), Wanted{level, {ids.begin(), ids.end()}});
    const std::size_t parts = ids.size() / together_ + 1;
    for (std::size_t i = 0; i < std::min(parts, readers_.size()); ++i) {
      sync::BackgroundThread::Pointer& reader = readers_[i];
      if (reader == nullptr) {
        auto started = sync::BackgroundThread::Start({}, [this] { LoadQueued(); });
        if (!started.ok()) return queue_.clear(), false;
        reader = *std::move(started);
      }
      reader->Wake();
    }
    return true;
  }
  // Stops the threads, and drops the queued requests.
  void Stop() {
    Readers readers;  // stopped without the lock, which they may be waiting for
    sync::MutexLock lock(mutex_);
    is_stopped_ = true;
    readers.swap(readers_);
    queue_.clear();
  }

 private:
  using Readers = std::array<sync::BackgroundThread::Pointer, 3>;
  static constexpr std::size_t kQueueMax = 16;
  struct Wanted {
    int level;
    std::vector<std::uint32_t> ids;
  };

  void LoadQueued() {
    Wanted wanted;
    while (Take(&wanted)) load_(wanted.ids, wanted.level);
  }
  bool Take(Wanted* wanted) {
    sync::MutexLock lock(mutex_);
    if (queue_.empty()) return false;
    Wanted& first = queue_.front();
    const auto end = first.ids.begin() + static_cast<std::ptrdiff_t>(std::min(first.ids.size(), together_));
    *wanted = {first.level, {first.ids.begin(), end}};
    first.ids.erase(first.ids.begin(), end);
    if (first.ids.empty()) queue_.pop_front();
    return true;
  }

  const std::size_t together_;
  const std::function<void(std::span<const std::uint32_t>, int)> load_;
  sync::Mutex mutex_ ABSL_ACQUIRED_AFTER(kPoolLocks);
  std::deque<Wanted> queue_ ABSL_GUARDED_BY(mutex_);
  bool is_stopped_ ABSL_GUARDED_BY(mutex_) = false;
  Readers readers_ ABSL_GUARDED_BY(mutex_);  // destroyed first: they use the other members
};

}  // namespace hako::tree
