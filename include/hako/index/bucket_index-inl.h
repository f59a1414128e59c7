// Definitions of index/bucket_index.h: look-up and change first, then growth, then whole-table passes.
#pragma once

#include "hako/index/bucket_index.h"
#include "hako/index/bucket_walk.h"

namespace hako::index {

// ---- one record ----

// The short way: the first entry of the chain whose tag matches. What that does not settle goes the slow way.
template <class Space>
template <class S, class GetSlot>
HAKO_INLINE Status BucketIndex<Space>::Fetch(GetSlot&& get_slot, std::uint64_t hash, std::string_view key, S&& sink) {
  const Place place = Locate(hash, shape());
  Line* line = &lines_.Home(place.index);
  const sync::VersionLock lock(line->header);
  const std::uint32_t version = lock.ReadVersion();
  if ((version & sync::VersionLock::kLocked) == 0) [[likely]] {
    const std::uint16_t tag = place.TagOf(hash);
    std::uint32_t header = version;
    for (unsigned hops = 0; hops < kShortHops; ++hops) {
      if (const std::uint32_t mask = MatchTags(*line, tag) & EntryMask(header); mask != 0) {
        const std::uint32_t handle = LoadSlot(*line, static_cast<unsigned>(std::countr_zero(mask)));
        if (handle != 0 && space_.TryFetchShort(handle, hash, key, sink) && lock.IsCurrent(version)) [[likely]]
          return absl::OkStatus();
        break;
      }
      if (!HasLink(header)) {
        if (lock.IsCurrent(version) && shape().word() == place.shape.word()) [[likely]]
          return AbsentError();
        break;
      }
      line = lines_.Overflow(LoadSlot(*line, format::kLinkEntry));
      if (line == nullptr) [[unlikely]]
        break;
      header = Header(*line);
    }
  }
  return FetchSlowly(get_slot, hash, key, sink);
}

template <class Space>
template <class S, class GetSlot>
Status BucketIndex<Space>::FetchSlowly(GetSlot get_slot, std::uint64_t hash, std::string_view key, S& sink) {
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
    bool raced = false;       // once seen, it counts: a writer that changes nothing gives the version back as it was
    for (unsigned hops = 0; !raced;) {
      for (std::uint32_t mask = MatchTags(*line, tag); mask != 0; mask &= mask - 1) {
        const auto i = static_cast<unsigned>(std::countr_zero(mask));
        const std::uint32_t handle = LoadSlot(*line, i);
        if (handle == 0 || (i == format::kLinkEntry && HasLink(header))) [[unlikely]]
          continue;
        format::FetchedCopy copy;
        const format::Match match = space_.TryFetch(handle, key, sink, is_current, copy);
        if (match == format::Match::kYes) [[likely]] {
          if (raced = !is_current(); raced) break;
          if (space_.CopyIsIntact(copy, hash)) [[likely]]
            return absl::OkStatus();
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
      header = Header(*line);
    }
    if (raced || !is_current()) continue;
    if (suspicious) break;
    // A split may have moved the record, or, where it has made tags anew, changed what to look for.
    const Place now = Locate(hash, shape());
    if (now.index == place.index && now.TagOf(hash) == tag) return AbsentError();
  }
  return FetchLocked(get_slot(), hash, key, sink);
}

// After a coincidence of tags, damage, a failing device or in a crowd of writers: looks again, with the lock and with all checks.
template <class Space>
template <class S>
Status BucketIndex<Space>::FetchLocked(Slot* slot, std::uint64_t hash, std::string_view key, S& sink) {
  if (slot == nullptr) return absl::ResourceExhaustedError("more threads use databases than there are slots for");
  bool found = false;
  HAKO_RETURN_IF_ERROR((Process<void>(*slot, hash, key, [&](std::optional<std::string_view> value) -> void {
    found = value.has_value();
    if (!found) return;
    if (char* out = sink(value->size())) sync::CopyBytes(out, value->data(), value->size());
  })));
  return found ? absl::OkStatus() : AbsentError();
}

template <class Space>
HAKO_INLINE BucketIndex<Space>::Turn::Turn(BucketIndex& index, Slot& slot, std::uint64_t hash)
    : place(Locate(hash, index.shape())), slot_(&slot) {
  slot.Enter();
  line = &index.lines_.Home(place.index);
  sync::VersionLock(line->header).Lock();
  if (index.space_.gate().IsClosed() || index.shape().word() != place.shape.word()) [[unlikely]] {
    place = index.MoveLock(slot, hash, place);
    line = &index.lines_.Home(place.index);
  }
}

// The table has grown meanwhile, or somebody wants to be alone. Takes the lock of one home and gives that of another, maybe the same.
template <class Space>
typename BucketIndex<Space>::Place BucketIndex<Space>::MoveLock(Slot& slot, std::uint64_t hash, Place place) {
  for (;;) {
    const bool closed = space_.gate().IsClosed();
    const Place now = Locate(hash, shape());
    if (!closed && now.index == place.index) return now;
    sync::VersionLock(lines_.Home(place.index).header).Unlock(false);
    if (closed) {
      slot.Leave();
      space_.gate().WaitUntilOpen();
      slot.Enter();
    }
    place = Locate(hash, shape());
    sync::VersionLock(lines_.Home(place.index).header).Lock();
  }
}

template <class Space>
Status BucketIndex<Space>::Find(Slot& slot, const Turn& turn, std::uint64_t hash, std::string_view key, Entry* found) {
  const std::uint16_t tag = turn.place.TagOf(hash);
  unsigned hops = 0;
  for (Line* line = turn.line; line != nullptr;) {
    const std::uint32_t header = Header(*line);
    for (std::uint32_t mask = MatchTags(*line, tag) & EntryMask(header); mask != 0; mask &= mask - 1) {
      const auto i = static_cast<unsigned>(std::countr_zero(mask));
      const std::uint32_t handle = LoadSlot(*line, i);
      if (handle == 0) continue;
      format::Lengths lengths;
      switch (space_.MatchKey(handle, key, &lengths)) {
        case format::Match::kYes:
          *found = {line, i, handle, lengths};
          return absl::OkStatus();
        case format::Match::kNo:  // a coincidence, unless the record is damaged
          HAKO_RETURN_IF_ERROR(space_.View(slot, handle).status());
          break;
        case format::Match::kDamaged:
        case format::Match::kFailed:
          return space_.DamageAt(handle);
      }
    }
    HAKO_ASSIGN_OR_RETURN(line, NextLine(*line, header, &hops));
  }
  return absl::OkStatus();
}

// The short way keeps its state in registers and settles what most calls are: a short record that is the first with its tag in its
// bucket, or none, and room for one. The rest goes the general way, before the visitor is called (ProcessSlowly) or after (StoreSlowly).
//
// A record that is going to be written in any case is written before the old one is looked for. It waits for no cache line, and what comes
// after the look-up is then so short that the next operation's look-up begins while this one's is under way.
template <class Space>
template <class ActionT, class V>
HAKO_INLINE Status BucketIndex<Space>::Process(Slot& slot, std::uint64_t hash, std::string_view key, V&& visit) {
  using Visit = std::remove_cvref_t<V>;
  Turn turn(*this, slot, hash);
  std::uint32_t fresh = 0;
  if constexpr (std::is_same_v<Visit, ActionT> && !Space::kOverwrites) {
    if (visit.kind() == ActionT::Kind::kSet) fresh = space_.WriteShort(slot, hash, key, visit.value());
  }
  const std::uint16_t tag = turn.place.TagOf(hash);
  ShortEntry entry = FindShort(turn.line, tag, key);
  std::optional<std::string_view> value;
  if constexpr (kReads<ActionT, V>) {
    if (entry.handle != 0) value = space_.ViewShort(entry.handle, entry.head, hash);
    entry.settled = entry.settled && value.has_value() == (entry.handle != 0);
  }
  if (!entry.settled) [[unlikely]] {
    if constexpr (std::is_same_v<Visit, ActionT>) {
      if (visit.kind() == ActionT::Kind::kSet) return StoreSlowly(slot, turn.HandOver(), hash, key, visit.value(), fresh);
    }
    return ProcessSlowly<ActionT>(slot, turn.HandOver(), hash, key, visit);
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
          entry.i = FreeEntry(*turn.line);
          if (entry.i != format::kLineEntries) {
            entry.line = turn.line;
          } else if (entry.line != turn.line) {
            entry.i = FreeEntry(*entry.line);
          }
        }
        if (fresh == 0 && entry.i != format::kLineEntries) fresh = space_.WriteShort(slot, hash, key, action.value());
        if (fresh == 0 || entry.i == format::kLineEntries) [[unlikely]]
          return StoreSlowly(slot, turn.HandOver(), hash, key, action.value(), fresh);
        if (exists) {
          space_.RetireShort(slot, entry.handle, entry.head);
        } else {
          StoreTag(*entry.line, entry.i, tag);
          delta = 1;
        }
        StoreSlot(*entry.line, entry.i, fresh);
        space_.Commit(fresh);
      }
      turn.changed = true;
    } else if (action.kind() == ActionT::Kind::kRemove && exists) {
      space_.RetireShort(slot, entry.handle, entry.head);
      StoreSlot(*entry.line, entry.i, 0);
      StoreTag(*entry.line, entry.i, 0);
      turn.changed = true;
      delta = -1;
    }
    turn.End(*this, delta);
  }
  return absl::OkStatus();
}

