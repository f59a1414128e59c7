// A file read and written at offsets by system calls, for concurrent access: for data larger than
// memory, and for systems where mapping is unwanted.
//
// By default each access is a system call and a copy through the kernel's page cache, so writes of
// a killed process are in the file. With FileOptions::direct (Tkrzw's direct I/O) whole blocks are
// transferred past the page cache, through a separate block cache (file/block_cache.h) with a
// writer thread: blocks that it has not written are lost with the process. In both cases
// unsynchronized writes may be lost in a power cut, in any order. After a block could not be
// written, all writes and Sync fail.
//
// The class is not a KernelBackedFile: an engine on it keeps a part of its state in memory, so
// after a kill the file alone does not have the whole state.
//
// Threads: as File and BatchFile (file/file.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "hako/base/status.h"
#include "hako/file/block_cache.h"
#include "hako/file/file.h"
#include "hako/file/positional_device.h"
#include "hako/file/posix_file.h"

namespace hako {

// Models PathFile, BatchFile, DeviceFile and CountingFile (file/file.h).
class PositionalParallelFile {
 public:
  // See PathFile.
  static StatusOr<PositionalParallelFile> Open(const std::string& path, const FileOptions& options = {}) {
    return Open(path, options, true);
  }
  // For measurements: a file whose block cache transfers each block separately.
  static StatusOr<PositionalParallelFile> OpenUnbatched(const std::string& path, const FileOptions& options) {
    return Open(path, options, false);
  }

  // Movable, not copyable. The destructor closes the file if the owner has not.
  PositionalParallelFile(PositionalParallelFile&&) = default;
  PositionalParallelFile& operator=(PositionalParallelFile&& other) noexcept;
  ~PositionalParallelFile() { (void)Close(); }

  const std::string& path() const { return posix_->path(); }  // as given to Open
  // See UndoableFile.
  bool WasCreated() const { return posix_->was_created(); }
  void SetTakeBack(TakeBack what) { posix_->set_take_back(what); }
  FileLock::Key lock_key() const { return posix_->lock_key(); }  // key of this handle's lock
  void NoteRenamed(std::string&& path) { posix_->NoteRenamed(std::move(path)); }

  // See File, BatchFile, DeviceFile and CountingFile.
  std::uint64_t Size() const { return posix_->size(); }
  bool IsWritable() const { return posix_->writable(); }
  // Returns the identity that the file has as a mapped file (MemoryMapParallelFile).
  FileIdentity MapIdentity() const { return posix_->identity(); }
  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) const;
  Status ReadDevice(std::uint64_t offset, std::span<std::byte> out) const;
  Status WriteAt(std::uint64_t offset, std::span<const std::byte> in);
  Status ReadMulti(std::span<const ReadRequest> reads) const;
  Status WriteMulti(std::span<const WriteRequest> writes);
  Status Resize(std::uint64_t size);
  Status Sync();
  Status Close();
  FileCounters counters() const { return device_->counters(); }

  // Returns the size of a block of direct I/O in bytes; 1 without direct I/O.
  std::uint64_t block_size() const { return cache_ != nullptr ? cache_->block_size() : 1; }
  // Returns the bytes of the block cache; 0 if there is none, or it keeps no blocks.
  std::uint64_t cache_bytes() const { return cache_ != nullptr && cache_->keeps() ? cache_->bytes() : 0; }

 private:
  static StatusOr<PositionalParallelFile> Open(const std::string& path, const FileOptions& options, bool batches);
  explicit PositionalParallelFile(std::unique_ptr<PosixFile> posix)
      : posix_(std::move(posix)), device_(std::make_unique<PositionalDevice>(posix_->fd(), posix_->path())) {}

  Status CutCache(std::uint64_t size);

  std::unique_ptr<PosixFile> posix_;
  std::unique_ptr<PositionalDevice> device_;
  std::unique_ptr<BlockCache<PositionalDevice>> cache_;  // direct I/O only
};

static_assert(PathFile<PositionalParallelFile> && BatchFile<PositionalParallelFile> && DeviceFile<PositionalParallelFile> &&
              CountingFile<PositionalParallelFile> && UndoableFile<PositionalParallelFile> && !MappedFile<PositionalParallelFile>);

}  // namespace hako
