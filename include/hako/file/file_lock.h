// A lock on a file: any number of readers, or one writer; or one writer beside any number of readers of
// its checkpoints (file/readers_file.h).
//
// Between processes it is an OFD lock (fcntl F_OFD_SETLK) on the whole file; a writer beside readers has
// only the first half of all offsets locked, and its readers only the second half. It belongs to the open
// file description, so it ends with a killed process, and closing another descriptor of the same
// file does not drop it, unlike a classic POSIX lock. Within the process a registry by (device,
// inode) is checked first: it tells whether this process is the holder, wakes waiters without
// polling, and works even if a file system assigns locks to processes.
//
// Threads: lock and unlock from any thread; threads must not share one FileLock.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <compare>
#include <cstdint>
#include <string>

#include "hako/base/status.h"

namespace hako {

// From this offset on the file is locked by none of the readers beside a writer, nor by the writer. It is for
// the marks of readers (file/readers_file.h).
inline constexpr std::uint64_t kReaderMarks = std::uint64_t{3} << 61;

class FileLock {
 public:
  // Identifies the file independently of its path.
  struct Key {
    std::uint64_t device = 0;
    std::uint64_t inode = 0;
    friend auto operator<=>(const Key&, const Key&) = default;
  };

  FileLock() = default;
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  ~FileLock() { Release(); }

  // Locks the open file `fd` for a writer or a reader. `beside`: a writer admits readers that also set this, and
  // the other way round. Waits for the current holder until `deadline`, then returns Unavailable. `path` is for
  // the message.
  // REQUIRES: not held; for a writer, `fd` is open for writing
  Status Acquire(int fd, Key key, bool writer, std::chrono::steady_clock::time_point deadline, const std::string& path,
                 bool beside = false);
  // From now on a writer admits readers beside it.
  // REQUIRES: a writer holds the lock
  void AdmitReaders();

  // Unlocks. Does nothing if the lock is not held, or in a forked child, which does not hold it.
  // REQUIRES: `fd` is still open
  void Release();

 private:
  int fd_ = -1;  // -1 = not held
  bool writer_ = false;
  unsigned parts_ = 0;  // see file_lock.cc
  pid_t process_ = -1;
  Key key_;
};

}  // namespace hako
