// The scan of trees and arrays for EngineOperations::ProcessState: it shows all records as they are at one moment,
// beside writers. hash::BucketCapture is the scan of a hash table.
#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "hako/base/status.h"
#include "hako/dbm/snapshot_cursor.h"

namespace hako {

// A SnapshotCursor upwards that keeps no captured records behind it. Capture is the sync::CapturedRanges that the engine
// got at the moment (BeginCapture). Iterator shows values in their stored form.
template <class Iterator, class Capture>
class RangeStateScan {
 public:
  explicit RangeStateScan(Iterator it) : cursor_(std::move(it), capture_, nullptr, 0) {}
  RangeStateScan(const RangeStateScan&) = delete;

  Capture& capture() { return *capture_; }

  // Moves to the next record. Returns false at the end. After DataLoss the caller may call
  // SkipDamage.
  StatusOr<bool> Next() {
    if (!std::exchange(has_moved_, false)) {
      if (std::exchange(is_begun_, true))
        cursor_.Next();
      else
        cursor_.First();
    }
    if (!cursor_.Valid()) {
      HAKO_RETURN_IF_ERROR(cursor_.status());
      return false;
    }
    cursor_.Pass();
    return true;
  }
  std::string_view key() const { return cursor_.key(); }
  std::string_view value() const { return cursor_.value(); }
  // Makes the next call of Next continue after the damage that the last call returned.
  bool SkipDamage() { return has_moved_ = cursor_.SkipDamage(); }

 private:
  std::shared_ptr<Capture> capture_ = std::make_shared<Capture>(false);
  SnapshotCursor<Iterator, Capture> cursor_;
  bool is_begun_ = false, has_moved_ = false;
};

}  // namespace hako
