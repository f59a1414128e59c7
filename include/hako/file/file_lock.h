// A lock on a file: any number of readers, or one writer.
//
// Between processes it is an OFD lock (fcntl F_OFD_SETLK) on the whole file. It belongs to the open
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

  // Locks the open file `fd` for a writer or a reader. Waits for the current holder until
  // `deadline`, then returns Unavailable. `path` is for the message.
  // REQUIRES: not held; for a writer, `fd` is open for writing
  Status Acquire(int fd, Key key, bool writer, std::chrono::steady_clock::time_point deadline, const std::string& path);

  // Unlocks. Does nothing if the lock is not held, or in a forked child, which does not hold it.
  // REQUIRES: `fd` is still open
  void Release();

 private:
  int fd_ = -1;  // -1 = not held
  pid_t process_ = -1;
  Key key_;
};

}  // namespace hako
