#include "hako/file/device_reader.h"

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hako/base/aligned_buffer.h"
#include "hako/file/positional_io.h"

namespace hako {
namespace {

constexpr std::size_t kBlock = 4096;  // a multiple of the block size of nearly all devices; the others refuse the read
constexpr std::size_t kPiece = std::size_t{256} << 10;

// Reads up to `size` bytes. Returns the number of bytes read, which is smaller only at the end of
// the file, or a negative errno value.
ssize_t ReadBlocks(int fd, std::byte* out, std::size_t size, std::uint64_t offset) {
  std::size_t done = 0;
  while (done < size) {
    const ssize_t now = pread(fd, out + done, size - done, static_cast<off_t>(offset + done));
    if (now < 0 && errno == EINTR) continue;
    if (now < 0) return -errno;
    done += static_cast<std::size_t>(now);
    if (now == 0 || done % kBlock != 0) break;  // the end of the file
  }
  return static_cast<ssize_t>(done);
}

}  // namespace

// Takes no lock: another thread may have held it when this process was forked.
void DeviceReader::Close() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

StatusOr<int> DeviceReader::Open(int fd, const std::string& path) {
  const sync::MutexLock lock(mutex_);
  if (is_tried_) return fd_;
  const std::string link = absl::StrCat("/proc/self/fd/", fd);
  do {
    fd_ = open(link.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
  } while (fd_ < 0 && errno == EINTR);
  fd_ = MoveAboveStandardStreams(fd_);
  // A lack of descriptors or memory is temporary, and tells nothing about the file system.
  if (fd_ < 0 && CodeOfSystemError(errno) == absl::StatusCode::kResourceExhausted)
    return SystemError(errno, absl::StrCat("cannot open the device of ", path));
  is_tried_ = true;
  return fd_;
}

StatusOr<bool> DeviceReader::Read(int fd, const std::string& path, std::uint64_t offset, std::span<std::byte> out) {
  HAKO_ASSIGN_OR_RETURN(const int device, Open(fd, path));
  if (device < 0) return false;
  const std::uint64_t begin = offset & ~std::uint64_t{kBlock - 1};
  const std::size_t first = static_cast<std::size_t>(offset - begin);
  const AlignedBuffer buffer = MakeAlignedBuffer(std::min(kPiece, (first + out.size() + kBlock - 1) & ~(kBlock - 1)));
  std::size_t skipped = first;  // bytes of the piece before the wanted ones
  for (std::uint64_t at = begin; !out.empty();) {
    const std::size_t wanted = std::min(kPiece - skipped, out.size());
    const std::size_t size = (skipped + wanted + kBlock - 1) & ~(kBlock - 1);
    const ssize_t done = ReadBlocks(device, buffer.get(), size, at);
    if (done == -EINVAL) return false;
    if (done < static_cast<ssize_t>(skipped + wanted)) {
      return SystemError(done < 0 ? static_cast<int>(-done) : EIO,
                         absl::StrCat("cannot read ", wanted, " bytes at offset ", at + skipped, " of the device of ", path));
    }
    std::memcpy(out.data(), buffer.get() + skipped, wanted);
    out = out.subspan(wanted);
    at += size;
    skipped = 0;
  }
  return true;
}

}  // namespace hako
