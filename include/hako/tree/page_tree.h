// The page engine: a B+ tree of slotted pages (format/page_format.h) with optimistic lock coupling
// (Leis, Haubenschild, Neumann 2019). BabyDBM and TreeDBM share it. Its pages and lines live in a
// Space, of which it knows only the concept (tree/page_space.h).
//
// A reader descends from the root to a leaf without taking a lock: at each step it reads the
// child's version, then checks that the parent's version still holds. A writer does the same and
// then locks the leaf. Pages are named by ids, and the line of an id says where its page lies, so a
// page can move without a change to its parent. Leaves are not linked: a scan continues at the key
// of the high fence.
//
// Invariants
//   1. The root's id never changes. All leaves have level 0; a page's children have the level below
//      its own.
//   2. The fences of a page's children are adjacent and together span the page's own; a child's low
//      fence is the key of its slot.
//   3. A page is changed only while its line is locked. A child is added to or removed from a page
//      only while both are locked.
//   4. Threads wait for locks in this order: leaves by key, then upwards. Any other lock is only
//      tried.
//   5. A page that another page replaces gets another version before its id is free.
//   6. The space is notified (MarkDirty) before a page is changed, while the page is locked.
//   7. While writers run, no thread that has a page locked waits for another page to be read from a
//      file.
//   8. An update is logged (update/logging.h) with its leaves locked, as its last step that can fail.
//
// Thread-safe, except the functions that require that there are no writers.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "hako/base/assert.h"
#include "hako/base/batch.h"
#include "hako/base/comparator.h"
#include "hako/base/function_ref.h"
#include "hako/base/inline.h"
#include "hako/base/key_value.h"
#include "hako/base/no_memory.h"
#include "hako/base/prefetch.h"
#include "hako/base/status.h"
#include "hako/base/visitor_ref.h"
#include "hako/format/page_format.h"
#include "hako/format/record_format.h"
#include "hako/sync/mutex.h"
#include "hako/sync/range_capture.h"
#include "hako/sync/record_count.h"
#include "hako/sync/version_lock.h"
#include "hako/sync/write_gate.h"
#include "hako/sync/writer_states.h"
#include "hako/tree/leaf_copy.h"
#include "hako/tree/page_builder.h"
#include "hako/tree/page_editor.h"
#include "hako/tree/page_limit.h"
#include "hako/tree/page_space.h"
#include "hako/tree/page_view.h"
#include "hako/update/logging.h"

namespace hako::tree {

// Which leaf to read: that of a key, that of the greatest key below it, the first, the last.
enum class Seek { kAt, kBefore, kFirst, kLast };

// REQUIRES: from is below to (checked in CountRange, RemoveRange and ProcessMulti)
using Range = KeyRange;

template <class Space, Comparator Compare>
class PageTree {
  static_assert(PageSpace<Space>);

 public:
  using WriterState = typename Space::WriterState;
  using Writers = sync::WriterStates<WriterState>;
  using Deferred = typename Space::Deferred;
  using Line = format::PageLine;
  using View = PageView<Compare>;
  using Copy = LeafCopy<Compare>;
  // Whether keys that are equal may have different bytes. A record has those of the call that stored it first,
  // and a removal and a Set in one ProcessMulti store it again.
  static constexpr bool kHasSpellings = !BytewiseOrder<Compare>;

  // A page is split when it would exceed `page_size` bytes; a single record may still be longer.
  PageTree(Space& space, unsigned page_size)
      : space_(space),
        page_size_(page_size),
        value_max_(page_size / 4),
        id_mask_(space.id_mask()),
        lines_(space.lines()),
        memory_(space.memory()) {
    if constexpr (LimitedPageSpace<Space>) {
      is_limited_ = space.limit() != nullptr;
      has_byte_limit_ = is_limited_ && space.limit()->capacity().bytes != 0;
    }
  }
  PageTree(const PageTree&) = delete;
  PageTree& operator=(const PageTree&) = delete;

  // Create makes a new, empty tree; Attach opens the tree of this root, with this many records.
  Status Create();
  void Attach(std::uint32_t root, std::uint64_t num_records, std::uint64_t applied_index = 0) {
    root_ = &LineOf(root);
    applied_index_.store(applied_index, std::memory_order_release);
    count_.SetTotal(num_records);
  }
  std::uint32_t root_id() const { return IdOf(root()); }
  // After this the root stays locked, so every Fetch asks for a writer state. REQUIRES: no other
  // thread uses the tree, and there are no writer states any more (checked in WriterStates::Close)
  void Seal() { root_ = &sealed_; }

