// Anonymous memory that grows without moving: address space is reserved once, and pages are touched
// as extents are handed out.
//
// Extents are zero-filled, aligned to 64 KiB and not freed one by one; Shrink frees the last ones,
// Reset all. Random access to a table wants 2 MiB pages, an almost empty database small ones. So
// while the arena is small, a 2 MiB region is advised to use a huge page if one extent covers it,
// and is collapsed into one once small extents have filled it. Later all regions are advised before
// they are touched. Both are hints that may fail without harm.
//
// Thread-safe.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "hako/base/assert.h"
#include "hako/base/status.h"
#include "hako/sync/mutex.h"

namespace hako::storage {

// A reserved range of zero pages.
class ReservedMemory {
 public:
  static StatusOr<ReservedMemory> Reserve(std::uint64_t bytes) {
    void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return SystemError(errno, absl::StrCat("cannot reserve ", bytes, " bytes of address space").c_str());
    return ReservedMemory(static_cast<std::byte*>(base), bytes);
  }
  // Reserves as much as the system allows (ulimit -v), from `least` to `bytes`. If less than
  // `bytes`, then half of that, to leave room for others.
  static StatusOr<ReservedMemory> ReserveUpTo(std::uint64_t bytes, std::uint64_t least) {
    auto memory = Reserve(bytes);
    for (std::uint64_t size = bytes / 2; !memory.ok() && size >= least; size /= 2) {
      memory = Reserve(size);
      if (memory.ok() && size / 2 >= least) memory = Reserve(size / 2);
    }
    return memory;
  }
  ReservedMemory() = default;
  ReservedMemory(ReservedMemory&& other) noexcept : base_(std::exchange(other.base_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  ReservedMemory& operator=(ReservedMemory&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~ReservedMemory() {
    if (base_ != nullptr) ::munmap(base_, size_);
  }

  std::byte* base() const { return base_; }
  std::uint64_t size() const { return size_; }
  // Returns the pages to the system; they read as zero from now on.
  void Discard() { ::madvise(base_, size_, MADV_DONTNEED); }

 private:
  ReservedMemory(std::byte* base, std::uint64_t size) : base_(base), size_(size) {}
  std::byte* base_ = nullptr;
  std::uint64_t size_ = 0;
};

class Arena {
 public:
  static constexpr std::uint64_t kExtentAlignment = 64 << 10;
  static constexpr std::uint64_t kSmallUsual = 32 << 20;

  // The limit is lower if the system allows less address space. Offset 0 is never handed out, so 0
  // can mean "none". At least 64 KiB before and behind each extent can be read. Below `small` bytes
  // the arena uses small pages. REQUIRES: max_bytes >= kExtentAlignment
  static StatusOr<std::unique_ptr<Arena>> Create(std::uint64_t max_bytes, std::uint64_t small = kSmallUsual) {
    HAKO_ASSERT(max_bytes >= kExtentAlignment);
    HAKO_ASSIGN_OR_RETURN(ReservedMemory memory, ReservedMemory::ReserveUpTo(max_bytes + 2 * kHugePage, kLeast));
    max_bytes = std::min(max_bytes, memory.size() - 2 * kHugePage);
    return std::unique_ptr<Arena>(new Arena(std::move(memory), max_bytes, small));
  }

  std::byte* base() const { return base_; }
  // All extents lie below it.
  std::uint64_t end() const { return end_.load(std::memory_order_acquire); }

  // Allocates a zero-filled extent of at least `bytes`; returns its offset.
  StatusOr<std::uint64_t> Allocate(std::uint64_t bytes) {
    bytes = (bytes + kExtentAlignment - 1) & ~(kExtentAlignment - 1);
    sync::MutexLock lock(mutex_);
    const std::uint64_t offset = end_.load(std::memory_order_relaxed);
    if (bytes > max_bytes_ - offset)
      return absl::ResourceExhaustedError(absl::StrCat("the database has reached its limit of ", max_bytes_, " bytes"));
    AdviseHugePages(offset, offset + bytes);
    end_.store(offset + bytes, std::memory_order_release);
    return offset;
  }

  // Frees the extents from `end` on; their memory reads as zero. REQUIRES: kExtentAlignment <= end,
  // no thread uses them
  void Shrink(std::uint64_t end) {
    end = (end + kExtentAlignment - 1) & ~(kExtentAlignment - 1);
    sync::MutexLock lock(mutex_);
    const std::uint64_t before = end_.load(std::memory_order_relaxed);
    if (end >= before) return;
    ::madvise(base_ + end, before - end, MADV_DONTNEED);
    end_.store(end, std::memory_order_release);
  }

  void Reset() {
    sync::MutexLock lock(mutex_);
    memory_.Discard();
    end_.store(kExtentAlignment, std::memory_order_release);
  }

 private:
  static constexpr std::uint64_t kHugePage = 2 << 20, kLeast = 64 << 20;
  static constexpr int kCollapse = 25;  // MADV_COLLAPSE, Linux 6.1

  Arena(ReservedMemory memory, std::uint64_t max_bytes, std::uint64_t small)
      : memory_(std::move(memory)), max_bytes_(max_bytes), small_(small) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.base());
    base_ = memory_.base() + ((kHugePage - address % kHugePage) % kHugePage);
  }

  // While the arena is small, a region becomes a huge page only when it is full, so that little
  // memory is wasted.
  void AdviseHugePages(std::uint64_t begin, std::uint64_t end) {
    const std::uint64_t first_untouched = (begin + kHugePage - 1) & ~(kHugePage - 1);
    const bool large = begin >= small_;
    const std::uint64_t last = large ? (end + kHugePage - 1) & ~(kHugePage - 1) : end & ~(kHugePage - 1);
    if (first_untouched < last) ::madvise(base_ + first_untouched, last - first_untouched, MADV_HUGEPAGE);
    const std::uint64_t region = begin & ~(kHugePage - 1);
    if (!large && end / kHugePage != region / kHugePage) ::madvise(base_ + region, kHugePage, kCollapse);
  }

  ReservedMemory memory_;
  const std::uint64_t max_bytes_, small_;
  std::byte* base_;
  std::atomic<std::uint64_t> end_{kExtentAlignment};
  sync::Mutex mutex_;
};

}  // namespace hako::storage
