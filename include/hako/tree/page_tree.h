// The page engine: a B+ tree of slotted pages (format/page_format.h) with optimistic lock coupling
// (Leis, Haubenschild, Neumann 2019). BabyDBM and TreeDBM share it. Its pages and lines live in a
// Space, which models the concept of tree/page_space.h.
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
//   2. The ranges of a page's children are adjacent and together cover the page's own range; a
//      child's low fence is the key of its slot.
//   3. A page is changed only while its line is locked. A child is added to or removed from a page
//      only while both are locked.
//   4. Threads wait for locks in this order: leaves by key, then pages above them, upwards. Any
//      other lock is only tried.
//   5. A page that another page replaces gets another version before its id is free.
//   6. The space is notified (MarkDirty) before a page is changed, while the page is locked.
//   7. While writers run, no thread that has a page locked waits for another page to be read from a
//      file.
//   8. An update is logged (update/logging.h) with its leaves locked, as its last step that can fail.
//
// Thread-safe, except the functions that require that there are no writers.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
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
#include "hako/base/function_ref.h"
#include "hako/base/visitor_ref.h"
#include "hako/format/record_format.h"
#include "hako/sync/mutex.h"
#include "hako/sync/record_count.h"
#include "hako/sync/write_gate.h"
#include "hako/sync/writer_states.h"
#include "hako/tree/leaf_captures.h"
#include "hako/tree/leaf_eviction.h"
#include "hako/tree/leaf_reader.h"
#include "hako/tree/tree_check.h"
#include "hako/tree/tree_pages.h"
#include "hako/tree/tree_removal.h"
#include "hako/tree/tree_shape.h"
#include "hako/update/logging.h"

namespace hako::tree {

template <class Space, Comparator Compare>
class PageTree : private TreePages<Space, Compare> {
  static_assert(PageSpace<Space>);
  using Pages = TreePages<Space, Compare>;
  using Shape = TreeShape<Space, Compare>;
  using Captures = LeafCaptures<Space, Compare>;
  using Eviction = LeafEviction<Space, Compare>;

 public:
  using WriterState = typename Space::WriterState;
  using Writers = sync::WriterStates<WriterState>;
  using Deferred = typename Space::Deferred;
  using Line = format::PageLine;
  using View = PageView<Compare>;
  using Copy = LeafCopy<Compare>;
  // Whether keys that are equal may have different bytes. A record keeps the bytes of the call that
  // stored it first; a removal and a Set in one ProcessMulti replace the bytes.
  static constexpr bool kHasSpellings = !BytewiseOrder<Compare>;

  // A page is split when it would exceed `page_size` bytes, unless it has only one record.
  PageTree(Space& space, unsigned page_size) : Pages(space), page_size_(page_size), value_max_(page_size / 4), shape_(*this, page_size) {}
  PageTree(const PageTree&) = delete;
  PageTree& operator=(const PageTree&) = delete;

  // Create makes a new, empty tree; Attach opens the tree whose root has this id, with this many records.
  Status Create() {
    const std::uint32_t id = space_.NewPage();
    if (id == 0) return NoMemory();
    root_ = &LineOf(id);
    if (!TreeRemoval<Space, Compare>::BuildEmpty(space_, root())) return NoMemory();
    Unlock(&root(), true);
    return absl::OkStatus();
  }
  void Attach(std::uint32_t id, std::uint64_t num_records, std::uint64_t applied_index = 0) {
    root_ = &LineOf(id);
    applied_index_.store(applied_index, std::memory_order_release);
    count_.SetTotal(num_records);
  }
  std::uint32_t root_id() const { return IdOf(root()); }
  // From now on the root stays locked, so every Fetch asks for a writer state. REQUIRES: no other
  // thread uses the tree, and all writer states are gone (checked in WriterStates::Close)
  void Seal() { root_ = &sealed_; }

  // Takes a lock only for a long value in a resident space, or if writers keep interfering. Only
  // then gets the calling thread's state from `writers`. `kNotes`: records the use of the record if
  // the space has a limit; false only if it has none.
  template <bool kNotes = true, class S>
  HAKO_INLINE Status Fetch(Writers& writers, std::string_view key, S&& sink);
  // `visit` is an UpdateVisitor, a BlindVisitor or a ReadVisitor (dbm/dbm.h), distinguished by the
  // arguments it accepts.
  template <class ActionT, class V>
  HAKO_INLINE Status Process(WriterState& writer, std::string_view key, V&& visit);
  // Processes all keys as one atomic step: see dbm/dbm.h.
  template <class ActionT>
  Status ProcessMulti(WriterState& writer, const Batch<ActionT>& batch);
  // The applied index of the last update that had one. SetAppliedIndex sets it without an update.
  // REQUIRES: no other thread sets it at the same time (unchecked: a number does not tell who sets it)
  std::uint64_t applied_index() const { return applied_index_.load(std::memory_order_acquire); }
  void SetAppliedIndex(std::uint64_t index) {
    applied_index_.store(index, std::memory_order_release);
    space_.NoteChange();
  }
  // Fetches each key, in groups whose memory accesses overlap: calls sink(index, size), then
  // arrived(index, whether the key exists).
  template <class S, class F>
  Status FetchMulti(Writers& writers, std::span<const std::string_view> keys, S&& sink, F&& arrived);
  // Prefetches the memory that Fetch and Process of these keys will read; a hint.
  void Prefetch(std::span<const std::string_view> keys) const;
  void LoadLeaves(std::span<const std::string_view> keys);  // of these keys, if there is room; a hint

