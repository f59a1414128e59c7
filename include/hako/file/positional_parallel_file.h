// A file read and written by pread and pwrite, for many threads at once: for data larger than memory, and for systems where mapping is
// not wanted. Each access is a system call and a copy through the page cache.
//
// What a killed process wrote is in the page cache and thus in the file; what no Sync followed may be lost in a power cut, in any order.
// It does not offer an Identity: an engine on top keeps bytes of its own in memory, so the file alone is not what it was at the kill.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "hako/base/status.h"
#include "hako/file/bounds.h"
#include "hako/file/file.h"
#include "hako/file/posix_file.h"

namespace hako {

class PositionalParallelFile {
 public:
  static StatusOr<PositionalParallelFile> Open(const std::string& path, const FileOptions& options = {});

  std::uint64_t Size() const { return posix_->size(); }
  bool IsWritable() const { return posix_->writable(); }
  const std::string& path() const { return posix_->path(); }

  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) const;
  Status WriteAt(std::uint64_t offset, std::span<const std::byte> in);
  Status Resize(std::uint64_t size) { return posix_->Resize(size); }
  Status Sync() { return posix_->Sync(); }
  Status Close() { return posix_->Close(); }

  // Calls of ReadAt and of WriteAt that went to the device, since Open. May be asked after Close.
  std::uint64_t read_count() const { return counters_->reads.load(std::memory_order_relaxed); }
  std::uint64_t write_count() const { return counters_->writes.load(std::memory_order_relaxed); }

 private:
  struct Counters {
    std::atomic<std::uint64_t> reads{0};
    std::atomic<std::uint64_t> writes{0};
  };

  explicit PositionalParallelFile(std::unique_ptr<PosixFile> posix) : posix_(std::move(posix)), counters_(std::make_unique<Counters>()) {}

  std::unique_ptr<PosixFile> posix_;  // closes when it is destroyed
  std::unique_ptr<Counters> counters_;
};

static_assert(PathFile<PositionalParallelFile> && !MappedFile<PositionalParallelFile>);

}  // namespace hako
