#include "hako/file/positional_device.h"

#include <fcntl.h>
#include <liburing.h>
#include <linux/stat.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "hako/base/assert.h"
#include "hako/base/thread_exit.h"

namespace hako {
namespace {

constexpr std::size_t kBlockSizeLeast = 512, kBlockSizeMost = 64 << 10, kBlockSizeUsual = 4096;

struct Alignment {
  std::size_t offset, memory;  // the required alignment of each; 0 = there is no direct I/O
};

// Returns the alignment that the file system requires for direct I/O.
Alignment AlignmentOf(int fd) {
#if defined(STATX_DIOALIGN)
  struct statx info;
  if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) == 0 && (info.stx_mask & STATX_DIOALIGN) != 0)
    return {info.stx_dio_offset_align, info.stx_dio_mem_align};
#endif
  return {kBlockSizeLeast, kBlockSizeLeast};  // Linux before 6.1 does not tell; the first transfer will fail if this is wrong
}

// A thread's io_uring. A forked child has none, because the ring that it inherits is the parent's.
//
// It has no destructor: objects with static storage, and thread_local ones of the program, may use
// a file after this thread's other state is destroyed (base/thread_exit.h).
class Ring {
 public:
  static constexpr unsigned kDepth = 64, kAtOnce = 8;

  static Ring* OfThisThread() {
    Ring& ring = of_thread_;
    if (ring.state_ == State::kNotTried) ring.Start();
    return ring.state_ == State::kStarted && ring.process_ == getpid() ? &ring : nullptr;
  }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  io_uring* get() { return &ring_; }
  // Ends the ring, and drops requests that were not submitted. If `is_refused`, the thread starts
  // no other ring; otherwise the system only lacked resources, and a later use may start one.
  // REQUIRES: nothing is in flight (unchecked: the ring does not count it)
  void End(bool is_refused) {
    io_uring_queue_exit(&ring_);
    state_ = is_refused ? State::kNone : State::kNotTried;
  }

 private:
  enum class State { kNotTried, kStarted, kNone };

  constexpr Ring() = default;

  void Start() {
    state_ = State::kNone;
    process_ = getpid();
    if (!at_exit_.Arm()) return;
    // Process completions when this thread asks for them, instead of interrupting it. Kernels
    // before 6.1 lack these flags.
    for (const unsigned flags : {IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN, 0u}) {
      if (io_uring_queue_init(kDepth, &ring_, flags) != 0) continue;
      state_ = State::kStarted;
      return;
    }
  }
  // Ends the ring when the thread ends. A later use starts another one.
  static void EndAtExit() {
    Ring& ring = of_thread_;
    if (ring.state_ == State::kStarted && ring.process_ == getpid()) io_uring_queue_exit(&ring.ring_);
    ring.state_ = State::kNotTried;
  }

  static constinit thread_local Ring of_thread_;
  static constinit thread_local ThreadExitCall at_exit_;

  io_uring ring_ = {};
  pid_t process_ = -1;
  State state_ = State::kNotTried;
};

constinit thread_local Ring Ring::of_thread_;
constinit thread_local ThreadExitCall Ring::at_exit_{&Ring::EndAtExit};

}  // namespace

StatusOr<std::size_t> PositionalDevice::StartDirect(const FileOptions& options) {
  const Alignment alignment = AlignmentOf(fd_);
  if (alignment.offset == 0) return absl::InvalidArgumentError(absl::StrCat("the file system of ", path_, " does not support direct I/O"));
  const std::size_t block = options.block_size != 0 ? options.block_size : std::max(kBlockSizeUsual, alignment.offset);
  if (!std::has_single_bit(block) || block < kBlockSizeLeast || block > kBlockSizeMost) {
    return absl::InvalidArgumentError(
        absl::StrCat("FileOptions::block_size must be a power of two from ", kBlockSizeLeast, " to ", kBlockSizeMost));
  }
  if (block % alignment.offset != 0 || block % alignment.memory != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("direct I/O of ", path_, " requires blocks of ", std::max(alignment.offset, alignment.memory), " bytes, not ", block));
  }
  const int flags = fcntl(fd_, F_GETFL);
  if (flags < 0 || fcntl(fd_, F_SETFL, flags | O_DIRECT) != 0) {
    if (errno == EINVAL) return absl::InvalidArgumentError(absl::StrCat("the file system of ", path_, " does not support direct I/O"));
    return SystemError(errno, absl::StrCat("cannot switch ", path_, " to direct I/O"));
  }
  block_size_ = block;
  memory_alignment_ = alignment.memory;
  return block;
}

Status PositionalDevice::Read(const Transfer& transfer) {
  Count(transfer, Direction::kRead);
  return Finish(transfer, Direction::kRead, 0);
}

Status PositionalDevice::Write(const Transfer& transfer) {
  Count(transfer, Direction::kWrite);
  return Finish(transfer, Direction::kWrite, 0);
}

bool PositionalDevice::IsAligned(const Transfer& transfer) const {
  const auto fits = [this](const iovec& part) {
    return part.iov_len % block_size_ == 0 && reinterpret_cast<std::uintptr_t>(part.iov_base) % memory_alignment_ == 0;
  };
  return transfer.offset % block_size_ == 0 && std::ranges::all_of(transfer.parts, fits);
}

