#include "hako/file/readers_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hako/base/endian.h"
#include "hako/base/hash.h"
#include "hako/base/random_seed.h"
#include "hako/file/path.h"
#include "hako/file/positional_io.h"

namespace hako {
namespace {

constexpr std::uint64_t kSlotBytes = 64;
constexpr std::uint64_t kSlotsMax = 4096;

struct Slot {
  Le<std::uint64_t> epoch, generation, check;
  Le<std::uint64_t> cut_off;
  std::array<std::byte, 32> reserved;
};
static_assert(sizeof(Slot) == kSlotBytes && alignof(Slot) == 1);

// The epoch of a slot that its reader has given back.
constexpr std::uint64_t kFree = ReadersFile::kNone;

std::uint64_t CheckOf(const Slot& slot) { return Hash64(&slot, offsetof(Slot, check), 0x72656164); }

// Sets or asks for a lock on a part of the file. Returns 0 or an errno value; `range` receives the answer.
int Lock(int fd, int command, short type, std::uint64_t from, std::uint64_t size, struct flock* range) {
  *range = {};
  range->l_type = type;
  range->l_whence = SEEK_SET;
  range->l_start = static_cast<off_t>(from);
  range->l_len = static_cast<off_t>(size);
  for (;;) {
    if (fcntl(fd, command, range) == 0) return 0;
    if (errno != EINTR) return errno;
  }
}
int SetLock(int fd, short type, std::uint64_t from, std::uint64_t size, bool waits = false) {
  struct flock range;
  return Lock(fd, waits ? F_OFD_SETLKW : F_OFD_SETLK, type, from, size, &range);
}
bool IsHeldByOther(int error) { return error == EAGAIN || error == EACCES; }
// Whether a living process has the slot at `offset` locked.
bool IsLocked(int fd, std::uint64_t offset) {
  struct flock range;
  return Lock(fd, F_OFD_GETLK, F_WRLCK, offset, kSlotBytes, &range) != 0 || range.l_type != F_UNLCK;
}

bool IsAt(int fd, const std::string& path) {
  struct stat opened, named;
  return fstat(fd, &opened) == 0 && stat(path.c_str(), &named) == 0 && opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

int OpenFile(const std::string& path, int flags, mode_t mode = 0) {
  int fd;
  do {
    fd = open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, mode);
  } while (fd < 0 && errno == EINTR);
  return MoveAboveStandardStreams(fd);
}

}  // namespace

// ---- of a reader ----

ReaderSlot::ReaderSlot(std::string path, int fd) : path_(std::move(path)), fd_(fd), generation_(RandomSeed()) {}

StatusOr<std::unique_ptr<ReaderSlot>> ReaderSlot::Take(const std::string& database) {
  const std::string of = CanonicalOf(database), path = of + kReadersEnding;
  for (;;) {
    struct stat info;
    if (stat(of.c_str(), &info) != 0) return PathError(errno, absl::StrCat("cannot open ", of));
    int fd = OpenFile(path, O_RDWR);
    if (fd < 0 && errno == ENOENT) {
      fd = OpenFile(path, O_RDWR | O_CREAT | O_EXCL, 0600);
      if (fd < 0 && errno == EEXIST) continue;
      // Whoever may read the database may write here.
      if (fd >= 0) {
        if (geteuid() == 0) (void)!fchown(fd, info.st_uid, info.st_gid);
        (void)fchmod(fd, (info.st_mode & 0444) | (info.st_mode & 0444) >> 1 | 0600);
      }
    }
    if (fd < 0) return SystemError(errno, absl::StrCat("cannot open ", path));
    std::unique_ptr<ReaderSlot> slot(new ReaderSlot(path, fd));
    HAKO_ASSIGN_OR_RETURN(const bool is_claimed, slot->Claim());
    if (is_claimed) return slot;
  }
}

StatusOr<bool> ReaderSlot::Claim() {
  if (const int error = SetLock(fd_, F_RDLCK, 0, kSlotBytes, true); error != 0)
    return SystemError(error, absl::StrCat("cannot lock ", path_));
  if (!IsAt(fd_, path_)) return false;
  for (std::uint64_t i = 1; i <= kSlotsMax; ++i) {
    const int error = SetLock(fd_, F_WRLCK, i * kSlotBytes, kSlotBytes);
    if (IsHeldByOther(error)) continue;
    if (error != 0) return SystemError(error, absl::StrCat("cannot lock ", path_));
    offset_ = i * kSlotBytes;
    HAKO_RETURN_IF_ERROR(Store(0));
    return true;
  }
  return absl::ResourceExhaustedError(absl::StrCat(path_, ": the database has ", kSlotsMax, " readers already"));
}

Status ReaderSlot::Store(std::uint64_t epoch) const {
  Slot slot = {};
  slot.epoch = epoch;
  slot.generation = generation_;
  slot.check = CheckOf(slot);
  // The writer has its own part of the slot, which a new reader leaves: it names another generation.
  const int error = WriteFully(fd_, offset_, std::as_bytes(std::span(&slot, 1)).first(offsetof(Slot, cut_off)));
  if (error != 0) return SystemError(error, absl::StrCat("cannot write ", path_));
  std::atomic_thread_fence(std::memory_order_seq_cst);  // before the superblock is read
  return absl::OkStatus();
}

Status ReaderSlot::SetEpoch(std::uint64_t epoch) { return Store(epoch); }

bool ReaderSlot::IsCutOff() const {
  Le<std::uint64_t> cut_off = 0;
  if (fd_ < 0 || !IsAt(fd_, path_)) return true;
  return ReadFully(fd_, offset_ + offsetof(Slot, cut_off), std::as_writable_bytes(std::span(&cut_off, 1))) == 0 && cut_off == generation_;
}

Status ReaderSlot::Explain(Status status) const {
  if (status.ok() || absl::IsResourceExhausted(status) || !IsCutOff()) return status;
  return absl::AbortedError(
      "the reader is cut off: the writer of the database no longer waits for this old checkpoint (reader_bytes); Refresh to read a newer "
      "one");
}

void ReaderSlot::CloseInChild() {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

ReaderSlot::~ReaderSlot() {
  if (fd_ < 0) return;
  // Unlocks explicitly: a child that was forked a moment ago may have a copy of the descriptor.
  if (offset_ != 0) {
    (void)Store(kFree);
    SetLock(fd_, F_UNLCK, offset_, kSlotBytes);
  }
  if (SetLock(fd_, F_WRLCK, 0, kSlotBytes) == 0 && IsAt(fd_, path_)) (void)unlink(path_.c_str());
  SetLock(fd_, F_UNLCK, 0, kSlotBytes);
  close(std::exchange(fd_, -1));
}

// ---- of a writer ----

ReadersFile::~ReadersFile() {
  if (fd_ < 0) return;
  // Killed readers leave the file.
  struct flock range;
  if (Lock(fd_, F_OFD_SETLK, F_WRLCK, 0, kSlotBytes, &range) == 0 && IsAt(fd_, path_)) (void)unlink(path_.c_str());
  close(fd_);
}

bool ReadersFile::Open() {
  struct stat named, opened;
  std::atomic_thread_fence(std::memory_order_seq_cst);  // after the superblock was written
  const bool exists = stat(path_.c_str(), &named) == 0 || errno != ENOENT;
  const bool is_same = exists && fd_ >= 0 && fstat(fd_, &opened) == 0 && opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
  if (fd_ >= 0 && !is_same) close(std::exchange(fd_, -1));
  if (!exists || is_same) return exists;
  fd_ = OpenFile(path_, O_RDWR);
  if (fd_ < 0 && errno != ENOENT) fd_ = OpenFile(path_, O_RDONLY);
  return fd_ >= 0 || errno != ENOENT;
}

template <class F>
bool ReadersFile::ForEachReader(F&& visit) {
  struct stat info;
  if (fd_ < 0 || fstat(fd_, &info) != 0) return false;
  const auto size = static_cast<std::uint64_t>(info.st_size);
  std::array<Slot, 64> slots;
  for (std::uint64_t at = kSlotBytes; at < size;) {
    // The last slot may be incomplete.
    const std::uint64_t bytes = std::min<std::uint64_t>(sizeof(slots), size - at);
    slots = {};
    if (ReadFully(fd_, at, std::as_writable_bytes(std::span(slots)).first(bytes)) != 0) return false;
    for (std::uint64_t i = 0; i * kSlotBytes < bytes; ++i) {
      Slot& slot = slots[i];
      const bool is_valid = slot.check == CheckOf(slot);
      if (is_valid && (slot.epoch == kFree || slot.cut_off == slot.generation)) continue;
      if (!is_valid) slot.epoch = 0;
      if (IsLocked(fd_, at + i * kSlotBytes)) visit(at + i * kSlotBytes, slot);
    }
    at += bytes;
  }
  return true;
}

ReadersFile::Pins ReadersFile::Look() {
  Pins pins;
  if (!Open()) return pins;
  const bool is_read = ForEachReader([&](std::uint64_t, const Slot& slot) {
    ++pins.num_readers;
    pins.oldest = std::min<std::uint64_t>(pins.oldest, slot.epoch);
  });
  if (!is_read) pins.oldest = 0;
  return pins;
}

void ReadersFile::CutOffBelow(std::uint64_t epoch) {
  if (!Open()) return;
  (void)ForEachReader([&](std::uint64_t offset, const Slot& slot) {
    if (slot.epoch >= epoch) return;
    (void)WriteFully(fd_, offset + offsetof(Slot, cut_off), std::as_bytes(std::span(&slot.generation, 1)));
  });
}

}  // namespace hako
