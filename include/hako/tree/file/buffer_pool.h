// The pages of a file in memory: the space of TreeDBM (tree/page_space.h). Cached pages are in page
// memory like BabyDBM's pages. All others are only in the file (tree/file/page_store.h) and are
// loaded on demand. tree/file/page_states.h has the states of a page.
//
// The line of an evicted page is locked, so a search that reaches it calls LoadPage, and a search
// of cached pages pays nothing. CLOCK (tree/file/page_clock.h) chooses the pages to evict, without
// a write by readers: the hand takes a cached page, locks its line and appends it to the queue of
// cooling pages. Pages at the front of the queue are evicted when memory is needed. A thread that
// needs a cooling page finds it intact and only unlocks it (the cooling stage of LeanStore: Leis et
// al. 2018). A page that a long scan has loaded goes to the front of the queue or, where the file
// is larger than the memory, is evicted soon after the scan has passed it. So a scan needs little
// memory and takes none from other threads. Inner pages are never evicted.
//
// A scan that has missed many leaves requests the leaves and the inner pages that it will need.
// Background threads read them in batches, adjacent pages by one read
// (tree/file/page_read_ahead.h).
//
// Changed pages (tree/file/dirty_pages.h) stay in memory until a checkpoint (tree/file/checkpointer.h) has
// written them. No Set of a short value waits until a checkpoint has ended. As the pages that
// cannot be evicted approach their limit, each thread that changes a page pauses after it has
// released its locks, for a time that doubles with each 32nd of the limit, up to four milliseconds.
// So writers slow down to the speed of the device in small steps. The limit is soft: beyond it the
// pause doubles with each further eighth of the limit, or each 4 MiB if that is more, up to one
// second. Loading a page never waits for a checkpoint.
//
// Long values are copied, read, written and freed while no page is locked (tree/file/long_read.h).
// Until a checkpoint has written them they are in separate memory. A thread that stores long values
// waits if this memory is used up; a thread that changes pages does not.
//
// Invariants
//   1. All memory stays readable (tree/memory/page_arena.h). A page whose memory was freed has another
//      version when its line is next unlocked, so readers that still read that memory notice.
//   2. Long values are never changed.
//
// Thread-safe, except the functions that say otherwise. tree/lock_order.h has the order of locks.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "hako/base/no_memory.h"
#include "hako/base/page_codec.h"
#include "hako/base/status.h"
#include "hako/file/memory_map_parallel_file.h"
#include "hako/format/page_format.h"
#include "hako/log/update_log.h"
#include "hako/sync/mutex.h"
#include "hako/sync/version_lock.h"
#include "hako/sync/write_gate.h"
#include "hako/tree/file/checkpoint_progress.h"
#include "hako/tree/file/dirty_pages.h"
#include "hako/tree/file/expected_bounds.h"
#include "hako/tree/file/held_pages.h"
#include "hako/tree/file/long_read.h"
#include "hako/tree/file/long_values.h"
#include "hako/tree/file/page_clock.h"
#include "hako/tree/file/page_encoding.h"
#include "hako/tree/file/page_evacuation.h"
#include "hako/tree/file/page_image.h"
#include "hako/tree/file/page_kind.h"
#include "hako/tree/file/page_read_ahead.h"
#include "hako/tree/file/page_states.h"
#include "hako/tree/file/page_store.h"
#include "hako/tree/file/pool_memory.h"
#include "hako/tree/file/unsaved_value.h"
#include "hako/tree/lock_order.h"
#include "hako/tree/memory/page_arena.h"
#include "hako/tree/page_space.h"

namespace hako::tree {

struct PoolLimits {
  std::uint64_t memory_bytes;  // limit of all memory that the pool uses
  // Once changed pages and long values have more bytes than this, a checkpoint is requested.
  std::uint64_t dirty_bytes;
  format::PageOrder order;
  const PageKind* kind = nullptr;  // kind of the pages; nullptr: pages of a B+ tree, in this order
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
    log::Lsn lsn = 0;  // position after the snapshot's last update in the log
    log::AheadRun logged_ahead;
  };