  // Takes no lock, except for a long value in a resident space or where writers keep interfering;
  // only then does it get the calling thread's state from `writers`.
  // `kNotes`: if the space has a limit, notes the use of the record; false only where it has none.
  template <bool kNotes = true, class S>
  HAKO_INLINE Status Fetch(Writers& writers, std::string_view key, S&& sink);
  // `visit` is an UpdateVisitor, a BlindVisitor or a ReadVisitor (dbm/dbm.h), distinguished by the
  // arguments it accepts.
  template <class ActionT, class V>
  HAKO_INLINE Status Process(WriterState& writer, std::string_view key, V&& visit);
  // Processes all keys as one atomic step: see dbm/dbm.h.
  template <class ActionT>
  Status ProcessMulti(WriterState& writer, const Batch<ActionT>& batch);
  // The applied index of the last update that had one. SetAppliedIndex without an update:
  // while no other thread sets it.
  std::uint64_t applied_index() const { return applied_index_.load(std::memory_order_acquire); }
  void SetAppliedIndex(std::uint64_t index) {
    applied_index_.store(index, std::memory_order_release);
    if constexpr (!Space::kResident) space_.NoteChange();
  }
  // Fetches each key, in groups whose memory accesses overlap: calls sink(index, size), then
  // arrived(index, whether the key exists).
  template <class S, class F>
  Status FetchMulti(Writers& writers, std::span<const std::string_view> keys, S&& sink, F&& arrived);
  // Prefetches the memory that Fetch and Process of these keys will read; a hint.
  void Prefetch(std::span<const std::string_view> keys) const;
  void LoadLeaves(std::span<const std::string_view> keys);  // of these keys, if there is room; a hint

  // The number of keys in the range.
  StatusOr<std::uint64_t> CountRange(const Range& range) const;
  // About how many keys are in [from, to): those between two leaves are guessed by the slots of the pages
  // above. Reads nothing from a file.
  std::uint64_t CountAbout(std::string_view from, std::string_view to) const;
  // Removes the records in the range, leaf by leaf, and returns their number.
  StatusOr<std::uint64_t> RemoveRange(WriterState& writer, const Range& range);

  // After an update of this thread, where the space has a limit; nothing is locked.
  void JoinSparse(WriterState& writer);

  // Keys that divide the tree into about `parts` parts of similar size; fewer if the tree is small.
  std::vector<std::string> Parts(unsigned parts) const;

  // Copies a leaf. With `goes_on`, the caller scans from leaf to leaf. Once the scan has missed
  // kShortScan leaves, other threads read ahead of it, as many leaves as it has passed. Of a leaf that
  // stays in place the caller checks that it has keys on both sides of the one sought.
  Status ReadLeaf(Seek seek, std::string_view key, Copy* copy, bool goes_on = false) const;

  // After ReadLeaf has failed with DataLoss: the fence beyond the smallest unreadable part of the
  // tree, upwards or downwards; nullopt if that part reaches the end of the tree. DataLoss if the
  // root cannot be read.
  StatusOr<std::optional<std::string>> FenceBeyond(Seek seek, std::string_view key, bool downwards) const;

  // Between these two calls writers show `capture` each leaf before they change it: see
  // sync/range_capture.h. REQUIRES: no writers, for either
  struct IsBelow {
    using is_transparent = void;
    bool operator()(std::string_view a, std::string_view b) const { return Compare::Compare(a, b) < 0; }
  };
  using Capture = sync::RangeCapture<std::string, std::string_view, IsBelow>;
  void BeginCapture(Capture* capture) {
    space_.gate().AssertNoWriters();
    captures_.push_back(capture);
    space_.gate().SetCapturing(true);
  }
  void EndCapture(Capture* capture) {
    space_.gate().AssertNoWriters();
    std::erase(captures_, capture);
    space_.gate().SetCapturing(!captures_.empty());
  }

  // Removes all records, or none if memory runs out first. Captures fail.
  // REQUIRES: no writers (checked in RemoveAll)
  Status RemoveAll(Deferred& deferred);

