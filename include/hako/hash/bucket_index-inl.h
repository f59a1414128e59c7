// Definitions of hash/bucket_index.h: changes of one record.
#pragma once

#include "hako/hash/bucket_index.h"
#include "hako/hash/bucket_scan.h"

namespace hako::hash {

template <class Space>
Status BucketIndex<Space>::Find(WriterState& writer, const BucketGuard& guard, std::uint64_t hash, std::string_view key, Entry* found) {
  const std::uint16_t tag = guard.place.TagOf(hash);
  unsigned hops = 0;
  for (Line* line = guard.line; line != nullptr;) {
    const std::uint32_t header = LoadHeader(*line);
    for (std::uint32_t mask = MatchTags(*line, tag) & EntryMask(header); mask != 0; mask &= mask - 1) {
      const auto i = static_cast<unsigned>(std::countr_zero(mask));
      const std::uint32_t handle = LoadSlot(*line, i);
      if (handle == 0) continue;
      format::Lengths lengths;
      switch (space_.MatchKey(handle, key, &lengths)) {
        case Match::kYes:
          *found = {line, i, handle, lengths};
          return absl::OkStatus();
        case Match::kNo:  // a coincidence, unless the record is damaged
          HAKO_RETURN_IF_ERROR(space_.View(writer, handle).status());
          break;
        case Match::kDamaged:
        case Match::kFailed:
          return space_.DamageAt(handle);
      }
    }
    HAKO_ASSIGN_OR_RETURN(line, lines_.NextLine(*line, header, &hops));
  }
  return absl::OkStatus();
}

// The fast path keeps its state in registers. It handles the common cases: the record is short and
// the first with its tag in its bucket, or it is absent and the bucket has room for a short record.
// Other cases take the general path, before the visitor is called (ProcessSlowly) or after it
// (StoreSlowly).
//
// A record that will be written in any case is written before the lookup. That write waits for no
// cache line. The work after the lookup is then so short that the processor starts the lookup of
// the next operation while this one is still in progress.
//
// REQUIRES: the space has no limit. With a limit ProcessLogged is called, which registers the use
// of the record.
template <class Space>
template <class ActionT, class V>
HAKO_INLINE Status BucketIndex<Space>::Process(WriterState& writer, std::uint64_t hash, std::string_view key, V&& visit) {
  using Visit = std::remove_cvref_t<V>;
  if constexpr (requires { space_.limit(); }) HAKO_DCHECK(space_.limit() == nullptr);
  if constexpr (std::is_same_v<Visit, ActionT>) {
    if (visit.kind() == ActionT::Kind::kSet && visit.value().size() > kLongValue) [[unlikely]]
      return StoreLong(writer, hash, key, visit.value(), false);
  }
  BucketGuard guard(*this, writer, hash, !std::is_void_v<ActionT>);
  std::uint32_t fresh = 0;
  if constexpr (std::is_same_v<Visit, ActionT> && !Space::kOverwrites) {
    if (visit.kind() == ActionT::Kind::kSet) fresh = space_.WriteShort(writer, hash, key, visit.value());
  }
  const std::uint16_t tag = guard.place.TagOf(hash);
  ShortEntry entry = FindShort(guard.line, tag, key);
  std::optional<std::string_view> value;
  if constexpr (kReadsValue<ActionT, V>) {
    if (entry.handle != 0) value = space_.ViewShort(entry.handle, entry.head, hash);
    entry.is_final = entry.is_final && value.has_value() == (entry.handle != 0);
  }
  if (!entry.is_final) [[unlikely]] {
    if constexpr (std::is_same_v<Visit, ActionT>) {
      if (visit.kind() == ActionT::Kind::kSet) return StoreSlowly(writer, guard.HandOver(), hash, key, visit.value(), fresh);
    }
    return ProcessSlowly<ActionT>(writer, guard.HandOver(), hash, key, VisitorRef<ActionT, std::remove_reference_t<V>>(visit));
  }
  if constexpr (std::is_void_v<ActionT>) {
    visit(value);
  } else {
    const bool exists = entry.handle != 0;
    const ActionT action = Decide<ActionT>(visit, exists, value);
    std::int64_t delta = 0;
    if (action.kind() == ActionT::Kind::kSet) {
      if (!exists || !space_.OverwriteShort(entry.handle, entry.head, action.value())) {
        if (!exists) {
          entry.i = FreeEntry(*guard.line);
          if (entry.i != format::kLineEntries) {
            entry.line = guard.line;
          } else if (entry.line != guard.line) {
            entry.i = FreeEntry(*entry.line);
          }
        }
        if (fresh == 0 && entry.i != format::kLineEntries) fresh = space_.WriteShort(writer, hash, key, action.value());
        if (fresh == 0 || entry.i == format::kLineEntries) [[unlikely]]
          return StoreSlowly(writer, guard.HandOver(), hash, key, action.value(), fresh);
        if (exists) {
          space_.RetireShort(writer, entry.handle, entry.head);
        } else {
          StoreTag(*entry.line, entry.i, tag);
          delta = 1;
        }
        StoreSlot(*entry.line, entry.i, fresh);
        space_.Commit(fresh);
      }
      guard.changed = true;
    } else if (action.kind() == ActionT::Kind::kRemove && exists) {
      space_.RetireShort(writer, entry.handle, entry.head);
      StoreSlot(*entry.line, entry.i, 0);
      StoreTag(*entry.line, entry.i, 0);
      guard.changed = true;
      delta = -1;
    }
    guard.End(*this, delta);
  }
  return absl::OkStatus();
}

template <class Space>
HAKO_INLINE typename BucketIndex<Space>::ShortEntry BucketIndex<Space>::FindShort(Line* line, std::uint16_t tag, std::string_view key) {
  for (unsigned hops = 0; hops < kShortHops && line != nullptr; ++hops) {
    const std::uint32_t header = LoadHeader(*line);
    if (const std::uint32_t mask = MatchTags(*line, tag) & EntryMask(header); mask != 0) {
      const auto i = static_cast<unsigned>(std::countr_zero(mask));
      const std::uint32_t handle = LoadSlot(*line, i);
      std::uint64_t head;
      if (handle != 0 && space_.MatchShort(handle, key, &head)) [[likely]]
        return {true, line, i, handle, head};
      break;
    }
    if (!HasLink(header)) return {true, line};
    line = lines_.Overflow(LoadSlot(*line, format::kLinkEntry));
  }
  return {};
}

template <class Space>
template <class ActionT, class VisitorT>
Status BucketIndex<Space>::ProcessLogged(WriterState& writer, std::uint64_t hash, std::string_view key, VisitorT visit) {
  BucketGuard guard(*this, writer, hash, !std::is_void_v<ActionT>);
  return ProcessSlowly<ActionT>(writer, guard.HandOver(), hash, key, visit);
}

template <class Space>
template <class ActionT, class VisitorT>
Status BucketIndex<Space>::ProcessSlowly(WriterState& writer, Place place, std::uint64_t hash, std::string_view key, VisitorT visit) {
  BucketGuard guard(*this, writer, place);
  Entry entry;
  HAKO_RETURN_IF_ERROR(Find(writer, guard, hash, key, &entry));
  const bool exists = entry.line != nullptr;
  if (IsLimited() && exists) eviction_.NoteUse(*entry.line, entry.i);
  std::optional<std::string_view> value;
  if constexpr (kReadsValue<ActionT, VisitorT>) {
    if (exists) {
      HAKO_ASSIGN_OR_RETURN(const RecordView record, space_.View(writer, entry.handle));
      value = record.value;
    }
  }
  if constexpr (std::is_void_v<ActionT>) {
    visit(value);
  } else {
    const ActionT action = Decide<ActionT>(visit, exists, value);
    if (action.kind() == ActionT::Kind::kSet) return StoreResult(writer, guard, hash, key, entry, action.value());
    if (action.kind() == ActionT::Kind::kRemove && exists) {
      if (!update::LogUpdate(space_, writer, format::LogOp::kRemove, key)) return update::ErrorOf(writer);
      space_.NoteMove(entry.handle, 0);
      space_.Retire(writer, entry.handle, entry.lengths);
      StoreSlot(*entry.line, entry.i, 0);
      StoreTag(*entry.line, entry.i, 0);
      space_.ReleaseFreed(writer);
      guard.changed = true;
      guard.End(*this, -1);
    }
  }
  return absl::OkStatus();
}

// Writes the record before it locks anything, so that no other thread waits for the bytes.
// `is_held`: this thread holds the key.
template <class Space>
Status BucketIndex<Space>::StoreLong(WriterState& writer, std::uint64_t hash, std::string_view key, std::string_view value, bool is_held) {
  Status error;
  const std::uint32_t fresh = space_.WriteAhead(writer, hash, key, value, &error);
  if (fresh == 0) return error;
  const update::LoggedAhead<Space> logged_ahead(space_, writer, key, value);
  BucketGuard guard(*this, writer, hash, !is_held);
  HAKO_RETURN_IF_ERROR(space_.EndAhead(writer, fresh));
  return StoreSlowly(writer, guard.HandOver(), hash, key, value, fresh);
}

// Stores the result of a visitor that has seen the record under this lock. While it writes a long
// value, it holds the key and not the lock: other threads may read the key, and use other keys of
// the bucket.
template <class Space>
Status BucketIndex<Space>::StoreResult(WriterState& writer, BucketGuard& guard, std::uint64_t hash, std::string_view key,
                                       const Entry& entry, std::string_view value) {
  sync::KeyHold hold(space_.gate());
  if (value.size() <= kLongValue || !hold.Add(hash)) return Store(writer, guard, hash, key, entry, value, 0);
  guard.Cancel();
  return StoreLong(writer, hash, key, value, true);
}

// `fresh` is the handle of the new record if it is already written, otherwise 0.
template <class Space>
Status BucketIndex<Space>::StoreSlowly(WriterState& writer, Place place, std::uint64_t hash, std::string_view key, std::string_view value,
                                       std::uint32_t fresh) {
  BucketGuard guard(*this, writer, place);
  Entry entry;
  Status status = Find(writer, guard, hash, key, &entry);
  if (status.ok() && fresh == 0) return StoreResult(writer, guard, hash, key, entry, value);
  if (status.ok()) status = Store(writer, guard, hash, key, entry, value, fresh);
  if (!status.ok() && fresh != 0) {
    space_.GiveBack(writer, fresh, key.size(), value.size());
    space_.ReleaseFreed(writer);
  }
  return status;
}

template <class Space>
Status BucketIndex<Space>::Store(WriterState& writer, BucketGuard& guard, std::uint64_t hash, std::string_view key, const Entry& entry,
                                 std::string_view value, std::uint32_t fresh) {
  const auto write = [&](Status* error) -> std::uint32_t {
    const std::uint32_t handle = fresh != 0 ? fresh : space_.Write(writer, hash, key, value, error);
    if (handle == 0) return 0;
    if (update::LogUpdate(space_, writer, format::LogOp::kSet, key, value)) return handle;
    *error = update::ErrorOf(writer);
    if (fresh == 0) space_.GiveBack(writer, handle, key.size(), value.size());
    space_.ReleaseFreed(writer);
    return 0;
  };
  if (IsLimited()) entry.line != nullptr ? eviction_.NoteUse(*entry.line, entry.i) : eviction_.EvictForInsertion(writer, 1);
  if (entry.line == nullptr) {
    const auto insert = [&] { return Insert<true>(guard, hash, write, [this] { return lines_.NewOverflow(); }); };
    Status status = insert();
    if (IsLimited() && absl::IsResourceExhausted(status) && eviction_.EvictOfChain(writer, *guard.line)) {
      guard.changed = true;
      status = insert();
    }
    HAKO_RETURN_IF_ERROR(status);
    guard.End(*this, 1);
    return absl::OkStatus();
  }
  if (fresh != 0 || update::IsLogged(space_) || !space_.Overwrite(entry.handle, entry.lengths, key, value)) {
    Status error;
    const std::uint32_t handle = write(&error);
    if (handle == 0) return error;
    space_.NoteMove(entry.handle, handle);
    space_.Retire(writer, entry.handle, entry.lengths);
    StoreSlot(*entry.line, entry.i, handle);
    space_.Commit(handle);
    space_.ReleaseFreed(writer);
  }
  guard.changed = true;
  return absl::OkStatus();
}

template <class Space>
StatusOr<bool> BucketIndex<Space>::Extend(WriterState& writer, std::uint64_t hash, std::string_view key, std::string_view piece,
                                          std::string_view other) {
  if constexpr (requires { &Space::Extend; }) {
    BucketGuard guard(*this, writer, hash);
    Entry entry;
    HAKO_RETURN_IF_ERROR(Find(writer, guard, hash, key, &entry));
    if (entry.line == nullptr || !space_.Extend(entry.handle, entry.lengths, piece, other)) return false;
    guard.changed = true;
    return true;
  }
  return false;
}

// `make(Status*)` returns the record's handle, or 0 with an error; it is called once room for the
// entry is certain. With `kNew` the record is then committed; otherwise it already has its stamp.
// If the chain is full, the entry goes into a new overflow bucket, which `new_overflow` returns.
// The last entry of the chain moves there, too, because the link takes its place.
template <class Space>
template <bool kNew, class Make, class NewOverflow>
Status BucketIndex<Space>::Insert(BucketGuard& guard, std::uint64_t hash, Make&& make, NewOverflow&& new_overflow) {
  const std::uint16_t tag = guard.place.TagOf(hash);
  unsigned hops = 0;
  Line* line = guard.line;
  unsigned i = FreeEntry(*line);
  while (i == format::kLineEntries) {
    HAKO_ASSIGN_OR_RETURN(Line* const next, lines_.NextLine(*line, LoadHeader(*line), &hops));
    if (next == nullptr) break;
    line = next;
    i = FreeEntry(*line);
  }
  struct NewLine {
    LineTable<Space>& lines;
    std::uint32_t id = 0;
    ~NewLine() {
      if (id != 0) lines.FreeOverflow(id);
    }
  } new_line{lines_};
  if (i == format::kLineEntries) {
    HAKO_ASSIGN_OR_RETURN(new_line.id, new_overflow());
  }
  Status error;
  const std::uint32_t handle = make(&error);
  if (handle == 0) return error;
  space_.NoteMove(0, handle);
  const std::uint32_t id = std::exchange(new_line.id, 0);
  if (id == 0) {
    StoreTag(*line, i, tag);
    StoreSlot(*line, i, handle);
    if (IsLimited()) eviction_.NoteNew(*line, i);
  } else {
    Line overflow{};
    overflow.slots = {LoadSlot(*line, format::kLinkEntry), handle};
    overflow.tags = {LoadTag(*line, format::kLinkEntry), tag};
    StoreLine(*lines_.Overflow(id), overflow);
    lines_.NoteMoved(*line, format::kLinkEntry, *lines_.Overflow(id), 0);
    if (IsLimited()) eviction_.NoteNew(*lines_.Overflow(id), 1);
    StoreLinkAndHeader(*line, id, LoadHeader(*line) | sync::VersionLock::kFlag);
  }
  if constexpr (kNew) space_.Commit(handle);
  guard.changed = true;
  return absl::OkStatus();
}

template <class Space>
Status BucketIndex<Space>::Adopt(WriterState& writer, std::uint64_t hash, std::uint32_t handle) {
  BucketGuard guard(*this, writer, hash);
  HAKO_RETURN_IF_ERROR(Insert<false>(
      guard, hash, [&](Status*) { return handle; }, [this] { return lines_.NewOverflow(); }));
  guard.End(*this, 1);
  return absl::OkStatus();
}

}  // namespace hako::hash
