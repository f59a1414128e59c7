// The bucket engine: a hash table of cache-line buckets that grows by linear hashing (Litwin 1980),
// one bucket at a time, without a rebuild or a pause. HashDBM and TinyDBM share it; records and
// buckets live in a Space (hash/record_space.h).
//
// The low bits of a key's hash select its bucket. A bucket is one cache line of ten entries
// (format/bucket_format.h); further entries go to overflow buckets chained to it. Once there are
// more than kTargetLoad records per bucket, the inserting writer splits the next bucket in order.
// The code calls a bucket a home line, and an overflow bucket an overflow line.
//
// Invariants
//   1. With n buckets, a key's bucket is TableShape::Of(n).IndexOf(hash). Every record in a
//      bucket's chain belongs to that bucket, except while the bucket is locked.
//   2. n only grows. A split fills the new bucket, publishes n + 1, then clears the moved entries
//      from the old one. So a reader always finds a present key, provided that after a miss it
//      checks that the key's bucket is still the same.
//   3. A bucket's lock guards its whole chain. A writer locks several buckets in ascending order,
//      and splits a bucket only while it has locked none.
//   4. An update is logged (update/logging.h) with its buckets locked, as its last step that can
//      fail, before any entry changes.
//   5. Readers write nothing unless they fall back to the lock (FetchLocked). They validate the
//      bucket's version after copying, so a block may be reused as soon as the version of the
//      bucket that named it has changed.
//
// Its parts depend on each other only as needed, and not on the index: LineTable, which has the
// buckets and their number; RecordCount; CaptureList; BucketSplitter; BucketEviction, which has no
// code for a space without a limit; BucketRecovery; LockedHomes.
//
// Thread-safe, except: RemoveAll requires that there are no writers; Create,
// Recover, Reset and Seal require that no other thread uses the index.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "hako/base/assert.h"
#include "hako/base/batch.h"
#include "hako/base/function_ref.h"
#include "hako/base/inline.h"
#include "hako/base/no_memory.h"
#include "hako/base/prefetch.h"
#include "hako/base/status.h"
#include "hako/base/visitor_ref.h"
#include "hako/format/bucket_format.h"
#include "hako/format/intent_format.h"
#include "hako/hash/bucket_eviction.h"
#include "hako/hash/bucket_recovery.h"
#include "hako/hash/bucket_splitter.h"
#include "hako/hash/capture_list.h"
#include "hako/hash/line_access.h"
#include "hako/hash/line_table.h"
#include "hako/hash/locked_homes.h"
#include "hako/hash/record_count.h"
#include "hako/hash/record_space.h"
#include "hako/hash/table_shape.h"
#include "hako/sync/version_lock.h"
#include "hako/sync/writer_states.h"
#include "hako/update/logging.h"

namespace hako::hash {

template <class Space>
class BucketScan;

template <class Space>
class BucketIndex {
  static_assert(RecordSpace<Space>);

 public:
  using WriterState = typename Space::WriterState;
  using Writers = sync::WriterStates<WriterState>;
  using Line = format::BucketLine;
  using IsBlocked = FunctionRef<bool(std::uint64_t hash)>;
  static constexpr std::uint64_t kMinLines = 1024;
  static constexpr std::uint64_t kTargetLoad = BucketSplitter<Space>::kTargetLoad;  // records per bucket, on average
  static std::uint64_t LinesFor(std::uint64_t num_records) { return std::max(kMinLines, num_records / kTargetLoad + 1); }

  explicit BucketIndex(Space& space)
      : space_(space),
        lines_(space),
        captures_(space, lines_),
        eviction_(space, lines_, count_, captures_),
        splitter_(space, lines_, captures_) {}

  // Makes a new, empty table for about `num_records` records (0 = unknown).
  Status Create(std::uint64_t num_records) {
    HAKO_RETURN_IF_ERROR(lines_.EnsureHome(LinesFor(num_records)));
    lines_.PublishLineCount(LinesFor(num_records));
    return absl::OkStatus();
  }
  // Whether Create would make a smaller index than this one.
  bool WouldShrinkTo(std::uint64_t num_records) const { return lines_.WouldShrinkTo(LinesFor(num_records)); }

  // Takes over the `num_lines` buckets that were adopted into lines(). Counts the records, collects
  // the overflow buckets in use, and repairs buckets that a killed process left locked. Calls
  // visit(handle) for each entry; the handle of an empty entry is 0. DataLoss if a chain is broken.
  struct Ignore {
    void operator()(std::uint32_t) const {}
  };
  template <class Visit = Ignore>
  Status Recover(WriterState& writer, std::uint64_t num_lines, OverflowIds* used_overflow, Visit visit = {}) {
    return BucketRecovery<Space>(space_, lines_, count_).Run(writer, num_lines, used_overflow, visit);
  }