  // Checks the invariants, and that there are `expected` records.
  // REQUIRES: no writers (unchecked: a copy that is verified has no gate)
  Status Verify(std::uint64_t expected) const;
  // The same in two steps, for a resident space. CheckCount reads only lines and inner pages.
  // REQUIRES: no writers (unchecked, as Verify). VerifyBeside then checks page by page, beside writers, and
  // takes no lock.
  Status CheckCount(std::uint64_t expected) const;
  Status VerifyBeside() const;

  // Visits every page: visit(level, its size in bytes, bytes used). REQUIRES: no writers (unchecked, as
  // Verify); a resident space
  template <class F>
  void ForEachPage(F&& visit) const {
    static_assert(Space::kResident);
    ForEachPageBelow(root(), visit);
  }

  template <class ForEachWriter>
  std::uint64_t Count(ForEachWriter&& for_each_writer) const {
    return count_.Get(for_each_writer);
  }

 private:
  using Editor = PageEditor<Space, Compare>;
  using Builder = PageBuilder<Space, Compare>;
  using LongRead = typename Space::LongRead;
  using Lock = sync::VersionLock;
  class LeafGuard;
  class LockedLeaves;
  template <class ActionT>
  class MultiGuard;
  enum class Outcome { kFound, kAbsent, kRaced };
  static constexpr int kOptimisticTries = 64;  // after these a reader takes the lock
  static constexpr std::size_t kPrefetchGroup = 32;
  // A short scan misses at most this many leaves: they stay cached as those of a Get do, and no
  // other thread is woken for them.
  static constexpr unsigned kShortScan = 32;
  // Leaves that the thread of a scan reads together with the one that it misses.
  static constexpr unsigned kReadTogether = 8;
  static constexpr unsigned kGrowth = 6;  // a full page grows by 1 / kGrowth of its size
  // Bytes of slots and cells, which leave room in a page for the longest fences.
  static constexpr unsigned kJoinedMax = 16 << 10;
  // An inner page has room for this many slots, however long its keys.
  static constexpr unsigned kInnerSlotsMin = 4;
  static bool IsNarrow(unsigned level, unsigned count) { return level > 0 && count < kInnerSlotsMin; }

  // Where a descent ended, and the version it read there. If it failed: the line that was locked,
  // or nullptr.
  struct Reached {
    Line* line;
    std::uint32_t version;
    int level = -1;  // of the page, if known; checked when the page is loaded
  };
  // A locked page that may be split. After a split, `wanted` is the half for the key; the other
  // half is unlocked, or stays locked and is appended to `kept`.
  using Halves = absl::InlinedVector<Line*, 16>;
  struct SplitResult {
    Line*& wanted;
    Halves* kept;
  };

  HAKO_INLINE Line& root() const { return *root_; }
  HAKO_INLINE Line& LineOf(std::uint32_t id) const { return lines_[id & id_mask_]; }
  HAKO_INLINE View ViewOf(Line& line) const { return View(memory_, line); }
  std::uint32_t IdOf(const Line& line) const { return static_cast<std::uint32_t>(&line - lines_); }