  // `ask` is called, from any thread, when a checkpoint is due. The limits are lower if the process
  // has little address space.
  static StatusOr<std::unique_ptr<BufferPool>> Create(std::unique_ptr<PageStore<FileT>> store, PoolLimits limits,
                                                      std::function<void()> ask) {
    const std::uint64_t id_capacity = store->pages().id_capacity();
    const std::uint64_t wanted = std::min(limits.memory_bytes, kBytesMax);
    const std::uint64_t small = std::min(limits.memory_bytes / 16, storage::Arena::kSmallUsual);
    HAKO_ASSIGN_OR_RETURN(auto arena, PageArena::Create(wanted + kSpare, small, id_capacity));
    HAKO_ASSIGN_OR_RETURN(auto states, storage::ReservedMemory::Reserve(id_capacity));
    HAKO_ASSIGN_OR_RETURN(auto dirty, storage::ReservedMemory::Reserve(id_capacity));
    // If the process has little address space, the spare is half of the room for pages.
    const std::uint64_t room = arena->max_page_bytes();
    limits.memory_bytes = std::min(limits.memory_bytes, room - std::min(room / 2, kSpare));
    limits.dirty_bytes = std::min(limits.dirty_bytes, limits.memory_bytes / 2);
    HAKO_RETURN_IF_ERROR(arena->RestorePages(store->super().id_end));
    const format::TreeSuperBlock super = store->super();
    std::unique_ptr<BufferPool> pool(
        new BufferPool(std::move(store), std::move(arena), std::move(states), std::move(dirty), limits, std::move(ask)));
    if (const std::uint32_t root = super.root; root != 0) {
      std::atomic_ref(pool->lines_[root].version).store(sync::VersionLock::kLocked);
      if (limits.kind != nullptr)
        pool->bounds_.Store(root, limits.kind->root_level(), 0);
      else
        pool->bounds_.Store(root, {}, {}, format::PageTail::kNoLow | format::PageTail::kNoHigh);
      HAKO_RETURN_IF_ERROR(pool->LoadPage(root, -1, false));
    }
    // If many ids are free, they are found now and used first; otherwise the first checkpoint finds
    // them.
    const bool is_sparse = super.num_ids != 0 && super.id_end > PageArena::kFirstId + super.num_ids + super.num_ids / 4 + kIdsSpare;
    // The first checkpoint reports the error.
    if (is_sparse && pool->store_->file().IsWritable()) (void)pool->BeginStore();
    return pool;
  }

  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  PageStore<FileT>& store() { return *store_; }
  const PoolLimits& limits() const { return limits_; }
  // Sets the root of a new tree. The root is never evicted.
  void SetRoot(std::uint32_t id) { clock_.SetRoot(id); }
  sync::WriteGate& gate() { return gate_; }
  std::uint32_t id_mask() const { return arena_->id_mask(); }
  Line* lines() const { return lines_; }
  char* memory() const { return memory_; }
  std::uint64_t memory_bytes() const { return arena_->page_bytes() + page_memory_.TableBytes() + long_values_.unsaved_bytes(); }
  std::uint64_t num_pages() const { return arena_->num_pages(); }

  // ---- pages ----

  std::uint32_t NewPage() {
    const std::uint32_t id = arena_->NewPage();
    if (id == 0) return 0;
    if (!dirty_.TryAddNew(lines_[id])) return arena_->FreePage(id), 0;
    {
      sync::MutexLock lock(clock_.states.mutex);
      if (clock_.List(id)) return clock_.states.Set(id, PageStates::kCached), id;
    }
    DirtyPages::StoreMark(lines_[id], 0);
    return arena_->FreePage(id), 0;
  }

