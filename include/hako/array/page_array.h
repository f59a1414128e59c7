// An array of records of one width, addressed by number, in the pages of a space
// (tree/page_space.h): in memory (tree/memory/page_arena.h), or in a pool over a file (tree/file/buffer_pool.h
// with array/array_pages.h). The pages are described in format/array_format.h.
//
// Finding a record. For each known leaf the table has the page id, by leaf number. The line of that
// id tells where the page is, and has its presence bits. So a Get makes three loads that depend on
// each other: table, line, record. Table and lines are small. Other leaves, and those beyond the
// table, are found through the directory: a radix tree of fixed height, four pages from the root.
// The table is anonymous memory, reserved for as many leaves as there can be pages. Large ids need
// only the directory.
//
// Invariants
//   1. While the line of a leaf is unlocked, table[n] = id implies that page id is leaf n. A page is
//      removed from its directory and from the table while its line is locked, and then its version
//      advances. So a reader that reads the version of a line, then finds table[n] unchanged, and at the
//      end finds the version unchanged, has read leaf n.
//   2. A reader in the directory reads the version of a page, and then finds the version of the
//      page above it unchanged. So the page had its number when its version was read.
//   3. The pages of the directory are changed only by a thread that holds structure_mutex_, with the line
//      of the page locked. Once loaded they stay in memory. They name only pages of the level
//      below.
//   4. Leaves are made, freed and added to the table only with structure_mutex_ held. A writer that
//      finds no leaf for its record decides on the record with the mutex held. An update that
//      removes ranges holds it, too, so it has locked all leaves of the ranges.
//   5. A record is changed with its leaf locked, after the leaf was marked dirty and the update was
//      logged, which are the only steps that can fail. So no part of an update is ever made without
//      the rest.
//   6. `end_` without kInexact is one more than the largest id of all records and of all updates
//      that are about to make a record visible. Append takes the id with the leaf locked.
//
// Lock order: lines of leaves in ascending order of their numbers (out of that order they are only
// tried); structure_mutex_; lines of the directory, from the root down; applied_mutex_; then the
// locks of the space (tree/lock_order.h). A thread that holds any of them does no I/O, except in
// RemoveAll, beside which no writer runs.
//
// Crash order: see the space. A checkpoint has all changes before one moment at which no writer was
// active; the log has the others.
//
// Virtual-memory assisted pools (vmcache, Leis et al. 2023) use the page table of the processor in
// place of inner pages. The table here is a plain array, so ids may be sparse, and pages may have
// any size.
//
// Thread-safe, except the functions that say otherwise. Readers take no lock.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "hako/array/presence_bits.h"
#include "hako/base/assert.h"
#include "hako/base/batch.h"
#include "hako/base/endian.h"
#include "hako/base/inline.h"
#include "hako/base/no_memory.h"
#include "hako/base/prefetch.h"
#include "hako/base/status.h"
#include "hako/base/visitor_ref.h"
#include "hako/format/array_format.h"
#include "hako/format/log_format.h"
#include "hako/storage/arena.h"
#include "hako/sync/atomic_bytes.h"
#include "hako/sync/captured_ranges.h"
#include "hako/sync/mutex.h"
#include "hako/sync/record_count.h"
#include "hako/sync/version_lock.h"
#include "hako/sync/write_gate.h"
#include "hako/sync/writer_states.h"
#include "hako/tree/page_space.h"
#include "hako/update/logging.h"

namespace hako::array {

// The key of a record in the log.
class LogKey {
 public:
  explicit LogKey(std::uint64_t id) { StoreBigEndian(id, bytes_); }
  std::string_view view() const { return {bytes_, sizeof(bytes_)}; }
  // Returns nullopt for another key.
  static std::optional<std::uint64_t> Parse(std::string_view key) {
    if (key.size() != sizeof(bytes_)) return std::nullopt;
    const std::uint64_t id = LoadBigEndian(key.data());
    return id <= kRecordIdMax + 1 ? std::optional(id) : std::nullopt;  // one more than an id: the end of a range
  }

