// How the system pages a mapped file: by huge pages, or by small ones.
//
// Huge pages make random access to cached data a third faster and filling a file far cheaper. The
// cost is in I/O: a store dirties a whole huge page, so that a sync after each update writes 2 MiB
// for each changed page, and a page that is not in memory is read whole. So huge pages are
// requested for the part by which a file grows while it is open. The part that exists at Open is
// paged as the system decides: huge pages already in memory stay, and a file larger than memory is
// read by small pages.
//
// A file that is synced often stops using huge pages. Once kSyncs syncs occur within a second, new
// pages are small, and each later sync splits kRegionsAtOnce of the huge ones, from the front. A
// file opened without huge pages splits those that an earlier user left in memory in the same way,
// from its first sync on.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "hako/base/language.h"
#include "hako/sync/mutex.h"

namespace hako {

class MapPaging {
 public:
  static constexpr int kSyncs = 8;
  static constexpr std::uint64_t kHugePage = std::uint64_t{2} << 20, kRegionsAtOnce = 16;

  // Manages `bytes` bytes that are mapped at `base`, of a file of `file_size` bytes.
  MapPaging(std::byte* base, std::uint64_t bytes, std::uint64_t file_size, bool huge_pages);
  MapPaging(const MapPaging&) = delete;
  MapPaging& operator=(const MapPaging&) = delete;

  // Call after each sync, with the file's current size.
  void AfterSync(std::uint64_t file_size) {
    if (may_have_huge_pages_.load(std::memory_order_relaxed)) CountSync(file_size);
  }
  // Call after each write by a system call.
  void AfterLongWrite(std::uint64_t bytes) { long_bytes_.fetch_add(bytes, std::memory_order_relaxed); }

  // Whether the system does no read-ahead, so that long reads should announce their range.
  bool reads_page_by_page() const { return reads_page_by_page_; }

 private:
  void CountSync(std::uint64_t file_size);
  void AdviseGrowth(int advice);
  void SplitSome(std::uint64_t file_size) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void Split(std::byte* region, std::uint64_t bytes);

  std::byte* const base_;
  const std::uint64_t bytes_;
  std::atomic<bool> may_have_huge_pages_{true};
  std::atomic<std::uint64_t> long_bytes_{0};  // of long writes since the last sync
  bool reads_page_by_page_;
  std::uint64_t grown_from_;  // the file's size at Open, rounded to huge pages
  sync::Mutex mutex_;
  std::chrono::steady_clock::time_point second_ ABSL_GUARDED_BY(mutex_);  // start of the second in which syncs are counted
  int num_syncs_ ABSL_GUARDED_BY(mutex_);                                 // kSyncs: huge pages are being split
  std::uint64_t split_to_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace hako
