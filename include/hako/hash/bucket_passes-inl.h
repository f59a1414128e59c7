// Definitions of hash/bucket_index.h for the whole table: scans, recovery and verification.
#pragma once

#include "hako/hash/bucket_capture.h"
#include "hako/hash/bucket_index.h"
#include "hako/sync/run_parts.h"

namespace hako::hash {

template <class Space>
Status BucketIndex<Space>::Create(std::uint64_t num_records) {
  const std::uint64_t wanted = LinesFor(num_records);
  HAKO_RETURN_IF_ERROR(lines_.EnsureHome(wanted));
  PublishLineCount(wanted);
  return absl::OkStatus();
}

template <class Space>
bool BucketIndex<Space>::MayHold(std::uint64_t hash) const {
  bool found = false;
  PrefetchLines(
      1, [hash](std::size_t) { return hash; }, [&found](std::uint32_t handle) { found = found || handle != 0; });
  return found;
}

template <class Space>
Status BucketIndex<Space>::BrokenChain(const Line& line) const {
  return DataLossError("bad link in a bucket line",
                       static_cast<std::uint64_t>(reinterpret_cast<const std::byte*>(&line) - space_.index_base()));
}

template <class Space>
auto BucketIndex<Space>::NextLine(Line& line, std::uint32_t header, unsigned* hops) const -> StatusOr<Line*> {
  if (!HasLink(header)) return nullptr;
  Line* next = lines_.Overflow(LoadSlot(line, format::kLinkEntry));
  if (next == nullptr || ++*hops > kMaxHops) [[unlikely]]
    return BrokenChain(line);
  return next;
}

template <class Space>
template <class F>
Status BucketIndex<Space>::ForEachEntry(Line& home, F&& visit) const {
  unsigned hops = 0;
  for (Line* line = &home; line != nullptr;) {
    const std::uint32_t header = Header(*line);
    for (unsigned i = 0; i < EntriesIn(header); ++i) {
      if (const std::uint32_t handle = LoadSlot(*line, i)) visit(*line, i, handle);
    }
    HAKO_ASSIGN_OR_RETURN(line, NextLine(*line, header, &hops));
  }
  return absl::OkStatus();
}

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
      if (line != nullptr) header = Header(*line);
    }
    const bool is_current = (lock_it || lock.IsCurrent(version)) && shape().IndexOf(hash) == place.index;
    if (lock_it) lock.Unlock(false);
    if (is_current) return found;
  }
}

