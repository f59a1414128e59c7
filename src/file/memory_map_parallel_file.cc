#include "hako/file/memory_map_parallel_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "hako/base/per_byte_copy.h"
#include "hako/file/positional_io.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

namespace hako {
namespace {

#ifdef HAKO_TSAN
constexpr std::uint64_t kReserveBytesMax = std::uint64_t{1} << 35;  // ThreadSanitizer leaves little more than a terabyte to all maps
#else
constexpr std::uint64_t kReserveBytesMax = std::uint64_t{1} << 62;  // the system knows better
#endif

std::uint64_t PageSize() {
  static const auto size = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return size;
}

std::uint64_t PageBegin(std::uint64_t offset) { return offset & ~(PageSize() - 1); }

constexpr std::uint64_t kAddressSpace = std::uint64_t{96} << 40;  // for all files together, of 128 TiB that a process has
constexpr std::uint64_t kShareMin = std::uint64_t{4} << 30;
std::atomic<std::uint64_t> reserved_bytes{0};  // by all files of the process

// A 96th of the remaining address space: a terabyte for the first file.
std::uint64_t UsualShare() {
  const std::uint64_t reserved = std::min(reserved_bytes.load(std::memory_order_relaxed), kAddressSpace);
  return std::max(PageBegin((kAddressSpace - reserved) / 96), kShareMin);
}

// Maps from `least` to `most` bytes of the file, as much as the system allows; below `most` half of
// that, to leave room to others.
StatusOr<std::span<std::byte>> Map(int fd, bool writable, std::uint64_t least, std::uint64_t most, const std::string& path) {
  // A private map of a read-only file is writable in memory, and its stores never reach the file.
  const int flags = (writable ? MAP_SHARED : MAP_PRIVATE) | MAP_NORESERVE;
  for (std::uint64_t size = most;; size = std::max(least, PageBegin(size / 2))) {
    void* const base = mmap(nullptr, size, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (base == MAP_FAILED && size > least) continue;
    if (base == MAP_FAILED) {
      return SystemError(errno, absl::StrCat("cannot map ", size, " bytes of address space for ", path,
                                             " (see FileOptions::reserve_bytes and RLIMIT_AS, ulimit -v)"));
    }
    const std::uint64_t kept = size == most ? size : std::max(PageBegin(least + PageSize() - 1), PageBegin(size / 2));
    if (kept < size) (void)munmap(static_cast<std::byte*>(base) + kept, size - kept);
    reserved_bytes.fetch_add(kept, std::memory_order_relaxed);
    return std::span(static_cast<std::byte*>(base), kept);
  }
}

}  // namespace

StatusOr<MemoryMapParallelFile> MemoryMapParallelFile::Open(const std::string& path, const FileOptions& options) {
  // A whole number of pages: a page can be mapped or not, half of it cannot.
  const bool is_asked = options.reserve_bytes != 0;
  const std::uint64_t asked = std::max(PageBegin(std::min(options.reserve_bytes, kReserveBytesMax)), PageSize());
  HAKO_ASSIGN_OR_RETURN(auto posix, PosixFile::Open(path, options, is_asked ? asked : kReserveBytesMax));
  // A file that never grows needs no more than its size.
  const bool writable = posix->writable();
  const std::uint64_t least = is_asked && writable ? asked : std::max<std::uint64_t>(posix->size(), 1);
  const std::uint64_t most = is_asked || !writable ? least : std::min(PageBegin(least) + UsualShare(), kReserveBytesMax);
  HAKO_ASSIGN_OR_RETURN(const std::span<std::byte> map, Map(posix->fd(), writable, least, most, path));
  if (writable) posix->LimitTo(map.size());
  const bool huge_pages = options.huge_pages && options.grow_min >= MapPaging::kHugePage;
  return MemoryMapParallelFile(map.data(), map.size(), std::move(posix), huge_pages);
}

Status MemoryMapParallelFile::WriteLong(std::uint64_t offset, std::span<const std::byte> in) {
  if (const int error = WriteFully(posix_->fd(), offset, in); error != 0) {
    return SystemError(error, absl::StrCat("cannot write ", in.size(), " bytes at offset ", offset, " of ", path()));
  }
  return absl::OkStatus();
}

Status MemoryMapParallelFile::Sync() {
  Status status = posix_->Sync();  // on Linux, fdatasync finds pages dirtied through a map as msync does
  if (status.ok()) paging_->AfterSync(Size());
  return status;
}

Status MemoryMapParallelFile::SyncRange(std::uint64_t offset, std::size_t size) {
  HAKO_RETURN_IF_ERROR(CheckInside(offset, size, Size()));
  const std::uint64_t begin = PageBegin(offset);
  Status status = posix_->SyncMapped(base_ + begin, offset + size - begin);
  if (status.ok()) paging_->AfterSync(Size());
  return status;
}

Status MemoryMapParallelFile::Close() {
  if (base_ == nullptr) return absl::OkStatus();
  Status status;
  if (munmap(std::exchange(base_, nullptr), map_size_) != 0) status = SystemError(errno, absl::StrCat("cannot unmap ", path()));
  reserved_bytes.fetch_sub(map_size_, std::memory_order_relaxed);
  const Status closed = posix_->Close();
  return status.ok() ? closed : status;
}

void MemoryMapParallelFile::Prefault(std::uint64_t offset, std::size_t size) {
  const std::uint64_t allocated = posix_->allocated();
  if (offset >= allocated) return;
  const std::uint64_t begin = PageBegin(offset);
  const std::uint64_t end = offset + std::min<std::uint64_t>(size, allocated - offset);
  // In a private map, present is enough: a write would copy the page.
  (void)madvise(base_ + begin, end - begin, IsWritable() ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
}

void MemoryMapParallelFile::Prefetch(std::uint64_t offset, std::size_t size) const {
  if (!paging_->reads_page_by_page()) return;  // the system reads ahead
  const std::uint64_t begin = PageBegin(offset);
  (void)madvise(base_ + begin, offset + size - begin, MADV_WILLNEED);
}

}  // namespace hako
