// The bucket engine: a hash table of cache-line buckets that grows by linear hashing (Litwin 1980), one line at a time, without a rebuild
// and without a stop. It serves HashDBM and TinyDBM alike; records and lines live in a Space (index/spaces.h).
//
// A key's home line is chosen by the low bits of its hash. A line holds ten entries; what does not fit goes to overflow lines chained to
// the home line. After every kTargetLoad insertions the next line in order is split in two by the inserting writer.
//
// Invariants
//   1. With n lines, the home of a key is Locate(hash, n).index, and every record of a home line's chain has that home, but while the line
//      is locked.
//   2. n only grows. A split fills the new line, then publishes n + 1, then clears what moved from the old one; so at any moment a reader
//      finds a present key, if after a miss it looks whether its home is still its home.
//   3. A home line's lock guards its chain. A writer holds one line's lock at a time.
//   4. Readers write nothing. They validate the home line's version after copying, so that a block may be reused as soon as the version of
//      the line that named it has moved on.
//
// Threads: Fetch, Process, Step from any; Verify while the caller keeps writers out; Recover alone.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "hako/base/inline.h"
#include "hako/base/status.h"
#include "hako/format/bucket_format.h"
#include "hako/index/copy_buffer.h"
#include "hako/index/line_access.h"
#include "hako/index/line_table.h"
#include "hako/index/spaces.h"
#include "hako/sync/version_lock.h"

namespace hako::index {

// A walk over all records, a bucket at a time. Each step visits one of the home lines that there were when the walk began, together with
// the lines split off from it since: so a record that is there throughout is seen exactly once, however much the table grows meanwhile.
// The records of the bucket are copied; the buffers are reused from bucket to bucket.
struct BucketWalk {
  struct Item {
    std::uint32_t handle;
    format::FetchedCopy copy;  // copy.value points into the buffer
    const char* key;
  };
  std::uint64_t lines = 0;    // when the walk began
  std::uint64_t next = 0;     // of them, to be visited
  bool long_records = false;  // of the last bucket: then more than their heads is fetched ahead
  std::size_t size = 0;       // records of this bucket, the first of `items`
  std::vector<Item> items;
  CopyBuffer buffer;

  HAKO_INLINE Item& Add() {
    if (size == items.size()) [[unlikely]]
      items.resize(2 * size + 16);
    return items[size++];
  }
  void Clear() {
    size = 0;
    buffer.Clear();
  }

  std::string_view key(std::size_t i) const { return {items[i].key, items[i].copy.key_size}; }
  std::string_view value(std::size_t i) const { return {items[i].copy.value, items[i].copy.value_size}; }
};

template <class Space>
class BucketIndex {
 public:
  using Slot = typename Space::Slot;
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
  Status Recover(Slot& slot, std::uint64_t num_lines, std::unordered_set<std::uint32_t>* used_overflow);

  // `get_slot()` gives the calling thread's slot; it is asked for only where the lock is needed after all.
  template <class S, class GetSlot>
  Status Fetch(GetSlot&& get_slot, std::uint64_t hash, std::string_view key, S&& sink);

  // `visit` is UpdateVisitor, BlindVisitor or ReadVisitor (dbm/dbm.h); told apart by what it accepts.
  template <class ActionT, class V>
  Status Process(Slot& slot, std::uint64_t hash, std::string_view key, V&& visit);

  // Starts a walk at the first bucket, or at that of a hash.
  void StartWalk(BucketWalk* walk) const;
  void StartWalkAt(std::uint64_t hash, BucketWalk* walk) const;
  // Copies the next bucket's records to walk->items; false at the end.
  StatusOr<bool> Step(BucketWalk* walk);

  // Walks over all records: visit(key, value).
  template <class V>
  Status ForEach(V& visit) {
    BucketWalk walk;
    StartWalk(&walk);
    for (;;) {
      HAKO_ASSIGN_OR_RETURN(const bool more, Step(&walk));
      if (!more) return absl::OkStatus();
      for (std::size_t i = 0; i < walk.size; ++i) visit(walk.key(i), walk.value(i));
    }
  }

  // Enters a record that the space has already, under a key that no entry has.
  Status Adopt(Slot& slot, std::uint64_t hash, std::uint32_t handle);

  // For home lines [from, to), as far as there are: locks each and calls visit(handle, replace) for its records; replace(h) makes the entry
  // name h instead, in one step.
  template <class F>
  Status ForEachLocked(Slot& slot, std::uint64_t from, std::uint64_t to, F&& visit);

  // Drops every entry after visit(handle). REQUIRES: no writers.
  template <class F>
  Status RemoveAll(F&& visit);

  // Proves the invariants; `expected` is how many records there must be.
  Status Verify(Slot& slot, std::uint64_t expected);

  // Forgets everything, to be created anew. REQUIRES: nobody uses the index, the slots' pending counts are 0
  void Reset() {
    lines_.Reset();
    count_.store(0, std::memory_order_release);
    num_lines_.store(0, std::memory_order_release);
  }

