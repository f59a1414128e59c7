// QueryEffort: bounds how much the runs of a query read, and stops them.
//
// A unit is an entry of an index, a row, 256 bytes of a row, or 256 bytes of a text that is
// searched by a regular expression. Planning takes units, too. A run that needs more units than are
// left, or that sees *stop, ends with Cancelled and has changed nothing. It may have shown some of
// the rows.
//
// Not thread-safe, except *stop.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include "hako/base/status.h"

namespace hako {

class QueryEffort {
 public:
  static constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();
  static constexpr std::size_t kBytes = 256;  // bytes of a row in one unit
  // A match cannot be stopped. One that might take more steps than this, about half a minute, is
  // refused.
  static constexpr std::uint64_t kMatchStepsMax = std::uint64_t{1} << 31;

  explicit QueryEffort(std::uint64_t units, const std::atomic<bool>* stop = nullptr) : left_(units), stop_(stop) {}

  // Takes units. Returns false if too few are left, or if the run must stop.
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
  // Ends the run with this error.
  void Refuse(Status error) {
    error_ = std::move(error);
    is_spent_ = true;
    left_ = 0;
  }
  // Whether this object has ended a run, and the error of that run.
  bool is_spent() const { return is_spent_; }
  Status error() const { return error_.ok() ? absl::CancelledError("the query was stopped") : error_; }

 private:
  std::uint64_t left_;
  const std::atomic<bool>* stop_;
  bool is_spent_ = false;
  Status error_;
};

}  // namespace hako