 private:
  char bytes_[8];
};

// A range of record numbers: [from, to).
struct IdRange {
  std::uint64_t from, to;
};
template <class ActionT>
using IdBatch = Batch<ActionT, std::uint64_t, IdRange>;
// The leaves with the ranges of one batch, which are all in memory and locked together.
inline constexpr std::size_t kRangeLeavesMax = std::size_t{1} << 14;

template <class Space>
class PageArray {
  static_assert(tree::PageSpace<Space>);

 public:
  using WriterState = typename Space::WriterState;
  using Writers = sync::WriterStates<WriterState>;
  using Line = format::PageLine;

  PageArray(Space& space, const format::ArrayShape& shape)
      : space_(space),
        shape_(shape),
        reciprocal_(~std::uint64_t{0} / shape.per_leaf + 1),
        bits_in_line_(shape.bits_in_line()),
        id_mask_(space.id_mask()),
        lines_(space.lines()),
        memory_(space.memory()) {}
  PageArray(const PageArray&) = delete;
  PageArray& operator=(const PageArray&) = delete;

  // Create makes a new, empty array; Attach opens the array with this root.
  Status Create();
  Status Attach(std::uint32_t root, std::uint64_t num_records, std::uint64_t applied_index = 0);
  std::uint32_t root_id() const { return IdOf(root()); }
  // Makes all later look-ups fail. REQUIRES: no other thread uses the array (checked in
  // WriterStates::Close)
  void Seal() {
    table_size_ = 0;
    root_ = &sealed_;
  }
  unsigned width() const { return shape_.width; }
  const format::ArrayShape& shape() const { return shape_; }

  // ---- one record; REQUIRES: id <= kRecordIdMax (checked in PlaceOf) ----

  // Copies the record to the sink. NotFound if absent.
  template <class S>
  HAKO_INLINE Status Fetch(Writers& writers, std::uint64_t id, S&& sink);
  // Shows the record to the visitor, with its leaf locked, and carries out the visitor's decision.
  // A value shorter than the width is padded with zeros; a longer one is OutOfRange.
  template <class ActionT, class V>
  HAKO_INLINE Status Process(WriterState& writer, std::uint64_t id, V&& visit);
  // A hint: prefetches what Fetch and Process of this id will read.
  void Prefetch(std::uint64_t id) const;
  void Prefetch(std::span<const std::string_view>) const {}  // for engines with other keys than ids

  // ---- several records ----

  // Updates several records in one step: see ProcessMulti in dbm/dbm.h. OutOfRange if the ranges
  // have records on more than `range_leaves_max` leaves.
  template <class ActionT>
  Status ProcessMulti(WriterState& writer, const IdBatch<ActionT>& batch, std::size_t range_leaves_max = kRangeLeavesMax);
  // Fetches each id: calls sink(index, size), then arrived(index, whether the record exists).
  template <class S, class F>
  Status FetchMulti(Writers& writers, std::span<const std::uint64_t> ids, S&& sink, F&& arrived);
  // A hint: loads those leaves of these ids that are evicted.
  void LoadLeaves(std::span<const std::uint64_t> ids);

  // Finds the first record at or after `from` (upwards), or the last record at or before it, and
  // copies it to the sink. After DataLoss, *beyond is the first id past the damage in that
  // direction; nullopt if there is none.
  struct Sought {
    std::optional<std::uint64_t> id;  // nullopt = there is no such record
    std::optional<std::uint64_t> beyond;
  };
  Status Seek(std::uint64_t from, bool upwards, Sought* sought, SinkRef sink);
  // Returns the number of records in [from, to).
  StatusOr<std::uint64_t> CountRange(std::uint64_t from, std::uint64_t to);
  // Removes the records in [from, to), leaf by leaf, and returns their number.
  StatusOr<std::uint64_t> RemoveRange(WriterState& writer, std::uint64_t from, std::uint64_t to);
  // From BeginCapture to EndCapture writers pass each leaf to `capture` before they change it: see
  // sync/captured_ranges.h. REQUIRES: no writers, for either
  struct IsBelow {
    bool operator()(std::uint64_t a, std::uint64_t b) const { return a < b; }
    static std::uint64_t Head(std::uint64_t id) { return id; }
  };
  using Capture = sync::CapturedRanges<std::uint64_t, std::uint64_t, IsBelow>;
  void BeginCapture(Capture* capture) {
    space_.gate().AssertNoWriters();
    captures_.Begin(capture);
    space_.gate().SetCapturing(true);
  }
  void EndCapture(Capture* capture) {
    space_.gate().AssertNoWriters();
    captures_.End(capture);
    space_.gate().SetCapturing(!captures_.empty());
  }
  sync::CaptureList<Capture>& captures() { return captures_; }
  // Removes all records, and makes captures fail.
  // REQUIRES: no writers (checked in RemoveAll)
  Status RemoveAll();

