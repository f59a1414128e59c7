// Bytes that are slow to read: the first thread that reads their last page waits until Release, in
// a handler of SIGSEGV. So a test can stop a thread while it copies a value. One object at a time.
#pragma once

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <thread>

#include "hako/base/assert.h"

namespace hako {

class SlowMemory {
 public:
  // `size` bytes 'v', a multiple of the size of a page.
  explicit SlowMemory(std::size_t size) : size_(size) {
    void* const bytes = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    HAKO_ASSERT(bytes != MAP_FAILED);
    bytes_ = static_cast<char*>(bytes);
    std::memset(bytes_, 'v', size);
    self_ = this;
    struct sigaction action = {};
    action.sa_sigaction = &Handle;
    action.sa_flags = SA_SIGINFO;
    HAKO_ASSERT(::sigaction(SIGSEGV, &action, &before_) == 0);
    HAKO_ASSERT(::mprotect(last_page(), page_size_, PROT_NONE) == 0);
  }
  SlowMemory(const SlowMemory&) = delete;
  ~SlowMemory() {
    ::sigaction(SIGSEGV, &before_, nullptr);
    self_ = nullptr;
    ::munmap(bytes_, size_);
  }

  std::string_view view() const { return {bytes_, size_}; }

  // Returns when a thread has reached the last page.
  void WaitForReader() const {
    while (!is_reached_) std::this_thread::yield();
  }
  void Release() { is_released_ = true; }
  // Whether the reader continued because Release was not called in time.
  bool has_given_up() const { return has_given_up_; }

 private:
  char* last_page() const { return bytes_ + size_ - page_size_; }

  static void Handle(int, siginfo_t* info, void*) {
    SlowMemory* const self = self_;
    const auto* const at = static_cast<char*>(info->si_addr);
    if (self == nullptr || at < self->bytes_ || at >= self->bytes_ + self->size_) {
      ::signal(SIGSEGV, SIG_DFL);
      return;
    }
    self->is_reached_ = true;
    for (int waits = 0; !self->is_released_; ++waits) {
      if (waits == 60'000) {
        self->has_given_up_ = true;
        break;
      }
      ::usleep(1000);
    }
    ::mprotect(self->last_page(), self->page_size_, PROT_READ | PROT_WRITE);
  }

  static inline std::atomic<SlowMemory*> self_{nullptr};
  const std::size_t size_, page_size_ = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  char* bytes_;
  struct sigaction before_;
  std::atomic<bool> is_reached_{false}, is_released_{false}, has_given_up_{false};
};

}  // namespace hako