  // Loads a page if its line is locked because the page is evicted.
  Status LoadIfEvicted(const Reached& page, bool once = false) const {
    if constexpr (!Space::kResident) {
      if (page.line != nullptr && space_.IsEvicted(IdOf(*page.line))) return space_.LoadPage(IdOf(*page.line), page.level, once);
    }
    return absl::OkStatus();
  }
  // A thread that has only read leaves eviction, and the pause, to threads that change pages.
  HAKO_INLINE void EndWrite(WriterState& writer, bool changed) {
    writer.Leave();
    if constexpr (!Space::kResident) {
      if (space_.NeedsEviction() && changed) [[unlikely]] {
        HAKO_TRY { space_.EvictIfNeeded(); }
        HAKO_CATCH_NO_MEMORY()  // the memory it was to free stays until the next write
      }
    }
  }
  HAKO_INLINE bool Descend(std::string_view key, Reached* reached) const;
  bool DescendTo(unsigned level, std::string_view key, Reached* reached) const;
  static bool IsLastOf(const Range& range, const View& page);
  static bool HasSought(const View& page, Seek seek, std::string_view key);
  Status ReadPage(unsigned level, Seek seek, std::string_view key, Copy* copy) const;
  // The id of a child, and the number of children beyond it, as a writer may be changing them.
  std::uint32_t ChildId(const View& parent, unsigned i) const { return static_cast<std::uint32_t>(parent.child(i) & id_mask_); }
  static unsigned Beyond(const View& parent, unsigned i, bool backwards) { return backwards ? i : std::max(parent.count(), i + 1) - 1 - i; }
  Status LoadIfMissed(const Reached& page, Line* above, unsigned child, bool backwards, Copy* copy) const;
  void ReadAhead(const View& page, unsigned child, Line* above, unsigned child_above, bool backwards, Copy* copy) const;
  struct EvictedLeaves {
    std::array<std::uint32_t, kPrefetchGroup> ids;
    std::size_t count = 0;
  };
  void DescendTogether(std::span<const std::string_view> keys, Reached* leaves, EvictedLeaves* evicted = nullptr) const;
  HAKO_INLINE Line* LockLeaf(WriterState& writer, std::string_view key);
  // LockLeaf for paths that are rare.
  [[gnu::noinline]] Line* LockLeafByCall(WriterState& writer, std::string_view key) { return LockLeaf(writer, key); }
  [[gnu::noinline]] Line* LockLeafSlowly(WriterState& writer, std::string_view key);
  // REQUIRES: the writer has locked the leaf, and not yet changed it
  void CaptureIfAsked(const Line& leaf) {
    Lock(const_cast<Line&>(leaf).version).AssertLocked();
    if (space_.gate().IsCapturing()) [[unlikely]]
      CaptureLeaf(leaf);
  }
  [[gnu::cold, gnu::noinline]] void CaptureLeaf(const Line& leaf);
  Line* LockParent(const Line& child, std::string_view key) const;
  // Locks a page of the tree. REQUIRES: no writers (unchecked, as Verify)
  Status LockPage(Line& line, int level = -1) const;
  template <bool kNotes, class S>
  HAKO_INLINE Outcome TryFetch(std::string_view key, S& sink) const;
  template <bool kNotes, class S>
  HAKO_INLINE Outcome FetchFrom(const Reached& leaf, std::string_view key, S& sink) const;
  [[gnu::noinline]] Outcome FetchByCall(const Reached& leaf, std::string_view key, SinkRef sink) const {
    return FetchFrom<true>(leaf, key, sink);
  }
  [[gnu::noinline]] Status FetchSlowly(Writers& writers, std::string_view key, SinkRef sink);
  Status FetchLocked(std::string_view key, SinkRef sink);
  // The name of a key's long value in a leaf that is not locked; nullopt if it has none, or if a
  // writer interfered.
  std::optional<format::OverflowValue> FindLong(const Reached& leaf, std::string_view key) const;

  // The value in the cell of a locked leaf's slot: the bytes, or the name of a long value.
  HAKO_INLINE static std::string_view ContentOf(const typename View::Place& place) {
    return {place.cell + place.sizes.header + place.sizes.Rest(View::kInlined), place.sizes.value};
  }
  static format::OverflowValue LongValueIn(std::string_view bytes) {
    format::OverflowValue value;
    std::memcpy(&value, bytes.data(), sizeof(value));
    return value;
  }
  std::optional<format::OverflowValue> LongValueOf(const View& page, unsigned i) const {
    const char* const cell = page.cell(i);
    const format::Cell sizes = View::Decode(cell);
    if (!sizes.is_long) [[likely]]
      return std::nullopt;
    return LongValueIn({cell + sizes.header + sizes.Rest(View::kInlined), sizes.value});
  }

  HAKO_INLINE void RemoveShort(LeafGuard& guard, WriterState& writer, std::string_view key, unsigned i);
  [[gnu::noinline]] void RemoveShortByCall(LeafGuard& guard, WriterState& writer, std::string_view key, unsigned i) {
    RemoveShort(guard, writer, key, i);
  }
  template <class ActionT>
  [[gnu::noinline]] Status SetAhead(WriterState& writer, std::string_view key, const ActionT& set);
  // Process continues here when it finds, stores, replaces or removes a long value. These end the
  // guard.
  template <class ActionT, class VisitorT>
  [[gnu::noinline]] Status ProcessLong(LeafGuard& guard, WriterState& writer, std::string_view key, VisitorT visit);
  [[gnu::noinline]] Status SetLong(LeafGuard& guard, WriterState& writer, std::string_view key, std::string_view value,
                                   typename View::Slot slot);
  [[gnu::noinline]] Status RemoveLong(LeafGuard& guard, WriterState& writer, std::string_view key, unsigned i);
  // Reads the long value of `key` with nothing locked, if the visitor needs it (`shows`) or a
  // thread is still storing it, and locks the leaf again, where *place says. False if the leaf
  // cannot be loaded.
  bool ReadLong(LeafGuard& guard, std::string_view key, LongRead* read, typename View::Place* place, bool shows);
  [[gnu::noinline]] Status FetchLong(std::string_view key, SinkRef sink, Reached leaf, std::optional<format::OverflowValue> stored);