  // Completes a published intent: makes the changes that the killed process had not made. Can be
  // interrupted and repeated. REQUIRES: Recover was called; no other thread uses the index
  Status Redo(WriterState& writer, std::span<const format::IntentEntry> entries);

  // Copies the value to the sink. Takes the calling thread's state from `writers` only if it needs
  // the lock. With kNotes it registers the use of the record, if the space has a limit.
  template <bool kNotes = true, class S>
  Status Fetch(Writers& writers, std::uint64_t hash, std::string_view key, S&& sink);

  // `visit` is an UpdateVisitor, a BlindVisitor or a ReadVisitor (dbm/dbm.h), as its signature
  // tells.
  template <class ActionT, class V>
  Status Process(WriterState& writer, std::uint64_t hash, std::string_view key, V&& visit);

  // Process without the fast path, for a space that logs its updates or has a limit.
  template <class ActionT, class VisitorT>
  Status ProcessLogged(WriterState& writer, std::uint64_t hash, std::string_view key, VisitorT visit);

  // Fetches each key, in groups whose memory accesses overlap. Calls sink(index, size), then
  // arrived(index, whether the key exists).
  template <class S, class F>
  Status FetchMulti(Writers& writers, std::span<const std::string_view> keys, S&& sink, F&& arrived);
  // Prefetches the memory that Fetch and Process of these keys will read, or reads the records into
  // the cache of the file. If the records would take more than a quarter of the cache, reads only
  // those of the first keys. A hint.
  void Prefetch(std::span<const std::string_view> keys) const;
  // Whether Prefetch reads the records, in groups whose accesses to the device overlap.
  bool PrefetchReads() const {
    if constexpr (Space::kReadsAhead) return space_.CachedRecords() != 0;
    return false;
  }

  // Appends both pieces to the record's value in place. Returns false if there is no room in the
  // block, no record, or the space does not overwrite.
  StatusOr<bool> Extend(WriterState& writer, std::uint64_t hash, std::string_view key, std::string_view piece, std::string_view other);

  // Processes all keys in one step for other threads: see dbm/dbm.h. With an applied index, the space
  // stores it in the same step.
  template <class ActionT>
  Status ProcessMulti(WriterState& writer, const Batch<ActionT>& batch);
  // As ProcessMulti, but returns false without calling the visitor if is_blocked(hash) is true for
  // a key once all buckets are locked. If it becomes true while the visitor runs, the buckets stay
  // locked until the end, even if the new values are long.
  template <class ActionT>
  StatusOr<bool> TryProcessMulti(WriterState& writer, const Batch<ActionT>& batch, IsBlocked is_blocked);

  // Inserts records that the space already has, in one step for other threads. Each replaces the
  // record with the same key, if there is one. On error nothing has changed. Returns false, and
  // changes nothing, while another thread holds one of the keys (sync/write_gate.h). REQUIRES: the
  // keys differ
  template <class ActionT>
  StatusOr<bool> PublishMulti(WriterState& writer, std::span<const std::string_view> keys, std::span<const std::uint32_t> handles);
  // Whether Process of a key with this hash would probably read a record; a quick check without
  // locks.
  bool MayHold(std::uint64_t hash) const {
    bool found = false;
    PrefetchLines(
        1, [hash](std::size_t) { return hash; }, [&found](std::uint32_t handle) { found = found || handle != 0; });
    return found;
  }

  // Visits all records: visit(key, value); see BucketScan.
  Status ForEach(EachRef visit) const;
  // ForEach in several threads, which call `visit` concurrently.
  Status ForEachParallel(unsigned num_threads, EachRef visit) const;

  // From BeginCapture to EndCapture writers pass each bucket to `capture` before they change it:
  // see hash/bucket_capture.h. REQUIRES: no writers, for either
  using Capture = BucketCapture<Space>;
  void BeginCapture(Capture* capture) { captures_.Begin(capture); }
  void EndCapture(Capture* capture) { captures_.End(capture); }

