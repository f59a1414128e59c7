#include "hako/file/file_lock.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "hako/base/assert.h"
#include "hako/sync/mutex.h"

namespace hako {
namespace {

using Clock = std::chrono::steady_clock;

// The halves of all offsets.
constexpr unsigned kFirst = 1, kSecond = 2;

// The holders of files within this process.
class Registry {
 public:
  // Never destroyed: a file with static storage may be closed after all destructors of the library.
  static Registry& Get() {
    static Registry& registry = *new Registry;
    return registry;
  }

  bool Enter(FileLock::Key key, unsigned parts, bool writer, Clock::time_point deadline) {
    sync::MutexLock lock(mutex_);
    const auto is_free = [&] {
      mutex_.AssertHeld();
      const auto it = holders_.find(key);
      if (it == holders_.end()) return true;
      return AllOf(parts, [&](unsigned part) { return it->second[part] == 0 || (!writer && it->second[part] > 0); });
    };
    while (!is_free()) {
      if (!released_.WaitUntil(mutex_, deadline) && !is_free()) return false;
    }
    Holders& holders = holders_[key];
    AllOf(parts, [&](unsigned part) { return holders[part] = writer ? kWriter : holders[part] + 1, true; });
    return true;
  }

  void Leave(FileLock::Key key, unsigned parts) {
    {
      sync::MutexLock lock(mutex_);
      const auto it = holders_.find(key);
      AllOf(parts, [&](unsigned part) { return it->second[part] = std::max(it->second[part] - 1, 0), true; });
      if (it->second == Holders{}) holders_.erase(it);
    }
    released_.NotifyAll();
  }

 private:
  static constexpr int kWriter = -1;
  using Holders = std::array<int, 2>;  // of each part: kWriter, or the number of readers

  template <class F>
  static bool AllOf(unsigned parts, F&& f) {
    return ((parts & kFirst) == 0 || f(0u)) && ((parts & kSecond) == 0 || f(1u));
  }

  sync::Mutex mutex_;
  sync::ConditionVariable released_;
  std::map<FileLock::Key, Holders> holders_ ABSL_GUARDED_BY(mutex_);
};

// Locks the parts. l_pid stays 0, as OFD locks require.
int SetLock(int fd, short type, unsigned parts) {
  constexpr off_t kHalf = off_t{1} << 62;
  struct flock range = {};
  range.l_type = type;
  range.l_whence = SEEK_SET;
  range.l_start = parts == kSecond ? kHalf : 0;
  range.l_len = parts == kFirst ? kHalf : 0;  // 0: up to the end, however long the file becomes
  if (parts == kSecond && type != F_UNLCK) range.l_len = static_cast<off_t>(kReaderMarks) - kHalf;
  return fcntl(fd, F_OFD_SETLK, &range) == 0 ? 0 : errno;
}

// A file system without locks is an error, because two writers could open one file.
Status LockError(int error, const std::string& path) {
  const bool has_locks = error != ENOLCK && error != EINVAL && error != EOPNOTSUPP && error != ENOSYS;
  Status status = SystemError(error, absl::StrCat("cannot lock ", path));
  return has_locks ? status : absl::UnknownError(absl::StrCat(status.message(), " (its file system may keep no locks)"));
}

Status HeldElsewhere(const std::string& path, const char* where) { return absl::UnavailableError(absl::StrCat(path, " is open ", where)); }

}  // namespace

Status FileLock::Acquire(int fd, Key key, bool writer, Clock::time_point deadline, const std::string& path, bool beside) {
  HAKO_DCHECK(fd_ < 0 && (!writer || (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY));
  const unsigned parts = !beside ? kFirst | kSecond : writer ? kFirst : kSecond;
  if (!Registry::Get().Enter(key, parts, writer, deadline)) return HeldElsewhere(path, "elsewhere in this process");
  // The system has no OFD wait with a timeout, so this polls.
  for (auto pause = std::chrono::milliseconds(1);; pause = std::min(pause * 2, std::chrono::milliseconds(20))) {
    const int error = SetLock(fd, writer ? F_WRLCK : F_RDLCK, parts);
    if (error == 0) break;
    if (error == EINTR) continue;
    const bool is_held = error == EAGAIN || error == EACCES;
    const Clock::time_point now = Clock::now();
    if (!is_held || now >= deadline) {
      Registry::Get().Leave(key, parts);
      return is_held ? HeldElsewhere(path, "in another process") : LockError(error, path);
    }
    std::this_thread::sleep_for(std::min<Clock::duration>(pause, deadline - now));
  }
  fd_ = fd;
  writer_ = writer;
  parts_ = parts;
  key_ = key;
  process_ = getpid();
  return absl::OkStatus();
}

void FileLock::AdmitReaders() {
  HAKO_DCHECK(fd_ >= 0 && writer_);
  if ((parts_ & kSecond) == 0) return;
  SetLock(fd_, F_UNLCK, kSecond);
  Registry::Get().Leave(key_, kSecond);
  parts_ = kFirst;
}

void FileLock::Release() {
  if (fd_ < 0 || process_ != getpid()) return;
  HAKO_DCHECK(fcntl(fd_, F_GETFD) != -1);
  // Unlocks explicitly, because close() does not unlock while a forked child holds a copy of the
  // descriptor.
  SetLock(fd_, F_UNLCK, parts_);
  fd_ = -1;
  Registry::Get().Leave(key_, parts_);
}

}  // namespace hako
