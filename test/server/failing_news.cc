// Preloaded into a hako-server by a test. The file $HAKO_FAILING_NEWS has a number n of 4 bytes, which the test may
// change at any time: every n-th operator new fails, none if it is 0.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace {

const std::atomic<std::uint32_t>* Period() {
  static constexpr std::atomic<std::uint32_t> kNever{0};
  const char* const path = std::getenv("HAKO_FAILING_NEWS");
  const int fd = path != nullptr ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  void* const map = fd >= 0 ? mmap(nullptr, sizeof(kNever), PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
  if (fd >= 0) close(fd);
  return map != MAP_FAILED ? static_cast<const std::atomic<std::uint32_t>*>(map) : &kNever;
}

bool Fails() {
  static const std::atomic<std::uint32_t>* const period = Period();
  static std::atomic<std::uint32_t> count{0};
  const std::uint32_t n = period->load(std::memory_order_relaxed);
  return n != 0 && ++count % n == 0;
}
void* TryNew(std::size_t size, std::size_t alignment = alignof(std::max_align_t)) {
  if (Fails()) return nullptr;
  if (alignment <= alignof(std::max_align_t)) return std::malloc(size);
  return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}
void* New(std::size_t size, std::size_t alignment = alignof(std::max_align_t)) {
  void* const memory = TryNew(size, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t size) { return New(size); }
void* operator new[](std::size_t size) { return New(size); }
void* operator new(std::size_t size, std::align_val_t alignment) { return New(size, static_cast<std::size_t>(alignment)); }
void* operator new[](std::size_t size, std::align_val_t alignment) { return New(size, static_cast<std::size_t>(alignment)); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return TryNew(size); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return TryNew(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