  // Whether an entry of this hash's bucket names the handle, and whether it has the hash's tag.
  // Does not read the record.
  enum class Naming { kNone, kWrongTag, kRight };
  Naming NamingOf(std::uint64_t hash, std::uint32_t handle) const;
  bool Names(std::uint64_t hash, std::uint32_t handle) const { return NamingOf(hash, handle) != Naming::kNone; }
  // An entry of a bucket.
  struct ListedEntry {
    std::uint32_t handle;
    std::uint16_t tag;
  };
  // Lists the entries of a bucket as of one moment. DataLoss if the chain is broken; the list then
  // has the entries before the break. REQUIRES: index < num_lines()
  Status ListEntries(std::uint64_t index, std::vector<ListedEntry>* entries) const;
  // Runs body() with the bucket locked and its entries listed.
  template <class F>
  void RunOnBucket(WriterState& writer, std::uint64_t index, std::vector<ListedEntry>* entries, F&& body);
  // Whether a record with this hash belongs to the bucket, with this tag.
  bool IsPlaceOf(std::uint64_t hash, std::uint64_t index, std::uint16_t tag) const {
    const Place place = Locate(hash, shape());
    return place.index == index && place.TagOf(hash) == tag;
  }
  // If an entry names the handle, runs body(replace) with the bucket locked. replace(h) makes the
  // entry name h instead, in one store.
  template <class F>
  void RunIfNamed(WriterState& writer, std::uint64_t hash, std::uint32_t handle, F&& body);
  // Runs body(mask) with the buckets of all these records locked; bit i of the mask is set if an
  // entry names record i. A Record has key_hash and handle.
  template <class Record, class F>
  // REQUIRES: at most 64 records
  void RunLocked(WriterState& writer, std::span<const Record> records, F&& body);
  void PrefetchHome(std::uint64_t hash) const { hako::Prefetch(&lines_.Home(shape().IndexOf(hash))); }

  // Inserts a record that the space already has, whose key no other record has.
  Status Adopt(WriterState& writer, std::uint64_t hash, std::uint32_t handle);

  // Locks each existing bucket of [from, to) in turn and calls visit(handle, replace) for its
  // records. replace(h) makes the entry name h instead, in one store.
  template <class F>
  Status ForEachLocked(WriterState& writer, std::uint64_t from, std::uint64_t to, F&& visit);

  // Calls visit(handle) for every entry, and removes it. Makes captures fail.
  // REQUIRES: no writers (unchecked: an opening, which has none yet, does not close the gate)
  template <class F>
  Status RemoveAll(F&& visit);

  // Forgets everything; Create may follow. REQUIRES: no thread uses the index, and all pending
  // counts of writers are 0 (checked in RebuildIndex)
  void Reset() {
    lines_.Reset();
    count_.Set(0);
  }

  // Leaves one bucket that stays locked forever, so that each later Fetch asks for a writer state.
  // REQUIRES: no other thread uses the index, and all writer states are gone (checked in
  // WriterStates::Close)
  void Seal() {
    Reset();
    lines_.Seal();
  }

  template <class ForEachWriter>
  std::uint64_t Count(ForEachWriter&& for_each_writer) const {
    return count_.Of(for_each_writer);
  }

  // Whether the space has a limit, so that each use of a record must be recorded.
  HAKO_INLINE bool IsLimited() const { return eviction_.IsOn(); }
  std::uint64_t num_lines() const { return lines_.num_lines(); }
  LineTable<Space>& lines() { return lines_; }
  const LineTable<Space>& lines() const { return lines_; }
  Space& space() const { return space_; }

 private:
  using LockedHomes = hash::LockedHomes<Space>;
  template <class ActionT>
  class MultiGuard;
  static constexpr std::size_t kLongValue = 8192;  // longer values are written without a lock
  static constexpr unsigned kMaxHops = LineTable<Space>::kMaxHops;
  static constexpr unsigned kShortHops = 8;  // hops that the fast path of a lookup makes
  static constexpr unsigned kOptimisticTries = LineTable<Space>::kOptimisticTries;
  static constexpr std::size_t kUsualKeys = 16;  // in one call; more need an allocation
  static constexpr std::size_t kPrefetchGroup = Space::kReadsAhead ? 64 : 32;

  struct Entry {
    Line* line = nullptr;  // nullptr = none
    unsigned i = 0;
    std::uint32_t handle = 0;
    format::Lengths lengths = {};  // of the record
  };
  struct ShortEntry {
    bool is_final = false;  // whether the answer is final; if not, call Find
    Line* line = nullptr;   // the line with the entry; the last line of the chain if there is no entry
    unsigned i = 0;
    std::uint32_t handle = 0;  // 0 = none
    std::uint64_t head = 0;    // the record's first 8 bytes
  };
  HAKO_INLINE TableShape shape() const { return lines_.shape(); }

  class BucketGuard;  // hash/bucket_guard-inl.h

