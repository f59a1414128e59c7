// Calls a function after each store to a range of memory: what a process leaves in a mapped file if
// it is killed there.
//
// The range is protected against writing. A store to it raises SIGSEGV; the handler removes the
// protection and has the processor trap after this one instruction, and the handler of the trap
// calls the function and protects the range again. So the function runs at any point of the code
// under test, but never inside an allocation, as allocators do not store to the range.
//
// For one thread, on x86-64 Linux.
#pragma once

#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>

#include "hako/base/assert.h"

namespace hako {

class StoreTracer {
 public:
#if defined(__x86_64__) && defined(__linux__)
  static constexpr bool kWorks = true;
#else
  static constexpr bool kWorks = false;
#endif

  // REQUIRES: the range begins at a page, and there is no other tracer
  StoreTracer(std::span<std::byte> range, std::function<void()> on_store) : range_(range), on_store_(std::move(on_store)) {
    HAKO_ASSERT(current_ == nullptr);
    current_ = this;
    Handle(
        SIGSEGV, [](int, siginfo_t* info, void* context) { current_->BeforeStore(info, context); }, &old_segv_);
    Handle(
        SIGTRAP, [](int, siginfo_t*, void* context) { current_->AfterStore(context); }, &old_trap_);
    Protect(PROT_READ);
  }
  StoreTracer(const StoreTracer&) = delete;
  StoreTracer& operator=(const StoreTracer&) = delete;
  ~StoreTracer() {
    Protect(PROT_READ | PROT_WRITE);
    sigaction(SIGSEGV, &old_segv_, nullptr);
    sigaction(SIGTRAP, &old_trap_, nullptr);
    current_ = nullptr;
  }

 private:
  static constexpr std::int64_t kTrapFlag = 0x100;  // in the register of flags

  using Handler = void (*)(int, siginfo_t*, void*);
  static void Handle(int signal, Handler handler, struct sigaction* old) {
    struct sigaction action = {};
    action.sa_sigaction = handler;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    HAKO_ASSERT(sigaction(signal, &action, old) == 0);
  }
  void Protect(int protection) { HAKO_ASSERT(mprotect(range_.data(), range_.size(), protection) == 0); }

  void BeforeStore(siginfo_t* info, [[maybe_unused]] void* context) {
    const auto* const at = static_cast<const std::byte*>(info->si_addr);
    if (at < range_.data() || at >= range_.data() + range_.size()) {  // a mistake of the test
      sigaction(SIGSEGV, &old_segv_, nullptr);
      return;
    }
    Protect(PROT_READ | PROT_WRITE);
#if defined(__x86_64__) && defined(__linux__)
    static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL] |= kTrapFlag;
#endif
  }
  void AfterStore([[maybe_unused]] void* context) {
#if defined(__x86_64__) && defined(__linux__)
    static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL] &= ~kTrapFlag;
#endif
    on_store_();
    Protect(PROT_READ);
  }

  static inline StoreTracer* current_ = nullptr;

  const std::span<std::byte> range_;
  const std::function<void()> on_store_;
  struct sigaction old_segv_ = {}, old_trap_ = {};
};

}  // namespace hako
