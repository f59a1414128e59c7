// What the file types on a POSIX file system share: opening, locking, allocating space, syncing, closing. How bytes are read and written
// is theirs.
//
// The file on the device may be longer than size(): space is allocated ahead in steps, so that most calls of Resize change one number.
// Close gives the rest back. Where a process was killed before that, the next opener sees the allocated size, with zeros at the end.
//
// Invariants
// 1. Every byte below allocated() has a block on the device before size() can reach it: writing to it cannot run out of space. (File
//    systems that copy on write cannot promise this.) A file that has holes when it is opened gets their blocks before the first growth
//    or sync: until then it may turn out to be something else.
// 2. Bytes in [size(), allocated()) are zero.
// 3. Nothing of the file is changed before the lock is held.
// 4. After one failed sync every later one fails: the system may have dropped the pages that it could not write, and a second sync
//    would then call them durable.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "hako/base/status.h"
#include "hako/file/file.h"
#include "hako/file/file_lock.h"

namespace hako {

class PosixFile {
 public:
  // Opens `path` as `options` say. The file never grows beyond `size_max`, and is refused for writing where it is longer already.
  static StatusOr<std::unique_ptr<PosixFile>> Open(const std::string& path, const FileOptions& options, std::uint64_t size_max);

  PosixFile(const PosixFile&) = delete;
  PosixFile& operator=(const PosixFile&) = delete;
  ~PosixFile() { (void)Close(); }

  int fd() const { return fd_; }
  const std::string& path() const { return path_; }  // absolute: a later chdir does not matter
  bool writable() const { return writable_; }
  std::uint64_t size() const { return size_.load(std::memory_order_acquire); }
  std::uint64_t allocated() const { return allocated_.load(std::memory_order_relaxed); }
  FileIdentity identity() const;
  bool is_inherited() const { return process_ != getpid(); }  // by a forked child, which must leave the file alone
  FileLock::Key lock_key() const { return key_; }
  Status ReadOnlyError() const;  // what to answer to a write where writable() is false

  // From now on the file never grows beyond `size_max`. REQUIRES: nobody else uses it yet
  void LimitTo(std::uint64_t size_max) { size_max_ = size_max; }

  // Puts blocks behind the holes that the file had when it was opened. Resize and Sync do it too.
  Status FillHolesOnce() {
    if (!has_holes_.load(std::memory_order_relaxed)) [[likely]]
      return absl::OkStatus();
    return writable_ ? FillHolesNow() : absl::OkStatus();
  }

  // As File says. To size() itself: gives back what was allocated ahead.
  Status Resize(std::uint64_t size);

  // From now on whole blocks of so many bytes are allocated, so that a block can be written that size() ends in. REQUIRES: a power of two
  Status AllocateWhole(std::uint64_t block);

  // As File says. The first one also makes the file's name durable, whoever created the file: a killed process may not have done it.
  Status Sync();

  // Sync for the pages of a shared map of this file. REQUIRES: `pages` is aligned to a page.
  Status SyncMapped(std::byte* pages, std::size_t size);

  // Cuts the file to size(), unlocks and closes it. A second call does nothing. In a forked child it only closes the descriptor.
  Status Close();

 private:
  PosixFile(std::string path, const FileOptions& options, std::uint64_t size_max);

  StatusOr<bool> OpenAndLock(std::chrono::steady_clock::time_point deadline);  // false: the path has come to name another file
  Status Prepare(std::uint64_t size, bool has_holes);
  Status Grow(std::uint64_t size);
  Status FillHolesNow();
  Status SyncName();
  template <class Call>
  Status SyncBy(Call call);

  const std::string path_;
  const FileOptions options_;
  std::uint64_t size_max_;
  const bool writable_;
  int fd_ = -1;
  FileLock::Key key_;
  FileLock lock_;
  FileIdentity identity_;
  bool counts_blocks_ = false;
  const pid_t process_ = getpid();
  std::atomic<std::uint64_t> size_{0};
  std::atomic<std::uint64_t> allocated_{0};
  std::uint64_t block_ = 1;  // of which allocated() is a multiple, where the file is writable
  std::atomic<bool> has_holes_{false};
  std::mutex holes_mutex_;
  std::atomic<bool> name_is_durable_{false};
  std::atomic<bool> sync_failed_{false};
};

}  // namespace hako
