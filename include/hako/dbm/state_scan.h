// The scan of trees and arrays, over their iterators, for EngineOperations::ProcessState: it shows
// all records as they are at one moment, beside writers. hash::BucketCapture is the scan of a hash
// table.
#pragma once

#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "hako/array/record_key.h"
#include "hako/base/status.h"

namespace hako {

// Capture is the sync::RangeCapture that the engine got at that moment (BeginCapture). Iterator
// shows values in their stored form.
template <class Iterator, class Capture>
class RangeStateScan {
 public:
  explicit RangeStateScan(Iterator it) : it_(std::move(it)) {}
  RangeStateScan(const RangeStateScan&) = delete;

  Capture& capture() { return capture_; }

  // Moves to the next record. Returns false at the end. After DataLoss the caller may call
  // SkipDamage.
  StatusOr<bool> Next() {
    if (at_ < due_.size()) ++at_;
    for (;;) {
      if (at_ < due_.size()) return Show(), true;
      if (std::exchange(is_next_, false)) return true;
      if (is_at_end_) return false;
      HAKO_RETURN_IF_ERROR(Move());
    }
  }
  std::string_view key() const {
    if (at_ >= due_.size()) return it_.key();
    if constexpr (kHasNumbers)
      return number_.view();
    else
      return due_[at_].key;
  }
  std::string_view value() const { return at_ < due_.size() ? std::string_view(due_[at_].value) : it_.value(); }
  // Makes the next call of Next continue after the damage that the last call returned.
  bool SkipDamage() {
    if (capture_.SkipDamage()) return has_moved_ = true;
    return has_moved_ = it_.SkipDamage();
  }

 private:
  static constexpr bool kHasNumbers = requires(const Iterator& it) { it.id(); };

  void Show() {
    if constexpr (kHasNumbers) number_ = RecordKey(due_[at_].key);
  }
  Status Move() {
    due_.clear();
    at_ = 0;
    if (std::exchange(has_moved_, false)) {
    } else if (std::exchange(is_begun_, true)) {
      it_.Next();
    } else {
      it_.First();
    }
    if (!it_.Valid()) HAKO_RETURN_IF_ERROR(it_.status());
    typename Capture::Bound found;
    if constexpr (kHasNumbers) {
      if (it_.Valid()) found = it_.id();
    } else {
      if (it_.Valid()) found = it_.key();
    }
    HAKO_ASSIGN_OR_RETURN(is_next_, capture_.Pass(found, &due_));
    is_at_end_ = !found;
    return absl::OkStatus();
  }

  Capture capture_;
  Iterator it_;
  std::vector<typename Capture::Record> due_;  // captured records, which come before the record of it_
  std::size_t at_ = 0;                         // position in due_; at its end the record of it_ is next
  RecordKey number_;                           // key of a captured record of an array
  bool is_next_ = false;                       // whether the record of it_ belongs to the moment
  bool is_begun_ = false, has_moved_ = false, is_at_end_ = false;
};

}  // namespace hako
