#include "hako/base/address_space.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>

#include "hako/base/per_byte_copy.h"  // defines HAKO_TSAN

namespace hako {
namespace {

// The part of a process's 128 TiB that hako divides. ThreadSanitizer leaves little more than a
// terabyte.
#ifdef HAKO_TSAN
constexpr std::uint64_t kAllUsable = std::uint64_t{1} << 40;
#else
constexpr std::uint64_t kAllUsable = std::uint64_t{96} << 40;
#endif
// The n-th share is an (8 + 8 n)-th of what is left. After 20,000 shares the last is still larger
// than 100 MiB, and an eighth of the space is still free.
constexpr std::uint64_t kParts = 8;

std::atomic<std::uint64_t> reserved_bytes{0};
std::atomic<std::uint64_t> num_shares{0};

// Returns the virtual memory of this process, or 0 if the system does not tell.
std::uint64_t VirtualMemory() {
  const int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  std::array<char, 32> text{};
  const ssize_t size = read(fd, text.data(), text.size() - 1);
  (void)close(fd);
  if (size <= 0) return 0;
  return std::strtoull(text.data(), nullptr, 10) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

std::uint64_t internal::AddressShare() {
  const auto left = [](std::uint64_t all, std::uint64_t used) { return all - std::min(all, used); };
  const std::uint64_t reserved = reserved_bytes.load(std::memory_order_relaxed);
  std::uint64_t usable = left(kAllUsable, reserved);
  rlimit limit;
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    usable = std::min(usable, left(limit.rlim_cur, std::max(reserved, VirtualMemory())));
  return usable / (kParts * (1 + num_shares.load(std::memory_order_relaxed)));
}

AddressRange internal::KeepAddresses(std::byte* base, std::uint64_t size, std::uint64_t kept, bool is_share) {
  if (kept < size && munmap(base + kept, size - kept) != 0) kept = size;
  reserved_bytes.fetch_add(kept, std::memory_order_relaxed);
  num_shares.fetch_add(is_share, std::memory_order_relaxed);
  return {base, kept, is_share};
}

bool ReleaseAddresses(const AddressRange& range) {
  reserved_bytes.fetch_sub(range.size, std::memory_order_relaxed);
  num_shares.fetch_sub(range.is_share, std::memory_order_relaxed);
  return munmap(range.base, range.size) == 0;
}

}  // namespace hako