template <class Space>
HAKO_INLINE typename BucketIndex<Space>::ShortEntry BucketIndex<Space>::FindShort(Line* line, std::uint16_t tag, std::string_view key) {
  for (unsigned hops = 0; hops < kShortHops && line != nullptr; ++hops) {
    const std::uint32_t header = Header(*line);
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
template <class ActionT, class V>
Status BucketIndex<Space>::ProcessSlowly(Slot& slot, Place place, std::uint64_t hash, std::string_view key, V& visit) {
  Turn turn(*this, slot, place);
  Entry entry;
  HAKO_RETURN_IF_ERROR(Find(slot, turn, hash, key, &entry));
  const bool exists = entry.line != nullptr;
  std::optional<std::string_view> value;
  if constexpr (kReads<ActionT, V>) {
    if (exists) {
      HAKO_ASSIGN_OR_RETURN(const format::RecordView record, space_.View(slot, entry.handle));
      value = record.value;
    }
  }
  if constexpr (std::is_void_v<ActionT>) {
    visit(value);
  } else {
    const ActionT action = Decide<ActionT>(visit, exists, value);
    if (action.kind() == ActionT::Kind::kSet) return Store(slot, turn, hash, key, entry, action.value(), 0);
    if (action.kind() == ActionT::Kind::kRemove && exists) {
      space_.NoteMove(entry.handle, 0);
      space_.Retire(slot, entry.handle, entry.lengths);
      StoreSlot(*entry.line, entry.i, 0);
      StoreTag(*entry.line, entry.i, 0);
      turn.changed = true;
      turn.End(*this, -1);
    }
  }
  return absl::OkStatus();
}

// `fresh` is the record, if it has been written already.
template <class Space>
Status BucketIndex<Space>::StoreSlowly(Slot& slot, Place place, std::uint64_t hash, std::string_view key, std::string_view value,
                                       std::uint32_t fresh) {
  Turn turn(*this, slot, place);
  Entry entry;
  Status status = Find(slot, turn, hash, key, &entry);
  if (status.ok()) status = Store(slot, turn, hash, key, entry, value, fresh);
  if (!status.ok() && fresh != 0) space_.GiveBack(slot, fresh, key.size(), value.size());
  return status;
}

template <class Space>
Status BucketIndex<Space>::Store(Slot& slot, Turn& turn, std::uint64_t hash, std::string_view key, const Entry& entry,
                                 std::string_view value, std::uint32_t fresh) {
  const auto write = [&](Status* error) { return fresh != 0 ? fresh : space_.Write(slot, hash, key, value, error); };
  if (entry.line == nullptr) {
    HAKO_RETURN_IF_ERROR(Insert<true>(turn, hash, write));
    turn.End(*this, 1);
    return absl::OkStatus();
  }
  if (fresh != 0 || !space_.Overwrite(entry.handle, entry.lengths, key, value)) {
    Status error;
    const std::uint32_t handle = write(&error);
    if (handle == 0) return error;
    space_.NoteMove(entry.handle, handle);
    space_.Retire(slot, entry.handle, entry.lengths);
    StoreSlot(*entry.line, entry.i, handle);
    space_.Commit(handle);
  }
  turn.changed = true;
  return absl::OkStatus();
}

template <class Space>
StatusOr<bool> BucketIndex<Space>::Extend(Slot& slot, std::uint64_t hash, std::string_view key, std::string_view piece,
                                          std::string_view other) {
  Turn turn(*this, slot, hash);
  Entry entry;
  HAKO_RETURN_IF_ERROR(Find(slot, turn, hash, key, &entry));
  if (entry.line == nullptr || !space_.Extend(entry.handle, entry.lengths, piece, other)) return false;
  turn.changed = true;
  return true;
}

template <class Space>
HAKO_INLINE unsigned BucketIndex<Space>::FreeEntry(Line& line) {
  const unsigned entries = EntriesIn(Header(line));
  for (std::uint32_t mask = MatchTags(line, 0); mask != 0; mask &= mask - 1) {
    const auto i = static_cast<unsigned>(std::countr_zero(mask));
    if (i < entries && LoadSlot(line, i) == 0) return i;
  }
  return format::kLineEntries;
}

// `make(Status*)` gives the record's handle, once it is sure that there is an entry for it; 0 with an error if it cannot. A record that is
// not new has its stamp already. If the home line is full, the record goes into an overflow line, or into a new one, to which the last
// entry of the chain moves along.
template <class Space>
template <bool kNew, class Make>
Status BucketIndex<Space>::Insert(Turn& turn, std::uint64_t hash, Make&& make) {
  const std::uint16_t tag = turn.place.TagOf(hash);
  unsigned hops = 0;
  Line* line = turn.line;
  unsigned i = FreeEntry(*line);
  while (i == format::kLineEntries) {
    HAKO_ASSIGN_OR_RETURN(Line* const next, NextLine(*line, Header(*line), &hops));
    if (next == nullptr) break;
    line = next;
    i = FreeEntry(*line);
  }
  std::uint32_t id = 0;
  if (i == format::kLineEntries) {
    HAKO_ASSIGN_OR_RETURN(id, lines_.NewOverflow());
  }
  Status error;
  const std::uint32_t handle = make(&error);
  if (handle == 0) {
    if (id != 0) lines_.FreeOverflow(id);
    return error;
  }
  space_.NoteMove(0, handle);
  if (id == 0) {
    StoreTag(*line, i, tag);
    StoreSlot(*line, i, handle);
  } else {
    Line overflow{};
    overflow.slots = {LoadSlot(*line, format::kLinkEntry), handle};
    overflow.tags = {LoadTag(*line, format::kLinkEntry), tag};
    StoreLine(*lines_.Overflow(id), overflow);
    StoreLinkAndHeader(*line, id, Header(*line) | sync::VersionLock::kFlag);
  }
  if constexpr (kNew) space_.Commit(handle);
  turn.changed = true;
  return absl::OkStatus();
}

template <class Space>
Status BucketIndex<Space>::Adopt(Slot& slot, std::uint64_t hash, std::uint32_t handle) {
  Turn turn(*this, slot, hash);
  HAKO_RETURN_IF_ERROR(Insert<false>(turn, hash, [&](Status*) { return handle; }));
  turn.End(*this, 1);
  return absl::OkStatus();
}

// ---- growth ----

template <class Space>
HAKO_INLINE void BucketIndex<Space>::AddToCount(Slot& slot, std::int64_t delta) {
  const std::int64_t pending = slot.pending_count.load(std::memory_order_relaxed) + delta;
  slot.pending_count.store(pending, std::memory_order_relaxed);
  if (pending >= kCountBatch || pending <= -kCountBatch) SettleCount(slot, pending);
}

template <class Space>
void BucketIndex<Space>::SettleCount(Slot& slot, std::int64_t pending) {
  std::int64_t total = count_.load(std::memory_order_relaxed) + pending;
  if (sync::IsSingleThreaded()) {
    count_.store(total, std::memory_order_relaxed);
  } else {
    total = count_.fetch_add(pending, std::memory_order_acq_rel) + pending;
  }
  slot.pending_count.store(0, std::memory_order_relaxed);
  for (int splits = 0; splits < 4 && total > static_cast<std::int64_t>(num_lines() * kTargetLoad); ++splits) {
    if (!Split(slot)) break;
  }
}

// Splits the next line in order. False if another thread is splitting, or there is no room: the table then works on, only denser.
template <class Space>
bool BucketIndex<Space>::Split(Slot& slot) {
  sync::VersionLock splitting(split_lock_);
  if (!splitting.TryLock()) return false;
  struct Unlocker {
    sync::VersionLock& lock;
    ~Unlocker() { lock.Unlock(false); }
  } unlocker{splitting};
  const std::uint64_t n = num_lines();
  if (!lines_.EnsureHome(n + 1).ok()) return false;
  const std::uint64_t half = std::bit_floor(n);
  const auto depth = static_cast<unsigned>(std::countr_zero(half));
  Line& from = lines_.Home(n - half);
  __builtin_prefetch(&lines_.Home(n - half + (n + 1 < 2 * half ? 1 : 0)), 1);  // the next split's
  sync::VersionLock lock(from.header);
  lock.Lock();

  // Without a branch on what decides: it is as good as random.
  const unsigned deciding_bit = depth - format::TagBase(depth);
  Entries &moved = split_moved_, &stayed = split_stayed_;
  std::size_t num_moved = 0, num_stayed = 0, chain = 0;
  Status status;
  for (Line* line = &from; line != nullptr && status.ok();) {
    if (moved.size() < ++chain * format::kLineEntries) {
      moved.resize(chain * format::kLineEntries);
      stayed.resize(chain * format::kLineEntries);
    }
    const std::uint32_t header = Header(*line);
    for (unsigned i = 0; i < EntriesIn(header); ++i) {
      const Tagged entry{LoadSlot(*line, i), LoadTag(*line, i), static_cast<std::uint16_t>(i), line};
      moved[num_moved] = stayed[num_stayed] = entry;
      const std::size_t moves = entry.tag >> deciding_bit & 1, is_there = entry.handle != 0;
      num_moved += is_there & moves;
      num_stayed += is_there & ~moves;
    }
    unsigned hops = static_cast<unsigned>(chain);
    StatusOr<Line*> next = NextLine(*line, header, &hops);
    status = next.status();
    line = next.ok() ? *next : nullptr;
  }
  const bool new_tags = format::TagBase(depth + 1) != format::TagBase(depth);
  if (new_tags && status.ok()) status = MakeTagsAnew(slot, {moved.data(), num_moved}, depth + 1);
  if (new_tags && status.ok()) status = MakeTagsAnew(slot, {stayed.data(), num_stayed}, depth + 1);
  if (status.ok()) status = FillLine(lines_.Home(n), {moved.data(), num_moved});
  if (!status.ok()) {
    lock.Unlock(false);
    return false;
  }
  PublishLineCount(n + 1);
  for (std::size_t e = 0; e < num_moved; ++e) {
    StoreSlot(*moved[e].line, moved[e].i, 0);
    StoreTag(*moved[e].line, moved[e].i, 0);
  }
  if (new_tags) {
    for (std::size_t e = 0; e < num_stayed; ++e) StoreTag(*stayed[e].line, stayed[e].i, stayed[e].tag);
  }
  Compact(from, chain, num_stayed);
  lock.Unlock(true);
  return true;
}

template <class Space>
Status BucketIndex<Space>::MakeTagsAnew(Slot& slot, std::span<Tagged> entries, unsigned depth) const {
  for (Tagged& entry : entries) {
    HAKO_ASSIGN_OR_RETURN(const format::RecordView record, space_.View(slot, entry.handle));
    entry.tag = format::TagOf(space_.KeyHash(record.key), depth);
  }
  return absl::OkStatus();
}

// Overwrites a line that no reader can reach yet, with overflow lines as needed. On error nothing is kept.
template <class Space>
Status BucketIndex<Space>::FillLine(Line& line, std::span<const Tagged> entries) {
  absl::InlinedVector<std::uint32_t, 4> overflow;
  while (entries.size() > format::kLineEntries + overflow.size() * format::kLinkEntry) {
    StatusOr<std::uint32_t> id = lines_.NewOverflow();
    if (!id.ok()) {
      for (std::uint32_t other : overflow) lines_.FreeOverflow(other);
      return id.status();
    }
    overflow.push_back(*id);
  }
  std::size_t next = 0;
  Line* at = &line;
  for (std::size_t l = 0; l <= overflow.size(); ++l) {
    const bool linked = l < overflow.size();
    Line content{};
    for (unsigned i = 0; i < (linked ? format::kLinkEntry : format::kLineEntries) && next < entries.size(); ++i, ++next) {
      content.tags[i] = entries[next].tag;
      content.slots[i] = entries[next].handle;
    }
    if (linked) {
      content.slots[format::kLinkEntry] = overflow[l];
      content.header = sync::VersionLock::kFlag;
    }
    StoreLine(*at, content);
    if (linked) at = lines_.Overflow(overflow[l]);
  }
  return absl::OkStatus();
}

// By words: a reader who still follows an old link to a recycled overflow line may look at it meanwhile.
template <class Space>
void BucketIndex<Space>::StoreLine(Line& line, const Line& content) {
  std::uint64_t words[sizeof(Line) / 8];
  std::memcpy(words, &content, sizeof(words));
  for (std::size_t w = 0; w < std::size(words); ++w) {
    std::atomic_ref(reinterpret_cast<std::uint64_t*>(&line)[w]).store(words[w], std::memory_order_relaxed);
  }
}

// Drops overflow lines of a locked chain of `chain` lines as far as its `num_entries` fit in those before. An entry is in two places for a
// moment, never in none.
template <class Space>
void BucketIndex<Space>::Compact(Line& home, std::size_t chain, std::size_t num_entries) {
  for (; chain > 1 && num_entries <= format::kLinkEntry * (chain - 1) + 1; --chain) {
    Line* before = &home;
    for (std::size_t l = 2; l < chain; ++l) before = lines_.Overflow(LoadSlot(*before, format::kLinkEntry));
    const std::uint32_t id = LoadSlot(*before, format::kLinkEntry);
    Line& last = *lines_.Overflow(id);
    Line* free = &home;
    unsigned f = 0;
    std::uint32_t last_handle = 0;  // takes the place of the link
    std::uint16_t last_tag = 0;
    for (unsigned i = 0; i < format::kLineEntries; ++i) {
      const std::uint32_t handle = LoadSlot(last, i);
      if (handle == 0) continue;
      while (free != &last && LoadSlot(*free, f) != 0) {
        if (++f < format::kLinkEntry) continue;
        free = lines_.Overflow(LoadSlot(*free, format::kLinkEntry));
        f = 0;
      }
      if (free == &last) {
        last_tag = LoadTag(last, i);
        last_handle = handle;
        break;
      }
      StoreTag(*free, f, LoadTag(last, i));
      StoreSlot(*free, f, handle);
    }
    StoreTag(*before, format::kLinkEntry, last_tag);
    StoreLinkAndHeader(*before, last_handle, Header(*before) & ~sync::VersionLock::kFlag);
    lines_.FreeOverflow(id);
  }
}

// ---- the whole table ----

template <class Space>
template <class V>
Status BucketIndex<Space>::ForEach(V& visit) const {
  BucketWalk<Space> walk(*this);
  walk.Start();
  return ForEachIn(walk, visit);
}

template <class Space>
template <class V>
Status BucketIndex<Space>::ForEachParallel(unsigned num_threads, V& visit) const {
  const std::uint64_t lines = num_lines(), parts = std::max(num_threads, 1u);
  std::vector<Status> results(parts);
  {
    std::vector<std::jthread> threads;
    for (std::uint64_t part = 0; part < parts; ++part) {
      threads.emplace_back([&, part] {
        BucketWalk<Space> walk(*this);
        walk.StartPart(lines, part, parts);
        results[part] = ForEachIn(walk, visit);
      });
    }
  }
  for (const Status& result : results) HAKO_RETURN_IF_ERROR(result);
  return absl::OkStatus();
}

template <class Space>
template <class V>
Status BucketIndex<Space>::ForEachIn(BucketWalk<Space>& walk, V& visit) const {
  for (;;) {
    HAKO_ASSIGN_OR_RETURN(const bool more, walk.Step());
    if (!more) return absl::OkStatus();
    for (std::size_t i = 0; i < walk.size(); ++i) visit(walk.key(i), walk.value(i));
  }
}

// Looks at handles, not at tags: these depend on how far the line has been split.
template <class Space>
bool BucketIndex<Space>::Names(std::uint64_t hash, std::uint32_t handle) const {
  for (sync::Backoff backoff;; backoff.Pause()) {
    const std::uint64_t index = shape().IndexOf(hash);
    Line* line = &lines_.Home(index);
    sync::VersionLock lock(line->header);
    const bool lock_it = backoff.count() >= kOptimisticTries;
    if (lock_it) lock.Lock();
    const std::uint32_t version = lock.ReadVersion();
    if (!lock_it && (version & sync::VersionLock::kLocked) != 0) continue;
    bool found = false;
    std::uint32_t header = version;
    for (unsigned hops = 0; line != nullptr && hops <= kMaxHops; ++hops) {
      for (unsigned i = 0; i < EntriesIn(header); ++i) found |= LoadSlot(*line, i) == handle;
      if (found || !HasLink(header)) break;
      line = lines_.Overflow(LoadSlot(*line, format::kLinkEntry));
      if (line != nullptr) header = Header(*line);
    }
    const bool is_current = lock.IsCurrent(version) && shape().IndexOf(hash) == index;
    if (lock_it) lock.Unlock(false);
    if (is_current) return found;
  }
}

template <class Space>
template <class F>
Status BucketIndex<Space>::ForEachLocked(Slot& slot, std::uint64_t from, std::uint64_t to, F&& visit) {
  for (std::uint64_t index = from; index < std::min(to, num_lines()); ++index) {
    Turn turn(*this, slot, index);  // the number of a line, as a hash, is at home there
    if (turn.place.index != index) continue;
    Status status;
    HAKO_RETURN_IF_ERROR(ForEachEntry(*turn.line, [&](Line& line, unsigned i, std::uint32_t handle) {
      if (!status.ok()) return;
      status = visit(handle, [&](std::uint32_t other) {
        turn.changed = true;
        StoreSlot(line, i, other);
      });
    }));
    HAKO_RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

template <class Space>
template <class F>
Status BucketIndex<Space>::RemoveAll(F&& visit) {
  for (std::uint64_t index = 0; index < num_lines(); ++index) {
    Line& home = lines_.Home(index);
    sync::VersionLock lock(home.header);
    lock.Lock();
    std::size_t chain = 1;
    Line* last = &home;
    Status status = ForEachEntry(home, [&](Line& line, unsigned i, std::uint32_t handle) {
      visit(handle);
      StoreSlot(line, i, 0);
      StoreTag(line, i, 0);
    });
    for (; status.ok() && HasLink(Header(*last)); ++chain) last = lines_.Overflow(LoadSlot(*last, format::kLinkEntry));
    if (status.ok()) Compact(home, chain, 0);
    lock.Unlock(true);
    HAKO_RETURN_IF_ERROR(status);
  }
  count_.store(0, std::memory_order_release);
  return absl::OkStatus();
}

template <class Space>
Status BucketIndex<Space>::Recover(Slot& slot, std::uint64_t num_lines, std::unordered_set<std::uint32_t>* used_overflow) {
  if (num_lines < 2 || num_lines > std::min(lines_.HomeCapacity(), TableShape::kMaxLines))
    return absl::DataLossError("the number of bucket lines makes no sense");
  shape_.store(TableShape::Of(num_lines).word(), std::memory_order_release);
  std::int64_t count = 0;
  for (std::uint64_t index = 0; index < num_lines; ++index) {
    Line& home = lines_.Home(index);
    if ((Header(home) & sync::VersionLock::kLocked) != 0) HAKO_RETURN_IF_ERROR(RepairLine(slot, index));
    for (Line* line = &home; HasLink(Header(*line));) {
      const std::uint32_t id = LoadSlot(*line, format::kLinkEntry);
      Line* next = lines_.Overflow(id);
      if (next == nullptr || !used_overflow->insert(id).second) return BrokenChain(*line);
      line = next;
    }
    HAKO_RETURN_IF_ERROR(ForEachEntry(home, [&](Line&, unsigned, std::uint32_t) { ++count; }));
  }
  count_.store(count, std::memory_order_release);
  return absl::OkStatus();
}

// A killed process was changing this line. Its slots tell what is true; see the order of stores in Process, Split and Compact.
template <class Space>
Status BucketIndex<Space>::RepairLine(Slot& slot, std::uint64_t index) {
  Line& home = lines_.Home(index);
  std::unordered_set<std::uint32_t> seen;
  Status status;
  HAKO_RETURN_IF_ERROR(ForEachEntry(home, [&](Line& line, unsigned i, std::uint32_t handle) {
    space_.Revive(handle);
    StatusOr<format::RecordView> record = space_.View(slot, handle);
    if (!record.ok()) {
      status = record.status();
      return;
    }
    const std::uint64_t hash = space_.KeyHash(record->key);
    const Place place = Locate(hash, shape());
    const bool stays = place.index == index && seen.insert(handle).second;
    if (!stays) StoreSlot(line, i, 0);
    StoreTag(line, i, stays ? place.TagOf(hash) : 0);
  }));
  HAKO_RETURN_IF_ERROR(status);
  unsigned hops = 0;
  for (Line* line = &home; line != nullptr;) {  // a tag without a slot: an insertion that was not published
    for (unsigned i = 0; i < EntriesIn(Header(*line)); ++i) {
      if (LoadSlot(*line, i) == 0) StoreTag(*line, i, 0);
    }
    HAKO_ASSIGN_OR_RETURN(line, NextLine(*line, Header(*line), &hops));
  }
  sync::VersionLock(home.header).Unlock(true);
  return absl::OkStatus();
}

template <class Space>
Status BucketIndex<Space>::Verify(Slot& slot, std::uint64_t expected) {
  std::uint64_t records = 0;
  std::unordered_set<std::uint32_t> overflow;
  const std::uint64_t n = num_lines();
  for (std::uint64_t index = 0; index < n; ++index) {
    Line& home = lines_.Home(index);
    unsigned hops = 0;
    for (Line* line = &home; line != nullptr;) {
      const std::uint32_t header = Header(*line);
      if (HasLink(header) && !overflow.insert(LoadSlot(*line, format::kLinkEntry)).second) return BrokenChain(*line);
      HAKO_ASSIGN_OR_RETURN(line, NextLine(*line, header, &hops));
    }
    std::vector<std::string> keys;
    Status status;
    HAKO_RETURN_IF_ERROR(ForEachEntry(home, [&](Line& line, unsigned i, std::uint32_t handle) {
      if (!status.ok()) return;
      StatusOr<format::RecordView> record = space_.View(slot, handle);
      if (!record.ok()) {
        status = record.status();
        return;
      }
      const std::uint64_t hash = space_.KeyHash(record->key);
      const Place place = Locate(hash, TableShape::Of(n));
      if (place.index != index) {
        status = absl::DataLossError(absl::StrCat("a record of bucket ", place.index, " is in bucket ", index));
      } else if (LoadTag(line, i) != place.TagOf(hash)) {
        status = absl::DataLossError(absl::StrCat("a wrong tag in bucket ", index));
      }
      for (const std::string& key : keys) {
        if (key == record->key) status = absl::DataLossError(absl::StrCat("a key stands twice in bucket ", index));
      }
      keys.emplace_back(record->key);
      ++records;
    }));
    HAKO_RETURN_IF_ERROR(status);
  }
  if (records != expected) return absl::DataLossError(absl::StrCat("the buckets hold ", records, " records instead of ", expected));
  return absl::OkStatus();
}

}  // namespace hako::index
