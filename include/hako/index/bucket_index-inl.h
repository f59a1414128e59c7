// Definitions of index/bucket_index.h: look-up and change first, then growth, then whole-table passes.
#pragma once

#include "hako/index/bucket_index.h"

namespace hako::index {

// ---- one record ----

// The short way: the home line, and the first entry whose tag matches. What that does not settle goes the slow way.
template <class Space>
template <class S, class GetSlot>
HAKO_INLINE Status BucketIndex<Space>::Fetch(GetSlot&& get_slot, std::uint64_t hash, std::string_view key, S&& sink) {
  const Place place = Locate(hash, num_lines_.load(std::memory_order_acquire));
  Line& line = lines_.Home(place.index);
  const sync::VersionLock lock(line.header);
  const std::uint32_t version = lock.ReadVersion();
  if ((version & sync::VersionLock::kLocked) == 0) [[likely]] {
    std::uint32_t mask = MatchTags(line, place.TagOf(hash));
    if (mask != 0) {
      const auto i = static_cast<unsigned>(std::countr_zero(mask));
      const std::uint32_t handle = LoadSlot(line, i);
      format::FetchedCopy copy;
      if (handle != 0 && (i != format::kLinkEntry || !HasLink(version)) &&
          space_.TryFetch(
              handle, key, sink, [&] { return lock.IsCurrent(version); }, copy) == format::Match::kYes &&
          lock.IsCurrent(version) && space_.CopyIsIntact(copy, hash, handle)) [[likely]]
        return absl::OkStatus();
    } else if (!HasLink(version) && lock.IsCurrent(version) && num_lines_.load(std::memory_order_acquire) == place.n) [[likely]] {
      return AbsentError();
    }
  }
  return FetchSlowly(get_slot, hash, key, sink);
}

template <class Space>
template <class S, class GetSlot>
Status BucketIndex<Space>::FetchSlowly(GetSlot get_slot, std::uint64_t hash, std::string_view key, S& sink) {
  for (sync::Backoff backoff; backoff.count() < kOptimisticTries; backoff.Pause()) {
    const Place place = Locate(hash, num_lines_.load(std::memory_order_acquire));
    Line* line = &lines_.Home(place.index);
    const sync::VersionLock lock(line->header);
    const std::uint32_t version = lock.ReadVersion();
    if ((version & sync::VersionLock::kLocked) != 0) [[unlikely]]
      continue;
    const auto is_current = [&lock, version] { return lock.IsCurrent(version); };
    const std::uint16_t tag = place.TagOf(hash);
    std::uint32_t header = version;
    bool suspicious = false;  // a tag matched but the key did not: a coincidence, or damage
    for (unsigned hops = 0;;) {
      for (std::uint32_t mask = MatchTags(*line, tag); mask != 0; mask &= mask - 1) {
        const auto i = static_cast<unsigned>(std::countr_zero(mask));
        const std::uint32_t handle = LoadSlot(*line, i);
        if (handle == 0 || (i == format::kLinkEntry && HasLink(header))) [[unlikely]]
          continue;
        format::FetchedCopy copy;
        const format::Match match = space_.TryFetch(handle, key, sink, is_current, copy);
        if (match == format::Match::kYes) [[likely]] {
          if (!is_current()) break;
          if (space_.CopyIsIntact(copy, hash, handle)) [[likely]]
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
    if (!is_current()) continue;
    if (suspicious) break;
    if (Locate(hash, num_lines_.load(std::memory_order_acquire)).index == place.index) return AbsentError();
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
HAKO_INLINE BucketIndex<Space>::LockedHome::LockedHome(BucketIndex& index, Slot& slot, std::uint64_t hash) {
  for (;;) {
    slot.Enter();
    place = Locate(hash, index.num_lines_.load(std::memory_order_acquire));
    line = &index.lines_.Home(place.index);
    sync::VersionLock lock(line->header);
    lock.Lock();
    const bool closed = index.space_.gate().IsClosed();
    const std::uint64_t n = index.num_lines_.load(std::memory_order_acquire);
    if (!closed && n == place.n) [[likely]]
      return;
    if (!closed) {
      const Place now = Locate(hash, n);
      if (now.index == place.index) {
        place = now;
        return;
      }
    }
    lock.Unlock(false);
    if (closed) {
      slot.Leave();
      index.space_.gate().WaitUntilOpen();
    }
  }
}

template <class Space>
HAKO_INLINE Status BucketIndex<Space>::Find(Slot& slot, const LockedHome& home, std::uint64_t hash, std::string_view key, Entry* found) {
  const std::uint32_t mask = MatchTags(*home.line, home.place.TagOf(hash));
  const bool has_link = HasLink(Header(*home.line));
  if (mask != 0) {
    const auto i = static_cast<unsigned>(std::countr_zero(mask));
    const std::uint32_t handle = LoadSlot(*home.line, i);
    if (handle != 0 && (i != format::kLinkEntry || !has_link)) [[likely]] {
      format::Lengths lengths;
      if (space_.MatchKey(handle, key, &lengths) == format::Match::kYes) [[likely]] {
        *found = {home.line, i, handle, lengths};
        return absl::OkStatus();
      }
    }
  } else if (!has_link) {
    return absl::OkStatus();
  }
  return FindSlowly(slot, home, hash, key, found);
}

template <class Space>
Status BucketIndex<Space>::FindSlowly(Slot& slot, const LockedHome& home, std::uint64_t hash, std::string_view key, Entry* found) {
  const std::uint16_t tag = home.place.TagOf(hash);
  unsigned hops = 0;
  for (Line* line = home.line; line != nullptr;) {
    const std::uint32_t header = Header(*line);
    for (std::uint32_t mask = MatchTags(*line, tag); mask != 0; mask &= mask - 1) {
      const auto i = static_cast<unsigned>(std::countr_zero(mask));
      const std::uint32_t handle = LoadSlot(*line, i);
      if (handle == 0 || i >= EntriesIn(header)) continue;
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

template <class Space>
template <class ActionT, class V>
HAKO_INLINE Status BucketIndex<Space>::Process(Slot& slot, std::uint64_t hash, std::string_view key, V&& visit) {
  constexpr bool kReads = std::is_void_v<ActionT> || std::is_invocable_v<V&, std::optional<std::string_view>>;
  BusyScope busy{slot};
  std::int64_t delta = 0;
  {
    LockedHome home(*this, slot, hash);
    Entry entry;
    HAKO_RETURN_IF_ERROR(Find(slot, home, hash, key, &entry));
    const bool exists = entry.line != nullptr;
    std::optional<std::string_view> value;
    if constexpr (kReads) {
      if (exists) {
        HAKO_ASSIGN_OR_RETURN(const format::RecordView record, space_.View(slot, entry.handle));
        value = record.value;
      }
    }
    if constexpr (std::is_void_v<ActionT>) {
      visit(value);
      return absl::OkStatus();
    } else {
      const ActionT action = [&]() -> ActionT {
        if constexpr (kReads)
          return visit(value);
        else
          return visit(exists);
      }();
      if (action.kind() == ActionT::Kind::kSet) {
        if (exists) return ReplaceEntry(slot, home, entry, hash, key, action.value());
        HAKO_RETURN_IF_ERROR(Insert<true>(home, hash, [&](Status* error) { return space_.Write(slot, hash, key, action.value(), error); }));
        delta = 1;
      } else if (action.kind() == ActionT::Kind::kRemove && exists) {
        home.changed = true;
        space_.Retire(slot, entry.handle, entry.lengths);
        StoreSlot(*entry.line, entry.i, 0);
        StoreTag(*entry.line, entry.i, 0);
        delta = -1;
      } else {
        return absl::OkStatus();
      }
    }
  }
  AddToCount(slot, delta);
  return absl::OkStatus();
}

template <class Space>
HAKO_INLINE Status BucketIndex<Space>::ReplaceEntry(Slot& slot, LockedHome& home, const Entry& entry, std::uint64_t hash,
                                                    std::string_view key, std::string_view value) {
  if (space_.Overwrite(entry.handle, entry.lengths, key, value)) {
    home.changed = true;
    return absl::OkStatus();
  }
  Status error;
  const std::uint32_t handle = space_.Write(slot, hash, key, value, &error);
  if (handle == 0) [[unlikely]]
    return error;
  home.changed = true;
  space_.Retire(slot, entry.handle, entry.lengths);
  StoreSlot(*entry.line, entry.i, handle);
  space_.Commit(handle);
  return absl::OkStatus();
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
// not new has its stamp already.
template <class Space>
template <bool kNew, class Make>
HAKO_INLINE Status BucketIndex<Space>::Insert(LockedHome& home, std::uint64_t hash, Make&& make) {
  const unsigned i = FreeEntry(*home.line);
  if (i == format::kLineEntries) [[unlikely]]
    return InsertSlowly<kNew>(home, hash, make);
  Status error;
  const std::uint32_t handle = make(&error);
  if (handle == 0) [[unlikely]]
    return error;
  home.changed = true;
  StoreTag(*home.line, i, home.place.TagOf(hash));
  StoreSlot(*home.line, i, handle);
  if constexpr (kNew) space_.Commit(handle);
  return absl::OkStatus();
}

// The home line is full: into an overflow line, or a new one, to which the last entry of the chain moves together with the new record.
template <class Space>
template <bool kNew, class Make>
Status BucketIndex<Space>::InsertSlowly(LockedHome& home, std::uint64_t hash, Make&& make) {
  const std::uint16_t tag = home.place.TagOf(hash);
  unsigned hops = 0;
  Line* line = home.line;
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
  home.changed = true;
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
  return absl::OkStatus();
}

template <class Space>
Status BucketIndex<Space>::Adopt(Slot& slot, std::uint64_t hash, std::uint32_t handle) {
  BusyScope busy{slot};
  {
    LockedHome home(*this, slot, hash);
    HAKO_RETURN_IF_ERROR(Insert<false>(home, hash, [&](Status*) { return handle; }));
  }
  AddToCount(slot, 1);
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
  const std::int64_t total = count_.fetch_add(pending, std::memory_order_acq_rel) + pending;
  slot.pending_count.store(0, std::memory_order_relaxed);
  for (int splits = 0; splits < 4 && total > static_cast<std::int64_t>(num_lines() * kTargetLoad); ++splits) {
    if (!Split(slot)) break;
  }
}

// Splits the next line in order. False if another thread is splitting, or there is no room: the table then works on, only denser.
template <class Space>
bool BucketIndex<Space>::Split(Slot& slot) {
  std::unique_lock split_lock(split_mutex_, std::try_to_lock);
  if (!split_lock) return false;
  const std::uint64_t n = num_lines_.load(std::memory_order_relaxed);
  if (!lines_.EnsureHome(n + 1).ok()) return false;
  const std::uint64_t half = std::bit_floor(n);
  const auto depth = static_cast<unsigned>(std::countr_zero(half));
  Line& from = lines_.Home(n - half);
  __builtin_prefetch(&lines_.Home(n - half + (n + 1 < 2 * half ? 1 : 0)), 1);  // the next split's
  sync::VersionLock lock(from.header);
  lock.Lock();

  Entries moved, stayed;
  const std::uint16_t deciding_bit = static_cast<std::uint16_t>(1u << (depth - format::TagBase(depth)));
  Status status = ForEachEntry(from, [&](Line& line, unsigned i, std::uint32_t handle) {
    const std::uint16_t tag = LoadTag(line, i);
    ((tag & deciding_bit) != 0 ? moved : stayed).push_back({handle, tag, static_cast<std::uint16_t>(i), &line});
  });
  const bool new_tags = format::TagBase(depth + 1) != format::TagBase(depth);
  if (new_tags && status.ok()) status = MakeTagsAnew(slot, moved, depth + 1);
  if (new_tags && status.ok()) status = MakeTagsAnew(slot, stayed, depth + 1);
  if (status.ok()) status = FillLine(lines_.Home(n), moved);
  if (!status.ok()) {
    lock.Unlock(false);
    return false;
  }
  PublishLineCount(n + 1);
  for (const Tagged& entry : moved) {
    StoreSlot(*entry.line, entry.i, 0);
    StoreTag(*entry.line, entry.i, 0);
  }
  if (new_tags) {
    for (const Tagged& entry : stayed) StoreTag(*entry.line, entry.i, entry.tag);
  }
  Compact(from);
  lock.Unlock(true);
  return true;
}

template <class Space>
Status BucketIndex<Space>::MakeTagsAnew(Slot& slot, Entries& entries, unsigned depth) const {
  for (Tagged& entry : entries) {
    HAKO_ASSIGN_OR_RETURN(const format::RecordView record, space_.View(slot, entry.handle));
    entry.tag = format::TagOf(space_.KeyHash(record.key), depth);
  }
  return absl::OkStatus();
}

// Overwrites a line that no reader can reach yet, with overflow lines as needed. On error nothing is kept.
template <class Space>
Status BucketIndex<Space>::FillLine(Line& line, const Entries& entries) {
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

// Drops overflow lines of a locked chain whose entries fit in the lines before them. An entry is in two places for a moment, never in none.
template <class Space>
void BucketIndex<Space>::Compact(Line& home) {
  while (HasLink(Header(home))) {
    Line* before = &home;
    Line* last = nullptr;
    absl::InlinedVector<std::pair<Line*, unsigned>, 16> free;
    for (unsigned hops = 0;;) {
      const std::uint32_t header = Header(*before);
      for (unsigned i = 0; i < EntriesIn(header); ++i) {
        if (LoadSlot(*before, i) == 0) free.emplace_back(before, i);
      }
      StatusOr<Line*> next = NextLine(*before, header, &hops);
      if (!next.ok()) return;
      last = *next;
      if (!HasLink(Header(*last))) break;
      before = last;
    }
    absl::InlinedVector<unsigned, format::kLineEntries> entries;
    for (unsigned i = 0; i < format::kLineEntries; ++i) {
      if (LoadSlot(*last, i) != 0) entries.push_back(i);
    }
    if (entries.size() > free.size() + 1) return;
    std::uint32_t last_handle = 0;  // takes the place of the link
    std::uint16_t last_tag = 0;
    for (std::size_t e = 0; e < entries.size(); ++e) {
      const std::uint16_t tag = LoadTag(*last, entries[e]);
      const std::uint32_t handle = LoadSlot(*last, entries[e]);
      if (e < free.size()) {
        StoreTag(*free[e].first, free[e].second, tag);
        StoreSlot(*free[e].first, free[e].second, handle);
      } else {
        last_tag = tag;
        last_handle = handle;
      }
    }
    const std::uint32_t id = LoadSlot(*before, format::kLinkEntry);
    StoreTag(*before, format::kLinkEntry, last_tag);
    StoreLinkAndHeader(*before, last_handle, Header(*before) & ~sync::VersionLock::kFlag);
    lines_.FreeOverflow(id);
  }
}

// ---- the whole table ----

template <class Space>
void BucketIndex<Space>::StartWalk(BucketWalk* walk) const {
  walk->lines = num_lines_.load(std::memory_order_acquire);
  walk->next = 0;
}

template <class Space>
void BucketIndex<Space>::StartWalkAt(std::uint64_t hash, BucketWalk* walk) const {
  StartWalk(walk);
  walk->next = Locate(hash, walk->lines).index;
}

template <class Space>
template <class F>
HAKO_INLINE void BucketIndex<Space>::PrefetchRecords(Line& line, F&& prefetch) const {
  for (unsigned i = 0; i < EntriesIn(Header(line)); ++i) {
    if (const std::uint32_t handle = LoadSlot(line, i)) prefetch(handle);
  }
}

template <class Space>
StatusOr<bool> BucketIndex<Space>::Step(BucketWalk* walk) {
  walk->Clear();
  if (walk->next >= walk->lines) return false;
  const std::uint64_t first = walk->next++;
  // While this bucket is read, later lines, the heads of their records, and what lies behind the heads are on their way.
  if (first + 8 < walk->lines) {
    __builtin_prefetch(&lines_.Home(first + 8));
    PrefetchRecords(lines_.Home(first + 4), [this](std::uint32_t handle) { space_.Prefetch(handle); });
    if (walk->long_records) PrefetchRecords(lines_.Home(first + 2), [this](std::uint32_t handle) { space_.PrefetchRest(handle); });
  }
  const std::uint64_t step = std::uint64_t{1} << Locate(first, walk->lines).depth();
  sync::Backoff backoff;
  for (int attempt = 0;; ++attempt, backoff.Pause()) {
    bool raced = false;
    const std::uint64_t n = num_lines_.load(std::memory_order_acquire);
    for (std::uint64_t index = first; index < n && !raced; index += step) {
      HAKO_RETURN_IF_ERROR(CopyLine(index, walk, attempt >= kOptimisticTries, &raced));
    }
    // A line split off meanwhile may have taken records along before they were seen.
    const std::uint64_t now = num_lines_.load(std::memory_order_acquire);
    if (!raced && (now == n || (now - 1 - first) / step == (n - 1 - first) / step)) break;
    walk->Clear();
  }
  walk->long_records = walk->size != 0 && walk->items[0].copy.key_size + walk->items[0].copy.value_size > 48;
  for (std::size_t i = 0; i < walk->size; ++i) {
    const BucketWalk::Item& item = walk->items[i];
    if (!space_.CopyIsIntact(item.copy, space_.KeyHash({item.key, item.copy.key_size}), item.handle)) return space_.DamageAt(item.handle);
  }
  return true;
}

template <class Space>
Status BucketIndex<Space>::CopyLine(std::uint64_t index, BucketWalk* walk, bool lock_it, bool* raced) {
  Line& home = lines_.Home(index);
  sync::VersionLock lock(home.header);
  if (lock_it) lock.Lock();
  const std::uint32_t version = lock.ReadVersion();
  const auto is_current = [&] { return lock.IsCurrent(version); };
  Status status;
  if (!lock_it && (version & sync::VersionLock::kLocked) != 0) {
    *raced = true;
  } else {
    Status chain = ForEachEntry(home, [&](Line&, unsigned, std::uint32_t handle) {
      if (*raced || !status.ok()) return;
      BucketWalk::Item& item = walk->Add();
      item.handle = handle;
      if (space_.TryCopyRecord(handle, is_current, walk->buffer, &item.key, item.copy) == format::Match::kYes) [[likely]]
        return;
      if (is_current()) {
        status = space_.DamageAt(handle);
      } else {
        *raced = true;
      }
    });
    if (!is_current()) *raced = true;
    if (status.ok()) status = chain;
  }
  if (lock_it) lock.Unlock(false);
  return *raced ? absl::OkStatus() : status;
}

template <class Space>
template <class F>
Status BucketIndex<Space>::ForEachLocked(Slot& slot, std::uint64_t from, std::uint64_t to, F&& visit) {
  for (std::uint64_t index = from; index < std::min(to, num_lines()); ++index) {
    BusyScope busy{slot};
    LockedHome home(*this, slot, index);  // the number of a line, as a hash, is at home there
    if (home.place.index != index) continue;
    Status status;
    HAKO_RETURN_IF_ERROR(ForEachEntry(*home.line, [&](Line& line, unsigned i, std::uint32_t handle) {
      if (!status.ok()) return;
      status = visit(handle, [&](std::uint32_t other) {
        home.changed = true;
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
    Status status = ForEachEntry(home, [&](Line& line, unsigned i, std::uint32_t handle) {
      visit(handle);
      StoreSlot(line, i, 0);
      StoreTag(line, i, 0);
    });
    Compact(home);
    lock.Unlock(true);
    HAKO_RETURN_IF_ERROR(status);
  }
  count_.store(0, std::memory_order_release);
  return absl::OkStatus();
}

template <class Space>
Status BucketIndex<Space>::Recover(Slot& slot, std::uint64_t num_lines, std::unordered_set<std::uint32_t>* used_overflow) {
  if (num_lines < 2 || num_lines > lines_.HomeCapacity()) return absl::DataLossError("the number of bucket lines makes no sense");
  num_lines_.store(num_lines, std::memory_order_release);
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
    const Place place = Locate(hash, num_lines());
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
      const Place place = Locate(hash, n);
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
