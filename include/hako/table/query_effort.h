// QueryEffort: bounds how much the runs of a query read, and stops them.
//
// A unit is an entry of an index, a row, 256 bytes of a row, or 256 bytes of a text for which a regular
// expression is looked. Planning takes units, too. A run that needs more units than are left, or that sees
// *stop, ends with Cancelled and has changed nothing. The rows that it has shown are rows of the query, but not
// all of them.
//
// Threads: one, except *stop.
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
  static constexpr std::size_t kBytes = 256;  // of a row that are one unit
  // Steps of a match, which cannot be stopped: up to half a minute. A match that might take more is refused.
  static constexpr std::uint64_t kMatchStepsMax = std::uint64_t{1} << 31;

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
  // Ends the run with this error.
  void Refuse(Status error) {
    error_ = std::move(error);
    is_spent_ = true;
    left_ = 0;
  }
  // Whether a run was ended for it, and with which error.
  bool is_spent() const { return is_spent_; }
  Status error() const { return error_.ok() ? absl::CancelledError("the query was stopped") : error_; }

 private:
  std::uint64_t left_;
  const std::atomic<bool>* stop_;
  bool is_spent_ = false;
  Status error_;
};

}  // namespace hako
