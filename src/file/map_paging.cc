#include "hako/file/map_paging.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#ifndef MADV_COLD
#define MADV_COLD 20
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

namespace hako {
namespace {

constexpr std::uint64_t kSmallPage = 4096;      // a lower bound
constexpr std::uint64_t kSplitStep = 16 << 10;  // bytes of the smallest page that is worth splitting

bool FitsIntoMemory(std::uint64_t bytes) {
  static const std::uint64_t memory =
      static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return bytes <= memory / 2;
}

}  // namespace

MapPaging::MapPaging(std::byte* base, std::uint64_t bytes, std::uint64_t file_size, bool huge_pages)
    : base_(base), bytes_(bytes), reads_page_by_page_(!FitsIntoMemory(file_size)) {
  const bool grows_huge = huge_pages && !reads_page_by_page_;
  num_syncs_ = grows_huge ? 0 : kSyncs;
  grown_from_ = std::min((file_size + kHugePage - 1) & ~(kHugePage - 1), bytes);
  if (reads_page_by_page_) (void)madvise(base, grown_from_, MADV_RANDOM);
  AdviseGrowth(MADV_RANDOM);  // read-ahead would make stores wait for zeros of new space, and syncs write them
  if (grows_huge) AdviseGrowth(MADV_HUGEPAGE);
}

void MapPaging::AdviseGrowth(int advice) {
  if (grown_from_ < bytes_) (void)madvise(base_ + grown_from_, bytes_ - grown_from_, advice);
}

// The system splits a huge page when a part of it is advised as cold. The page must be mapped for
// that, so map it first, but only what is already in memory: nothing must be read. A page that
// cannot be split stays as it is.
void MapPaging::Split(std::byte* region, std::uint64_t bytes) {
  static const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  std::array<unsigned char, kHugePage / kSmallPage> is_in_memory{};
  if (mincore(region, bytes, is_in_memory.data()) != 0) return;
  for (std::uint64_t at = 0; at < bytes; at += std::max(kSplitStep, page)) {
    if ((is_in_memory[at / page] & 1) == 0) continue;
    (void)madvise(region + at, page, MADV_POPULATE_READ);
    (void)madvise(region + at, page, MADV_COLD);
  }
}

void MapPaging::CountSync(std::uint64_t file_size) {
  if (long_bytes_.exchange(0, std::memory_order_relaxed) >= kHugePage) return;
  if (!mutex_.TryLock()) return;
  const sync::MutexLock lock(mutex_, std::adopt_lock);
  SplitSome(file_size);
}

void MapPaging::SplitSome(std::uint64_t file_size) {
  if (num_syncs_ < kSyncs) {
    const auto now = std::chrono::steady_clock::now();
    if (num_syncs_ == 0 || now - second_ > std::chrono::seconds(1)) second_ = now, num_syncs_ = 0;
    if (++num_syncs_ < kSyncs) return;
    AdviseGrowth(MADV_NOHUGEPAGE);
  }
  const std::uint64_t end = std::min({file_size, bytes_, split_to_ + kRegionsAtOnce * kHugePage});
  for (; split_to_ < end; split_to_ += kHugePage) Split(base_ + split_to_, std::min(kHugePage, end - split_to_));
  if (split_to_ >= file_size) may_have_huge_pages_.store(false, std::memory_order_relaxed);
}

}  // namespace hako