  template <class ForEachSlot>
  std::uint64_t Count(ForEachSlot&& for_each_slot) const {
    std::int64_t count = count_.load(std::memory_order_acquire);
    for_each_slot([&](const sync::WriterSlot& slot) { count += slot.pending_count.load(std::memory_order_relaxed); });
    return count < 0 ? 0 : static_cast<std::uint64_t>(count);
  }

  std::uint64_t num_lines() const { return num_lines_.load(std::memory_order_acquire); }
  LineTable<Space>& lines() { return lines_; }

 private:
  static constexpr unsigned kMaxHops = 4096;      // of a chain; more is a loop in a damaged file
  static constexpr int kOptimisticTries = 64;     // then a reader takes the lock
  static constexpr std::int64_t kCountBatch = 8;  // insertions between looks at the shared count

  // The home of a hash while there are n lines.
  struct Place {
    std::uint64_t index;
    std::uint64_t n;
    unsigned bits;  // of the hash that choose among the lines that are already split; the others need one less

    HAKO_INLINE bool IsSplit() const {
      const std::uint64_t half = std::uint64_t{1} << (bits - 1);
      return (index & (half - 1)) < n - half;
    }
    unsigned depth() const { return IsSplit() ? bits : bits - 1; }
    HAKO_INLINE std::uint16_t TagOf(std::uint64_t hash) const {
      return format::TagOf(hash, bits % 8 != 0 || IsSplit() ? bits : bits - 1);  // the depth matters only where a new base begins
    }
  };
  struct Entry {
    Line* line = nullptr;
    unsigned i = 0;
    std::uint32_t handle = 0;
    format::Lengths lengths = {};  // of the record, if it was looked at
  };
  struct Tagged {
    std::uint32_t handle;
    std::uint16_t tag;
    std::uint16_t i;  // where it stands now
    Line* line;
  };
  using Entries = absl::InlinedVector<Tagged, 32>;

  HAKO_INLINE static Place Locate(std::uint64_t hash, std::uint64_t n) {
    const auto bits = static_cast<unsigned>(std::bit_width(n - 1));
    const std::uint64_t half = std::uint64_t{1} << (bits - 1);
    const std::uint64_t index = hash & (2 * half - 1);
    return {index >= n ? index - half : index, n, bits};
  }

  // The calling writer's bucket: locked, and its slot announced as busy, until the end of the scope.
  class LockedHome {
   public:
    HAKO_INLINE LockedHome(BucketIndex& index, Slot& slot, std::uint64_t hash);
    HAKO_INLINE ~LockedHome() { sync::VersionLock(line->header).Unlock(changed); }
    LockedHome(const LockedHome&) = delete;
    Line* line;
    Place place;
    bool changed = false;
  };
  struct BusyScope {
    Slot& slot;
    ~BusyScope() { slot.Leave(); }
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

  template <class S, class GetSlot>
  [[gnu::noinline]] Status FetchSlowly(GetSlot get_slot, std::uint64_t hash, std::string_view key, S& sink);
  template <class S>
  [[gnu::noinline]] Status FetchLocked(Slot* slot, std::uint64_t hash, std::string_view key, S& sink);
  HAKO_INLINE Status Find(Slot& slot, const LockedHome& home, std::uint64_t hash, std::string_view key, Entry* found);
  [[gnu::noinline]] Status FindSlowly(Slot& slot, const LockedHome& home, std::uint64_t hash, std::string_view key, Entry* found);
  template <bool kNew, class Make>
  HAKO_INLINE Status Insert(LockedHome& home, std::uint64_t hash, Make&& make);
  template <bool kNew, class Make>
  [[gnu::noinline]] Status InsertSlowly(LockedHome& home, std::uint64_t hash, Make&& make);
  HAKO_INLINE Status ReplaceEntry(Slot& slot, LockedHome& home, const Entry& entry, std::uint64_t hash, std::string_view key,
                                  std::string_view value);
  HAKO_INLINE static unsigned FreeEntry(Line& line);

  void PublishLineCount(std::uint64_t n) {
    space_.StoreLineCount(n);
    num_lines_.store(n, std::memory_order_release);
  }
  HAKO_INLINE void AddToCount(Slot& slot, std::int64_t delta);
  [[gnu::noinline]] void SettleCount(Slot& slot, std::int64_t pending);
  bool Split(Slot& slot);
  Status FillLine(Line& line, const Entries& entries);
  static void StoreLine(Line& line, const Line& content);
  Status MakeTagsAnew(Slot& slot, Entries& entries, unsigned depth) const;
  void Compact(Line& home);
  Status RepairLine(Slot& slot, std::uint64_t index);
  template <class F>
  HAKO_INLINE void PrefetchRecords(Line& line, F&& prefetch) const;
  Status CopyLine(std::uint64_t index, BucketWalk* walk, bool lock_it, bool* raced);

  Space& space_;
  LineTable<Space> lines_;
  alignas(64) std::atomic<std::uint64_t> num_lines_{0};  // read by every operation, written by splits
  alignas(64) std::atomic<std::int64_t> count_{0};       // records, but for the slots' pending counts
  std::mutex split_mutex_;
};

}  // namespace hako::index

#include "hako/index/bucket_index-inl.h"