  Status ListChain(Line& home, std::vector<ListedEntry>* entries) const {
    entries->clear();
    return lines_.ForEachEntry(home, [&](Line& line, unsigned i, std::uint32_t handle) { entries->push_back({handle, LoadTag(line, i)}); });
  }
  Status ForEachIn(BucketScan<Space>& scan, EachRef visit) const;
  [[gnu::noinline]] Status FetchSlowly(Writers& writers, std::uint64_t hash, std::string_view key, SinkRef sink);
  [[gnu::noinline]] Status FetchLocked(Writers& writers, std::uint64_t hash, std::string_view key, SinkRef sink);
  template <class ActionT, class V>
  HAKO_INLINE static ActionT Decide(V& visit, bool exists, std::optional<std::string_view> value) {
    if constexpr (kReadsValue<ActionT, V>)
      return visit(value);
    else
      return visit(exists);
  }
  [[gnu::noinline]] Place MoveLock(WriterState& writer, std::uint64_t hash, Place place, bool heeds_holds);
  Status Find(WriterState& writer, const BucketGuard& guard, std::uint64_t hash, std::string_view key, Entry* found);
  template <class HashOf, class F>
  void PrefetchLines(std::size_t n, HashOf&& hash_of, F&& record) const;
  template <class HashOf>
  void PrefetchRecords(std::size_t n, HashOf&& hash_of) const {
    PrefetchLines(n, hash_of, [this](std::uint32_t handle) { space_.Prefetch(handle); });
  }
  // Reads the records ahead. Does nothing if the space does not read ahead.
  template <class HashOf>
  void ReadRecords([[maybe_unused]] typename Space::Ahead& ahead, std::size_t n, HashOf&& hash_of) const {
    if constexpr (Space::kReadsAhead) {
      PrefetchLines(n, hash_of, [&](std::uint32_t handle) { space_.Want(ahead, handle); });
      space_.Read(ahead);
    }
  }
  HAKO_INLINE ShortEntry FindShort(Line* line, std::uint16_t tag, std::string_view key);
  template <class ActionT, class VisitorT>
  [[gnu::noinline]] Status ProcessSlowly(WriterState& writer, Place place, std::uint64_t hash, std::string_view key, VisitorT visit);
  [[gnu::noinline]] Status StoreSlowly(WriterState& writer, Place place, std::uint64_t hash, std::string_view key, std::string_view value,
                                       std::uint32_t fresh);
  [[gnu::noinline]] Status StoreLong(WriterState& writer, std::uint64_t hash, std::string_view key, std::string_view value, bool is_held);
  Status StoreResult(WriterState& writer, BucketGuard& guard, std::uint64_t hash, std::string_view key, const Entry& entry,
                     std::string_view value);
  Status Store(WriterState& writer, BucketGuard& guard, std::uint64_t hash, std::string_view key, const Entry& entry,
               std::string_view value, std::uint32_t fresh);
  template <bool kNew, class Make, class NewOverflow>
  Status Insert(BucketGuard& guard, std::uint64_t hash, Make&& make, NewOverflow&& new_overflow);
  Status StoreAlone(WriterState& writer, std::optional<std::uint64_t> applied_index);

  // REQUIRES: the caller is a writer (unchecked: it is not told which)
  void Store([[maybe_unused]] std::optional<std::uint64_t> applied_index) {
    if constexpr (requires(std::uint64_t index) { space_.StoreAppliedIndex(index); }) {
      if (applied_index) space_.StoreAppliedIndex(*applied_index);
    }
  }

  HAKO_INLINE void AddToCount(WriterState& writer, std::int64_t delta) {
    const std::int64_t pending = RecordCount::AddTo(writer, delta);
    if (RecordCount::IsBatch(pending)) FlushCount(writer, pending);
  }
  [[gnu::noinline]] void FlushCount(WriterState& writer, std::int64_t pending) { splitter_.Grow(writer, count_.Flush(writer, pending)); }

  Space& space_;
  LineTable<Space> lines_;
  CaptureList<Space> captures_;
  RecordCount count_;
  [[no_unique_address]] BucketEviction<Space> eviction_;
  BucketSplitter<Space> splitter_;
};

}  // namespace hako::hash

#include "hako/hash/bucket_fetch-inl.h"
#include "hako/hash/bucket_guard-inl.h"
#include "hako/hash/bucket_index-inl.h"
#include "hako/hash/bucket_multi-inl.h"
#include "hako/hash/bucket_multi_guard-inl.h"
#include "hako/hash/bucket_passes-inl.h"
#include "hako/hash/bucket_prefetch-inl.h"
#include "hako/hash/bucket_scan.h"
