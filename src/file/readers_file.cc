#include "hako/file/readers_file.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstddef>
#include <span>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hako/base/endian.h"
#include "hako/base/hash.h"
#include "hako/base/random_seed.h"
#include "hako/base/wall_clock.h"
#include "hako/file/file_lock.h"
#include "hako/file/path.h"
#include "hako/file/positional_io.h"

namespace hako {
namespace {

constexpr std::uint64_t kSlotBytes = 64;
constexpr std::uint64_t kSlotsMax = 4096;
constexpr std::uint64_t kWriterPart = std::uint64_t{1} << 62;  // of the database: see file/file_lock.h

struct Slot {
  Le<std::uint64_t> epoch, generation, since, check;
  Le<std::uint64_t> cut_off;
  std::array<std::byte, 24> reserved;
};
static_assert(sizeof(Slot) == kSlotBytes && alignof(Slot) == 1);

struct Head {
  std::uint32_t number;  // of the byte order of the machine, because the system compares it
  std::array<std::byte, 4> reserved;
  Le<std::uint64_t> epoch, free_bytes, reader_bytes, lsn;
};
static_assert(sizeof(Head) <= kSlotBytes);

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
int SetLock(int fd, short type, std::uint64_t from, std::uint64_t size) {
  struct flock range;
  return Lock(fd, F_OFD_SETLK, type, from, size, &range);
}
bool IsHeldByOther(int error) { return error == EAGAIN || error == EACCES; }
// Whether another open file has a lock on a part of this file that excludes one of this type. Also if the
// system does not tell. A size of 0 reaches to the last offset.
bool IsLocked(int fd, std::uint64_t from, std::uint64_t size, short type = F_WRLCK) {
  struct flock range;
  return Lock(fd, F_OFD_GETLK, type, from, size, &range) != 0 || range.l_type != F_UNLCK;
}

// The mark of those that have their slots in this file of readers. 0 if the system does not tell.
std::uint64_t MarkOf(int readers_fd) {
  struct stat info;
  if (fstat(readers_fd, &info) != 0) return 0;
  const Le<std::uint64_t> id[] = {info.st_dev, info.st_ino};
  return kReaderMarks + 1 + Hash64(id, sizeof(id), 0x6d61726b) % ((std::uint64_t{1} << 61) - 2);
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
// Opening a pipe might wait for its other end.
int OpenDatabase(const std::string& path) { return OpenFile(path, O_RDONLY | O_NONBLOCK); }

// Whoever may read the database may write the new file beside it, and nobody else.
void ShareAs(const struct stat& database, int fd) {
  struct stat info;
  if (geteuid() == 0)
    (void)!fchown(fd, database.st_uid, database.st_gid);
  else
    (void)!fchown(fd, static_cast<uid_t>(-1), database.st_gid);
  const bool has_group = fstat(fd, &info) == 0 && info.st_gid == database.st_gid;
  const mode_t readable = database.st_mode & (has_group ? 0444 : 0404);
  (void)fchmod(fd, readable | readable >> 1 | 0600);
}

constexpr std::size_t kMapBytes = 4;
// Maps the number of checkpoints. Returns nullptr if that is not possible.
void* MapFile(int fd) {
  void* const map = mmap(nullptr, kMapBytes, PROT_READ, MAP_SHARED, fd, 0);
  return map != MAP_FAILED ? map : nullptr;
}

// Removes the file of the readers at this path unless a reader has it locked.
void RemoveUnused(int fd, const std::string& path) {
  if (SetLock(fd, F_WRLCK, 0, kSlotBytes) != 0) return;
  if (IsAt(fd, path)) (void)unlink(path.c_str());
  SetLock(fd, F_UNLCK, 0, kSlotBytes);
}

}  // namespace

// ---- of a reader ----

ReaderSlot::ReaderSlot(std::string path, int fd, ReadersClock clock)
    : path_(std::move(path)), fd_(fd), generation_(RandomSeed()), clock_(clock != nullptr ? clock : &SteadyMilliseconds) {}

StatusOr<std::unique_ptr<ReaderSlot>> ReaderSlot::Take(const std::string& database, ReadersClock clock) {
  const std::string of = CanonicalOf(database), path = of + kReadersEnding;
  for (;;) {
    struct stat info;
    if (stat(of.c_str(), &info) != 0) return PathError(errno, absl::StrCat("cannot open ", of));
    int fd = OpenFile(path, O_RDWR);
    if (fd < 0 && errno == ENOENT) {
      fd = OpenFile(path, O_RDWR | O_CREAT | O_EXCL, 0600);
      if (fd < 0 && errno == EEXIST) continue;
      if (fd >= 0) ShareAs(info, fd);
    }
    if (fd < 0) return SystemError(errno, absl::StrCat("cannot open ", path));
    std::unique_ptr<ReaderSlot> slot(new ReaderSlot(path, fd, clock));
    HAKO_ASSIGN_OR_RETURN(const bool is_claimed, slot->Claim());
    if (!is_claimed) continue;
    HAKO_ASSIGN_OR_RETURN(const bool is_marked, slot->Mark(of));
    if (is_marked) return slot;
  }
}

StatusOr<bool> ReaderSlot::Claim() {
  // One that removes the file has it locked for a moment.
  static constexpr auto kWait = std::chrono::seconds(1);
  const auto deadline = std::chrono::steady_clock::now() + kWait;
  for (;;) {
    const int error = SetLock(fd_, F_RDLCK, 0, kSlotBytes);
    if (error == 0) break;
    if (!IsHeldByOther(error)) return SystemError(error, absl::StrCat("cannot lock ", path_));
    if (std::chrono::steady_clock::now() >= deadline)
      return absl::UnavailableError(absl::StrCat(path_, " is locked by another process, which may hang while it removes the file"));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
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

StatusOr<bool> ReaderSlot::Mark(const std::string& database) {
  database_fd_ = OpenDatabase(database);
  if (database_fd_ < 0) return PathError(errno, absl::StrCat("cannot open ", database));
  const std::uint64_t mark = MarkOf(fd_);
  if (mark == 0) return SystemError(errno, absl::StrCat("cannot stat ", path_));
  const int error = SetLock(database_fd_, F_RDLCK, mark, 1);
  if (IsHeldByOther(error)) return absl::UnavailableError(absl::StrCat(database, " is open elsewhere, by one that excludes readers"));
  if (error != 0) return SystemError(error, absl::StrCat("cannot lock ", database));
  return IsAt(database_fd_, database);
}

Status ReaderSlot::Store(std::uint64_t epoch) const {
  Slot slot = {};
  slot.epoch = epoch;
  slot.generation = generation_;
  slot.since = clock_();
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
  if (fd_ < 0) return true;
  return ReadFully(fd_, offset_ + offsetof(Slot, cut_off), std::as_writable_bytes(std::span(&cut_off, 1))) == 0 && cut_off == generation_;
}

Status ReaderSlot::Explain(Status status) const {
  if (status.ok() || absl::IsResourceExhausted(status) || !IsCutOff()) return status;
  return absl::AbortedError(
      "the reader is cut off: the writer of the database no longer waits for this old checkpoint (reader_bytes, reader_age); Refresh to "
      "read a newer "
      "one");
}

bool ReaderSlot::IsBeingCreated() const {
  if (database_fd_ < 0 || !IsLocked(database_fd_, 0, kWriterPart, F_RDLCK)) return false;
  // The places of the superblocks (storage/superblock_slots.h).
  for (const off_t at : {0, 4096}) {
    std::array<char, 16> magic{};
    if (pread(database_fd_, magic.data(), magic.size(), at) < 0) return false;
    if (std::ranges::any_of(magic, [](char c) { return c != 0; })) return false;
  }
  return true;
}

bool ReaderSlot::IsReplaced() const { return !IsAt(database_fd_, path_.substr(0, path_.size() - (sizeof(kReadersEnding) - 1))); }

Status ReaderSlot::ReadDatabase(std::uint64_t offset, std::span<std::byte> out) const {
  const int error = ReadFully(database_fd_, offset, out);
  return error == 0 ? absl::OkStatus() : SystemError(error, "cannot read the database");
}

std::uint32_t ReaderSlot::NumTold() const {
  std::uint32_t number = 0;
  return ReadFully(fd_, 0, std::as_writable_bytes(std::span(&number, 1))) == 0 ? number : 0;
}

void ReaderSlot::AwaitNews(std::uint32_t known, std::chrono::steady_clock::time_point deadline) const {
  using std::chrono::nanoseconds;
  static constexpr nanoseconds kMost = std::chrono::milliseconds(100);
  const nanoseconds left = std::clamp(nanoseconds(deadline - std::chrono::steady_clock::now()), nanoseconds(0), kMost);
  const timespec timeout{0, static_cast<long>(left.count())};
  void* const map = MapFile(fd_);
  const bool is_told = map != nullptr && (syscall(SYS_futex, map, FUTEX_WAIT, known, &timeout, nullptr, 0) == 0 || errno == EAGAIN ||
                                          errno == EINTR || errno == ETIMEDOUT);
  if (map != nullptr) munmap(map, kMapBytes);
  if (!is_told) std::this_thread::sleep_for(std::min(left, nanoseconds(std::chrono::milliseconds(10))));
}

void ReaderSlot::CloseInChild() {
  for (int* const fd : {&fd_, &database_fd_}) {
    if (*fd >= 0) close(std::exchange(*fd, -1));
  }
}

ReaderSlot::~ReaderSlot() {
  if (fd_ < 0) return;
  // Unlocks explicitly: a child that was forked a moment ago may have copies of the descriptors.
  if (database_fd_ >= 0) {
    SetLock(database_fd_, F_UNLCK, kReaderMarks, 0);
    close(std::exchange(database_fd_, -1));
  }
  if (offset_ != 0) {
    (void)Store(kFree);
    SetLock(fd_, F_UNLCK, offset_, kSlotBytes);
  }
  // Gives up its own lock first: of two readers that close at once, the later one finds no lock.
  SetLock(fd_, F_UNLCK, 0, kSlotBytes);
  RemoveUnused(fd_, path_);
  close(std::exchange(fd_, -1));
}

// ---- of a writer ----

// The database has been resolved by its opener. If it cannot be opened here, there may be any readers.
ReadersFile::ReadersFile(const std::string& database)
    : database_(database), path_(database + kReadersEnding), database_fd_(OpenDatabase(database)) {}

ReadersFile::~ReadersFile() {
  // Killed readers leave the file.
  if (Open().ok() && fd_ >= 0) RemoveUnused(fd_, path_);
  CloseFile();
  if (database_fd_ >= 0) close(database_fd_);
}

void ReadersFile::CloseFile() {
  if (map_ != nullptr) munmap(std::exchange(map_, nullptr), kMapBytes);
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

// The map is only named to the system, and not read: if another program cuts the file, a read would raise SIGBUS.
void ReadersFile::Tell(const Figures& figures) {
  Head head{};
  if (fd_ < 0 || ReadFully(fd_, 0, std::as_writable_bytes(std::span(&head, 1))) != 0) return;
  head = {head.number + 1, {}, figures.epoch, figures.free_bytes, figures.reader_bytes, figures.lsn};
  if (WriteFully(fd_, 0, std::as_bytes(std::span(&head, 1))) != 0) return;
  if (map_ == nullptr) map_ = MapFile(fd_);
  if (map_ != nullptr) syscall(SYS_futex, map_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

ReadersFile::Figures ReadersFile::GetFigures() const {
  Head head{};
  if (fd_ < 0 || ReadFully(fd_, 0, std::as_writable_bytes(std::span(&head, 1))) != 0) return {};
  return {head.epoch, head.free_bytes, head.reader_bytes, head.lsn};
}

Status ReadersFile::Open() {
  struct stat named = {}, opened;
  const bool exists = stat(path_.c_str(), &named) == 0;
  const int error = errno;
  const bool is_same = exists && fd_ >= 0 && fstat(fd_, &opened) == 0 && opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
  if (is_same) return opened_;
  CloseFile();
  opened_ = absl::OkStatus();
  if (!exists && error == ENOENT) return opened_;
  fd_ = OpenFile(path_, O_RDWR);
  if (fd_ >= 0 || errno == ENOENT) return opened_;
  opened_ = SystemError(errno, absl::StrCat("cannot open ", path_));
  fd_ = OpenFile(path_, O_RDONLY);
  return opened_;
}

template <class F>
bool ReadersFile::ForEachReader(F&& visit) {
  struct stat info;
  if (fd_ < 0 || fstat(fd_, &info) != 0) return false;
  const std::uint64_t size = std::min<std::uint64_t>(info.st_size, (kSlotsMax + 1) * kSlotBytes);
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
      if (!is_valid) {
        slot.epoch = 0;
        slot.since = kNone;
      }
      if (IsLocked(fd_, at + i * kSlotBytes, kSlotBytes)) visit(at + i * kSlotBytes, slot);
    }
    at += bytes;
  }
  return true;
}

ReadersFile::Pins ReadersFile::Look(std::uint64_t newest) {
  Pins pins;
  std::atomic_thread_fence(std::memory_order_seq_cst);  // after the superblock was written
  if (database_fd_ < 0) database_fd_ = OpenDatabase(database_);
  if (database_fd_ >= 0 && !IsLocked(database_fd_, kReaderMarks, 0)) return pins;
  pins.status = Open();
  const bool is_read = ForEachReader([&](std::uint64_t, const Slot& slot) {
    ++pins.num_readers;
    pins.oldest = std::min<std::uint64_t>(pins.oldest, slot.epoch);
    if (slot.epoch < newest) pins.since = std::min<std::uint64_t>(pins.since, slot.since);
  });
  const std::uint64_t mark = fd_ >= 0 ? MarkOf(fd_) : 0;
  const auto is_marked = [&](std::uint64_t from, std::uint64_t size) { return database_fd_ < 0 || IsLocked(database_fd_, from, size); };
  const bool has_others = mark == 0 ? is_marked(kReaderMarks, 0) : is_marked(kReaderMarks, mark - kReaderMarks) || is_marked(mark + 1, 0);
  if (has_others) ++pins.num_readers;
  if (has_others || (fd_ >= 0 && !is_read)) pins.oldest = 0;
  return pins;
}

void ReadersFile::CutOffBelow(std::uint64_t epoch, std::uint64_t newest, std::uint64_t since) {
  if (!Open().ok()) return;
  (void)ForEachReader([&](std::uint64_t offset, const Slot& slot) {
    const bool is_too_old = slot.epoch < newest && slot.since < since;
    if (slot.epoch >= epoch && !is_too_old) return;
    (void)WriteFully(fd_, offset + offsetof(Slot, cut_off), std::as_bytes(std::span(&slot.generation, 1)));
  });
}

}  // namespace hako