  // REQUIRES: neither the value nor the one that it replaces is long
  HAKO_INLINE Status Store(SplitResult* leaf, std::string_view key, std::string_view value, typename View::Slot slot, WriterState* writer);
  [[gnu::noinline]] Status StoreByCall(SplitResult* leaf, std::string_view key, std::string_view value, typename View::Slot slot,
                                       WriterState* writer) {
    return Store(leaf, key, value, slot, writer);
  }
  // `stored` names the value if it is long.
  [[gnu::noinline]] Status StoreSlowly(SplitResult* leaf, std::string_view key, std::string_view value, const format::OverflowValue& stored,
                                       typename View::Slot slot, Deferred* deferred, WriterState* writer);
  Status StoreAny(SplitResult* leaf, std::string_view key, std::string_view value, typename View::Slot slot, Deferred&, WriterState&);
  StatusOr<format::OverflowValue> StoreLong(std::string_view value, Deferred& deferred);
  Status MakeRoom(SplitResult* page, std::string_view key, const Content& content, unsigned index, bool replaces);
  bool CompactForStore(Editor& page, std::string_view key, unsigned cell, bool replaces) const;
  Status Rebuild(Line& line, Builder& builder, unsigned more_slots, unsigned spare);
  Status Split(SplitResult* page, std::string_view key, unsigned cell_size, unsigned index);
  Status GrowRoot(Line** page);
  Status MarkBelow(Line& line, std::size_t* num_evicted);
  Status FreeBelow(const View& page, Deferred& deferred);
  static Fences FencesOf(const View& page) {
    const format::PageTail tail = page.tail();
    return {page.low(tail), page.high(tail), tail.edges};
  }
  void RemoveSlot(Line& line, unsigned i, Deferred& deferred);
  void MergeIfSparse(LeafGuard& guard, WriterState& writer, std::string_view key);
  // False if out of memory.
  bool TryMarkDirty(Line& line) {
    HAKO_TRY { return space_.MarkDirty(line), true; }
    HAKO_CATCH_NO_MEMORY()
    return false;
  }
  bool IsSparse(const Line& line) const;
  void Merge(WriterState& writer, Line* page, std::string_view key);
  bool Join(Line* left, Line* right, bool empty);
  void CollapseRoot(Line& child);
  void Unlock(Line* line, bool changed) const { Lock(line->version).Unlock(changed); }
  void Release(SplitResult* halves, Line* other) const {
    if (halves->kept == nullptr) return Unlock(other, true);
    halves->kept->push_back(other);  // capacity is reserved, see Split
  }
  [[gnu::cold]] static Status NoMemory() {
    return absl::ResourceExhaustedError("out of memory for a page: the database has reached its limit, or that of the process (ulimit -v)");
  }

