// The pages of a file in memory: the space of TreeDBM (tree/page_space.h). Cached pages lie in page
// memory as BabyDBM's pages do; all others are only in the file (tree/page_store.h) and are loaded
// on demand. tree/page_states.h has the states of a page.
//
// The line of an evicted page is locked, so a search that reaches one ends up in LoadPage, and a
// search of cached pages pays nothing. CLOCK chooses the pages to evict, without a write by
// readers: the hand takes a cached page, locks its line and appends it to the queue of cooling
// pages. Pages at the front of the queue are evicted when memory is needed. A thread that asks for
// a cooling page finds it intact and just unlocks it (the cooling stage of LeanStore: Leis et al.
// 2018). A page that a long scan has loaded goes to the front of the queue or, where the file is
// larger than the memory, is evicted soon after the scan has passed it. So a scan needs little
// memory and takes none from other threads. Inner pages are never evicted.
//
// A scan that has missed many leaves announces the leaves and the inner pages that it will need.
// Background threads read them in batches, in which neighbours are one read
// (tree/page_read_ahead.h).
//
// Changed pages (tree/dirty_pages.h) stay in memory until a checkpoint (tree/checkpointer.h) has
// written them. No Set of a short value waits until a checkpoint has ended. As the pages that
// cannot be evicted approach their limit, each thread that changes a page pauses after it has
// released its locks, for a time that doubles with each 32nd of the limit, up to four milliseconds.
// So writers slow down to the speed of the device in small steps. The limit is soft: beyond it the
// pause doubles with each eighth of it, but at least 4 MiB, up to one second. Loading a page never
// waits for a checkpoint.
//
// Long values are copied, read, written and freed while no page is locked (tree/page_long-inl.h).
// Until a checkpoint has written them they take separate memory. A thread that stores long values
// waits for that memory; a thread that changes pages does not.
//
// Invariants
//   1. A page that differs from its image is not evicted. Nor is one that is kPinned or kHeld.
//   2. All memory stays readable (tree/page_arena.h). A page whose memory was freed has another
//      version when its line is next unlocked, so readers that still read that memory notice.
//   3. Long values are never changed.
//
// Thread-safe, except the functions that say otherwise. tree/lock_order.h has the order of locks.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "hako/base/no_memory.h"
#include "hako/base/page_codec.h"
#include "hako/base/status.h"
#include "hako/file/memory_map_parallel_file.h"
#include "hako/format/page_format.h"
#include "hako/format/record_format.h"
#include "hako/log/update_log.h"
#include "hako/sync/mutex.h"
#include "hako/sync/version_lock.h"
#include "hako/sync/write_gate.h"
#include "hako/tree/checkpoint_progress.h"
#include "hako/tree/dirty_pages.h"
#include "hako/tree/expected_bounds.h"
#include "hako/tree/lock_order.h"
#include "hako/tree/long_values.h"
#include "hako/tree/page_arena.h"
#include "hako/tree/page_encoding.h"
#include "hako/tree/page_image.h"
#include "hako/tree/page_kind.h"
#include "hako/tree/page_read_ahead.h"
#include "hako/tree/page_space.h"
#include "hako/tree/page_states.h"
#include "hako/tree/page_store.h"
#include "hako/tree/unsaved_value.h"

namespace hako::tree {

struct PoolLimits {
  std::uint64_t memory_bytes;  // of all memory that the pool uses
  // Of changed pages and long values; beyond it a checkpoint is requested.
  std::uint64_t dirty_bytes;
  format::PageOrder order;
  const PageKind* kind = nullptr;  // of the pages; nullptr: those of a B+ tree, in this order
};

template <File FileT, PageCodec Codec = NoCodec>
class BufferPool {
 public:
  using Line = format::PageLine;
  using Shape = format::PageShape;
  static constexpr bool kResident = false;
  static constexpr bool kReadsAhead = BatchFile<FileT>;  // whether ReadAhead has an effect

  static constexpr std::size_t kLoggedAheadMin = log::kLongRun;  // bytes of a value that is logged ahead

  struct WriterState : sync::WriterState {
    Status error;
    log::Lsn lsn = 0;  // behind its last update in the log
    log::AheadRun logged_ahead;
  };

