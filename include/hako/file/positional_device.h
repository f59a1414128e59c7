// Transfers between a file and parts of memory, by preadv and pwritev until complete. Several
// transfers run at the same time by io_uring, with one ring per thread; if the kernel lacks or
// forbids io_uring, they run one after the other.
//
// The system may transfer less than requested, be interrupted, or fail with many transfers half
// done. Callers see a complete transfer or the first error. A transfer that fails in a ring is
// repeated by preadv or pwritev, and only their error is returned: a ring has failures of its own,
// such as ECANCELED when the kernel can start no thread for it. Reading beyond the file's end is
// EIO, except for the rest of the block that contains the end, which reads as zeros.
//
// Thread-safe.
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

// One transfer between the bytes of a file from `offset` on and the parts of memory, in their
// order.
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
  static constexpr std::size_t kPartsMax = 1024;  // parts of one transfer: IOV_MAX on Linux

  PositionalDevice(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  PositionalDevice(const PositionalDevice&) = delete;
  PositionalDevice& operator=(const PositionalDevice&) = delete;

  // Switches to direct I/O by blocks of `options.block_size`, or of the device's size if that is 0,
  // and returns the size. Returns InvalidArgument if the file system has no direct I/O, or none
  // with such blocks.
  StatusOr<std::size_t> StartDirect(const FileOptions& options);

  // REQUIRES of the following: offsets and the sizes of parts are multiples of the block size, addresses of
  // the memory alignment, and no transfer has more than kPartsMax parts (checked in Count)
  Status Read(const Transfer& transfer);
  Status Write(const Transfer& transfer);
  Status ReadMulti(std::span<const Transfer> transfers) { return RunMulti(transfers, Direction::kRead); }
  Status WriteMulti(std::span<const Transfer> transfers) { return RunMulti(transfers, Direction::kWrite); }

  // Addresses in memory must be multiples of this.
  std::size_t memory_alignment() const { return memory_alignment_; }
  FileCounters counters() const {
    const auto load = [](const std::atomic<std::uint64_t>& counter) { return counter.load(std::memory_order_relaxed); };
    return {load(reads_), load(read_bytes_), load(writes_), load(written_bytes_)};
  }

 private:
  enum class Direction { kRead, kWrite };

  Status RunMulti(std::span<const Transfer> transfers, Direction direction);
  bool IsAligned(const Transfer& transfer) const;
  void Count(const Transfer& transfer, Direction direction);
  // Completes a transfer. `done` is the number of bytes that a ring has transferred, or its error
  // as a negative errno value.
  Status Finish(const Transfer& transfer, Direction direction, std::int64_t done);
  std::int64_t Continue(const Transfer& transfer, Direction direction, std::size_t done) const;

  const int fd_;
  const std::string path_;
  std::size_t block_size_ = 1, memory_alignment_ = 1;
  std::atomic<std::uint64_t> reads_{0}, read_bytes_{0}, writes_{0}, written_bytes_{0};
};

}  // namespace hako
