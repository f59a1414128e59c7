// Definitions of storage/page_cache.h: long values that are read while nothing is locked.
#pragma once

#include "hako/storage/page_cache.h"

namespace hako::storage {

// The name that was read is still that of the same value where its leaf has not changed since, or where no checkpoint was made: an id is
// used again only after the checkpoint that does not know it any more.
template <File FileT, PageCodec Codec>
bool PageCache<FileT, Codec>::MustReadLong(Slot& slot, const format::LongValue& value, const Line& line) {
  static constexpr unsigned kTriesMax = 4;
  {
    std::lock_guard lock(mutex_);
    if (unsaved_.contains(static_cast<std::uint32_t>(value.place))) return false;
  }
  const LongRead now{value, &line, line.version, store_->num_commits()};
  const bool is_same = now.value.place == slot.read.value.place && now.value.size == slot.read.value.size;
  const bool has_read =
      is_same && ((now.line == slot.read.line && now.version == slot.read.version) || now.num_commits == slot.read.num_commits);
  if (has_read || slot.num_reads == kTriesMax) {
    slot.has_read = has_read;
    slot.num_reads = 0;
    return false;
  }
  slot.read = now;
  ++slot.num_reads;
  return true;
}

template <File FileT, PageCodec Codec>
void PageCache<FileT, Codec>::ReadLong(Slot& slot) {
  const format::LongValue value = slot.read.value;
  const bool is_name = value.place < kPagesMax && value.size <= kValueSizeMax;
  // A value that was replaced meanwhile may be gone from the file; of another error ViewLong tells.
  if (!is_name || !store_->ReadLong(static_cast<std::uint32_t>(value.place), value.size, &slot.long_value).ok()) slot.read = {};
}

}  // namespace hako::storage