  // `ask` is called, from any thread, when a checkpoint is due. The limits are lower where the
  // process has little address space.
  static StatusOr<std::unique_ptr<BufferPool>> Create(std::unique_ptr<PageStore<FileT>> store, PoolLimits limits,
                                                      std::function<void()> ask);
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  PageStore<FileT>& store() { return *store_; }
  const PoolLimits& limits() const { return limits_; }
  // Sets the root of a new tree. The root is never evicted.
  void SetRoot(std::uint32_t id) { root_ = id; }
  sync::WriteGate& gate() { return gate_; }
  std::uint32_t id_mask() const { return arena_->id_mask(); }
  Line* lines() const { return lines_; }
  char* memory() const { return memory_; }
  std::uint64_t memory_bytes() const { return arena_->page_bytes() + TableBytes() + long_values_.unsaved_bytes(); }
  std::uint64_t num_pages() const { return arena_->num_pages(); }

  // ---- pages ----

  std::uint32_t NewPage();
  // REQUIRES: its line is locked, and its memory was freed, which its line does not tell
  void FreePage(std::uint32_t id) {
    sync::VersionLock(lines_[id].version).AssertLocked();
    DirtyPages::StoreMark(lines_[id], 0);
    {
      sync::MutexLock lock(states_.mutex);
      sync::VersionLock(lines_[id].version).Advance();  // makes copies of the page stale, although the line may stay locked
      states_.Set(id, PageStates::kFree);
    }
    ForgetId(id);
  }
  bool DiscardEvicted(std::uint32_t id, bool unseen) {
    {
      sync::MutexLock lock(states_.mutex);
      if (states_.Of(id) != PageStates::kEvicted || (has_long_values() && !unseen)) return false;
      sync::VersionLock(lines_[id].version).Advance();
      states_.Set(id, PageStates::kFree);
    }
    ForgetId(id);
    return true;
  }

  std::uint32_t Allocate(unsigned units) {
    std::uint32_t unit = arena_->Allocate(units, PageLimit());
    if (unit == 0) unit = AllocateSlowly(units);
    if (unit == 0) return 0;
    used_units_.fetch_add(units, std::memory_order_relaxed);
    NoteDirty(units * format::kPageUnit);
    if (IsOverLimit()) needs_eviction_.store(true, std::memory_order_relaxed);
    return unit;
  }
  void Free(std::uint32_t first, unsigned units) {
    dirty_.AddBytes(-static_cast<std::int64_t>(units * format::kPageUnit));
    GiveBack(first, units);
  }
  bool HasRoomFor(std::uint64_t bytes) const { return arena_->HasRoomFor(bytes); }

  bool IsEvicted(std::uint32_t id) const {
    const PageStates::State state = states_.Of(id);
    return state == PageStates::kEvicted || state == PageStates::kLoading || state == PageStates::kCooling;
  }
  // Whether the page is neither in memory nor being loaded.
  bool MustBeRead(std::uint32_t id) const { return states_.Of(id) == PageStates::kEvicted; }
  Status LoadPage(std::uint32_t id, int level, bool once);
  // Loads those of these pages that are evicted, with reads that are in flight together. Pages that
  // fail or find no room stay evicted.
  void LoadPages(std::span<const std::uint32_t> ids, int level, bool once);
  // The same in background threads. False, and the pages are not queued, if too much is queued
  // already, no thread can be started, or StopReadingAhead was called.
  bool ReadAhead(std::span<const std::uint32_t> ids, int level) { return read_ahead_.Request(ids, level); }
  // Loads evicted leaves that will be changed soon, half of them in background threads.
  void LoadLeaves(std::span<const std::uint32_t> ids);
  // Called when a scan has copied the page. If a scan has loaded it and the file is larger than the
  // memory, it is evicted soon, so the scan continues in the memory that it has and does not take
  // other threads' pages.
  void Demote(std::uint32_t id);
  // How many pages may be read ahead of a scan.
  std::size_t ahead_max() const { return std::min<std::size_t>(kAheadMax, limits_.memory_bytes / 16 / kUsualPage); }
  // Stops the threads that read ahead, and drops the queued requests.
  void StopReadingAhead() { read_ahead_.Stop(); }
  class HeldPages;  // tree/page_hold-inl.h
  // Whether an update of this many pages should hold them: other threads would otherwise have to
  // wait for the checkpoint that writes them.
  bool IsLarge(std::size_t num_pages) const { return num_pages * kUsualPage > limits_.memory_bytes / 8; }