void PositionalDevice::Count(const Transfer& transfer, Direction direction) {
  HAKO_DCHECK(transfer.parts.size() <= kPartsMax && IsAligned(transfer));
  const bool reads = direction == Direction::kRead;
  (reads ? reads_ : writes_).fetch_add(1, std::memory_order_relaxed);
  (reads ? read_bytes_ : written_bytes_).fetch_add(transfer.size(), std::memory_order_relaxed);
}

// Transfers what is left after the first `done` bytes. Returns how many bytes are done then, which
// is less than all only at the file's end, or a negative errno value.
std::int64_t PositionalDevice::Continue(const Transfer& transfer, Direction direction, std::size_t done) const {
  std::span<const iovec> parts = transfer.parts;
  std::size_t fresh = done;  // bytes of the parts that are done
  while (true) {
    while (!parts.empty() && fresh >= parts.front().iov_len) {
      fresh -= parts.front().iov_len;
      parts = parts.subspan(1);
    }
    if (parts.empty()) break;
    // Transfer the rest of a half-done part separately.
    iovec rest = parts.front();
    rest = {static_cast<std::byte*>(rest.iov_base) + fresh, rest.iov_len - fresh};
    const std::span<const iovec> next = fresh != 0 ? std::span<const iovec>(&rest, 1) : parts;
    const auto count = static_cast<int>(next.size());
    const auto at = static_cast<off_t>(transfer.offset + done);
    const ssize_t now = direction == Direction::kRead ? preadv(fd_, next.data(), count, at) : pwritev(fd_, next.data(), count, at);
    if (now < 0 && errno == EINTR) continue;
    if (now < 0) return -errno;
    if (now == 0) break;
    done += static_cast<std::size_t>(now);
    fresh += static_cast<std::size_t>(now);
  }
  return static_cast<std::int64_t>(done);
}

Status PositionalDevice::Finish(const Transfer& transfer, Direction direction, std::int64_t done) {
  const auto size = static_cast<std::int64_t>(transfer.size());
  if (done < size) done = Continue(transfer, direction, static_cast<std::size_t>(std::max<std::int64_t>(done, 0)));
  if (done == size) return absl::OkStatus();
  const bool reads = direction == Direction::kRead;
  if (reads && done > 0 && size - done < static_cast<std::int64_t>(block_size_)) {
    for (std::int64_t begin = 0; const iovec& part : transfer.parts) {
      const auto whole = static_cast<std::size_t>(std::clamp<std::int64_t>(done - begin, 0, static_cast<std::int64_t>(part.iov_len)));
      std::memset(static_cast<std::byte*>(part.iov_base) + whole, 0, part.iov_len - whole);
      begin += static_cast<std::int64_t>(part.iov_len);
    }
    return absl::OkStatus();
  }
  return SystemError(done < 0 ? static_cast<int>(-done) : EIO,
                     absl::StrCat("cannot ", reads ? "read " : "write ", size, " bytes at offset ", transfer.offset, " of ", path_));
}

Status PositionalDevice::RunMulti(std::span<const Transfer> transfers, Direction direction) {
  for (const Transfer& transfer : transfers) Count(transfer, direction);
  Status status;
  const auto finish = [&](std::size_t number, std::int64_t bytes) { status.Update(Finish(transfers[number], direction, bytes)); };
  std::size_t next = 0, submitted = 0;
  unsigned in_flight = 0;
  // A ring gains nothing for writes to the page cache, and those in flight when the process is
  // killed would keep the file locked for a moment.
  const bool pays = transfers.size() > 1 && (direction == Direction::kRead || block_size_ > 1);
  Ring* const ring = pays ? Ring::OfThisThread() : nullptr;
  while (ring != nullptr && (next < transfers.size() || in_flight > 0)) {
    std::size_t fresh = 0;  // submit a few at a time: the device begins when they are submitted
    for (io_uring_sqe* entry; fresh < Ring::kAtOnce && next < transfers.size() && in_flight < Ring::kDepth; ++fresh, ++next, ++in_flight) {
      if ((entry = io_uring_get_sqe(ring->get())) == nullptr) break;
      const Transfer& transfer = transfers[next];
      const auto count = static_cast<unsigned>(transfer.parts.size());
      if (direction == Direction::kRead)
        io_uring_prep_readv(entry, fd_, transfer.parts.data(), count, transfer.offset);
      else
        io_uring_prep_writev(entry, fd_, transfer.parts.data(), count, transfer.offset);
      io_uring_sqe_set_data64(entry, next);
    }
    const bool more = next < transfers.size() && in_flight < Ring::kDepth;
    const int result = io_uring_submit_and_wait(ring->get(), more ? 0 : std::min(in_flight, Ring::kAtOnce));
    if (result > 0) submitted += static_cast<std::size_t>(result);  // the others are submitted the next time
    const bool is_idle = submitted + in_flight == next;             // nothing is in flight
    if (result < 0 && result != -EINTR && is_idle) {
      ring->End(result != -EAGAIN && result != -EBUSY && result != -ENOMEM);
      next = submitted;
      break;
    }
    io_uring_cqe* completion;
    while (in_flight > 0 && io_uring_peek_cqe(ring->get(), &completion) == 0) {
      const std::int64_t bytes = completion->res;
      const std::uint64_t number = io_uring_cqe_get_data64(completion);
      io_uring_cqe_seen(ring->get(), completion);
      --in_flight;
      finish(number, bytes);
    }
  }
  for (; next < transfers.size(); ++next) finish(next, 0);
  return status;
}

}  // namespace hako
