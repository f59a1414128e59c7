// Runs work in several threads at once.
#pragma once

#include <atomic>
#include <cstddef>
#include <exception>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/sync/start_thread.h"
#include "hako/sync/sticky_status.h"

namespace hako::sync {

// Runs Status body(part) for each part of [0, parts), in one thread per part; the calling thread is
// one of them. If fewer threads can be started, they also run the remaining parts. Returns the
// first error, after all parts have run. If a body throws, no further part begins, and the call
// rethrows the first exception once all threads have ended.
template <class F>
Status RunParts(std::size_t parts, F&& body) {
  StickyStatus failure;
  std::atomic<std::size_t> next{0};
  std::exception_ptr thrown;  // by the thread that has set has_thrown
  [[maybe_unused]] std::atomic<bool> has_thrown{false};
  const auto work = [&] {
    HAKO_TRY {
      for (std::size_t part; (part = next.fetch_add(1, std::memory_order_relaxed)) < parts;) {
        if (const Status status = CatchNoMemory([&] { return body(part); }); !status.ok()) failure.Set(status);
      }
    }
    HAKO_CATCH(..., next = parts; if (!has_thrown.exchange(true)) thrown = std::current_exception();)
  };
  {
    std::vector<std::jthread> threads;
    HAKO_TRY {
      threads.reserve(parts);
      while (threads.size() + 1 < parts) {
        auto thread = StartThread([&work](std::stop_token) { work(); });
        if (!thread.ok()) break;
        threads.push_back(*std::move(thread));
      }
    }
    HAKO_CATCH_NO_MEMORY()
    work();
  }
  if (thrown != nullptr) std::rethrow_exception(thrown);
  return failure.Get();
}

}  // namespace hako::sync
