// QueryEffort: bounds how much the runs of a query read, and stops them.
//
// A unit is an entry of an index, a row, 256 bytes of a row, or 4,096 steps of a regular expression, which
// take some microseconds. Planning takes units, too. A run that needs more units than are left, or that
// sees *stop, ends with Cancelled and has changed nothing. The rows that it has shown are rows of the query,
// but not all of them.
//
// Threads: one, except *stop.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "hako/base/status.h"

namespace hako {

class QueryEffort {
 public:
  static constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();
  static constexpr std::size_t kBytes = 256;  // of a row that are one unit

  explicit QueryEffort(std::uint64_t units, const std::atomic<bool>* stop = nullptr) : left_(units), stop_(stop) {}

  // Takes units. False if too few are left, or if the run is to stop.
  bool Take(std::uint64_t units = 1) {
    if (units > left_ || (stop_ != nullptr && stop_->load(std::memory_order_relaxed))) [[unlikely]] {
      is_spent_ = true;
      left_ = 0;
      return false;
    }
    if (left_ != kUnlimited) left_ -= units;
    return true;
  }
  bool TakeRow(std::size_t size) { return Take(1 + size / kBytes); }
  // Whether a run was ended for it.
  bool is_spent() const { return is_spent_; }

  static Status Error() { return absl::CancelledError("the query was stopped"); }

 private:
  std::uint64_t left_;
  const std::atomic<bool>* stop_;
  bool is_spent_ = false;
};

}  // namespace hako
