#include "hako/file/posix_file.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>

#include "hako/base/assert.h"
#include "hako/file/file_identity.h"
#include "hako/file/path.h"
#include "hako/file/positional_io.h"

#ifndef XFS_SUPER_MAGIC
#define XFS_SUPER_MAGIC 0x58465342
#endif

namespace hako {
namespace {

int WriteZeros(int fd, std::uint64_t from, std::uint64_t to) {
  alignas(4096) static constexpr std::array<std::byte, std::size_t{64} << 10> kZeros{};  // aligned for direct I/O
  while (from < to) {
    const std::size_t size = std::min<std::uint64_t>(kZeros.size(), to - from);
    if (const int error = WriteFully(fd, from, std::span(kZeros).first(size)); error != 0) return error;
    from += size;
  }
  return 0;
}

// As WriteZeros, but `from` may lie within a block of a file that is open for direct I/O, which
// transfers only whole blocks.
int WriteZerosFromAnywhere(int fd, std::uint64_t from, std::uint64_t to) {
  const int flags = fcntl(fd, F_GETFL);
  const bool is_direct = flags >= 0 && (flags & O_DIRECT) != 0;
  if (is_direct && fcntl(fd, F_SETFL, flags & ~O_DIRECT) != 0) return errno;
  const int error = WriteZeros(fd, from, to);
  if (is_direct && fcntl(fd, F_SETFL, flags) != 0) return errno;
  return error;
}

// The next four return 0 or an errno value.

int Truncate(int fd, std::uint64_t size) {
  while (ftruncate(fd, static_cast<off_t>(size)) != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

// An interrupted call may undo all its work (tmpfs). So each interruption halves the part that is
// allocated at once, until a call ends before the next signal.
int AllocateBlocks(int fd, std::uint64_t from, std::uint64_t to) {
  constexpr std::uint64_t kPartLeast = 64 << 10;
  for (std::uint64_t part = to - from; from < to;) {
    part = std::min(part, to - from);
    if (fallocate(fd, 0, static_cast<off_t>(from), static_cast<off_t>(part)) == 0)
      from += part;
    else if (errno != EINTR)
      return errno;
    else
      part = std::max(part / 2, std::min(part, kPartLeast));
  }
  return 0;
}

bool IsUnsupported(int error) { return error == EOPNOTSUPP || error == ENOSYS; }

// Lengthens the file from `from` to `to` bytes and allocates blocks for them. On failure the length
// is unchanged.
int Lengthen(int fd, std::uint64_t from, std::uint64_t to) {
  int error = AllocateBlocks(fd, from, to);
  if (IsUnsupported(error)) error = WriteZerosFromAnywhere(fd, from, to);
  // Undo the allocations before the failure, and return the first error.
  if (error != 0) (void)Truncate(fd, from);
  return error;
}

// Allocates blocks for the holes of a file that some tool copied or restored sparsely.
int FillHoles(int fd, std::uint64_t size) {
  int error = AllocateBlocks(fd, 0, size);
  if (!IsUnsupported(error)) return error;
  error = 0;
  for (off_t hole = lseek(fd, 0, SEEK_HOLE); error == 0 && hole >= 0 && static_cast<std::uint64_t>(hole) < size;) {
    const off_t data = lseek(fd, hole, SEEK_DATA);  // fails in the last hole
    const std::uint64_t end = data < 0 ? size : static_cast<std::uint64_t>(data);
    error = WriteZerosFromAnywhere(fd, static_cast<std::uint64_t>(hole), end);
    hole = lseek(fd, static_cast<off_t>(end), SEEK_HOLE);
  }
  return error;
}

constexpr std::uint64_t kHugePageBytes = std::uint64_t{2} << 20;
constexpr std::uint64_t kExactBytes = 128 << 10;  // no space is allocated ahead for a file of up to this size
constexpr std::uint64_t RoundUp(std::uint64_t size, std::uint64_t unit) { return (size + unit - 1) & ~(unit - 1); }

// Whether st_blocks reveals holes. File systems that compress or copy on write count blocks
// differently.
bool CountsBlocks(int fd) {
  struct statfs info;
  if (fstatfs(fd, &info) != 0) return false;
  const auto type = static_cast<unsigned long>(info.f_type);
  return type == EXT4_SUPER_MAGIC || type == XFS_SUPER_MAGIC || type == TMPFS_MAGIC;
}

// Asks btrfs to write an empty file in place. Otherwise a change needs a new block even where there
// is one, and on a full disk a store to a map would raise SIGBUS. Other file systems write in place
// anyway. A hint, which the system may refuse.
void WriteInPlace(int fd) {
  struct statfs info;
  if (fstatfs(fd, &info) != 0 || static_cast<unsigned long>(info.f_type) != BTRFS_SUPER_MAGIC) return;
  std::array<int, 2> flags{};  // the kernel takes an int, although the ioctl is declared for a long
  if (ioctl(fd, FS_IOC_GETFLAGS, flags.data()) != 0) return;
  flags[0] |= FS_NOCOW_FL;
  (void)ioctl(fd, FS_IOC_SETFLAGS, flags.data());
}

// Growing past RLIMIT_FSIZE would raise SIGXFSZ, which kills a process that does not expect it, so
// callers check this limit first.
std::uint64_t ProcessFileSizeMax() {
  rlimit limit;
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::numeric_limits<off_t>::max();
  return std::min<std::uint64_t>(limit.rlim_cur, std::numeric_limits<off_t>::max());
}

Status CheckRegular(const struct stat& info, const std::string& path) {
  if (S_ISREG(info.st_mode)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(path, S_ISDIR(info.st_mode) ? " is a directory" : " is not a regular file"));
}

// An absent file is NotFound with a message, which tells it from an absent key. A missing folder is
// FailedPrecondition.
Status OpenError(int error, const std::string& path, bool creates) {
  const std::string what = absl::StrCat("cannot open ", path);
  if (error != ENOENT) return SystemError(error, what);
  const std::string folder = std::filesystem::path(path).parent_path().string();
  struct stat info;
  const bool has_folder = stat(folder.c_str(), &info) == 0;
  if (has_folder && !creates) return PathError(error, what);
  if (has_folder) return absl::FailedPreconditionError(absl::StrCat(what, ": it links to a directory that does not exist"));
  return absl::FailedPreconditionError(absl::StrCat(what, ": there is no directory ", folder));
}

}  // namespace

PosixFile::PosixFile(std::string path, const FileOptions& options, std::uint64_t size_max)
    : path_(std::move(path)),
      options_(options),
      size_max_(std::min<std::uint64_t>(size_max, std::numeric_limits<off_t>::max())),
      writable_(options.mode != OpenMode::kReadOnly) {}

StatusOr<std::unique_ptr<PosixFile>> PosixFile::Open(const std::string& path, const FileOptions& options, std::uint64_t size_max) {
  if (path.empty()) return absl::InvalidArgumentError("the path is empty: name a file");
  std::error_code error;
  std::string absolute = std::filesystem::absolute(path, error).string();
  if (error) return SystemError(error.value(), absl::StrCat("cannot open ", path));
  std::unique_ptr<PosixFile> file(new PosixFile(std::move(absolute), options, size_max));
  if (options.lock_timeout.count() < 0)
    return absl::InvalidArgumentError(absl::StrCat("FileOptions::lock_timeout of ", path, " is negative"));
  // Limits the timeout to some years, so that the deadline does not overflow the clock.
  const std::chrono::milliseconds timeout = std::min<std::chrono::milliseconds>(options.lock_timeout, std::chrono::hours(24 * 365));
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (bool is_ours = false; !is_ours;) {
    HAKO_ASSIGN_OR_RETURN(is_ours, file->OpenAndLock(deadline));
  }
  return file;
}

// Opens fd_ (-1 with errno after an error), and sets was_created_. Only an exclusive creation tells
// whether the file was created, but it does not follow a link to an absent file.
void PosixFile::OpenDescriptor(int flags, bool creates) {
  const auto opens = [&](int more) {
    do {
      fd_ = open(path_.c_str(), flags | more, 0644);
    } while (fd_ < 0 && errno == EINTR);
    return fd_ >= 0;
  };
  was_created_ = false;
  if (!opens(0) && errno == ENOENT && creates) {
    was_created_ = opens(O_CREAT | O_EXCL);
    if (!was_created_ && errno == EEXIST && !opens(0) && errno == ENOENT) was_created_ = opens(O_CREAT);
  }
  if (was_created_) take_back_ = TakeBack::kFile;
  fd_ = MoveAboveStandardStreams(fd_);
  if (fd_ >= 0 || !was_created_) return;
  const int error = errno;
  if (std::array<char, PATH_MAX> named; realpath(path_.c_str(), named.data()) != nullptr) (void)unlink(named.data());
  errno = error;
}

StatusOr<bool> PosixFile::OpenAndLock(std::chrono::steady_clock::time_point deadline) {
  const bool creates = options_.mode == OpenMode::kCreate || options_.mode == OpenMode::kTruncate;
  const int flags = O_CLOEXEC | (writable_ ? O_RDWR : O_RDONLY) | (options_.sync ? O_DSYNC : 0);
  struct stat opened;
  // Check the type before opening: opening a device may have an effect on it, and opening a pipe
  // may wait for its other end.
  if (stat(path_.c_str(), &opened) == 0) HAKO_RETURN_IF_ERROR(CheckRegular(opened, path_));
  OpenDescriptor(flags | O_NONBLOCK, creates);
  if (fd_ < 0) return OpenError(errno, path_, creates);
  if (fstat(fd_, &opened) != 0) return SystemError(errno, absl::StrCat("cannot stat ", path_));
  HAKO_RETURN_IF_ERROR(CheckRegular(opened, path_));
  const int opened_flags = fcntl(fd_, F_GETFL);  // without O_NONBLOCK, with which io_uring would not wait for the file
  if (opened_flags < 0 || fcntl(fd_, F_SETFL, opened_flags & ~O_NONBLOCK) != 0)
    return SystemError(errno, absl::StrCat("cannot change the flags of ", path_));
  key_ = {.device = opened.st_dev, .inode = opened.st_ino};
  HAKO_ASSIGN_OR_RETURN(identity_, IdentityOf(fd_, opened));
  counts_blocks_ = CountsBlocks(fd_);
  const Status locked =
      lock_.Acquire(fd_, key_, writable_, deadline, path_, options_.beside_readers && options_.mode != OpenMode::kTruncate);
  if (absl::IsUnavailable(locked)) take_back_ = TakeBack::kNothing;  // another opener already uses the file that was created here
  HAKO_RETURN_IF_ERROR(locked);
  // While this thread waited, the holder may have replaced or removed the file.
  struct stat named;
  if (stat(path_.c_str(), &named) != 0 || named.st_dev != opened.st_dev || named.st_ino != opened.st_ino) {
    take_back_ = TakeBack::kNothing;
    lock_.Release();
    close(std::exchange(fd_, -1));
    return false;
  }
  if (fstat(fd_, &opened) != 0) return SystemError(errno, absl::StrCat("cannot stat ", path_));
  const auto size = static_cast<std::uint64_t>(opened.st_size);
  const bool has_holes = static_cast<std::uint64_t>(opened.st_blocks) * 512 < size;
  HAKO_RETURN_IF_ERROR(Prepare(size, has_holes));
  return true;
}

Status PosixFile::Prepare(std::uint64_t size, bool has_holes) {
  NoteSize(size, has_holes);
  if (options_.mode == OpenMode::kTruncate) return absl::OkStatus();
  if (writable_ && size == 0) WriteInPlace(fd_);
  if (writable_ && size > size_max_) {
    return absl::InvalidArgumentError(
        absl::StrCat(path_, " has ", size, " bytes, more than FileOptions::reserve_bytes allows (", size_max_, ")"));
  }
  if (writable_ && size > ProcessFileSizeMax()) return SystemError(EFBIG, absl::StrCat(path_, " exceeds RLIMIT_FSIZE"));
  return absl::OkStatus();
}

void PosixFile::NoteSize(std::uint64_t size, bool has_holes) {
  size_at_open_ = size;
  has_holes_.store(size != 0 && has_holes, std::memory_order_relaxed);
  allocated_.store(size, std::memory_order_relaxed);
  size_.store(size, std::memory_order_release);
}

Status PosixFile::DropContent() {
  if (options_.mode != OpenMode::kTruncate) return absl::OkStatus();
  if (allocated() != 0) {
    if (const int error = Truncate(fd_, 0); error != 0) return SystemError(error, absl::StrCat("cannot truncate ", path_));
  }
  NoteSize(0, false);
  WriteInPlace(fd_);
  if (options_.beside_readers) lock_.AdmitReaders();
  return absl::OkStatus();
}

FileIdentity PosixFile::identity() const {
  // This file system counts blocks exactly, and hako's files have no holes. So a file with holes is
  // a copy, perhaps into the same inode.
  if (!has_holes_.load(std::memory_order_relaxed) || !counts_blocks_) return identity_;
  FileIdentity copied;
  copied.boot = identity_.boot;
  return copied;
}

Status PosixFile::FillHolesNow() {
  const sync::MutexLock lock(holes_mutex_);
  if (!has_holes_.load(std::memory_order_relaxed)) return absl::OkStatus();
  if (const int error = FillHoles(fd_, allocated()); error != 0)
    return SystemError(error, absl::StrCat("cannot fill the holes of ", path_));
  has_holes_.store(false, std::memory_order_relaxed);
  return absl::OkStatus();
}

Status PosixFile::ReadOnlyError() const { return absl::FailedPreconditionError(absl::StrCat(path_, " is open read-only")); }

Status PosixFile::Resize(std::uint64_t size) {
  if (!writable_) return ReadOnlyError();
  HAKO_RETURN_IF_ERROR(FillHolesOnce());
  const std::uint64_t old_size = this->size();
  if (size <= old_size) {
    // Truncate even to the same size if space was allocated ahead. Truncation also makes sure that
    // a later growth shows zeros.
    if (size == old_size && allocated() - size < block_) return absl::OkStatus();
    size_.store(size, std::memory_order_release);  // before the truncation, so that no thread sees a size beyond the file
    if (const int error = Truncate(fd_, size); error != 0) {
      size_.store(old_size, std::memory_order_release);
      return SystemError(error, absl::StrCat("cannot truncate ", path_));
    }
    allocated_.store(size, std::memory_order_relaxed);
    return AllocateWhole(block_);
  }
  if (size > allocated()) HAKO_RETURN_IF_ERROR(Grow(size));
  size_.store(size, std::memory_order_release);
  return absl::OkStatus();
}

Status PosixFile::AllocateWhole(std::uint64_t block) {
  HAKO_DCHECK(std::has_single_bit(block));
  block_ = block;
  const std::uint64_t from = allocated(), to = RoundUp(from, block);
  if (!writable_ || to == from) return absl::OkStatus();
  if (to > ProcessFileSizeMax()) return SystemError(EFBIG, absl::StrCat("the last block of ", path_, " exceeds RLIMIT_FSIZE"));
  if (const int error = Lengthen(fd_, from, to); error != 0) return SystemError(error, absl::StrCat("cannot allocate a block for ", path_));
  allocated_.store(to, std::memory_order_relaxed);
  return absl::OkStatus();
}

Status PosixFile::Grow(std::uint64_t size) {
  const std::uint64_t limit = std::min(size_max_, ProcessFileSizeMax()) & ~(block_ - 1);
  if (size > limit) {
    return absl::ResourceExhaustedError(absl::StrCat(path_, " cannot grow to ", size, " bytes: limited to ", limit,
                                                     " by RLIMIT_FSIZE or its address space (FileOptions::reserve_bytes)"));
  }
  const std::uint64_t from = allocated();
  const bool is_exact = options_.grow_min == 0 && size <= kExactBytes;
  const std::uint64_t least = options_.grow_min == 0 ? kHugePageBytes : options_.grow_min;
  const std::uint64_t step = is_exact ? 0 : std::min(std::max(least, std::min(from / 8, options_.grow_max)), limit);
  std::uint64_t to = std::max(size, from + step);
  // The page cache uses a huge page only if the file covers all of it.
  if (options_.huge_pages && !is_exact && least >= kHugePageBytes) to = RoundUp(to, kHugePageBytes);
  size = RoundUp(size, block_);
  to = std::max(size, std::min(RoundUp(to, block_), limit));
  int error = Lengthen(fd_, from, to);
  if (error != 0 && to > size) error = Lengthen(fd_, from, to = size);  // the device is nearly full: allocate no more than requested
  if (error != 0) return SystemError(error, absl::StrCat("cannot allocate ", size - from, " bytes for ", path_));
  allocated_.store(to, std::memory_order_relaxed);
  return absl::OkStatus();
}

template <class Call>
Status PosixFile::SyncBy(Call call) {
  if (!writable_) return absl::OkStatus();  // a read-only handle writes nothing
  if (sync_failed_.load(std::memory_order_acquire))
    return absl::FailedPreconditionError(absl::StrCat("an earlier sync of ", path_, " failed"));
  HAKO_RETURN_IF_ERROR(FillHolesOnce());
  int result;
  do {
    result = call();
  } while (result != 0 && errno == EINTR);
  Status status = result == 0 ? absl::OkStatus() : SystemError(errno, absl::StrCat("cannot sync ", path_));
  if (status.ok() && !name_is_durable_.load(std::memory_order_acquire)) {
    status = SyncName();
    if (status.ok()) name_is_durable_.store(true, std::memory_order_release);
  }
  if (!status.ok()) sync_failed_.store(true, std::memory_order_release);
  return status;
}

// Syncs the folder, or, if that is impossible, the whole file system, which needs no other
// descriptor. A folder cannot be opened if it is not readable or descriptors have run out, and some
// file systems do not sync folders.
Status PosixFile::SyncName() {
  Status status;
  const bool is_open = TrySyncDirectoryOf(path_, &status);
  return is_open || syncfs(fd_) != 0 ? status : absl::OkStatus();
}

Status PosixFile::Sync() {
  const bool is_first = !name_is_durable_.load(std::memory_order_acquire);
  return SyncBy([&] { return is_first ? fsync(fd_) : fdatasync(fd_); });
}

Status PosixFile::SyncMapped(std::byte* pages, std::size_t size) {
  HAKO_DCHECK(reinterpret_cast<std::uintptr_t>(pages) % static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE)) == 0);
  return SyncBy([&] { return msync(pages, size, MS_SYNC); });
}

// The lock is held, so the name belongs to this file or to one that has replaced it. Reports no
// error and takes no memory: the opener already has an error, perhaps a lack of memory.
void PosixFile::Undo() {
  const TakeBack what = std::exchange(take_back_, TakeBack::kNothing);
  if (what == TakeBack::kBytes && ftruncate(fd_, 0) == 0) {
    allocated_.store(0, std::memory_order_relaxed);
    size_.store(size_at_open_, std::memory_order_release);  // Close truncates the file to this
  }
  std::array<char, PATH_MAX> named;  // `path_` may be a link
  struct stat info;
  if (what == TakeBack::kFile && realpath(path_.c_str(), named.data()) != nullptr && stat(named.data(), &info) == 0 &&
      info.st_dev == key_.device && info.st_ino == key_.inode) {
    (void)unlink(named.data());
  }
}

Status PosixFile::Close() {
  if (fd_ < 0) return absl::OkStatus();
  device_.Close();
  if (is_inherited()) {
    close(std::exchange(fd_, -1));
    return absl::OkStatus();
  }
  Undo();
  Status status;
  const std::uint64_t end = options_.padding ? RoundUp(size(), block_) : size();
  if (writable_ && allocated() != end) {
    if (const int error = Truncate(fd_, end); error != 0) status = SystemError(error, absl::StrCat("cannot truncate ", path_));
  }
  lock_.Release();
  if (close(std::exchange(fd_, -1)) != 0 && errno != EINTR && status.ok())
    status = SystemError(errno, absl::StrCat("cannot close ", path_));
  return status;
}

}  // namespace hako
