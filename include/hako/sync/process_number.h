// A number that is different in a forked child, so that objects notice that they were inherited.
#pragma once

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "hako/base/inline.h"

namespace hako::sync {

namespace internal {

inline constinit std::atomic<std::uint64_t> process_number{0};

}  // namespace internal

// Returns the number of forks between this process and the one that called it first. It makes no
// system call if the system could register the counter.
HAKO_INLINE std::uint64_t ProcessNumber() {
  static const bool is_counted = pthread_atfork(nullptr, nullptr, [] { internal::process_number.fetch_add(1); }) == 0;
  return is_counted ? internal::process_number.load(std::memory_order_relaxed) : static_cast<std::uint64_t>(getpid());
}

}  // namespace hako::sync