  // NextId returns one more than the id of the last record, or nullopt if that is unknown; FindEnd
  // then finds it. TakeEnd claims the id that NextId returned for a new record, and fails if
  // another thread has claimed it.
  // REQUIRES of TakeEnd: the caller is the visitor of a Process of this id, and sets the record
  // (unchecked: it does not know its caller). REQUIRES of FindEnd: no writers
  std::optional<std::uint64_t> NextId() const {
    const std::uint64_t end = end_.load(std::memory_order_acquire);
    return (end & kInexact) != 0 ? std::nullopt : std::optional(end / 2);
  }
  bool TakeEnd(std::uint64_t id) {
    std::uint64_t end = id * 2;
    return end_.compare_exchange_strong(end, end + 2, std::memory_order_acq_rel);
  }
  Status FindEnd();
  void ForgetEnd() { end_.fetch_or(kInexact, std::memory_order_acq_rel); }

  // ---- all records ----

  template <class ForEachWriter>
  std::uint64_t Count(ForEachWriter&& for_each_writer) const {
    return count_.Get(for_each_writer);
  }
  // The applied index of the last update that had one.
  std::uint64_t applied_index() const { return applied_index_.load(std::memory_order_acquire); }
  void SetAppliedIndex(std::uint64_t index) {
    applied_index_.store(index, std::memory_order_release);
    if constexpr (!Space::kResident) space_.NoteChange();
  }
  // Loads every page, and checks the structure and that there are `expected` records. REQUIRES: no
  // writers (unchecked: a copy that is verified has no gate)
  Status Verify(std::uint64_t expected, std::uint64_t* num_leaves = nullptr);

 private:
  using Lock = sync::VersionLock;
  enum class Outcome { kFound, kAbsent, kRaced };
  // The outcome of a look-up. kBlocked: a line on the way is locked, by a writer or because its
  // page is evicted.
  enum class Way { kLeaf, kAbsent, kBlocked, kRaced };
  static constexpr int kOptimisticTries = 64;  // after these a reader takes the lock
  static constexpr std::uint64_t kInexact = 1;
  static constexpr unsigned kRootLevel = format::kDirectoryLevels;
  static constexpr std::size_t kGroup = 32;

  __extension__ using Wide = unsigned __int128;
  struct Place {
    std::uint64_t leaf;
    unsigned index;
  };
  // The page at which a look-up ended, the version that the look-up read there, and the page's
  // level.
  struct Reached {
    Line* line;
    std::uint32_t version;
    unsigned level = 0;
  };
  class Guard;
  class LockedLeaves;
  template <class ActionT>
  class MultiGuard;

