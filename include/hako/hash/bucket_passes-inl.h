// Definitions of hash/bucket_index.h for the whole table.
#pragma once

#include "hako/hash/bucket_capture.h"
#include "hako/hash/bucket_index.h"
#include "hako/sync/run_parts.h"

namespace hako::hash {

template <class Space>
Status BucketIndex<Space>::ForEach(EachRef visit) const {
  BucketScan<Space> scan(*this);
  scan.Start();
  return ForEachIn(scan, visit);
}

template <class Space>
Status BucketIndex<Space>::ForEachParallel(unsigned num_threads, EachRef visit) const {
  const std::uint64_t lines = num_lines(), parts = std::max(num_threads, 1u);
  return sync::RunParts(parts, [&](std::size_t part) {
    BucketScan<Space> scan(*this);
    scan.StartPart(lines, part, parts);
    return ForEachIn(scan, visit);
  });
}

template <class Space>
Status BucketIndex<Space>::ForEachIn(BucketScan<Space>& scan, EachRef visit) const {
  for (;;) {
    HAKO_ASSIGN_OR_RETURN(const bool more, scan.Step());
    if (!more) return absl::OkStatus();
    for (std::size_t i = 0; i < scan.size(); ++i) visit(scan.key(i), scan.value(i));
  }
}

// Compares handles, not tags: a tag depends on how far the bucket has been split.
template <class Space>
typename BucketIndex<Space>::Naming BucketIndex<Space>::NamingOf(std::uint64_t hash, std::uint32_t handle) const {
  for (sync::Backoff backoff;; backoff.Pause()) {
    const Place place = Locate(hash, shape());
    const std::uint16_t tag = place.TagOf(hash);
    Line* line = &lines_.Home(place.index);
    sync::VersionLock lock(line->header);
    const bool lock_it = backoff.count() >= kOptimisticTries;
    if (lock_it) lock.Lock();
    const std::uint32_t version = lock.ReadVersion();
    if (!lock_it && (version & sync::VersionLock::kLocked) != 0) continue;
    Naming found = Naming::kNone;
    std::uint32_t header = version;
    for (unsigned hops = 0; line != nullptr && hops <= kMaxHops; ++hops) {
      for (unsigned i = 0; i < EntriesIn(header); ++i) {
        if (LoadSlot(*line, i) == handle) found = LoadTag(*line, i) == tag ? Naming::kRight : Naming::kWrongTag;
      }
      if (found != Naming::kNone || !HasLink(header)) break;
      line = lines_.Overflow(LoadSlot(*line, format::kLinkEntry));
      if (line != nullptr) header = LoadHeader(*line);
    }
    const bool is_current = (lock_it || lock.IsCurrent(version)) && shape().IndexOf(hash) == place.index;
    if (lock_it) lock.Unlock(false);
    if (is_current) return found;
  }
}

template <class Space>
Status BucketIndex<Space>::ListEntries(std::uint64_t index, std::vector<ListedEntry>* entries) const {
  HAKO_DCHECK(index < num_lines());
  Line& home = lines_.Home(index);
  sync::VersionLock lock(home.header);
  for (sync::Backoff backoff;; backoff.Pause()) {
    const bool lock_it = backoff.count() >= kOptimisticTries;
    std::optional<sync::LockHolder> holder;
    if (lock_it) {
      lock.Lock();
      holder.emplace(lock);
    }
    const std::uint32_t version = lock.ReadVersion();
    if (!lock_it && (version & sync::VersionLock::kLocked) != 0) continue;
    Status chain = ListChain(home, entries);
    if (lock_it || lock.IsCurrent(version)) return chain;
  }
}

template <class Space>
template <class F>
void BucketIndex<Space>::RunOnBucket(WriterState& writer, std::uint64_t index, std::vector<ListedEntry>* entries, F&& body) {
  BucketGuard guard(*this, writer, index, false);  // the number, as a hash, selects the bucket; changes no value
  entries->clear();
  if (guard.place.index != index) return;
  (void)ListChain(*guard.line, entries);  // a broken chain is reported by ListEntries
  body();
}

template <class Space>
template <class F>
void BucketIndex<Space>::RunIfNamed(WriterState& writer, std::uint64_t hash, std::uint32_t handle, F&& body) {
  BucketGuard guard(*this, writer, hash, false);  // changes no value, so a held key is no obstacle
  Line* named = nullptr;
  unsigned at = 0;
  const Status chain = lines_.ForEachEntry(*guard.line, [&](Line& line, unsigned i, std::uint32_t entry) {
    if (entry == handle) named = &line, at = i;
  });
  (void)chain;  // a broken chain is reported by the next call that needs the rest of it
  if (named == nullptr) return;
  body([&](std::uint32_t other) {
    guard.changed = true;
    StoreSlot(*named, at, other);
  });
}

template <class Space>
template <class Record, class F>
void BucketIndex<Space>::RunLocked(WriterState& writer, std::span<const Record> records, F&& body) {
  HAKO_DCHECK(records.size() <= 64);
  LockedHomes homes(lines_, records.size());
  writer.Enter();
  const sync::LeaveAtEnd leave(writer);
  for (;;) {
    homes.Lock(records.size(), [records](std::size_t i) { return records[i].key_hash; });
    if (!space_.gate().IsClosed()) break;
    homes.Unlock();
    writer.Leave();
    space_.gate().WaitUntilOpen();
    writer.Enter();
  }
  std::uint64_t mask = 0;
  for (std::size_t i = 0; i < records.size(); ++i) {
    Line& home = lines_.Home(homes.PlaceOf(records[i].key_hash).index);
    const Status chain = lines_.ForEachEntry(home, [&](Line&, unsigned, std::uint32_t handle) {
      if (handle == records[i].handle) mask |= std::uint64_t{1} << i;
    });
    (void)chain;  // a broken chain is reported by the next call that needs the rest of it
  }
  body(mask);
}

template <class Space>
template <class F>
Status BucketIndex<Space>::ForEachLocked(WriterState& writer, std::uint64_t from, std::uint64_t to, F&& visit) {
  for (std::uint64_t index = from; index < std::min(to, num_lines()); ++index) {
    BucketGuard guard(*this, writer, index);  // the number, as a hash, selects the bucket
    if (guard.place.index != index) continue;
    Status status;
    HAKO_RETURN_IF_ERROR(lines_.ForEachEntry(*guard.line, [&](Line& line, unsigned i, std::uint32_t handle) {
      if (!status.ok()) return;
      status = visit(handle, [&](std::uint32_t other) {
        guard.changed = true;
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
  captures_.Fail(ClearedError());
  for (std::uint64_t index = 0; index < num_lines(); ++index) {
    Line& home = lines_.Home(index);
    sync::VersionLock lock(home.header);
    lock.Lock();
    sync::LockHolder holder(lock);
    holder.changed = true;
    std::size_t chain = 1;
    Line* last = &home;
    Status status = lines_.ForEachEntry(home, [&](Line& line, unsigned i, std::uint32_t handle) {
      visit(handle);
      StoreSlot(line, i, 0);
      StoreTag(line, i, 0);
    });
    for (; status.ok() && HasLink(LoadHeader(*last)); ++chain) last = lines_.Overflow(LoadSlot(*last, format::kLinkEntry));
    if (status.ok()) lines_.Compact(home, chain, 0);
    HAKO_RETURN_IF_ERROR(status);
  }
  count_.Set(0);
  return absl::OkStatus();
}

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
    Line* named = nullptr;  // the line with the entry that names `handle`
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