  // REQUIRES: the line is locked, and the memory of the page was freed (unchecked: the line does
  // not tell)
  void FreePage(std::uint32_t id) {
    sync::VersionLock(lines_[id].version).AssertLocked();
    DirtyPages::StoreMark(lines_[id], 0);
    {
      sync::MutexLock lock(clock_.states.mutex);
      sync::VersionLock(lines_[id].version).Advance();  // makes copies of the page stale, although the line may stay locked
      clock_.states.Set(id, PageStates::kFree);
    }
    ForgetId(id);
  }
  bool DiscardEvicted(std::uint32_t id, bool unseen) {
    {
      sync::MutexLock lock(clock_.states.mutex);
      if (clock_.states.Of(id) != PageStates::kEvicted || (has_long_values() && !unseen)) return false;
      sync::VersionLock(lines_[id].version).Advance();
      clock_.states.Set(id, PageStates::kFree);
    }
    ForgetId(id);
    return true;
  }

  std::uint32_t Allocate(unsigned units) {
    std::uint32_t unit = page_memory_.Take(units, page_memory_.Limit());
    if (unit == 0) unit = clock_.TakeForChange(units);
    if (unit == 0) return 0;
    NoteDirty(units * format::kPageUnit);
    if (page_memory_.IsOverLimit()) needs_eviction_.store(true, std::memory_order_relaxed);
    return unit;
  }
  void Free(std::uint32_t first, unsigned units) {
    dirty_.AddBytes(-static_cast<std::int64_t>(units * format::kPageUnit));
    page_memory_.GiveBack(first, units);
  }
  bool HasRoomFor(std::uint64_t bytes) const { return arena_->HasRoomFor(bytes); }

  bool IsEvicted(std::uint32_t id) const {
    const PageStates::State state = clock_.states.Of(id);
    return state == PageStates::kEvicted || state == PageStates::kLoading || state == PageStates::kCooling;
  }
  // Whether the page is neither in memory nor being loaded.
  bool MustBeRead(std::uint32_t id) const { return clock_.states.Of(id) == PageStates::kEvicted; }
  Status LoadPage(std::uint32_t id, int level, bool once) { return LoadPage(id, {.level = level, .once = once, .must = true}); }
  // Loads those of these pages that are evicted, by concurrent reads. Pages that cannot be read, or
  // for which there is no room, stay evicted.
  void LoadPages(std::span<const std::uint32_t> ids, int level, bool once) {
    if constexpr (BatchFile<FileT>) {
      absl::InlinedVector<typename SharedPageMap<FileT>::ImageRequest, 32> images;
      images.reserve(ids.size());
      {
        sync::MutexLock lock(clock_.states.mutex);
        for (const std::uint32_t id : ids) {
          const bool is_locked = (sync::VersionLock(lines_[id].version).ReadVersion() & sync::VersionLock::kLocked) != 0;
          if (clock_.states.Of(id) != PageStates::kEvicted || !is_locked) continue;
          clock_.states.Set(id, PageStates::kLoading);
          images.push_back({id});
        }
      }
      HAKO_TRY { store_->pages().ReadMulti(images); }
      HAKO_CATCH_NO_MEMORY()  // pages not read so far stay evicted
      for (std::size_t i = 0; i < images.size(); i += kInstalledTogether) {
        std::array<Arrived, kInstalledTogether> pages;
        const std::size_t count = std::min(images.size() - i, kInstalledTogether);
        for (std::size_t j = 0; j < count; ++j) pages[j] = {images[i + j].id, images[i + j].image};
        Install(std::span(pages).first(count), {.level = level, .once = once, .must = false});
      }
    }
  }

