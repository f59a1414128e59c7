// Transfers of a file at an offset, into or out of parts of memory: preadv and pwritev until all is done. Many at once are in flight
// together by io_uring, with a ring for each thread; where the kernel has none or forbids it, they go one after the other.
//
// The system may transfer less than it was asked for, be interrupted, or fail with many transfers half done: callers see a transfer that
// is done, or the first error. What lies beyond the file's end is EIO, unless it is the rest of a block that the end lies in: zeros.
//
// Threads: any.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "hako/base/status.h"
#include "hako/file/file.h"

namespace hako {

// Bytes at `offset`, of as many as the parts have room for.
struct Transfer {
  std::uint64_t offset;
  std::span<const iovec> parts;

  std::size_t size() const {
    std::size_t size = 0;
    for (const iovec& part : parts) size += part.iov_len;
    return size;
  }
};

class PositionalDevice {
 public:
  static constexpr std::size_t kPartsMax = 1024;  // of a transfer, as POSIX has it on Linux (IOV_MAX)

  PositionalDevice(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  PositionalDevice(const PositionalDevice&) = delete;
  PositionalDevice& operator=(const PositionalDevice&) = delete;

  // Direct I/O from now on, by blocks of `options.block_size`, which it returns: the device's own where that is 0. InvalidArgument where
  // the file system has no direct I/O, or not for such blocks.
  StatusOr<std::size_t> StartDirect(const FileOptions& options);

  Status Read(const Transfer& transfer);
  Status Write(const Transfer& transfer);
  Status ReadMulti(std::span<const Transfer> transfers) { return RunMulti(transfers, Direction::kRead); }
  Status WriteMulti(std::span<const Transfer> transfers) { return RunMulti(transfers, Direction::kWrite); }

  // What addresses in memory must be a multiple of.
  std::size_t memory_alignment() const { return memory_alignment_; }
  FileCounters counters() const {
    const auto load = [](const std::atomic<std::uint64_t>& counter) { return counter.load(std::memory_order_relaxed); };
    return {load(reads_), load(read_bytes_), load(writes_), load(written_bytes_)};
  }

 private:
  enum class Direction { kRead, kWrite };

  Status RunMulti(std::span<const Transfer> transfers, Direction direction);
  void Count(const Transfer& transfer, Direction direction);
  // `done` bytes, or a negative errno value, are what the system says that it has done of it; the rest is done here.
  Status Finish(const Transfer& transfer, Direction direction, std::int64_t done);
  std::int64_t Continue(const Transfer& transfer, Direction direction, std::size_t done) const;

  const int fd_;
  const std::string path_;
  std::size_t block_size_ = 1, memory_alignment_ = 1;
  std::atomic<std::uint64_t> reads_{0}, read_bytes_{0}, writes_{0}, written_bytes_{0};
};

}  // namespace hako
