// Definitions of array/page_array.h: checks of the whole structure.
#pragma once

#include "hako/array/page_array.h"

namespace hako::array {

template <class Space>
Status PageArray<Space>::Verify(std::uint64_t expected, std::uint64_t* num_leaves) {
  std::uint64_t found = 0, leaves = 0;
  HAKO_RETURN_IF_ERROR(VerifyBelow(root(), kRootLevel, 0, &found, &leaves));
  if (num_leaves != nullptr) *num_leaves = leaves;
  if (found == expected) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("the array has ", found, " records, but ", expected, " are expected"));
}

// The content of an image was checked when the page was loaded (array/array_pages.h).
template <class Space>
Status PageArray<Space>::VerifyBelow(Line& line, unsigned level, std::uint64_t number, std::uint64_t* found, std::uint64_t* num_leaves) {
  HAKO_RETURN_IF_ERROR(LoadIfEvicted({&line, 0, level}));
  const format::PageShape shape = std::atomic_ref(line.shape).load(std::memory_order_relaxed);
  if (shape.level() != level || format::NumberOfArrayPage(shape) != number)
    return absl::DataLossError(absl::StrCat("page ", IdOf(line), " is not page ", number, " of level ", level));
  for (unsigned i = 0; i < format::kFanout; ++i) {
    const std::uint32_t child = ChildOf(line, i);
    const std::uint64_t child_number = number * format::kFanout + i;
    if (level == 1 && child_number < table_size_) {
      const std::uint32_t known = std::atomic_ref(table_[child_number]).load(std::memory_order_relaxed);
      if (known != 0 && known != child)
        return absl::DataLossError(absl::StrCat("leaf ", child_number, ": the table has page ", known, " in place of ", child));
    }
    if (child == 0) continue;
    if (child_number >= shape_.PagesOf(level - 1))
      return absl::DataLossError(absl::StrCat("page ", child, " has number ", child_number, ", which is out of range"));
    if (level > 1) {
      HAKO_RETURN_IF_ERROR(VerifyBelow(LineOf(child), level - 1, child_number, found, num_leaves));
      continue;
    }
    ++*num_leaves;
    HAKO_RETURN_IF_ERROR(VerifyLeaf(LineOf(child), child_number, found));
  }
  return absl::OkStatus();
}

template <class Space>
Status PageArray<Space>::VerifyLeaf(Line& line, std::uint64_t number, std::uint64_t* found) {
  for (sync::Backoff backoff;; backoff.Pause()) {
    HAKO_RETURN_IF_ERROR(LoadIfEvicted({&line, 0, 0}, true));
    const std::uint32_t version = Lock(line.version).ReadVersion();
    if ((version & Lock::kLocked) != 0) continue;
    const format::PageShape shape = std::atomic_ref(line.shape).load(std::memory_order_relaxed);
    const PresenceBits bits = BitsOf(line, PageOf(line));
    const unsigned count = bits.CountIn(0, shape_.per_leaf);
    const unsigned behind = bits.CountIn(shape_.per_leaf, (shape_.per_leaf + 31) / 32 * 32);
    if (!Lock(line.version).IsCurrent(version)) continue;
    if (shape.level() != 0 || shape.units != shape_.units || format::NumberOfArrayPage(shape) != number || behind != 0)
      return absl::DataLossError(absl::StrCat("page ", IdOf(line), " is not leaf ", number));
    *found += count;
    return absl::OkStatus();
  }
}

}  // namespace hako::array
