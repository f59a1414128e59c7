// Anonymous memory that grows without moving: the arena reserves address space once, and uses its
// pages as it hands out extents.
//
// Extents are zero-filled and aligned to 64 KiB. They are not freed one by one: Shrink frees the
// last ones, Reset frees all. Random access to a large table is faster with 2 MiB pages; an almost
// empty database needs small ones. So while the arena is small, a region of 2 MiB becomes a huge
// page only if one extent covers it or small extents have filled it. Later all regions request huge
// pages before their first use. The requests are hints, which may fail without harm.
//
// Thread-safe.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "hako/base/address_space.h"
#include "hako/base/assert.h"
#include "hako/base/status.h"
#include "hako/sync/mutex.h"

namespace hako::storage {

// A reserved range of zero pages.
class ReservedMemory {
 public:
  static StatusOr<ReservedMemory> Reserve(std::uint64_t bytes) { return ReserveUpTo(bytes, bytes); }
  // Reserves this structure's share of the address space, from `least` to `bytes` bytes.
  static StatusOr<ReservedMemory> ReserveUpTo(std::uint64_t bytes, std::uint64_t least) {
    const AddressRange range = ReserveAddresses(std::min(least, bytes), bytes, [](std::uint64_t size) {
      void* const base = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      return base != MAP_FAILED ? static_cast<std::byte*>(base) : nullptr;
    });
    if (range.base != nullptr) return ReservedMemory(range);
    return absl::ResourceExhaustedError(absl::StrCat("cannot reserve ", least, " bytes of address space", kAddressSpaceHint));
  }
  ReservedMemory() = default;
  ReservedMemory(ReservedMemory&& other) noexcept : range_(std::exchange(other.range_, {})) {}
  ReservedMemory& operator=(ReservedMemory&& other) noexcept {
    std::swap(range_, other.range_);
    return *this;
  }
  ~ReservedMemory() {
    if (range_.base != nullptr) (void)ReleaseAddresses(range_);
  }

  std::byte* base() const { return range_.base; }
  std::uint64_t size() const { return range_.size; }
  // A hint to use no huge pages, which would take memory beyond the bytes in use.
  void KeepSmallPages() { ::madvise(range_.base, range_.size, MADV_NOHUGEPAGE); }
  // Returns the pages to the system. They then read as zero.
  void Discard() { ::madvise(range_.base, range_.size, MADV_DONTNEED); }

 private:
  explicit ReservedMemory(const AddressRange& range) : range_(range) {}
  AddressRange range_;
};

class Arena {
 public:
  static constexpr std::uint64_t kExtentAlignment = 64 << 10;
  static constexpr std::uint64_t kSmallUsual = 32 << 20, kLeastUsual = 4 << 20;

  // The limit is `max_bytes`, or less if the process has less address space, but at least
  // `least_bytes`. Allocate never returns offset 0, so 0 can mean "none". At least 64 KiB before
  // and after each extent are readable. Below `small` bytes the arena uses small pages. REQUIRES:
  // max_bytes >= kExtentAlignment
  static StatusOr<std::unique_ptr<Arena>> Create(std::uint64_t max_bytes, std::uint64_t small = kSmallUsual,
                                                 std::uint64_t least_bytes = kLeastUsual) {
    HAKO_ASSERT(max_bytes >= kExtentAlignment);
    HAKO_ASSIGN_OR_RETURN(ReservedMemory memory, ReservedMemory::ReserveUpTo(max_bytes + 2 * kHugePage, least_bytes + 2 * kHugePage));
    const std::uint64_t room = memory.size() - 2 * kHugePage;
    return std::unique_ptr<Arena>(new Arena(std::move(memory), std::min(max_bytes, room), room < max_bytes, small));
  }

  // Uses no huge pages from now on, so that only bytes in use take memory.
  // REQUIRES: no extent has been allocated
  void KeepSmallPages() {
    HAKO_DCHECK(end() == kExtentAlignment);
    keeps_small_pages_ = true;
    memory_.KeepSmallPages();
  }

