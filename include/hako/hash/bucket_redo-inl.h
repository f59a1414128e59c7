// Definitions of hash/bucket_index.h: the changes of several keys that a killed process had begun.
#pragma once

#include "hako/hash/bucket_index.h"

namespace hako::hash {

// Locks each bucket, so that one whose change is interrupted is repaired by Recover.
template <class Space>
Status BucketIndex<Space>::Redo(WriterState& writer, std::span<const format::IntentEntry> entries) {
  HAKO_DCHECK(num_lines() != 0);
  writer.AssertIdle();
  for (const format::IntentEntry& entry : entries) {
    if (entry.handle == 0 && entry.fresh == 0) continue;
    const Place place = Locate(entry.key_hash, shape());
    sync::VersionLock(lines_.Home(place.index).header).Lock();
    writer.Enter();
    BucketGuard guard(*this, writer, place);
    Line* named = nullptr;  // has the entry that names `handle`
    unsigned at = 0;
    bool is_entered = false;
    HAKO_RETURN_IF_ERROR(lines_.ForEachEntry(*guard.line, [&](Line& line, unsigned i, std::uint32_t handle) {
      if (handle == entry.handle) named = &line, at = i;
      is_entered = is_entered || handle == entry.fresh;
    }));
    if (is_entered ? named != nullptr : named == nullptr && entry.handle != 0 && entry.fresh != 0)
      return absl::DataLossError("the buckets do not match a published intent");
    if (named != nullptr) {
      StoreSlot(*named, at, entry.fresh);
      if (entry.fresh == 0) StoreTag(*named, at, 0);
    } else if (!is_entered && entry.fresh != 0) {
      HAKO_RETURN_IF_ERROR(Insert<false>(
          guard, entry.key_hash, [&entry](Status*) { return entry.fresh; }, [this] { return lines_.NewOverflow(); }));
      count_.Add(1);
    }
    if (named != nullptr && entry.fresh == 0) count_.Add(-1);
    if (entry.fresh != 0) space_.Revive(entry.fresh);
    if constexpr (IntentSpace<Space>) {
      if (entry.handle != 0) space_.RetireLate(entry.handle);
    }
    guard.changed = true;
  }
  return absl::OkStatus();
}

}  // namespace hako::hash