  // As LoadPages, but in background threads. Returns false, and queues nothing, if too much is
  // queued already, no thread can be started, or StopReadingAhead was called.
  bool ReadAhead(std::span<const std::uint32_t> ids, int level) { return read_ahead_.Request(ids, level); }
  // Loads evicted leaves that will be changed soon, half of them in background threads.
  void LoadLeaves(std::span<const std::uint32_t> ids) {
    const std::size_t half = read_ahead_.Request(ids.subspan(ids.size() / 2), 0) ? ids.size() / 2 : ids.size();
    LoadSome(ids.first(half), 0);
  }
  // Called when a scan has copied the page. If a scan has loaded it and the file is larger than the
  // memory, it is evicted soon, so the scan continues in the memory that it has and does not take
  // other threads' pages.
  void Demote(std::uint32_t id) {
    if (clock_.states.Of(id) != PageStates::kProbationary || store_->file_bytes() <= limits_.memory_bytes / 8 * 7) return;
    clock_.EvictBehindScan(id, ahead_max());
  }
  // How many pages may be read ahead of a scan.
  std::size_t ahead_max() const { return std::min<std::size_t>(kAheadMax, limits_.memory_bytes / 16 / HeldPages::kUsualPage); }
  // Stops the threads that read ahead, and drops the queued requests.
  void StopReadingAhead() { read_ahead_.Stop(); }
  struct HeldPages : tree::HeldPages {
    explicit HeldPages(BufferPool& pool) ABSL_NO_THREAD_SAFETY_ANALYSIS : tree::HeldPages(pool.holds_) {}
  };
  // Whether an update of this many pages should hold them, because otherwise other threads would
  // have to wait for the checkpoint that writes them.
  bool IsLarge(std::size_t num_pages) const { return num_pages * HeldPages::kUsualPage > limits_.memory_bytes / 8; }

  std::uint8_t mark() const { return dirty_.mark(); }
  HAKO_INLINE void MarkDirty(Line& line) {
    if (!dirty_.Has(line)) [[unlikely]]
      MarkDirtySlowly(line);
  }

  // Also reserves room for these pages in the list of pages in memory.
  void ReserveDirty(std::size_t num_pages) {
    dirty_.Reserve(num_pages);
    clock_.Reserve(num_pages);
  }
  // Call this after an update that was made only in part. From then on no checkpoint is committed,
  // and updates are refused.
  void Poison(const Status& why) {
    store_->Poison(why);
    log_.is_on() ? log_.Fail(why) : progress_.Ask();
  }

  bool NeedsEviction() const { return needs_eviction_.load(std::memory_order_relaxed); }
  // Evicts pages beyond the limit, and pauses if too much has changed. REQUIRES: the thread holds
  // no lock
  void EvictIfNeeded() {
    clock_.states.mutex.AssertNotHeld();
    needs_eviction_.store(false, std::memory_order_relaxed);
    log_.PauseIfLong();
    // No pause after a failed checkpoint: there may be no disk space for a long time.
    if (const std::chrono::microseconds pause = Pause(); pause.count() != 0 && !progress_.has_failed())
      progress_.WaitFor(pause, [this] { return Pause().count() == 0; });
    if (clock_.EvictSome()) needs_eviction_.store(true, std::memory_order_relaxed);
  }

  // ---- long values: ids whose images are not pages ----

  // The work that an update defers until it holds no lock: it copies values that the tree already
  // names, and frees the memory of others. Finish or the destructor does it. REQUIRES: by then the
  // thread has released its locks, and the values it stored are still valid (unchecked: neither
  // leaves a trace)
  class Deferred {
   public:
    explicit Deferred(BufferPool& pool) : pool_(pool) {}
    Deferred(const Deferred&) = delete;
    ~Deferred() { Finish(); }
    void Finish() {
      for (const auto& [to, value] : copies_) to->Fill(value);
      copies_.clear();
      dropped_.clear();
      if (std::exchange(waits_, false)) pool_.WaitForLongValues();
    }

    // Used by StoreLong and FreeLong: Finish copies the bytes to `to`, and drops the value. If
    // memory runs out, Drop drops it at once.
    void Fill(std::shared_ptr<UnsavedValue> to, std::string_view value) { copies_.emplace_back(std::move(to), value); }
    void Drop(std::shared_ptr<UnsavedValue> value) { (void)TryPushBack(dropped_, std::move(value)); }
    void Reserve() { copies_.reserve(copies_.size() + 1); }
    void WaitAtEnd() { waits_ = true; }