  std::uint8_t mark() const { return dirty_.mark(); }
  HAKO_INLINE void MarkDirty(Line& line) {
    if (!dirty_.Has(line)) [[unlikely]]
      MarkDirtySlowly(line);
  }

  // Also for the list of pages in memory, which each of them enters.
  void ReserveDirty(std::size_t num_pages) {
    dirty_.Reserve(num_pages);
    sync::MutexLock lock(states_.mutex);
    if (resident_.capacity() - resident_.size() < num_pages)
      resident_.reserve(std::max(2 * resident_.capacity(), resident_.size() + num_pages));
  }
  // After an update that was made in part: no checkpoint is committed any more, and updates are refused.
  void Poison(const Status& why) {
    store_->Poison(why);
    log_.is_on() ? log_.Fail(why) : progress_.Ask();
  }

  bool NeedsEviction() const { return needs_eviction_.load(std::memory_order_relaxed); }
  // Evicts pages beyond the limit, and pauses if too much has changed. REQUIRES: the thread holds
  // no lock
  void EvictIfNeeded();

  // ---- long values: ids whose images are not pages ----

  class Deferred;  // tree/page_long-inl.h
  class LongRead;  // also there
  bool has_long_values() const { return long_values_.num_values() != 0; }
  // The value is copied when `deferred` finishes; until then its readers wait. Then the thread
  // waits too, if too many values are not in the file yet.
  std::uint64_t StoreLong(std::string_view value, Deferred& deferred);
  void FreeLong(const format::OverflowValue& value, Deferred& deferred);

  // ---- for the Checkpointer ----

  // Whether something has changed since the last checkpoint began.
  bool IsDirty() const { return dirty_.has_changed(); }
  void NoteChange() { dirty_.NoteChange(); }
  DirtyPages& dirty() { return dirty_; }
  LongValues& long_values() { return long_values_; }
  using Log = log::UpdateLog<log::LogFileOf<FileT>>;
  CheckpointProgress& progress() { return progress_; }
  Log& log() { return log_; }
  PageArena& arena() { return *arena_; }
  const char* At(const Line& line) const { return At(std::atomic_ref(const_cast<Line&>(line).unit).load(std::memory_order_relaxed)); }
  // Begins a checkpoint of the store. The first call finds the free ids.
  Status BeginStore() {
    const std::int64_t changed = std::max<std::int64_t>(dirty_.bytes(), 0);
    return store_->Begin([this](std::uint32_t first, std::uint32_t end) { arena_->FreeIds(first, end); },
                         static_cast<std::uint64_t>(changed));
  }
  // Locks a page, unless it was freed or evicted.
  bool LockPage(std::uint32_t id);
  // Pages that are not evicted until they are unpinned. REQUIRES: the caller has locked the page
  void Pin(std::uint32_t id) {
    sync::VersionLock(lines_[id].version).AssertLocked();
    sync::MutexLock lock(states_.mutex);
    states_.SetFlag(id, PageStates::kPinned, true);
  }
  void Unpin(std::span<const std::uint32_t> ids) {
    sync::MutexLock lock(states_.mutex);
    for (const std::uint32_t id : ids) states_.SetFlag(id, PageStates::kPinned, false);
  }
  // The bytes that finished updates hold (HeldPages) until a checkpoint that began later has ended,
  // and calls ReleaseHeld.
  std::uint64_t unsaved_held_bytes() const { return unsaved_held_bytes_.load(std::memory_order_relaxed); }
  void ReleaseHeld(std::uint64_t bytes) { unsaved_held_bytes_.fetch_sub(bytes, std::memory_order_relaxed); }
  void EvictToLimit(std::uint64_t bytes);
  void ShrinkMemory();