  // The quotient is exact, because ids are below 2^40 and per_leaf is below 2^13.
  HAKO_INLINE Place PlaceOf(std::uint64_t id) const {
    HAKO_DCHECK(id >> 40 == 0);
    const auto leaf = static_cast<std::uint64_t>(Wide{id} * reciprocal_ >> 64);
    return {leaf, static_cast<unsigned>(id - leaf * shape_.per_leaf)};
  }
  std::uint64_t FirstIdOf(std::uint64_t leaf) const { return leaf * shape_.per_leaf; }
  HAKO_INLINE Line& root() const { return *root_; }
  HAKO_INLINE Line& LineOf(std::uint32_t id) const { return lines_[id & id_mask_]; }
  std::uint32_t IdOf(const Line& line) const { return static_cast<std::uint32_t>(&line - lines_); }
  HAKO_INLINE char* PageOf(const Line& line) const {
    return memory_ + std::uint64_t{std::atomic_ref(const_cast<Line&>(line).unit).load(std::memory_order_relaxed)} * format::kPageUnit;
  }
  HAKO_INLINE PresenceBits BitsOf(const Line& line, char* page) const {
    char* const words = bits_in_line_ ? reinterpret_cast<char*>(const_cast<std::int32_t*>(line.hints)) : page;
    return {reinterpret_cast<std::uint32_t*>(words), shape_.per_leaf};
  }
  HAKO_INLINE char* RecordOf(char* page, unsigned i) const { return page + shape_.data_begin + std::size_t{i} * shape_.width; }
  static unsigned IndexIn(unsigned level, std::uint64_t leaf) {
    return static_cast<unsigned>(leaf >> format::kFanoutBits * (level - 1)) & (format::kFanout - 1);
  }
  std::uint32_t& EntryOf(const Line& line, unsigned i) const { return reinterpret_cast<std::uint32_t*>(PageOf(line))[i]; }
  std::uint32_t ChildOf(const Line& line, unsigned i) const { return std::atomic_ref(EntryOf(line, i)).load(std::memory_order_relaxed); }

  // ---- array/array_read-inl.h ----
  HAKO_INLINE bool Reach(std::uint64_t leaf, Reached* reached) const;
  Way Find(std::uint64_t leaf, Reached* reached) const;
  Way FindInDirectory(std::uint64_t leaf, Reached* reached) const;
  template <class S>
  HAKO_INLINE Outcome FetchFrom(const Reached& leaf, unsigned i, S& sink) const;
  template <class S>
  HAKO_INLINE Outcome TryFetch(std::uint64_t id, S& sink) const;
  [[gnu::noinline]] Status FetchSlowly(Writers& writers, std::uint64_t id, SinkRef sink);
  Status FetchLocked(const Place& place, SinkRef sink);
  Status LoadIfEvicted(const Reached& page, bool once = false);
  bool IsEvicted(const Reached& page) const {
    if constexpr (!Space::kResident) return space_.IsEvicted(IdOf(*page.line));
    return false;
  }
  Way TryNextLeaf(std::uint64_t* leaf, bool upwards, Reached* reached) const;
  Status NextLeaf(std::uint64_t leaf, bool upwards, std::optional<std::uint64_t>* next, std::uint64_t* damaged_leaf, unsigned* level);
  Status SeekIn(std::uint64_t leaf, unsigned i, bool upwards, std::optional<unsigned>* found, bool* exists, SinkRef sink, unsigned* level);
  void ReadAheadOf(std::uint64_t leaf, bool upwards);

  // ---- array/array_write-inl.h ----
  HAKO_INLINE Line* TryLockLeaf(const Place& place);
  [[gnu::noinline]] Line* LockLeafSlowly(WriterState& writer, std::uint64_t leaf);
  // REQUIRES: the writer has locked the leaf, and not yet changed it, or is about to make it: then `line` is
  // nullptr, and structure_mutex_ is held
  void CaptureIfAsked(std::uint64_t leaf, const Line* line) {
    if (line != nullptr) Lock(const_cast<Line*>(line)->version).AssertLocked();
    HAKO_DCHECK(line != nullptr || structure_mutex_.IsHeld(true));
    if (space_.gate().IsCapturing()) [[unlikely]]
      CaptureLeaf(leaf, line);
  }
  [[gnu::cold, gnu::noinline]] void CaptureLeaf(std::uint64_t leaf, const Line* line);
  template <class ActionT, class V>
  HAKO_INLINE Status ProcessIn(Guard& guard, WriterState& writer, std::uint64_t id, const Place& place, V&& visit);
  template <class ActionT, class VisitorT>
  [[gnu::noinline]] Status ProcessSlowly(WriterState& writer, std::uint64_t id, VisitorT visit);
  template <class ActionT>
  [[gnu::noinline]] Status CarryOutSlowly(WriterState& writer, std::uint64_t id, ActionT action);
  template <class ActionT, class VisitorT>
  std::optional<Status> ProcessAbsent(WriterState& writer, std::uint64_t id, VisitorT visit);
  HAKO_INLINE void StoreRecord(char* record, std::string_view value) const;
  HAKO_INLINE void EndWrite(WriterState& writer, bool changed);
  HAKO_INLINE void RaiseEnd(std::uint64_t id) {
    std::uint64_t end = end_.load(std::memory_order_relaxed);
    while (id * 2 + 2 > (end | kInexact) && !end_.compare_exchange_weak(end, (id * 2 + 2) | (end & kInexact), std::memory_order_acq_rel)) {
    }
  }
  HAKO_INLINE void LowerEnd(std::uint64_t id) {
    if (end_.load(std::memory_order_relaxed) == id * 2 + 2) ForgetEnd();
  }
  void FreeIfEmpty(WriterState& writer, std::uint64_t leaf);
  std::pair<unsigned, unsigned> PartOf(const IdRange& range, std::uint64_t leaf) const;
  void RemoveIn(WriterState& writer, const PresenceBits& bits, std::uint64_t leaf, unsigned begin, unsigned end);
  void Unlock(Line* line, bool changed) const { Lock(line->version).Unlock(changed); }
  [[gnu::cold]] Status TooLong(std::size_t size) const { return TooLargeError("a value", size, shape_.width); }