   private:
    BufferPool& pool_;
    absl::InlinedVector<std::pair<std::shared_ptr<UnsavedValue>, std::string_view>, 1> copies_;
    absl::InlinedVector<std::shared_ptr<UnsavedValue>, 1> dropped_;
    bool waits_ = false;  // whether Finish must wait until other long values are written
  };
  using LongRead = tree::LongRead<FileT>;
  bool has_long_values() const { return long_values_.num_values() != 0; }
  // `deferred` copies the value when it finishes; until then readers of the value wait. If too many
  // values are not yet in the file, the thread waits after the copy.
  std::uint64_t StoreLong(std::string_view value, Deferred& deferred) {
    std::shared_ptr<UnsavedValue> unsaved = UnsavedValue::Make(value.size());
    if (unsaved == nullptr) return 0;
    deferred.Reserve();
    const std::uint32_t id = arena_->NewPage();
    if (id == 0) return 0;
    const std::uint64_t before = long_values_.unsaved_bytes();
    if (!long_values_.Add(id, unsaved)) return arena_->FreePage(id), 0;
    deferred.Fill(std::move(unsaved), value);
    {
      sync::MutexLock lock(clock_.states.mutex);
      clock_.states.Set(id, PageStates::kLong);
    }
    sync::VersionLock(lines_[id].version).Unlock(false);  // it is that of no page, see PageArena::FreeId
    dirty_.AddNewId(id);
    if (before > page_memory_.UnsavedMax()) deferred.WaitAtEnd();
    const auto size = static_cast<std::int64_t>(value.size());
    AskIfDue(dirty_.AddLongBytes(size) + dirty_.bytes(), size);
    return id;
  }

  void FreeLong(const format::OverflowValue& value, Deferred& deferred) {
    const auto id = static_cast<std::uint32_t>(value.place);
    {
      sync::MutexLock lock(clock_.states.mutex);
      if (!IsLong(value.place)) return;  // the file is damaged
      clock_.states.Set(id, PageStates::kFree);
    }
    std::shared_ptr<UnsavedValue> unsaved = long_values_.Remove(id);
    const bool is_new = dirty_.Forget(id);
    if (unsaved != nullptr && is_new) dirty_.AddLongBytes(-static_cast<std::int64_t>(unsaved->size()));
    if (unsaved != nullptr) deferred.Drop(std::move(unsaved));
    if (is_new) arena_->FreeId(id);
    dirty_.NoteChange();
  }

  // ---- for the Checkpointer ----

  // Whether something has changed since the last checkpoint began.
  bool IsDirty() const { return dirty_.has_changed(); }
  void NoteChange() { dirty_.NoteChange(); }
  DirtyPages& dirty() { return dirty_; }
  LongValues& long_values() { return long_values_; }
  PageClock& clock() { return clock_; }
  PageHolds& holds() { return holds_; }
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
  bool LockPage(std::uint32_t id) {
    for (sync::Backoff backoff; !sync::VersionLock(lines_[id].version).TryLock(); backoff.Pause()) {
      const PageStates::State state = clock_.states.Of(id);
      if (state == PageStates::kCooling)
        (void)LoadPage(id, -1, false);
      else if (!clock_.states.IsInMemory(id))
        return false;
    }
    if (clock_.states.IsInMemory(id)) return true;
    sync::VersionLock(lines_[id].version).Unlock(false);  // an id without a page
    return false;
  }

