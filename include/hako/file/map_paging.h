// How the system pages a mapped file: by huge pages, or by as few bytes as each access needs.
//
// A huge page makes random access to what is in memory faster by a third and filling a file cheaper by far. The price is paid on the way to
// the device: a store dirties all of it, so that a sync after each update writes 2 MiB for each page that the update touched; and a page
// that is not in memory is read whole. So a file is given huge pages for what it grows by while it is open. What it holds at Open is paged
// as the system sees fit, which keeps huge pages that are in memory already; a file that memory cannot hold is read page by page.
//
// A file that is synced often leaves its huge pages: the first time that kSyncs syncs come within a second, new pages are small from then
// on, and each sync after that splits kRegionsAtOnce of the huge ones, from the front. A file that is opened without huge pages splits
// those that an earlier user left in memory in the same way, from the first sync on.
//
// Threads: any.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace hako {

class MapPaging {
 public:
  static constexpr int kSyncs = 8;
  static constexpr std::uint64_t kHugePage = std::uint64_t{2} << 20, kRegionsAtOnce = 16;

  // Of `bytes` mapped at `base`, of a file of `file_size` bytes.
  MapPaging(std::byte* base, std::uint64_t bytes, std::uint64_t file_size, bool huge_pages);
  MapPaging(const MapPaging&) = delete;
  MapPaging& operator=(const MapPaging&) = delete;

  // To be called after each sync, of a file of `file_size` bytes now.
  void AfterSync(std::uint64_t file_size) {
    if (may_have_huge_pages_.load(std::memory_order_relaxed)) CountSync(file_size);
  }

  // Whether the system reads nothing ahead, so that long reads should say what they want.
  bool reads_page_by_page() const { return reads_page_by_page_; }

 private:
  void CountSync(std::uint64_t file_size);
  void AdviseGrowth(int advice);
  static void Split(std::byte* region, std::uint64_t bytes);

  std::byte* const base_;
  const std::uint64_t bytes_;
  std::atomic<bool> may_have_huge_pages_{true};
  bool reads_page_by_page_;
  std::uint64_t grown_from_;                      // where the file ended at Open, in whole huge pages
  std::mutex mutex_;                              // for the rest
  std::chrono::steady_clock::time_point second_;  // when the syncs began to be counted
  int num_syncs_;                                 // kSyncs: huge pages are being split
  std::uint64_t split_to_ = 0;
};

}  // namespace hako