 private:
  // Address space for pages that are made while none can be evicted, for example by a large update.
  static constexpr std::uint64_t kSpare = std::uint64_t{32} << 30;
  static constexpr std::uint64_t kBytesMax = PageArena::kBytesMax - kSpare;
  static constexpr std::size_t kCooledAtOnce = 16;
  // Of the hand, over kCooledAtOnce pages each, to find one page to evict.
  static constexpr unsigned kMovesMax = 8;
  // By one thread, as other threads wait for the lock.
  static constexpr unsigned kEvictedAtOnce = 64;
  static constexpr std::uint64_t kIdsSpare = 1024;
  // Unpacked images share one buffer.
  static constexpr std::size_t kInstalledTogether = std::same_as<Codec, NoCodec> ? 16 : 1;
  static constexpr std::size_t kAheadMax = 512, kAheadParts = 8, kUsualPage = 8192;
  static constexpr std::size_t kImageRoom = (format::kPageImageMax + 8 + 4095) / 4096 * 4096;

  struct HowToInstall {
    int level;  // that the pages must have; -1: any
    bool once;
    bool must;  // allocate memory, beyond the limit if necessary
  };
  struct Arrived {
    std::uint32_t id;
    std::span<const std::byte> bytes;  // its image
    Status status = {};                // if not OK, there is no image, or it is damaged
    std::uint32_t unit = 0;            // where the page lies in memory
  };

  BufferPool(std::unique_ptr<PageStore<FileT>> store, std::unique_ptr<PageArena> arena, storage::ReservedMemory states,
             storage::ReservedMemory dirty, const PoolLimits& limits, std::function<void()> ask)
      : store_(std::move(store)),
        arena_(std::move(arena)),
        lines_(arena_->lines()),
        memory_(arena_->memory()),
        limits_(limits),
        root_(store_->super().root),
        states_(std::move(states), arena_->id_mask()),
        dirty_(std::move(dirty), *arena_, limits.order.inlined, limits.kind),
        long_values_(store_->super().num_long),
        progress_(std::move(ask)),
        read_ahead_(ahead_max() / kAheadParts + 1, [this](std::span<const std::uint32_t> ids, int level) { LoadSome(ids, level); }) {}

  // Frees the id of a page or a long value: now, or when the next checkpoint has dropped its image.
  void ForgetId(std::uint32_t id) {
    if (dirty_.Forget(id)) arena_->FreePage(id);
  }
  // Whether an id is a long value's. In the file, that is an id that no page has registered as its
  // child.
  bool IsLong(std::uint64_t id) const {
    if (id >= arena_->page_end() || arena_->IsFree(static_cast<std::uint32_t>(id))) return false;
    const auto word = std::atomic_ref(lines_[id].version).load(std::memory_order_relaxed);
    const PageStates::State state = states_.Of(static_cast<std::uint32_t>(id));
    return state == PageStates::kLong || (state == PageStates::kEvicted && (word & sync::VersionLock::kLocked) == 0);
  }
  std::uint64_t TableBytes() const { return arena_->page_end() * (sizeof(Line) + 2) + store_->pages().bytes(); }
  // A thread that stores a long value waits while this many bytes of long values are not in the
  // file.
  std::uint64_t UnsavedMax() const { return limits_.memory_bytes / 8; }
  std::uint64_t PageLimit() const;
  std::uint64_t used_bytes() const { return used_units_.load(std::memory_order_relaxed) * format::kPageUnit; }
  // An eighth stays free, as pages of many sizes never fill all memory.
  bool IsOverLimit() const { return used_bytes() > limits_.memory_bytes / 4 && used_bytes() > PageLimit() / 8 * 7; }
  std::chrono::microseconds Pause() const;