  // Keeps a page from being evicted until it is unpinned. REQUIRES: the caller has locked the page
  void Pin(std::uint32_t id) {
    sync::VersionLock(lines_[id].version).AssertLocked();
    sync::MutexLock lock(clock_.states.mutex);
    clock_.states.SetFlag(id, PageStates::kPinned, true);
  }
  void Unpin(std::span<const std::uint32_t> ids) {
    sync::MutexLock lock(clock_.states.mutex);
    for (const std::uint32_t id : ids) clock_.states.SetFlag(id, PageStates::kPinned, false);
  }
  // Frees a forgotten id, which no checkpoint names now: that of a page, whose line is still
  // locked, or of a long value.
  void FreeForgotten(std::uint32_t id) { sync::VersionLock(lines_[id].version).IsLocked() ? arena_->FreePage(id) : arena_->FreeId(id); }
  // Call when the tables have grown, so that pages must take less memory.
  void ShrinkMemory() { PageEvacuation(*arena_, clock_).ShrinkTo(page_memory_.Limit()); }

 private:
  // Address space for pages that are made while none can be evicted, for example by a large update.
  static constexpr std::uint64_t kSpare = std::uint64_t{32} << 30;
  static constexpr std::uint64_t kBytesMax = PageArena::kBytesMax - kSpare;
  static constexpr std::uint64_t kIdsSpare = 1024;
  // Images that are installed together: one if they are compressed, because decompressed images
  // share one buffer.
  static constexpr std::size_t kInstalledTogether = std::same_as<Codec, NoCodec> ? 16 : 1;
  static constexpr std::size_t kAheadMax = 512, kAheadParts = 8;
  static constexpr std::size_t kImageRoom = (format::kPageImageMax + 8 + 4095) / 4096 * 4096;

  struct HowToInstall {
    int level;  // level that the pages must have; -1: any
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
        dirty_(std::move(dirty), *arena_, limits.order.inlined, limits.kind),
        long_values_(store_->super().num_long),
        page_memory_(*arena_, long_values_, store_->pages().byte_counter(), limits.memory_bytes),
        clock_(std::move(states), arena_->id_mask(), lines_, page_memory_, dirty_, bounds_, store_->super().root),
        progress_(std::move(ask)),
        read_ahead_(ahead_max() / kAheadParts + 1, [this](std::span<const std::uint32_t> ids, int level) { LoadSome(ids, level); }) {}

  // Frees the id of a page or a long value: now, or when the next checkpoint has dropped its image.
  void ForgetId(std::uint32_t id) {
    if (dirty_.Forget(id)) arena_->FreePage(id);
  }
  // Whether the id is that of a long value. If the value is in the file, this means that no page
  // has registered the id as its child.
  bool IsLong(std::uint64_t id) const {
    if (id >= arena_->page_end() || arena_->IsFree(static_cast<std::uint32_t>(id))) return false;
    const auto word = std::atomic_ref(lines_[id].version).load(std::memory_order_relaxed);
    const PageStates::State state = clock_.states.Of(static_cast<std::uint32_t>(id));
    return state == PageStates::kLong || (state == PageStates::kEvicted && (word & sync::VersionLock::kLocked) == 0);
  }
  // Returns how long a thread pauses after it has changed a page.
  std::chrono::microseconds Pause() const { return page_memory_.PauseAt(dirty_.staying_bytes()); }

  [[gnu::noinline]] void MarkDirtySlowly(Line& line) {
    dirty_.Add(line);
    NoteDirty(line.shape.size());
  }
  // Adds this many bytes to the size of the changed pages.
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
  // Installs the images of pages that are kLoading. A page stays evicted after an error, and if
  // there is no room for it unless `must`. Checks and copies the images without the lock, because
  // both take long.
  void Install(std::span<Arrived> pages, const HowToInstall& how) {
    std::byte unpacked[std::same_as<Codec, NoCodec> ? 1 : kImageRoom];
    std::array<std::optional<PageImage>, kInstalledTogether> images;
    for (std::size_t i = 0; i < pages.size(); ++i) {
      StatusOr<PageImage> image = CatchNoMemory([&] { return Parse(pages[i], how.level, unpacked); });
      if (image.ok()) images[i] = *image;
      pages[i].status = image.status();
    }
    {
      sync::MutexLock lock(clock_.states.mutex);
      for (std::size_t i = 0; i < pages.size(); ++i) {
        if (!images[i]) continue;
        HAKO_TRY { pages[i].status = FindPlace(pages[i].id, *images[i], how.must, &pages[i].unit); }
        HAKO_CATCH_NO_MEMORY(pages[i].status = NoMemoryError();)  // no memory for the text of an error
      }
    }
    for (std::size_t i = 0; i < pages.size(); ++i) {
      if (!pages[i].status.ok()) continue;
      Line& line = lines_[pages[i].id];
      images[i]->Store(At(pages[i].unit), line.hints);
      std::atomic_ref(line.unit).store(pages[i].unit, std::memory_order_relaxed);
      std::atomic_ref(line.shape).store(images[i]->shape(), std::memory_order_relaxed);
    }
    sync::MutexLock lock(clock_.states.mutex);
    for (const Arrived& page : pages) {
      clock_.states.Set(page.id, !page.status.ok() ? PageStates::kEvicted : how.once ? PageStates::kProbationary : PageStates::kCached);
      if (!page.status.ok()) continue;
      sync::VersionLock(lines_[page.id].version).Unlock(true);
    }
    loaded_.NotifyAll();
  }

