#include "hako/file/positional_io.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace hako {
namespace {

constexpr std::size_t kTransferSizeMax = std::size_t{1} << 30;

template <class Byte, class Transfer>
int Repeat(std::uint64_t offset, std::span<Byte> bytes, Transfer transfer) {
  while (!bytes.empty()) {
    const ssize_t done = transfer(bytes.data(), std::min(bytes.size(), kTransferSizeMax), static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return done < 0 ? errno : EIO;
    offset += static_cast<std::uint64_t>(done);
    bytes = bytes.subspan(static_cast<std::size_t>(done));
  }
  return 0;
}

}  // namespace

int ReadFully(int fd, std::uint64_t offset, std::span<std::byte> out) {
  return Repeat(offset, out, [fd](std::byte* to, std::size_t size, off_t at) { return pread(fd, to, size, at); });
}

int WriteFully(int fd, std::uint64_t offset, std::span<const std::byte> in) {
  return Repeat(offset, in, [fd](const std::byte* from, std::size_t size, off_t at) { return pwrite(fd, from, size, at); });
}

int MoveAboveStandardStreams(int fd) {
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  const int moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int error = errno;
  close(fd);
  errno = error;
  return moved;
}

}  // namespace hako
