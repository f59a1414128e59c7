#include "hako/file/memory_map_parallel_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "hako/base/assert.h"
#include "hako/base/per_byte_copy.h"
#include "hako/file/positional_io.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

namespace hako {
namespace {

#ifdef HAKO_TSAN
constexpr std::uint64_t kReserveBytesMax = std::uint64_t{1} << 35;  // ThreadSanitizer leaves about a terabyte for all maps
#else
constexpr std::uint64_t kReserveBytesMax = std::uint64_t{1} << 62;  // no limit of ours: the system has one
#endif

std::uint64_t PageSize() {
  static const auto size = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return size;
}

std::uint64_t PageBegin(std::uint64_t offset) { return offset & ~(PageSize() - 1); }
std::uint64_t PageEnd(std::uint64_t size) { return PageBegin(size + PageSize() - 1); }

constexpr std::uint64_t kGrowthUsual = std::uint64_t{1} << 40;  // the most that a file may grow by, as a rule

// Maps from `least` to `most` bytes of the file, as many as its share of the address space allows.
StatusOr<AddressRange> Map(int fd, bool writable, std::uint64_t least, std::uint64_t most, const std::string& path) {
  // A private map of a read-only file is writable in memory, and its stores never reach the file.
  const int flags = (writable ? MAP_SHARED : MAP_PRIVATE) | MAP_NORESERVE;
  const AddressRange range = ReserveAddresses(least, most, [&](std::uint64_t size) {
    void* const base = mmap(nullptr, size, PROT_READ | PROT_WRITE, flags, fd, 0);
    return base != MAP_FAILED ? static_cast<std::byte*>(base) : nullptr;
  });
  if (range.base != nullptr) return range;
  // Valgrind reports a lack of address space as EINVAL. EAGAIN means that all maps of the process
  // must be locked in memory (mlockall), and that this one exceeds the limit.
  const int error = errno;
  return SystemError(
      error == EINVAL || error == EAGAIN ? ENOMEM : error,
      absl::StrCat("cannot map ", least, " bytes of address space for ", path,
                   error == EAGAIN ? " (see RLIMIT_MEMLOCK, ulimit -l)" : " (see FileOptions::reserve_bytes and RLIMIT_AS, ulimit -v)"));
}

}  // namespace

StatusOr<MemoryMapParallelFile> MemoryMapParallelFile::Open(const std::string& path, const FileOptions& options) {
  if (options.direct || options.sync) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": a mapped file has no FileOptions::", options.direct ? "direct" : "sync",
                                                   "; use a PositionalParallelFile (file=pos)"));
  }
  if (options.block_size != 0 || options.padding) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": FileOptions::", options.padding ? "padding" : "block_size",
                                                   " requires FileOptions::direct, which a mapped file does not have; use a "
                                                   "PositionalParallelFile (file=pos)"));
  }
  // Round to whole pages, because the system maps only these.
  const bool is_asked = options.reserve_bytes != 0;
  const std::uint64_t asked = std::max(PageBegin(std::min(options.reserve_bytes, kReserveBytesMax)), PageSize());
  HAKO_ASSIGN_OR_RETURN(auto posix, PosixFile::Open(path, options, is_asked ? asked : kReserveBytesMax));
  // A file that never grows needs no more than its size.
  const bool writable = posix->writable();
  const std::uint64_t size = options.mode == OpenMode::kTruncate ? 0 : posix->size();  // once it is open
  const std::uint64_t least = is_asked && writable ? asked : PageEnd(std::max<std::uint64_t>(size, 1));
  const std::uint64_t most = is_asked || !writable ? least : std::max(least, std::min(least + kGrowthUsual, kReserveBytesMax));
  HAKO_ASSIGN_OR_RETURN(const AddressRange map, Map(posix->fd(), writable, least, most, path));
  if (writable) posix->LimitTo(map.size);
  const bool huge_pages = options.huge_pages && (options.grow_min == 0 || options.grow_min >= MapPaging::kHugePage);
  MemoryMapParallelFile file(map, std::move(posix), size, huge_pages);
  file.reads_by_call_ = options.beside_readers && !writable;
  HAKO_RETURN_IF_ERROR(file.posix_->DropContent());
  file.posix_->set_take_back(TakeBack::kNothing);
  return file;
}

Status MemoryMapParallelFile::ReadByCall(std::uint64_t offset, std::span<std::byte> out) const {
  const int error = ReadFully(posix_->fd(), offset, out);
  if (error == 0) return absl::OkStatus();
  return SystemError(error, absl::StrCat("cannot read ", out.size(), " bytes at offset ", offset, " of ", path()));
}

Status MemoryMapParallelFile::WriteLong(std::uint64_t offset, std::span<const std::byte> in) {
  if (const int error = WriteFully(posix_->fd(), offset, in); error != 0) {
    return SystemError(error, absl::StrCat("cannot write ", in.size(), " bytes at offset ", offset, " of ", path()));
  }
  paging_->AfterLongWrite(in.size());
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
  base_ = nullptr;
  if (!ReleaseAddresses(map_)) status = SystemError(errno, absl::StrCat("cannot unmap ", path()));
  const Status closed = posix_->Close();
  return status.ok() ? closed : status;
}

void MemoryMapParallelFile::Prefault(std::uint64_t offset, std::size_t size) {
  const std::uint64_t allocated = posix_->allocated();
  if (offset >= allocated) return;
  const std::uint64_t begin = PageBegin(offset);
  const std::uint64_t end = offset + std::min<std::uint64_t>(size, allocated - offset);
  // For a private map populate for reading: a write would copy the page.
  (void)madvise(base_ + begin, end - begin, IsWritable() ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
}

void MemoryMapParallelFile::Prefetch(std::uint64_t offset, std::size_t size) const {
  HAKO_DCHECK(IsInside(offset, size, Size()));
  if (!paging_->reads_page_by_page()) return;  // the system reads ahead
  const std::uint64_t begin = PageBegin(offset);
  (void)madvise(base_ + begin, offset + size - begin, MADV_WILLNEED);
}

}  // namespace hako
