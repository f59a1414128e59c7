// Definitions of hash/bucket_index.h: a writer's access to one bucket.
#pragma once

#include <cstdint>
#include <utility>

#include "hako/base/inline.h"
#include "hako/hash/bucket_index.h"
#include "hako/sync/version_lock.h"

namespace hako::hash {

// A writer's access to a bucket: the writer is announced as busy and the bucket is locked, until
// the end of the scope. End and Cancel unlock earlier.
template <class Space>
class BucketIndex<Space>::BucketGuard {
 public:
  // `heeds_holds` = false: ignores a hold of the key (sync/write_gate.h), because the caller does
  // not change the value, or holds the key itself.
  HAKO_INLINE BucketGuard(BucketIndex& index, WriterState& writer, std::uint64_t hash, bool heeds_holds = true);
  // Takes over the lock that another guard handed over. REQUIRES: the bucket is locked, the writer busy
  BucketGuard(BucketIndex& index, WriterState& writer, Place home) : line(&index.lines_.Home(home.index)), place(home), writer_(&writer) {
    sync::VersionLock(line->header).AssertLocked();
    writer.AssertBusy();
  }
  BucketGuard(const BucketGuard&) = delete;
  HAKO_INLINE ~BucketGuard() {
    if (line != nullptr) sync::VersionLock(line->header).Unlock(changed);
    if (writer_ != nullptr) writer_->Leave();
  }
  HAKO_INLINE Place HandOver() {
    line = nullptr;
    writer_ = nullptr;
    return place;
  }
  // Unlocks without a change, and ends the announcement.
  HAKO_INLINE void Cancel() {
    sync::VersionLock(std::exchange(line, nullptr)->header).Unlock(false);
    std::exchange(writer_, nullptr)->Leave();
  }
  // Unlocks and adds to the number of records.
  HAKO_INLINE void End(BucketIndex& index, std::int64_t delta) {
    sync::VersionLock(std::exchange(line, nullptr)->header).Unlock(changed);
    if (delta != 0) index.AddToCount(*writer_, delta);
  }
  Line* line;
  Place place;
  bool changed = false;

 private:
  WriterState* writer_;
};

template <class Space>
HAKO_INLINE BucketIndex<Space>::BucketGuard::BucketGuard(BucketIndex& index, WriterState& writer, std::uint64_t hash, bool heeds_holds)
    : place(Locate(hash, index.shape())), writer_(&writer) {
  writer.Enter();
  line = &index.lines_.Home(place.index);
  sync::VersionLock(line->header).Lock();
  if (index.space_.gate().IsBusy() || index.shape().word() != place.shape.word()) [[unlikely]] {
    place = index.MoveLock(writer, hash, place, heeds_holds);
    line = &index.lines_.Home(place.index);
  }
}

// Called when the table has grown, the gate is closed, another thread holds the key, or a capture
// runs. Unlocks the bucket, waits as needed, and locks the bucket to which the key now belongs.
template <class Space>
Place BucketIndex<Space>::MoveLock(WriterState& writer, std::uint64_t hash, Place place, bool heeds_holds) {
  writer.AssertBusy();
  for (;;) {
    const bool closed = space_.gate().IsClosed();
    const Place now = Locate(hash, shape());
    const bool held = heeds_holds && now.index == place.index && space_.gate().IsHeld(hash);
    if (!closed && !held && now.index == place.index) return captures_.CaptureIfAsked(writer, now.index), now;
    sync::VersionLock(lines_.Home(place.index).header).Unlock(false);
    if (closed || held) {
      writer.Leave();
      if (held) space_.gate().WaitUntilReleased(hash);
      space_.gate().WaitUntilOpen();
      writer.Enter();
    }
    place = Locate(hash, shape());
    sync::VersionLock(lines_.Home(place.index).header).Lock();
  }
}

}  // namespace hako::hash
