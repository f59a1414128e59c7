// A file read and written at offsets by system calls, for many threads at once: for data larger than memory, and for systems where mapping
// is not wanted.
//
// Each access is a system call and a copy through the system's page cache. What a killed process wrote is there and thus in the file. With
// FileOptions::direct (Tkrzw's direct I/O) transfers are of whole blocks and go past the page cache, through a block cache of the file's
// own (file/block_cache.h), which has a thread that writes: what the cache has not written is lost with the process. In both cases what no
// Sync followed may be lost in a power cut, in any order. After a block could not be written, nothing more is, and no Sync succeeds.
// It does not offer an Identity: an engine on top keeps bytes of its own in memory, so the file alone is not what it was at the kill.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "hako/base/status.h"
#include "hako/file/block_cache.h"
#include "hako/file/bounds.h"
#include "hako/file/file.h"
#include "hako/file/positional_device.h"
#include "hako/file/posix_file.h"

namespace hako {

class PositionalParallelFile {
 public:
  static StatusOr<PositionalParallelFile> Open(const std::string& path, const FileOptions& options = {});

  PositionalParallelFile(PositionalParallelFile&&) = default;
  PositionalParallelFile& operator=(PositionalParallelFile&& other) noexcept;
  ~PositionalParallelFile() { (void)Close(); }

  std::uint64_t Size() const { return posix_->size(); }
  bool IsWritable() const { return posix_->writable(); }
  const std::string& path() const { return posix_->path(); }
  FileLock::Key lock_key() const { return posix_->lock_key(); }  // of the lock that this handle holds

  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) const;
  Status WriteAt(std::uint64_t offset, std::span<const std::byte> in);
  Status ReadMulti(std::span<const ReadRequest> reads) const;
  Status WriteMulti(std::span<const WriteRequest> writes);
  Status Resize(std::uint64_t size);
  Status Sync();
  Status Close();

  // Bytes of a block, of direct I/O; 1 without.
  std::uint64_t block_size() const { return cache_ != nullptr ? cache_->block_size() : 1; }
  // Whether what was read stays in a cache of the file's own.
  bool has_cache() const { return cache_ != nullptr && cache_->keeps(); }
  FileCounters counters() const { return device_->counters(); }

 private:
  explicit PositionalParallelFile(std::unique_ptr<PosixFile> posix)
      : posix_(std::move(posix)), device_(std::make_unique<PositionalDevice>(posix_->fd(), posix_->path())) {}

  Status CutCache(std::uint64_t size);

  std::unique_ptr<PosixFile> posix_;
  std::unique_ptr<PositionalDevice> device_;
  std::unique_ptr<BlockCache<PositionalDevice>> cache_;  // of direct I/O
};

static_assert(PathFile<PositionalParallelFile> && BatchFile<PositionalParallelFile> && CountingFile<PositionalParallelFile> &&
              !MappedFile<PositionalParallelFile>);

}  // namespace hako
