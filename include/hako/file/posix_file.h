// The part shared by the file types on a POSIX file system: opening, locking, allocating, syncing,
// closing. Each type reads and writes bytes itself.
//
// The file on the device may be longer than size(): space is allocated ahead in steps, so that most
// calls of Resize change only a number. Close gives the rest back. After a process kill the next
// opener sees the allocated size, with zeros at the end.
//
// Invariants
// 1. Every byte below allocated() has a block on the device before size() can reach it, so writing
//    to it cannot run out of space. Holes that a file has when it is opened are filled before the
//    first growth or sync, because until then it may turn out not to be a database. This does not
//    hold on file systems that copy blocks when they are changed. On btrfs a new file gets the
//    attribute that prevents such copies (chattr +C). But files made by other programs lack it, and
//    a block shared by a snapshot or reflink is still copied once.
// 2. Bytes in [size(), allocated()) are zero.
// 3. The file is not changed before the lock is held.
// 4. A file that Open has created is removed again if Open fails.
// 5. After one failed sync every later sync fails: the system may have dropped the pages that it
//    could not write, and a second sync would wrongly report them durable.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "hako/base/status.h"
#include "hako/file/device_reader.h"
#include "hako/file/file.h"
#include "hako/file/file_lock.h"
#include "hako/sync/mutex.h"

namespace hako {

class PosixFile {
 public:
  // Opens `path` with `options`. The file never grows beyond `size_max`. A file that is already
  // longer is not opened for writing.
  static StatusOr<std::unique_ptr<PosixFile>> Open(const std::string& path, const FileOptions& options, std::uint64_t size_max);

  PosixFile(const PosixFile&) = delete;
  PosixFile& operator=(const PosixFile&) = delete;
  ~PosixFile() { (void)Close(); }

  int fd() const { return fd_; }
  const std::string& path() const { return path_; }  // absolute, so that a later chdir does not matter
  bool writable() const { return writable_; }
  std::uint64_t size() const { return size_.load(std::memory_order_acquire); }
  std::uint64_t allocated() const { return allocated_.load(std::memory_order_relaxed); }
  FileIdentity identity() const;
  // With kTruncate: drops the content. This cannot be undone, so it is the last step of Open.
  // REQUIRES: no other thread uses the file (unchecked: uses leave no trace)
  Status DropContent();
  // See UndoableFile. Close undoes the creation of a file until its type sets kNothing.
  bool was_created() const { return was_created_; }
  void set_take_back(TakeBack what) { take_back_ = what; }
  // Call when the file was renamed to this absolute path. Needs no memory.
  // REQUIRES: no other thread uses the file (unchecked: uses leave no trace)
  void NoteRenamed(std::string&& path) { path_.swap(path); }
  bool is_inherited() const { return process_ != getpid(); }  // whether this process is a forked child, which must not change the file
  FileLock::Key lock_key() const { return key_; }
  Status ReadOnlyError() const;  // the error of a write if writable() is false

  // Limits the file to `size_max` bytes.
  // REQUIRES: no other thread uses the file (unchecked: uses leave no trace)
  void LimitTo(std::uint64_t size_max) { size_max_ = size_max; }

  // Allocates blocks for the holes that the file had when it was opened. Resize and Sync do this
  // too.
  Status FillHolesOnce() {
    if (!has_holes_.load(std::memory_order_relaxed)) [[likely]]
      return absl::OkStatus();
    return writable_ ? FillHolesNow() : absl::OkStatus();
  }

  // See File. Resize(size()) gives back the space allocated ahead.
  Status Resize(std::uint64_t size);

  // Makes allocated() a multiple of `block` bytes from now on, so that the block that contains
  // size() can be written whole.
  // REQUIRES: `block` is a power of two
  Status AllocateWhole(std::uint64_t block);

  // See File. The first call also makes the file's name durable. It does so even for an existing
  // file, whose creator may have been killed before its first Sync.
  Status Sync();

  // Reads bytes from the device instead of the page cache. Returns false, and reads nothing, where
  // the file system has no direct I/O.
  StatusOr<bool> ReadDevice(std::uint64_t offset, std::span<std::byte> out) const { return device_.Read(fd_, path_, offset, out); }

  // Syncs pages of a shared map of this file.
  // REQUIRES: `pages` is page-aligned
  Status SyncMapped(std::byte* pages, std::size_t size);

  // Truncates the file to size(), unlocks and closes it. A second call does nothing. In a forked
  // child it only closes the descriptor.
  Status Close();

 private:
  PosixFile(std::string path, const FileOptions& options, std::uint64_t size_max);

  StatusOr<bool> OpenAndLock(std::chrono::steady_clock::time_point deadline);  // returns false if the path now names another file
  Status Prepare(std::uint64_t size, bool has_holes);
  void NoteSize(std::uint64_t size, bool has_holes);
  Status Grow(std::uint64_t size);
  Status FillHolesNow();
  Status SyncName();
  void OpenDescriptor(int flags, bool creates);
  void Undo();
  template <class Call>
  Status SyncBy(Call call);

  std::string path_;
  const FileOptions options_;
  std::uint64_t size_max_;
  const bool writable_;
  int fd_ = -1;
  FileLock::Key key_;
  FileLock lock_;
  mutable DeviceReader device_;
  FileIdentity identity_;
  bool counts_blocks_ = false;
  TakeBack take_back_ = TakeBack::kNothing;
  bool was_created_ = false;
  std::uint64_t size_at_open_ = 0;
  const pid_t process_ = getpid();
  std::atomic<std::uint64_t> size_{0};
  std::atomic<std::uint64_t> allocated_{0};
  std::uint64_t block_ = 1;  // allocated() is a multiple of this, if the file is writable
  std::atomic<bool> has_holes_{false};
  sync::Mutex holes_mutex_;  // held while holes get their blocks
  std::atomic<bool> name_is_durable_{false};
  std::atomic<bool> sync_failed_{false};
};

}  // namespace hako
