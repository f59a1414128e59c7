// A number that several threads raise and none lowers.
#pragma once

#include <atomic>

#include "hako/base/language.h"

namespace hako::sync {

// Makes `number` at least `value`, and returns it. Thread-safe.
template <class T>
T RaiseTo(std::atomic<T>& number, T value) {
  T now = number.load(std::memory_order_relaxed);
  while (now < value) {
    if (number.compare_exchange_weak(now, value, std::memory_order_relaxed)) return value;
  }
  return now;
}

}  // namespace hako::sync