template <class Space>
Status BucketIndex<Space>::ListChain(Line& home, std::vector<ListedEntry>* entries) const {
  entries->clear();
  return ForEachEntry(home, [&](Line& line, unsigned i, std::uint32_t handle) { entries->push_back({handle, LoadTag(line, i)}); });
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
  const Status chain = ForEachEntry(*guard.line, [&](Line& line, unsigned i, std::uint32_t entry) {
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
template <class F>
Status BucketIndex<Space>::ForEachLocked(WriterState& writer, std::uint64_t from, std::uint64_t to, F&& visit) {
  for (std::uint64_t index = from; index < std::min(to, num_lines()); ++index) {
    BucketGuard guard(*this, writer, index);  // the number, as a hash, selects the bucket
    if (guard.place.index != index) continue;
    Status status;
    HAKO_RETURN_IF_ERROR(ForEachEntry(*guard.line, [&](Line& line, unsigned i, std::uint32_t handle) {
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
void BucketIndex<Space>::BeginCapture(Capture* capture) {
  space_.gate().AssertNoWriters();
  capture->Begin(num_lines());
  captures_.push_back(capture);
  space_.gate().SetCapturing(true);
}
template <class Space>
void BucketIndex<Space>::EndCapture(Capture* capture) {
  space_.gate().AssertNoWriters();
  std::erase(captures_, capture);
  space_.gate().SetCapturing(!captures_.empty());
}

// The records that can be read, and the first error.
template <class Space>
void BucketIndex<Space>::CaptureBucket(WriterState& writer, std::uint64_t bucket) {
  for (Capture* const capture : captures_) {
    capture->Capture(bucket, [&](auto&& visit) -> Status {
      Status unread;
      const Status chain = ForEachEntry(lines_.Home(bucket), [&](Line&, unsigned, std::uint32_t handle) {
        const StatusOr<RecordView> record = space_.View(writer, handle);
        unread.Update(record.status());
        if (record.ok()) visit(record->key, record->value);
      });
      return chain.ok() ? unread : chain;
    });
  }
}

template <class Space>
template <class F>
Status BucketIndex<Space>::RemoveAll(F&& visit) {
  for (Capture* const capture : captures_) capture->Fail(ClearedError());
  for (std::uint64_t index = 0; index < num_lines(); ++index) {
    Line& home = lines_.Home(index);
    sync::VersionLock lock(home.header);
    lock.Lock();
    sync::LockHolder holder(lock);
    holder.changed = true;
    std::size_t chain = 1;
    Line* last = &home;
    Status status = ForEachEntry(home, [&](Line& line, unsigned i, std::uint32_t handle) {
      visit(handle);
      StoreSlot(line, i, 0);
      StoreTag(line, i, 0);
    });
    for (; status.ok() && HasLink(Header(*last)); ++chain) last = lines_.Overflow(LoadSlot(*last, format::kLinkEntry));
    if (status.ok()) Compact(home, chain, 0);
    HAKO_RETURN_IF_ERROR(status);
  }
  count_.store(0, std::memory_order_release);
  return absl::OkStatus();
}

template <class Space>
template <class Visit>
Status BucketIndex<Space>::Recover(WriterState& writer, std::uint64_t num_lines, OverflowIds* used_overflow, Visit visit) {
  if (num_lines < 2 || num_lines > std::min(lines_.HomeCapacity(), TableShape::kMaxLines))
    return absl::DataLossError("the number of buckets is invalid");
  shape_.store(TableShape::Of(num_lines).word(), std::memory_order_release);
  static constexpr std::uint64_t kAhead = 16;
  std::int64_t count = 0;
  for (std::uint64_t index = 0; index < num_lines; ++index) {
    if (index + kAhead < num_lines) {
      Line& later = lines_.Home(index + kAhead);
      if (HasLink(Header(later))) hako::Prefetch(lines_.Overflow(LoadSlot(later, format::kLinkEntry)));
    }
    Line& home = lines_.Home(index);
    if ((Header(home) & sync::VersionLock::kLocked) != 0) HAKO_RETURN_IF_ERROR(RepairLine(writer, index));
    unsigned hops = 0;
    for (Line* line = &home;;) {
      const std::uint32_t header = Header(*line);
      for (unsigned i = 0; i < EntriesIn(header); ++i) {
        const std::uint32_t handle = LoadSlot(*line, i);
        count += handle != 0 ? 1 : 0;
        visit(handle);
      }
      if (!HasLink(header)) break;
      const std::uint32_t id = LoadSlot(*line, format::kLinkEntry);
      Line* const next = lines_.Overflow(id);
      if (next == nullptr || !used_overflow->Insert(id) || ++hops > kMaxHops) return BrokenChain(*line);
      line = next;
    }
  }
  count_.store(count, std::memory_order_release);
  return absl::OkStatus();
}

// Repairs a bucket that a killed process was changing. Its slots are the truth; see the order of
// stores in Process, Split and Compact.
template <class Space>
Status BucketIndex<Space>::RepairLine(WriterState& writer, std::uint64_t index) {
  Line& home = lines_.Home(index);
  std::unordered_set<std::uint32_t> seen;
  Status status;
  HAKO_RETURN_IF_ERROR(ForEachEntry(home, [&](Line& line, unsigned i, std::uint32_t handle) {
    space_.Revive(handle);
    StatusOr<RecordView> record = space_.View(writer, handle);
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
  // A tag without a slot is an insertion that was not published.
  for (Line* line = &home; line != nullptr;) {
    for (unsigned i = 0; i < EntriesIn(Header(*line)); ++i) {
      if (LoadSlot(*line, i) == 0) StoreTag(*line, i, 0);
    }
    HAKO_ASSIGN_OR_RETURN(line, NextLine(*line, Header(*line), &hops));
  }
  sync::VersionLock(home.header).Unlock(true);
  return absl::OkStatus();
}

template <class Space>
template <class F>
Status BucketIndex<Space>::VerifyLines(std::uint64_t expected, F&& twins) {
  std::uint64_t records = 0;
  std::unordered_set<std::uint32_t> overflow;
  for (std::uint64_t index = 0; index < num_lines(); ++index) {
    Line& home = lines_.Home(index);
    unsigned hops = 0;
    for (Line* line = &home; line != nullptr;) {
      const std::uint32_t header = Header(*line);
      if (HasLink(header) && !overflow.insert(LoadSlot(*line, format::kLinkEntry)).second) return BrokenChain(*line);
      HAKO_ASSIGN_OR_RETURN(line, NextLine(*line, header, &hops));
    }
    // Tags and handles.
    absl::InlinedVector<std::pair<std::uint16_t, std::uint32_t>, 2 * format::kLineEntries> seen;
    HAKO_RETURN_IF_ERROR(ForEachEntry(home, [&](Line& line, unsigned i, std::uint32_t handle) {
      const std::uint16_t tag = LoadTag(line, i);
      for (const auto& [other_tag, other] : seen) {
        if (other_tag == tag) twins(other, handle);
      }
      seen.emplace_back(tag, handle);
      ++records;
    }));
  }
  if (records != expected) return absl::DataLossError(absl::StrCat("the buckets hold ", records, " records instead of ", expected));
  return absl::OkStatus();
}

template <class Space>
Status BucketIndex<Space>::VerifyRecords(WriterState& writer) {
  for (std::uint64_t index = 0; index < num_lines(); ++index) {
    BucketGuard guard(*this, writer, index);  // the number, as a hash, selects the bucket
    if (guard.place.index != index) continue;
    Status status;
    absl::InlinedVector<std::string, format::kLineEntries> keys;
    HAKO_RETURN_IF_ERROR(ForEachEntry(*guard.line, [&](Line& line, unsigned i, std::uint32_t handle) {
      const StatusOr<RecordView> record = space_.View(writer, handle);
      if (!record.ok()) return status.Update(record.status());
      const std::uint64_t hash = space_.KeyHash(record->key);
      const Place place = Locate(hash, shape());
      if (place.index != index) {
        status.Update(absl::DataLossError(absl::StrCat("a record of bucket ", place.index, " is in bucket ", index)));
      } else if (LoadTag(line, i) != place.TagOf(hash)) {
        status.Update(absl::DataLossError(absl::StrCat("wrong tag in bucket ", index)));
      } else if (std::find(keys.begin(), keys.end(), record->key) != keys.end()) {
        status.Update(absl::DataLossError(absl::StrCat("duplicate key in bucket ", index)));
      }
      keys.emplace_back(record->key);
    }));
    HAKO_RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

}  // namespace hako::hash