  std::byte* base() const { return base_; }
  std::uint64_t max_bytes() const { return max_bytes_.load(std::memory_order_relaxed); }
  // Returns how many bytes can still be allocated.
  std::uint64_t room() const {
    const std::uint64_t used = end();
    return std::max(max_bytes(), used) - used;
  }
  // Lowers max_bytes.
  void LowerLimit(std::uint64_t bytes) {
    sync::MutexLock lock(mutex_);
    max_bytes_.store(max_bytes() - std::min(bytes, max_bytes() - end()), std::memory_order_relaxed);
  }
  // The offset below which all extents lie.
  std::uint64_t end() const { return end_.load(std::memory_order_acquire); }

  // Allocates a zero-filled extent of at least `bytes`; returns its offset.
  StatusOr<std::uint64_t> Allocate(std::uint64_t bytes) {
    bytes = (bytes + kExtentAlignment - 1) & ~(kExtentAlignment - 1);
    sync::MutexLock lock(mutex_);
    const std::uint64_t offset = end_.load(std::memory_order_relaxed);
    if (bytes > max_bytes() - offset) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the database has reached its limit of ", max_bytes(), " bytes", is_limited_ ? kAddressSpaceHint : ""));
    }
    if (!keeps_small_pages_) AdviseHugePages(offset, offset + bytes);
    end_.store(offset + bytes, std::memory_order_release);
    return offset;
  }

  // Frees the extents from `end` on; their memory then reads as zero. REQUIRES: kExtentAlignment <=
  // end, no thread uses the freed extents
  void Shrink(std::uint64_t end) {
    HAKO_DCHECK(end >= kExtentAlignment);
    end = (end + kExtentAlignment - 1) & ~(kExtentAlignment - 1);
    sync::MutexLock lock(mutex_);
    const std::uint64_t before = end_.load(std::memory_order_relaxed);
    if (end >= before) return;
    ::madvise(base_ + end, before - end, MADV_DONTNEED);
    end_.store(end, std::memory_order_release);
  }

  // Returns the memory of a part to the system. The part then reads as zero.
  // REQUIRES: it is inside the extents, and no thread uses it
  void Discard(std::uint64_t offset, std::uint64_t bytes) {
    HAKO_DCHECK(offset <= end() && bytes <= end() - offset);
    ::madvise(base_ + offset, bytes, MADV_DONTNEED);
  }

  void Reset() {
    sync::MutexLock lock(mutex_);
    memory_.Discard();
    end_.store(kExtentAlignment, std::memory_order_release);
  }

 private:
  static constexpr std::uint64_t kHugePage = 2 << 20;
  static constexpr int kCollapse = 25;  // MADV_COLLAPSE, Linux 6.1

  Arena(ReservedMemory memory, std::uint64_t max_bytes, bool is_limited, std::uint64_t small)
      : memory_(std::move(memory)), max_bytes_(max_bytes), is_limited_(is_limited), small_(small) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.base());
    base_ = memory_.base() + ((kHugePage - address % kHugePage) % kHugePage);
  }

  // While the arena is small, a region becomes a huge page only when it is full, so that little
  // memory is wasted.
  void AdviseHugePages(std::uint64_t begin, std::uint64_t end) {
    const std::uint64_t first_untouched = (begin + kHugePage - 1) & ~(kHugePage - 1);
    const bool large = begin >= small_;
    const std::uint64_t last = (large ? std::min(end + kHugePage - 1, std::max(max_bytes(), end)) : end) & ~(kHugePage - 1);
    if (first_untouched < last) ::madvise(base_ + first_untouched, last - first_untouched, MADV_HUGEPAGE);
    const std::uint64_t region = begin & ~(kHugePage - 1);
    if (!large && end / kHugePage != region / kHugePage) ::madvise(base_ + region, kHugePage, kCollapse);
  }

  ReservedMemory memory_;
  std::atomic<std::uint64_t> max_bytes_;
  const bool is_limited_;  // the limit is lower than requested, for lack of address space
  const std::uint64_t small_;
  bool keeps_small_pages_ = false;
  std::byte* base_;
  std::atomic<std::uint64_t> end_{kExtentAlignment};
  sync::Mutex mutex_;
};

}  // namespace hako::storage
