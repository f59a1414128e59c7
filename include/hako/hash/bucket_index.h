// The bucket engine: a hash table of cache-line buckets that grows by linear hashing (Litwin 1980), one line at a time, without a rebuild
// and without a stop. It serves HashDBM and TinyDBM alike; records and lines live in a Space (hash/record_space.h).
//
// A key's home line is chosen by the low bits of its hash. A line holds ten entries; what does not fit goes to overflow lines chained to
// the home line. After every kTargetLoad insertions the next line in order is split in two by the inserting writer.
//
// Invariants
//   1. With n lines, the home of a key is TableShape::Of(n).IndexOf(hash), and every record of a home line's chain has that home, but while
//   the line
//      is locked.
//   2. n only grows. A split fills the new line, then publishes n + 1, then clears what moved from the old one; so at any moment a reader
//      finds a present key, if after a miss it looks whether its home is still its home.
//   3. A home line's lock guards its chain. A writer locks several in ascending order, and splits while it holds none.
//   4. Readers write nothing. They validate the home line's version after copying, so that a block may be reused as soon as the version of
//      the line that named it has moved on.
//
// Threads: Fetch, Process, Step from any; VerifyLines while the caller keeps writers out; Recover alone.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "hako/base/inline.h"
#include "hako/base/no_memory.h"
#include "hako/base/prefetch.h"
#include "hako/base/status.h"
#include "hako/format/bucket_format.h"
#include "hako/hash/line_access.h"
#include "hako/hash/line_table.h"
#include "hako/hash/record_space.h"
#include "hako/hash/table_shape.h"
#include "hako/sync/version_lock.h"
#include "hako/sync/writer_states.h"

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
  static constexpr std::uint64_t kMinLines = 1024;
  static constexpr std::uint64_t kTargetLoad = 8;  // records a home line, on average

  explicit BucketIndex(Space& space) : space_(space), lines_(space) {}

  // A new, empty table for about `num_records` records (0 = unknown).
  Status Create(std::uint64_t num_records) {
    const std::uint64_t wanted = std::max(kMinLines, num_records / kTargetLoad + 1);
    HAKO_RETURN_IF_ERROR(lines_.EnsureHome(wanted));
    PublishLineCount(wanted);
    return absl::OkStatus();
  }

  // Takes over `num_lines` lines that were adopted into lines(): counts the records, finds the overflow lines in use, and repairs what a
  // killed process left locked. DataLoss if the chains make no sense.
  Status Recover(WriterState& writer, std::uint64_t num_lines, std::unordered_set<std::uint32_t>* used_overflow);

  // The calling thread's slot is taken from `slots` only where the lock is needed after all.
  template <class S>
  Status Fetch(Writers& writers, std::uint64_t hash, std::string_view key, S&& sink);

  // `visit` is an UpdateVisitor, a BlindVisitor, a ReadVisitor (dbm/dbm.h), told apart by what it accepts.
  template <class ActionT, class V>
  Status Process(WriterState& writer, std::uint64_t hash, std::string_view key, V&& visit);

  // Fetch of each key, in groups whose memory accesses overlap: sink(index, size), then arrived(index, whether the key is there).
  template <class S, class F>
  Status FetchMulti(Writers& writers, std::span<const std::string_view> keys, S&& sink, F&& arrived);
  // Brings near what Fetch and Process of these keys are going to read; a hint.
  void Prefetch(std::span<const std::string_view> keys) const;

  // Adds both pieces to the end of the record's value where that can be done in place; false where it cannot, or there is no record. For
  // spaces that overwrite.
  StatusOr<bool> Extend(WriterState& writer, std::uint64_t hash, std::string_view key, std::string_view piece, std::string_view other);

  // All keys at once: visit(index, value) gives an ActionT for each, or nullopt for none at all; see dbm/dbm.h.
  template <class ActionT, class V>
  Status ProcessMulti(WriterState& writer, std::span<const std::string_view> keys, V&& visit);

  // Enters records that the space has already, each in the place of the one with the same key, if there is one; all at once. The keys
  // differ. On error nothing has changed. False, and nothing has changed, while another thread holds one of the keys (sync/write_gate.h).
  template <class ActionT>
  StatusOr<bool> EnterMulti(WriterState& writer, std::span<const std::string_view> keys, std::span<const std::uint32_t> handles);
  // Whether Process of a key with this hash would have to look at a record, as far as can be told at a glance.
  bool MayHold(std::uint64_t hash) const {
    bool found = false;
    PrefetchLines(
        1, [hash](std::size_t) { return hash; }, [&found](std::uint32_t handle) { found = found || handle != 0; });
    return found;
  }

  // Walks over all records: visit(key, value); see BucketScan.
  template <class V>
  Status ForEach(V& visit) const;
  // The same in several threads, which call `visit` at the same time.
  template <class V>
  Status ForEachParallel(unsigned num_threads, V& visit) const;

  // Whether an entry of this hash's bucket names the handle, and has the hash's tag. The space is not asked.
  enum class Naming { kNone, kWrongTag, kRight };
  Naming NamingOf(std::uint64_t hash, std::uint32_t handle) const;
  bool Names(std::uint64_t hash, std::uint32_t handle) const { return NamingOf(hash, handle) != Naming::kNone; }
  // If one does, runs body(replace) with the line locked; replace(h) makes the entry name h instead, in one step.
  template <class F>
  void RunIfNamed(WriterState& writer, std::uint64_t hash, std::uint32_t handle, F&& body);
  // Runs body(mask) with the buckets of all these records locked; the mask has a bit for each record that an entry names. A record has
  // key_hash and handle.
  template <class Record, class F>
  void RunLocked(WriterState& writer, std::span<const Record> records, F&& body);  // REQUIRES: at most 64
  void PrefetchHome(std::uint64_t hash) const { hako::Prefetch(&lines_.Home(shape().IndexOf(hash))); }

  // Enters a record that the space has already, under a key that no entry has.
  Status Adopt(WriterState& writer, std::uint64_t hash, std::uint32_t handle);

  // For home lines [from, to), as far as there are: locks each and calls visit(handle, replace) for its records; replace(h) makes the entry
  // name h instead, in one step.
  template <class F>
  Status ForEachLocked(WriterState& writer, std::uint64_t from, std::uint64_t to, F&& visit);

  // Drops every entry after visit(handle). REQUIRES: no writers.
  template <class F>
  Status RemoveAll(F&& visit);

  // Proves the invariants, in two parts. The chains and the number of entries: twins(handle, handle) gets entries of one bucket that have
  // the same tag, and so may have the same key. REQUIRES: no writers.
  template <class F>
  Status VerifyLines(std::uint64_t expected, F&& twins);
  // And what entries name, a bucket at a time, beside writers; for a space whose records are looked at in no time.
  Status VerifyRecords(WriterState& writer);

  // Forgets everything, to be created anew. REQUIRES: nobody uses the index, the slots' pending counts are 0
  void Reset() {
    lines_.Reset();
    count_.store(0, std::memory_order_release);
    shape_.store(0, std::memory_order_release);
  }

  // After this there is one line, which is locked for ever: so each Fetch asks for a slot. REQUIRES: nobody else uses the index, and there
  // are no slots any more
  void Seal() {
    Reset();
    lines_.Seal();
  }

  template <class ForEachWriter>
  std::uint64_t Count(ForEachWriter&& for_each_writer) const {
    std::int64_t count = count_.load(std::memory_order_acquire);
    for_each_writer([&](const sync::WriterState& writer) { count += writer.pending_count.load(std::memory_order_relaxed); });
    return count < 0 ? 0 : static_cast<std::uint64_t>(count);
  }

  std::uint64_t num_lines() const { return shape().num_lines(); }
  LineTable<Space>& lines() { return lines_; }

 private:
  friend class BucketScan<Space>;
  class LockedHomes;
  template <class ActionT>
  class MultiGuard;
  static constexpr std::size_t kLongValue = 8192;   // a longer one is written while the bucket is not locked
  static constexpr unsigned kMaxHops = 4096;        // of a chain; more is a loop in a damaged file
  static constexpr unsigned kShortHops = 8;         // of the short way of a look-up
  static constexpr unsigned kOptimisticTries = 64;  // then a reader takes the lock
  static constexpr std::int64_t kCountBatch = 8;    // insertions between looks at the shared count
  static constexpr std::size_t kUsualKeys = 16;     // of one call; more cost it an allocation
  static constexpr std::size_t kPrefetchGroup = Space::kReadsAhead ? 64 : 32;

  // The home of a hash in a table of some shape.
  struct Place {
    TableShape shape;
    std::uint64_t index;
    HAKO_INLINE std::uint16_t TagOf(std::uint64_t hash) const { return shape.TagOf(hash, index); }
  };
  struct Entry {
    Line* line = nullptr;  // nullptr = there is none
    unsigned i = 0;
    std::uint32_t handle = 0;
    format::Lengths lengths = {};  // of the record
  };
  struct ShortEntry {
    bool settled = false;  // whether this is all there is to know; else ask Find
    Line* line = nullptr;  // where it stands; the chain's last line, if there is none
    unsigned i = 0;
    std::uint32_t handle = 0;  // 0 = there is none
    std::uint64_t head = 0;    // the record's first 8 bytes
  };
  struct Tagged {
    std::uint32_t handle;
    std::uint16_t tag;
    std::uint16_t i;  // where it stands now
    Line* line;
  };
  using Entries = std::vector<Tagged>;

  HAKO_INLINE TableShape shape() const { return TableShape(shape_.load(std::memory_order_acquire)); }
  HAKO_INLINE static Place Locate(std::uint64_t hash, TableShape shape) { return {shape, shape.IndexOf(hash)}; }

  // A writer's turn at a bucket: its slot is announced as busy and the home line locked, until End or the end of the scope.
  class BucketGuard {
   public:
    // Without `heeds_holds` the caller leaves the key's value as it is.
    HAKO_INLINE BucketGuard(BucketIndex& index, WriterState& writer, std::uint64_t hash, bool heeds_holds = true);
    // Takes over what another turn handed over.
    BucketGuard(BucketIndex& index, WriterState& writer, Place home)
        : line(&index.lines_.Home(home.index)), place(home), writer_(&writer) {}
    BucketGuard(const BucketGuard&) = delete;
    HAKO_INLINE ~BucketGuard() {
      if (line != nullptr) sync::VersionLock(line->header).Unlock(changed);
      if (writer_ != nullptr) writer_->Leave();
    }
    HAKO_INLINE Place HandOver() {
      line = nullptr;
      writer_ = nullptr;
      return place;
    }
    // Unlocks, and has changed nothing.
    HAKO_INLINE void Cancel() {
      sync::VersionLock(std::exchange(line, nullptr)->header).Unlock(false);
      std::exchange(writer_, nullptr)->Leave();
    }
    // Unlocks, and adds to the number of records.
    HAKO_INLINE void End(BucketIndex& index, std::int64_t delta) {
      sync::VersionLock(std::exchange(line, nullptr)->header).Unlock(changed);
      if (delta != 0) index.AddToCount(*writer_, delta);
    }
    Line* line;
    Place place;
    bool changed = false;

   private:
    WriterState* writer_;
  };

  StatusOr<Line*> NextLine(Line& line, std::uint32_t header, unsigned* hops) const {
    if (!HasLink(header)) return nullptr;
    Line* next = lines_.Overflow(LoadSlot(line, format::kLinkEntry));
    if (next == nullptr || ++*hops > kMaxHops) [[unlikely]]
      return BrokenChain(line);
    return next;
  }
  Status BrokenChain(const Line& line) const {
    return DataLossError("bad link in a bucket line",
                         static_cast<std::uint64_t>(reinterpret_cast<const std::byte*>(&line) - space_.index_base()));
  }
  HAKO_INLINE static std::uint32_t Header(Line& line) { return std::atomic_ref(line.header).load(std::memory_order_acquire); }
  // The bits of MatchTags that can be entries.
  HAKO_INLINE static std::uint32_t EntryMask(std::uint32_t header) {
    static_assert(sync::VersionLock::kFlag << 8 == 1u << format::kLinkEntry);
    return ~((header & sync::VersionLock::kFlag) << 8);
  }
  HAKO_INLINE static unsigned EntriesIn(std::uint32_t header) { return HasLink(header) ? format::kLinkEntry : format::kLineEntries; }

  // visit(Line&, i, handle) for the entries of a locked chain.
  template <class F>
  Status ForEachEntry(Line& home, F&& visit) const {
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

  template <class V>
  Status ForEachIn(BucketScan<Space>& walk, V& visit) const;
  template <class S>
  [[gnu::noinline]] Status FetchSlowly(Writers& writers, std::uint64_t hash, std::string_view key, S& sink);
  template <class S>
  [[gnu::noinline]] Status FetchLocked(Writers& writers, std::uint64_t hash, std::string_view key, S& sink);
  template <class ActionT, class V>
  static constexpr bool kReads = std::is_void_v<ActionT> || std::is_invocable_v<V&, std::optional<std::string_view>>;
  template <class ActionT, class V>
  HAKO_INLINE static ActionT Decide(V& visit, bool exists, std::optional<std::string_view> value) {
    if constexpr (kReads<ActionT, V>)
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
  // Nothing where the space does not read ahead.
  template <class HashOf>
  void ReadRecords([[maybe_unused]] typename Space::Ahead& ahead, std::size_t n, HashOf&& hash_of) const {
    if constexpr (Space::kReadsAhead) {
      PrefetchLines(n, hash_of, [&](std::uint32_t handle) { space_.Want(ahead, handle); });
      space_.Read(ahead);
    }
  }
  HAKO_INLINE ShortEntry FindShort(Line* line, std::uint16_t tag, std::string_view key);
  template <class ActionT, class V>
  [[gnu::noinline]] Status ProcessSlowly(WriterState& writer, Place place, std::uint64_t hash, std::string_view key, V& visit);
  [[gnu::noinline]] Status StoreSlowly(WriterState& writer, Place place, std::uint64_t hash, std::string_view key, std::string_view value,
                                       std::uint32_t fresh);
  [[gnu::noinline]] Status StoreLong(WriterState& writer, std::uint64_t hash, std::string_view key, std::string_view value, bool is_held);
  Status StoreResult(WriterState& writer, BucketGuard& guard, std::uint64_t hash, std::string_view key, const Entry& entry,
                     std::string_view value);
  Status Store(WriterState& writer, BucketGuard& guard, std::uint64_t hash, std::string_view key, const Entry& entry,
               std::string_view value, std::uint32_t fresh);
  template <bool kNew, class Make>
  Status Insert(BucketGuard& guard, std::uint64_t hash, Make&& make);
  HAKO_INLINE static unsigned FreeEntry(Line& line);

  void PublishLineCount(std::uint64_t n) {
    space_.StoreLineCount(n);
    shape_.store(TableShape::Of(n).word(), std::memory_order_release);
  }
  HAKO_INLINE void AddToCount(WriterState& writer, std::int64_t delta);
  [[gnu::noinline]] void SettleCount(WriterState& writer, std::int64_t pending);
  bool Split(WriterState& writer);
  Status FillLine(Line& line, std::span<const Tagged> entries);
  static void StoreLine(Line& line, const Line& content);
  Status MakeTagsAnew(WriterState& writer, std::span<Tagged> entries, unsigned depth) const;
  void Compact(Line& home, std::size_t chain, std::size_t num_entries);
  Status RepairLine(WriterState& writer, std::uint64_t index);
  Space& space_;
  LineTable<Space> lines_;
  alignas(64) std::atomic<std::uint64_t> shape_{0};  // TableShape; read by every operation, written by splits
  alignas(64) std::atomic<std::int64_t> count_{0};   // records, but for the slots' pending counts
  std::uint32_t split_lock_ = 0;                     // guards the two below
  Entries split_moved_, split_stayed_;
};

}  // namespace hako::hash

#include "hako/hash/bucket_growth-inl.h"
#include "hako/hash/bucket_index-inl.h"
#include "hako/hash/bucket_multi-inl.h"
#include "hako/hash/bucket_passes-inl.h"
#include "hako/hash/bucket_scan.h"
