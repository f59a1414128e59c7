// Definitions of hash/bucket_index.h: lookups, which take no lock unless writers keep interfering.
#pragma once

#include "hako/hash/bucket_index.h"

namespace hako::hash {

// The fast path tries only the first entry in the chain whose tag matches. If the entry does not
// decide the look-up, calls FetchSlowly.
template <class Space>
template <bool kNotes, class S>
HAKO_INLINE Status BucketIndex<Space>::Fetch(Writers& writers, std::uint64_t hash, std::string_view key, S&& sink) {
  const Place place = Locate(hash, shape());
  Line* line = &lines_.Home(place.index);
  const sync::VersionLock lock(line->header);
  const std::uint32_t version = lock.ReadVersion();
  if ((version & sync::VersionLock::kLocked) == 0) [[likely]] {
    const std::uint16_t tag = place.TagOf(hash);
    std::uint32_t header = version;
    for (unsigned hops = 0; hops < kShortHops; ++hops) {
      if (const std::uint32_t mask = MatchTags(*line, tag) & EntryMask(header); mask != 0) {
        const auto i = static_cast<unsigned>(std::countr_zero(mask));
        const std::uint32_t handle = LoadSlot(*line, i);
        if (handle != 0 && space_.TryFetchShort(handle, hash, key, sink) && lock.IsCurrent(version)) [[likely]] {
          if constexpr (kNotes) eviction_.NoteFetched(line, i);
          return absl::OkStatus();
        }
        break;
      }
      if (!HasLink(header)) {
        if (lock.IsCurrent(version) && shape().word() == place.shape.word()) [[likely]] {
          if constexpr (kNotes) eviction_.NoteFetched(nullptr, 0);
          return AbsentError();
        }
        break;
      }
      line = lines_.Overflow(LoadSlot(*line, format::kLinkEntry));
      if (line == nullptr) [[unlikely]]
        break;
      header = LoadHeader(*line);
    }
  }
  if constexpr (std::is_trivially_copy_assignable_v<std::remove_cvref_t<S>>) {
    // Nothing takes the address of `sink`, so its members stay in registers.
    std::remove_cvref_t<S> copy = sink;
    Status status = FetchSlowly(writers, hash, key, copy);
    sink = copy;
    return status;
  } else {
    return FetchSlowly(writers, hash, key, sink);
  }
}

template <class Space>
Status BucketIndex<Space>::FetchSlowly(Writers& writers, std::uint64_t hash, std::string_view key, SinkRef sink) HAKO_TRY {
  for (sync::Backoff backoff; backoff.count() < kOptimisticTries; backoff.Pause()) {
    const Place place = Locate(hash, shape());
    Line* line = &lines_.Home(place.index);
    const sync::VersionLock lock(line->header);
    const std::uint32_t version = lock.ReadVersion();
    if ((version & sync::VersionLock::kLocked) != 0) [[unlikely]]
      continue;
    const auto is_current = [&lock, version] { return lock.IsCurrent(version); };
    const std::uint16_t tag = place.TagOf(hash);
    std::uint32_t header = version;
    bool suspicious = false;  // a tag matched but the key did not: a coincidence, or damage
    bool raced = false;       // stays true: a writer that changes nothing restores the version
    for (unsigned hops = 0; !raced;) {
      for (std::uint32_t mask = MatchTags(*line, tag); mask != 0; mask &= mask - 1) {
        const auto i = static_cast<unsigned>(std::countr_zero(mask));
        const std::uint32_t handle = LoadSlot(*line, i);
        if (handle == 0 || (i == format::kLinkEntry && HasLink(header))) [[unlikely]]
          continue;
        FetchedCopy copy;
        const Match match = space_.TryFetch(handle, key, sink, is_current, copy);
        if (match == Match::kYes) [[likely]] {
          if (raced = !is_current(); raced) break;
          if (space_.CopyIsIntact(copy, hash)) [[likely]] {
            eviction_.NoteFetched(line, i);
            return absl::OkStatus();
          }
        }
        suspicious = true;
      }
      if (!HasLink(header)) [[likely]]
        break;
      line = lines_.Overflow(LoadSlot(*line, format::kLinkEntry));
      if (line == nullptr || ++hops > kMaxHops) [[unlikely]] {
        suspicious = true;
        break;
      }
      header = LoadHeader(*line);
    }
    if (raced || !is_current()) continue;
    if (suspicious) break;
    // A split may have moved the record or, if it has recomputed tags, changed its tag.
    const Place now = Locate(hash, shape());
    if (now.index == place.index && now.TagOf(hash) == tag) {
      eviction_.NoteFetched(nullptr, 0);
      return AbsentError();
    }
  }
  return FetchLocked(writers, hash, key, sink);
}
HAKO_OR_NO_MEMORY

// Looks the key up with the bucket locked and with all checks. Called after a tag collision,
// damage, a failed read or repeated races with writers.
template <class Space>
Status BucketIndex<Space>::FetchLocked(Writers& writers, std::uint64_t hash, std::string_view key, SinkRef sink) {
  WriterState* const writer = writers.Mine();
  if (writer == nullptr) return writers.Refusal();
  bool found = false;
  const auto copy = [&](std::optional<std::string_view> value) {
    found = value.has_value();
    if (!found) return;
    if (char* out = sink(value->size())) sync::CopyBytes(out, value->data(), value->size());
  };
  BucketGuard guard(*this, *writer, hash, false);
  HAKO_RETURN_IF_ERROR(ProcessSlowly<void>(*writer, guard.HandOver(), hash, key, VisitorRef<void, decltype(copy)>(copy)));
  eviction_.CountFetched(found);  // ProcessSlowly has recorded the use
  return found ? absl::OkStatus() : AbsentError();
}

}  // namespace hako::hash
