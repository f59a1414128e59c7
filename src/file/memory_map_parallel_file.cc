#include "hako/file/memory_map_parallel_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
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

}  // namespace

StatusOr<MemoryMapParallelFile> MemoryMapParallelFile::Open(const std::string& path, const FileOptions& options) {
  // A whole number of pages: a page can be mapped or not, half of it cannot.
  const std::uint64_t reserve_bytes = std::max(PageBegin(std::min(options.reserve_bytes, kReserveBytesMax)), PageSize());
  HAKO_ASSIGN_OR_RETURN(auto posix, PosixFile::Open(path, options, reserve_bytes));
  const bool writable = posix->writable();
  // What is never going to grow needs no more than its size.
  const std::uint64_t map_size = writable ? reserve_bytes : std::max<std::uint64_t>(posix->size(), 1);
  // A private map of a read-only file is writable in memory, and its stores never reach the file.
  const int flags = (writable ? MAP_SHARED : MAP_PRIVATE) | MAP_NORESERVE;
  void* base = mmap(nullptr, map_size, PROT_READ | PROT_WRITE, flags, posix->fd(), 0);
  if (base == MAP_FAILED) {
    return SystemError(errno, absl::StrCat("cannot map ", map_size, " bytes of address space for ", path,
                                           " (see FileOptions::reserve_bytes and RLIMIT_AS, ulimit -v)"));
  }
  if (options.huge_pages) (void)madvise(base, map_size, MADV_HUGEPAGE);
  return MemoryMapParallelFile(static_cast<std::byte*>(base), map_size, std::move(posix));
}

Status MemoryMapParallelFile::WriteLong(std::uint64_t offset, std::span<const std::byte> in) {
  if (const int error = WriteFully(posix_->fd(), offset, in); error != 0) {
    return SystemError(error, absl::StrCat("cannot write ", in.size(), " bytes at offset ", offset, " of ", path()));
  }
  return absl::OkStatus();
}

Status MemoryMapParallelFile::SyncRange(std::uint64_t offset, std::size_t size) {
  HAKO_RETURN_IF_ERROR(CheckInside(offset, size, Size()));
  const std::uint64_t begin = PageBegin(offset);
  return posix_->SyncMapped(base_ + begin, offset + size - begin);
}

Status MemoryMapParallelFile::Close() {
  if (base_ == nullptr) return absl::OkStatus();
  Status status;
  if (munmap(std::exchange(base_, nullptr), map_size_) != 0) status = SystemError(errno, absl::StrCat("munmap ", path()));
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

}  // namespace hako