  // Returns the number of keys in the range.
  StatusOr<std::uint64_t> CountRange(const Range& range) const { return Reader(*this).CountRange(range); }
  // Estimates how many keys are in [from, to). The number of keys between two leaves is estimated
  // from the slots of the pages above. Reads nothing from a file.
  std::uint64_t CountAbout(std::string_view from, std::string_view to) const { return Reader(*this).CountAbout(from, to); }
  // Removes the records in the range, leaf by leaf, and returns their number.
  StatusOr<std::uint64_t> RemoveRange(WriterState& writer, const Range& range);

  // Call this after an update of this thread if the space has a limit, with nothing locked.
  void JoinSparse(WriterState& writer);

  // Returns keys that divide the tree into about `parts` parts of similar size; fewer if the tree
  // is small.
  std::vector<std::string> Parts(unsigned parts) const { return Reader(*this).Parts(parts); }

  // Copies a leaf. `goes_on`: the caller scans from leaf to leaf, and once the scan has missed some
  // leaves, other threads read as many leaves ahead as it has passed. If the leaf stays in place,
  // the caller must check that it has keys on both sides of the key sought.
  Status ReadLeaf(Seek seek, std::string_view key, Copy* copy, bool goes_on = false) const {
    return Reader(*this).ReadLeaf(seek, key, copy, goes_on);
  }

  // Call this after ReadLeaf has failed with DataLoss. Returns the fence at the far end of the
  // smallest unreadable part of the tree, upwards or downwards; nullopt if that part reaches the
  // end of the tree. DataLoss if the root cannot be read.
  StatusOr<std::optional<std::string>> FenceBeyond(Seek seek, std::string_view key, bool downwards) const {
    return Reader(*this).FenceBeyond(seek, key, downwards);
  }

  // From BeginCapture to EndCapture writers pass each leaf to `capture` before they change it: see
  // sync/captured_ranges.h. REQUIRES: no writers, for either
  using Capture = typename Captures::Capture;
  void BeginCapture(Capture* capture) { captures_.Begin(capture); }
  void EndCapture(Capture* capture) { captures_.End(capture); }
  sync::CaptureList<Capture>& captures() { return captures_.list(); }

  // Removes all records, or none if memory runs out first. Makes captures fail.
  // REQUIRES: no writers (checked in TreeRemoval::RemoveAll)
  Status RemoveAll(Deferred& deferred) {
    captures_.Fail(ClearedError());
    return TreeRemoval<Space, Compare>(*this).RemoveAll(count_, deferred);
  }

  // Checks the invariants, and that there are `expected` records.
  // REQUIRES: no writers (unchecked: a copy that is verified has no gate)
  Status Verify(std::uint64_t expected) const { return Check(*this).Verify(expected); }
  // As Verify, in two steps, for a resident space. CheckCount reads only lines and inner pages.
  // REQUIRES: no writers (unchecked, as Verify). VerifyBeside then checks page by page, beside writers, and
  // takes no lock.
  Status CheckCount(std::uint64_t expected) const { return Check(*this).CheckCount(expected); }
  Status VerifyBeside() const { return Check(*this).VerifyBeside(); }

  // Visits every page: visit(level, its size in bytes, bytes used). REQUIRES: no writers (unchecked, as
  // Verify); a resident space
  template <class F>
  void ForEachPage(F&& visit) const {
    Check(*this).ForEachPage(visit);
  }

  template <class ForEachWriter>
  std::uint64_t Count(ForEachWriter&& for_each_writer) const {
    return count_.Get(for_each_writer);
  }

 private:
  using Reader = LeafReader<Space, Compare>;
  using Check = TreeCheck<Space, Compare>;
  using typename Pages::Editor, typename Pages::EvictedLeaves, typename Pages::Lock, typename Pages::Reached;
  using LongRead = typename Space::LongRead;
  using Halves = typename Shape::Halves;
  using SplitResult = typename Shape::SplitResult;
  using Reservation = typename Eviction::Reservation;
  class LeafGuard;
  class LockedLeaves;
  template <class ActionT>
  class MultiGuard;
  enum class Outcome { kFound, kAbsent, kRaced };
  static constexpr int kOptimisticTries = 64;  // after these a reader takes the lock