  // ---- array/array_shape-inl.h: pages are made and freed ----
  Status Reserve();
  Line* MakePage(Line* parent, unsigned i, unsigned level, std::uint64_t number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(structure_mutex_);
  Line* MakeLeaf(std::uint64_t leaf) ABSL_EXCLUSIVE_LOCKS_REQUIRED(structure_mutex_);
  void FreeLeaf(Line** line, std::uint64_t leaf);
  bool FreeEmpty(Line* line, std::uint64_t leaf) ABSL_EXCLUSIVE_LOCKS_REQUIRED(structure_mutex_);
  void NoteLeaves(std::uint64_t leaf);
  void NoteLeavesLocked(std::uint64_t leaf) ABSL_EXCLUSIVE_LOCKS_REQUIRED(structure_mutex_);
  void NoteLeaf(std::uint64_t leaf, std::uint32_t id) {
    if (leaf < table_size_) std::atomic_ref(table_[leaf]).store(id, std::memory_order_relaxed);
  }
  bool IsEmptyDirectory(const Line& line) const;
  Status LockPage(Line& line, unsigned level);
  Status MarkBelow(Line& line, unsigned level, std::size_t* num_evicted);
  Status FreeBelow(Line& line, unsigned level, std::uint64_t number);
  [[gnu::cold]] static Status NoMemory() {
    return absl::ResourceExhaustedError("out of memory for a page: the database has reached its limit, or that of the process (ulimit -v)");
  }

  // ---- array/array_verify-inl.h ----
  Status VerifyBelow(Line& line, unsigned level, std::uint64_t number, std::uint64_t* found, std::uint64_t* num_leaves);
  Status VerifyLeaf(Line& line, std::uint64_t number, std::uint64_t* found);

  static inline constinit Line sealed_{.version = Lock::kLocked, .unit = 0, .shape = {}, .hints = {}};
  alignas(64) static constexpr char kZeros[kRecordWidthMax] = {};

  Space& space_;
  const format::ArrayShape shape_;
  const std::uint64_t reciprocal_;  // 2^64 / per_leaf, rounded up
  const bool bits_in_line_;
  const std::uint32_t id_mask_;
  Line* const lines_;
  char* const memory_;
  std::uint32_t* table_ = nullptr;  // by leaf: the id of its page, or 0
  std::uint64_t table_size_ = 0;
  Line* root_ = nullptr;
  storage::ReservedMemory table_memory_;
  // The number of records, without the pending counts of the writer states.
  alignas(64) sync::RecordCount count_;
  std::atomic<std::uint64_t> end_{0};  // twice the id after the last record, plus kInexact
  sync::Mutex structure_mutex_;
  sync::CaptureList<Capture> captures_;
  sync::Mutex applied_mutex_;  // held by an update that sets applied_index_, with its leaves locked
  std::atomic<std::uint64_t> applied_index_{0};
};

}  // namespace hako::array

#include "hako/array/array_multi-inl.h"
#include "hako/array/array_read-inl.h"
#include "hako/array/array_shape-inl.h"
#include "hako/array/array_verify-inl.h"
#include "hako/array/array_write-inl.h"
