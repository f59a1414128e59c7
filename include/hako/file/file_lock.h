// The lock that keeps two holders of one file apart: any number of readers, or one writer.
//
// Between processes it is an OFD lock (fcntl F_OFD_SETLK) on the whole file: it belongs to the open file description, so it goes away
// with a killed process, and closing some other descriptor of the same file does not drop it, as it would a classic POSIX lock. Within
// the process a registry by (device, inode) stands in front of it: it tells which side holds the file, wakes waiters without polling,
// and holds where a file system keeps its locks by process. Lock and unlock from any thread; one lock is not shared by threads.
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
  // Which file it is, whatever path leads to it.
  struct Key {
    std::uint64_t device = 0;
    std::uint64_t inode = 0;
    friend auto operator<=>(const Key&, const Key&) = default;
  };

  FileLock() = default;
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  ~FileLock() { Release(); }

  // Takes the lock on the open file `fd`, for a writer or for a reader, waiting until `deadline` for who holds it. Unavailable when that
  // has passed; `path` is for the message. REQUIRES: not held; for a writer `fd` is open for writing.
  Status Acquire(int fd, Key key, bool writer, std::chrono::steady_clock::time_point deadline, const std::string& path);

  // Gives it back; harmless where it is not held, and in a forked child, which does not hold it. REQUIRES: `fd` is still open.
  void Release();

 private:
  int fd_ = -1;  // -1 = not held
  pid_t process_ = -1;
  Key key_;
};

}  // namespace hako