  // Loads those of these pages that are evicted. Pages that cannot be read, or for which there is
  // no room, stay evicted.
  void LoadSome(std::span<const std::uint32_t> ids, int level) {
    if constexpr (BatchFile<FileT>) {
      LoadPages(ids, level, level == 0);
    } else {
      for (const std::uint32_t id : ids) (void)LoadPage(id, {.level = level, .once = level == 0, .must = false});
    }
  }

  Status LoadPage(std::uint32_t id, const HowToInstall& how) {
    Line& line = lines_[id];
    {
      sync::MutexLock lock(clock_.states.mutex);
      while (clock_.states.Of(id) == PageStates::kLoading) loaded_.Wait(clock_.states.mutex);
      if (clock_.states.Of(id) == PageStates::kCooling) {
        clock_.states.Set(id, PageStates::kCached);
        sync::VersionLock(line.version).Unlock(false);
        return absl::OkStatus();
      }
      const bool is_locked = (sync::VersionLock(line.version).ReadVersion() & sync::VersionLock::kLocked) != 0;
      if (clock_.states.Of(id) != PageStates::kEvicted || !is_locked) return absl::OkStatus();
      clock_.states.Set(id, PageStates::kLoading);
    }
    alignas(64) std::byte bytes[kImageRoom];
    const StatusOr<std::size_t> size =
        CatchNoMemory([&] { return store_->pages().Read(id, std::span(bytes).first(format::kPageImageMax)); });
    Arrived page{id, std::span(bytes).first(size.ok() ? *size : 0), size.status()};
    Install(std::span(&page, 1), how);
    return page.status;
  }

  // Checks an image, and that its level and fences are those that the tree expects.
  StatusOr<PageImage> Parse(const Arrived& page, int level, std::span<std::byte> unpacked) const {
    HAKO_RETURN_IF_ERROR(page.status);
    HAKO_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes, Unpack<Codec>(page.id, page.bytes, unpacked));
    const bool is_other = limits_.kind != nullptr;
    HAKO_ASSIGN_OR_RETURN(PageImage image, is_other ? PageImage::Parse(page.id, bytes, *limits_.kind, arena_->page_end())
                                                    : PageImage::Parse(page.id, bytes, limits_.order, arena_->page_end()));
    if (level >= 0 && image.shape().level() != static_cast<unsigned>(level))
      return absl::DataLossError(absl::StrCat("page ", page.id, ": level does not match the parent"));
    if (is_other) {
      if (bounds_.Match(page.id, image.shape().level(), image.other().number)) return image;
      return absl::DataLossError(absl::StrCat("page ", page.id, ": number does not match the page that names it"));
    }
    if (!bounds_.Match(page.id, image)) return absl::DataLossError(absl::StrCat("page ", page.id, ": fence keys do not match the parent"));
    return image;
  }