  using Pages::ContentOf, Pages::Descend, Pages::DescendTo, Pages::DescendTogether, Pages::IdOf, Pages::IsLastOf, Pages::kPrefetchGroup,
      Pages::LineOf, Pages::LoadIfEvicted, Pages::LongValueIn, Pages::LongValueOf, Pages::NoMemory, Pages::RemoveSlot, Pages::root,
      Pages::TryMarkDirty, Pages::Unlock, Pages::ViewOf;
  using Pages::has_byte_limit_, Pages::is_limited_, Pages::memory_, Pages::root_, Pages::space_;

  // A thread that changed nothing neither evicts nor pauses.
  HAKO_INLINE void EndWrite(WriterState& writer, bool changed) {
    writer.Leave();
    if (space_.NeedsEviction() && changed) [[unlikely]] {
      HAKO_TRY { space_.EvictIfNeeded(); }
      HAKO_CATCH_NO_MEMORY()  // the next write frees the memory instead
    }
  }
  HAKO_INLINE Line* LockLeaf(WriterState& writer, std::string_view key);
  // As LockLeaf, for rare paths.
  [[gnu::noinline]] Line* LockLeafByCall(WriterState& writer, std::string_view key) { return LockLeaf(writer, key); }
  [[gnu::noinline]] Line* LockLeafSlowly(WriterState& writer, std::string_view key);
  template <bool kNotes, class S>
  HAKO_INLINE Outcome TryFetch(std::string_view key, S& sink) const;
  template <bool kNotes, class S>
  HAKO_INLINE Outcome FetchFrom(const Reached& leaf, std::string_view key, S& sink) const;
  [[gnu::noinline]] Outcome FetchByCall(const Reached& leaf, std::string_view key, SinkRef sink) const {
    return FetchFrom<true>(leaf, key, sink);
  }
  [[gnu::noinline]] Status FetchSlowly(Writers& writers, std::string_view key, SinkRef sink);
  Status FetchLocked(std::string_view key, SinkRef sink);
  // Returns the name of a key's long value in a leaf that is not locked; nullopt if the key has
  // none, or if a writer interfered.
  std::optional<format::OverflowValue> FindLong(const Reached& leaf, std::string_view key) const;

  HAKO_INLINE void RemoveShort(LeafGuard& guard, WriterState& writer, std::string_view key, unsigned i);
  [[gnu::noinline]] void RemoveShortByCall(LeafGuard& guard, WriterState& writer, std::string_view key, unsigned i) {
    RemoveShort(guard, writer, key, i);
  }
  template <class ActionT>
  [[gnu::noinline]] Status SetAhead(WriterState& writer, std::string_view key, const ActionT& set);
  // Process continues in these functions when it finds, stores, replaces or removes a long value.
  // They end the guard.
  template <class ActionT, class VisitorT>
  [[gnu::noinline]] Status ProcessLong(LeafGuard& guard, WriterState& writer, std::string_view key, VisitorT visit);
  [[gnu::noinline]] Status SetLong(LeafGuard& guard, WriterState& writer, std::string_view key, std::string_view value,
                                   typename View::Slot slot);
  [[gnu::noinline]] Status RemoveLong(LeafGuard& guard, WriterState& writer, std::string_view key, unsigned i);
  // If the visitor needs the long value of `key` (`shows`) or a thread is still storing it, reads
  // it with nothing locked, locks the leaf again, and sets *place. Returns false if the leaf cannot
  // be loaded.
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
  void MergeIfSparse(LeafGuard& guard, WriterState& writer, std::string_view key);

  // ---- for a space with a limit ----

  // Whether an operation with a visitor V may have to register the use of a record. If there is a
  // limit, visitors are passed by reference.
  template <class V>
  static constexpr bool kMayNote = LimitedPageSpace<Space>&& kIsFunctionRef<V>;
  HAKO_INLINE void NoteFetched(const Line* leaf, typename View::Slot slot) const {
    if (PageLimit* const limit = LimitOf(space_)) limit->NoteFetched(*leaf, slot);
  }
  HAKO_INLINE void NoteUse(const Line* leaf, typename View::Slot slot) const {
    if (PageLimit* const limit = LimitOf(space_)) limit->NoteUse(*leaf, slot);
  }
  [[gnu::noinline]] Status SetEvicting(LeafGuard& guard, WriterState& writer, std::string_view key, std::string_view value,
                                       typename View::Slot slot);

  static inline constinit Line sealed_{.version = Lock::kLocked, .unit = 0, .shape = {}, .hints = {}};

  const unsigned page_size_;
  const unsigned value_max_;  // bytes of the longest value that is stored in its page
  Shape shape_;
  Captures captures_{*this};
  // Records, without the pending counts of the writer states.
  alignas(64) sync::RecordCount count_;
  Eviction eviction_{*this, shape_, captures_, count_};
  sync::Mutex applied_mutex_;  // one update at a time sets applied_index_, with its leaves locked
  std::atomic<std::uint64_t> applied_index_{0};
};

}  // namespace hako::tree

#include "hako/tree/page_fetch-inl.h"
#include "hako/tree/page_multi-inl.h"
#include "hako/tree/page_multi_locks-inl.h"
#include "hako/tree/page_process-inl.h"