  void GiveBack(std::uint32_t first, unsigned units) {
    used_units_.fetch_sub(units, std::memory_order_relaxed);
    arena_->Free(first, units);
  }
  [[gnu::noinline]] void MarkDirtySlowly(Line& line) {
    dirty_.Add(line);
    NoteDirty(line.shape.size());
  }
  // The changed pages grow by this many bytes.
  void NoteDirty(std::uint64_t bytes) {
    const auto size = static_cast<std::int64_t>(bytes);
    AskIfDue(dirty_.AddBytes(size) + dirty_.long_bytes(), size);
    if (Pause().count() != 0) needs_eviction_.store(true, std::memory_order_relaxed);
  }
  // Requests a checkpoint if `size` more bytes exceed the limit; `before` bytes had changed
  // already.
  void AskIfDue(std::int64_t before, std::int64_t size) {
    dirty_.NoteChange();
    const auto limit = static_cast<std::int64_t>(limits_.dirty_bytes);
    if (before <= limit && before + size > limit) progress_.Ask();
  }
  char* At(std::uint32_t unit) const { return memory_ + std::uint64_t{unit} * format::kPageUnit; }
  // Lists the page for the CLOCK hand. False if out of memory.
  bool List(std::uint32_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(states_.mutex) {
    if (!states_.Has(id, PageStates::kListed)) states_.SetFlag(id, PageStates::kListed, TryPushBack(resident_, id));
    return states_.Has(id, PageStates::kListed);
  }
  void Install(std::span<Arrived> pages, const HowToInstall& how);
  // Loads those of these pages that are evicted. Pages that fail or find no room stay evicted.
  void LoadSome(std::span<const std::uint32_t> ids, int level);
  Status LoadPage(std::uint32_t id, const HowToInstall& how);
  StatusOr<PageImage> Parse(const Arrived& page, int level, std::span<std::byte> unpacked) const;
  Status FindPlace(std::uint32_t id, const PageImage& image, bool must, std::uint32_t* unit) ABSL_EXCLUSIVE_LOCKS_REQUIRED(states_.mutex);
  bool RegisterChildren(const PageImage& image) ABSL_EXCLUSIVE_LOCKS_REQUIRED(states_.mutex);
  void ForgetChildren(const PageImage& image, unsigned count);
  std::uint32_t AllocateSlowly(unsigned units);
  std::uint32_t FindMemory(unsigned units, bool must) ABSL_EXCLUSIVE_LOCKS_REQUIRED(states_.mutex);
  bool EvictOne() ABSL_EXCLUSIVE_LOCKS_REQUIRED(states_.mutex);
  void CoolSome() ABSL_EXCLUSIVE_LOCKS_REQUIRED(states_.mutex);
  bool MayGo(std::uint32_t id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(states_.mutex);
  bool LockForEviction(std::uint32_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(states_.mutex);
  void Evict(std::uint32_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(states_.mutex);
  bool IsBehind(const Line& line, std::uint64_t end) const;
  void WaitForLongValues();

  std::unique_ptr<PageStore<FileT>> store_;
  std::unique_ptr<PageArena> arena_;
  Line* const lines_;
  char* const memory_;
  const PoolLimits limits_;
  const ExpectedBounds bounds_{lines_};
  std::uint32_t root_;
  sync::WriteGate gate_;

  PageStates states_;
  DirtyPages dirty_;
  LongValues long_values_;
  CheckpointProgress progress_;
  alignas(64) std::atomic<std::uint64_t> used_units_{0};
  std::atomic<bool> needs_eviction_{false};
  Log log_{progress_, needs_eviction_};
  // Added to the limit, see HeldPages; and the part of it that belongs to finished updates.
  std::atomic<std::uint64_t> held_bytes_{0}, unsaved_held_bytes_{0};

  sync::ConditionVariable loaded_;
  // The CLOCK: ids of cached pages, and of some that no longer are.
  std::vector<std::uint32_t> resident_ ABSL_GUARDED_BY(states_.mutex);
  std::size_t hand_ ABSL_GUARDED_BY(states_.mutex) = 0;
  // Ids in the order in which they began to cool; some no longer do.
  std::deque<std::uint32_t> cooling_ ABSL_GUARDED_BY(states_.mutex);
  // Ids of the pages that scans passed last; some are no longer cached.
  std::deque<std::uint32_t> behind_ ABSL_GUARDED_BY(states_.mutex);
  // Held by the update that holds pages.
  sync::Mutex hold_mutex_ ABSL_ACQUIRED_BEFORE(kMaintenanceLocks);

  PageReadAhead read_ahead_;  // destroyed first: its threads use the other members
};

}  // namespace hako::tree

#include "hako/tree/buffer_pool-inl.h"
#include "hako/tree/page_eviction-inl.h"
#include "hako/tree/page_hold-inl.h"
#include "hako/tree/page_long-inl.h"

static_assert(hako::tree::PageSpace<hako::tree::BufferPool<hako::MemoryMapParallelFile>>);