  // ---- where the space has a limit (tree/leaf_eviction-inl.h) ----
  static constexpr unsigned kEvictionLeaves = 8;  // leaves of which the hand visits a part in a step, ...
  static constexpr unsigned kEvictionSlots = format::kSlotGroup, kEvictionParts = format::kPageSlotsMax / kEvictionSlots;  // ... that large
  static constexpr unsigned kEvictedOf = 16;   // it evicts one record of this many
  static constexpr unsigned kWaitsMost = 256;  // for other threads, when nothing can be evicted
  static constexpr unsigned kPartsMost = 256;  // more than PageArena::NextPart has
  static constexpr unsigned kReturnedOf = 8;   // a leaf returns the memory of its garbage if that is one unit of this many
  struct EvictionPart;
  // How many records the hand may still evict in a step: new ones, and kept ones.
  struct EvictionQuota {
    unsigned fresh, kept;
  };
  // Whether an operation whose visitor is a V may have to note the use of a record: where there is a limit,
  // visitors come by reference.
  template <class V>
  static constexpr bool kMayNote = LimitedPageSpace<Space>&& kIsFunctionRef<V>;
  HAKO_INLINE void NoteFetched(const Line* leaf, typename View::Slot slot) const;
  HAKO_INLINE void NoteUse(const Line* leaf, typename View::Slot slot) const;
  void DivideUses(const Line& left, unsigned at, unsigned count, const Line& right);
  void AppendUses(const Line& to, unsigned before, const Line& from, unsigned count);
  // Leaves that the thread has locked itself. It may evict from them, except the records that it is
  // about to change.
  struct OwnLeaves {
    FunctionRef<bool(const Line&)> has;
    FunctionRef<bool(std::string_view key)> keeps;
    bool changed = false;
  };
  struct NoReservation {
    explicit NoReservation(Space&) {}
    static bool Take(std::uint64_t, bool) { return true; }
  };
  static auto ReservationOf() {
    if constexpr (LimitedPageSpace<Space>)
      return std::type_identity<typename Space::Reservation>();
    else
      return std::type_identity<NoReservation>();
  }
  using Reservation = typename decltype(ReservationOf())::type;
  Status CheckValue(std::uint64_t size) const;
  [[gnu::noinline]] void EvictForInsertion(WriterState& writer, std::uint64_t inserted);
  bool EvictForMemory(WriterState& writer, OwnLeaves* own);
  bool MovePagesTogether(WriterState& writer, bool must);
  bool MoveForward(WriterState& writer, Line& line, std::uint32_t unit);
  bool JoinSmall(WriterState& writer, Line& line, std::string_view key);
  template <class F>
  Status StoreEvicting(WriterState& writer, Line*& leaf, std::string_view key, typename View::Slot slot, F&& store);
  [[gnu::noinline]] Status SetEvicting(LeafGuard& guard, WriterState& writer, std::string_view key, std::string_view value,
                                       typename View::Slot slot);
  unsigned EvictStep(WriterState& writer, std::uint64_t step, std::uint64_t ids, OwnLeaves* own, bool any);
  unsigned EvictIn(WriterState& writer, Line& line, unsigned part, EvictionQuota* quota, OwnLeaves* own);
  bool EvictSlot(WriterState& writer, Line& line, unsigned i, Deferred& deferred, std::uint64_t* bytes);
  bool IsSmall(const Line& line) const;
  static std::optional<std::string> KeyOfLeaf(const View& page);

  struct CheckedPage;  // tree/page_verify-inl.h
  template <class F>
  void ForEachPageBelow(Line& line, F& visit) const;
  void LoadChildren(const View& page, unsigned begin, unsigned count) const;
  static Status CheckPage(std::uint32_t id, const View& page, const std::int32_t* hints, unsigned level, const Fences& fences);
  bool CopyPage(Line& line, std::uint32_t version, Copy* copy) const;
  static void NameChild(const CheckedPage& above, const View& view, unsigned child, CheckedPage* below);
  std::uint64_t CountBelow(Line& line) const;
  StatusOr<bool> CheckPath(const std::optional<std::string>& from, std::vector<CheckedPage>* path) const;
  Status VerifyBelow(Line& line, unsigned level, const Fences& fences, std::uint64_t* found) const;

  static inline constinit Line sealed_{.version = Lock::kLocked, .unit = 0, .shape = {}, .hints = {}};

  Space& space_;
  const unsigned page_size_;
  const unsigned value_max_;  // bytes of the longest value that is stored in its page
  const std::uint32_t id_mask_;
  Line* const lines_;
  char* const memory_;
  bool is_limited_ = false, has_byte_limit_ = false;  // whether the space has a limit; never change
  Line* root_ = nullptr;
  // Records, without the pending counts of the writer states.
  alignas(64) sync::RecordCount count_;
  std::vector<Capture*> captures_;  // changed without writers
  sync::Mutex applied_mutex_;       // one update at a time sets applied_index_, with its leaves locked
  std::atomic<std::uint64_t> applied_index_{0};
};

}  // namespace hako::tree

#include "hako/tree/leaf_eviction-inl.h"
#include "hako/tree/leaf_guard-inl.h"
#include "hako/tree/page_balance-inl.h"
#include "hako/tree/page_descent-inl.h"
#include "hako/tree/page_fetch-inl.h"
#include "hako/tree/page_multi-inl.h"
#include "hako/tree/page_multi_locks-inl.h"
#include "hako/tree/page_prefetch-inl.h"
#include "hako/tree/page_process-inl.h"
#include "hako/tree/page_range-inl.h"
#include "hako/tree/page_read-inl.h"
#include "hako/tree/page_tree-inl.h"
#include "hako/tree/page_verify-inl.h"