  // Finds memory for a page, and registers its children.
  Status FindPlace(std::uint32_t id, const PageImage& image, bool must, std::uint32_t* unit)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(clock_.states.mutex) {
    if (!RegisterChildren(image)) return absl::DataLossError(absl::StrCat("page ", id, ": a child has another parent already"));
    *unit = clock_.TakeForLoad(image.shape().units, must);
    if (*unit != 0 && clock_.List(id)) return absl::OkStatus();
    if (*unit != 0) page_memory_.GiveBack(*unit, image.shape().units);
    ForgetChildren(image, image.num_children());
    *unit = 0;
    return NoMemoryError();
  }

  // Registers the children of an inner page. Inner pages are never evicted, so each is loaded once,
  // and its children are evicted pages that were not yet registered. From then on the lines of the
  // children are locked and hold the hash of their fences. Returns false if a child is already
  // registered or its id is not that of an evicted page, which means that the pages of the file do
  // not form a tree.
  bool RegisterChildren(const PageImage& image) ABSL_EXCLUSIVE_LOCKS_REQUIRED(clock_.states.mutex) {
    const unsigned count = image.num_children();
    PageImage::KeyBuffer buffers[2];
    std::string_view low = limits_.kind == nullptr ? image.low() : std::string_view();
    for (unsigned i = 0; i < count; ++i) {
      const std::uint32_t id = image.ChildId(i);
      std::atomic_ref version(lines_[id].version);
      if (clock_.states.Of(id) != PageStates::kEvicted || (version.load(std::memory_order_relaxed) & sync::VersionLock::kLocked) != 0) {
        ForgetChildren(image, i);
        return false;
      }
      version.fetch_or(sync::VersionLock::kLocked, std::memory_order_relaxed);
      if (limits_.kind != nullptr) {
        bounds_.Store(id, image.shape().level() - 1, limits_.kind->ChildOf(image.other(), i).number);
        continue;
      }
      const bool is_last = i + 1 == count;
      const std::string_view high = is_last ? image.high() : image.Key(i + 1, limits_.order, buffers[i % 2]);
      const unsigned edges =
          (i == 0 ? image.edges() & format::PageTail::kNoLow : 0) | (is_last ? image.edges() & format::PageTail::kNoHigh : 0);
      bounds_.Store(id, low, high, edges);
      low = high;
    }
    return true;
  }

  // Unregisters the first `count` children.
  void ForgetChildren(const PageImage& image, unsigned count) {
    for (unsigned i = 0; i < count; ++i)
      std::atomic_ref(lines_[image.ChildId(i)].version).fetch_and(~sync::VersionLock::kLocked, std::memory_order_relaxed);
  }
  // Waits until earlier long values have been written. Only threads that store long values wait here;
  // threads that change pages do not.
  void WaitForLongValues() {
    const auto has_room = [this] { return long_values_.unsaved_bytes() <= page_memory_.UnsavedMax() || progress_.has_failed(); };
    while (!has_room()) {
      // A checkpoint that is not writing may be waiting for a lock of the caller.
      if (!progress_.WaitFor(std::chrono::seconds(1), has_room) && !progress_.is_writing()) return;
    }
  }

  std::unique_ptr<PageStore<FileT>> store_;
  std::unique_ptr<PageArena> arena_;
  Line* const lines_;
  char* const memory_;
  const PoolLimits limits_;
  const ExpectedBounds bounds_{lines_};
  sync::WriteGate gate_;

  DirtyPages dirty_;
  LongValues long_values_;
  PoolMemory page_memory_;
  PageClock clock_;
  CheckpointProgress progress_;
  PageHolds holds_{clock_, page_memory_, progress_, lines_};
  std::atomic<bool> needs_eviction_{false};
  Log log_{progress_, needs_eviction_};
  sync::ConditionVariable loaded_;
  PageReadAhead read_ahead_;  // destroyed first: its threads use the other members
};

}  // namespace hako::tree

static_assert(hako::tree::PageSpace<hako::tree::BufferPool<hako::MemoryMapParallelFile>>);
