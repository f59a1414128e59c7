// An estimate of record sizes: the largest of the last 256 to 511 sizes, within [kLeast, kMost]. So
// a single large record has no lasting effect, and a mixture of sizes is estimated by its large
// records.
//
// Thread-safe; concurrent notes may be lost.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "hako/base/language.h"

namespace hako::hash {

class SizeGuess {
 public:
  static constexpr std::uint32_t kLeast = 256, kMost = 16 << 10, kWindow = 256;

  std::uint32_t Get() const { return std::max(before_.load(std::memory_order_relaxed), now_.load(std::memory_order_relaxed)); }
  void Note(std::uint64_t size) {
    const auto bounded = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(size, kLeast, kMost));
    if (bounded > now_.load(std::memory_order_relaxed)) now_.store(bounded, std::memory_order_relaxed);
    const std::uint32_t count = count_.load(std::memory_order_relaxed) + 1;
    count_.store(count % kWindow, std::memory_order_relaxed);
    if (count < kWindow) return;
    before_.store(now_.load(std::memory_order_relaxed), std::memory_order_relaxed);
    now_.store(kLeast, std::memory_order_relaxed);
  }

 private:
  std::atomic<std::uint32_t> before_{kLeast}, now_{kLeast}, count_{0};
};

}  // namespace hako::hash
