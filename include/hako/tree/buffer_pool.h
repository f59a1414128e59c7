// The pages of a file in memory: the space of TreeDBM (tree/page_space.h). Cached pages lie in page
// memory as BabyDBM's pages do; all others are only in the file (tree/page_store.h) and are loaded
// on demand.
//
// The line of an evicted page is locked, so a search that reaches one ends up in LoadPage, and a
// search of cached pages pays nothing. CLOCK chooses the pages to evict, without a write by
// readers: the hand takes a cached page, locks its line and appends it to the queue of cooling
// pages. Pages at the front of the queue are evicted when memory is needed. A thread that asks for
// a cooling page finds it intact and just unlocks it (the cooling stage of LeanStore: Leis et al.
// 2018). A page that a scan has loaded goes to the front of the queue or, where the file is larger
// than the memory, is evicted soon after the scan has passed it. So a scan needs little memory and
// takes none from other threads. Inner pages are never evicted.
//
// A scan announces the leaves and the inner pages that it will need. Background threads read them
// in batches, in which neighbours are one read, and install them; while one of the threads waits
// for the device, the others install pages.
//
// Changed pages stay in memory until a checkpoint, which runs beside readers and writers. It begins
// an epoch, for which it stops the writers for a moment. Then it copies, one by one, the pages that
// were changed before that moment; a thread that wants to change such a page first copies it for
// the checkpoint. So a checkpoint shows a single moment. Pages that it has written can be evicted
// before all of it is durable.
//
// No Set of a short value waits until a checkpoint has ended. As the pages that cannot be evicted
// approach their limit, each thread that changes a page pauses after it has released its locks, for
// a time that doubles with each 32nd of the limit, up to four milliseconds. So writers slow down to
// the speed of the device in small steps. The limit is soft: beyond it the pause doubles with each
// eighth of it, but at least 4 MiB, up to one second. Loading a page never waits for a checkpoint.
//
// Long values are copied, read, written and freed while no page is locked (tree/page_long-inl.h).
// Until a checkpoint has written them they take separate memory. A thread that stores long values
// waits for that memory; a thread that changes pages does not.
//
// Invariants
//   1. The line of a page of the tree is locked by the pool itself while the page is kAway,
//      kLoading or kCooling; these states change under mutex_.
//   2. A page whose mark is not 0 differs from its image and is not evicted. Nor is one that is
//      kPinned, whose image is only in the store's buffer. Marks other than mark() belong to the
//      previous epoch; none of these is left when an epoch begins.
//   3. An id that a checkpoint knows is reused only after a later checkpoint no longer knows its
//      page. Long values are never changed.
//   4. All memory stays readable (tree/page_arena.h). A page whose memory was freed has another
//      version when its line is next unlocked, so readers that still read that memory notice.
//
// Thread-safe, except the functions that say otherwise; checkpoints run one at a time.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <concepts>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "hako/base/hash.h"
#include "hako/base/no_memory.h"
#include "hako/base/page_codec.h"
#include "hako/base/random_seed.h"
#include "hako/base/status.h"
#include "hako/file/memory_map_parallel_file.h"
#include "hako/format/page_format.h"
#include "hako/format/record_format.h"
#include "hako/sync/background_thread.h"
#include "hako/sync/version_lock.h"
#include "hako/sync/write_gate.h"
#include "hako/tree/page_arena.h"
#include "hako/tree/page_encoding.h"
#include "hako/tree/page_image.h"
#include "hako/tree/page_space.h"
#include "hako/tree/page_store.h"
#include "hako/tree/unsaved_value.h"

namespace hako::tree {

struct PageCacheLimits {
  std::uint64_t memory_bytes;  // of all memory that the pool uses
  // Of changed pages and long values; beyond it a checkpoint is requested.
  std::uint64_t dirty_bytes;
  format::PageOrder order;
};

template <File FileT, PageCodec Codec = NoCodec>
class BufferPool {
 public:
  using Line = format::PageLine;
  using Shape = format::PageShape;
  static constexpr bool kResident = false;
  static constexpr bool kReadsAhead = BatchFile<FileT>;  // whether ReadAhead has an effect
  static constexpr std::uint64_t kPagesMax = PageArena::kPagesMax;

  struct WriterState : sync::WriterState {
    Status error;
  };

  // `ask` is called, from any thread, when a checkpoint is due.
  static StatusOr<std::unique_ptr<BufferPool>> Create(std::unique_ptr<PageStore<FileT>> store, const PageCacheLimits& limits,
                                                      std::function<void()> ask) {
    HAKO_ASSIGN_OR_RETURN(auto slab, PageArena::Create(std::min(limits.memory_bytes, kBytesMax) + kSpare,
                                                       std::min(limits.memory_bytes / 16, storage::Arena::kSmallUsual)));
    HAKO_ASSIGN_OR_RETURN(auto states, storage::ReservedMemory::Reserve(2 * kPagesMax));
    HAKO_RETURN_IF_ERROR(slab->RestorePages(store->super().id_end));
    const format::TreeSuperBlock super = store->super();
    auto cache = std::unique_ptr<BufferPool>(new BufferPool(std::move(store), std::move(slab), std::move(states), limits, std::move(ask)));
    if (const std::uint32_t root = super.root; root != 0) {
      std::atomic_ref(cache->lines_[root].version).store(sync::VersionLock::kLocked);
      cache->Expect(root, cache->HashOfBounds({}, {}, format::PageTail::kNoLow | format::PageTail::kNoHigh));
      HAKO_RETURN_IF_ERROR(cache->LoadPage(root, -1, false));
    }
    // If many ids are free, they are found now and used first; otherwise the first checkpoint finds
    // them.
    const bool is_sparse = super.num_ids != 0 && super.id_end > PageArena::kFirstId + super.num_ids + super.num_ids / 4 + kIdsSpare;
    // The first checkpoint reports an error.
    if (is_sparse && cache->store_->file().IsWritable()) (void)cache->FindFreeSpace();
    return cache;
  }
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  PageStore<FileT>& store() { return *store_; }
  const PageCacheLimits& limits() const { return limits_; }
  // Sets the root of a new tree. The root is never evicted.
  void SetRoot(std::uint32_t id) { root_ = id; }
  sync::WriteGate& gate() { return gate_; }
  Line* lines() const { return lines_; }
  char* memory() const { return memory_; }

  // ---- pages ----

  std::uint32_t NewPage() {
    const std::uint32_t id = slab_->NewPage();
    if (id == 0) return 0;
    if (!TryNoteChanged(id)) return slab_->FreePage(id), 0;
    std::lock_guard lock(mutex_);
    if (!List(id)) return slab_->FreePage(id), 0;
    StoreMark(lines_[id], lines_[id].shape, mark());
    SetState(id, kCached);
    SetFlag(id, kNew, true);
    return id;
  }
  // REQUIRES: the page's memory was freed
  void FreePage(std::uint32_t id) {
    StoreMark(lines_[id], lines_[id].shape, 0);
    std::lock_guard lock(mutex_);
    ForgetId(id);
  }
  bool DiscardEvicted(std::uint32_t id, bool unseen) {
    std::lock_guard lock(mutex_);
    if (State(id) != kAway || (num_long_ != 0 && !unseen)) return false;
    SetState(id, kFree);
    NoteFreed(id);
    return true;
  }

  std::uint32_t Allocate(unsigned units) {
    std::uint32_t unit = slab_->Allocate(units, PageLimit());
    if (unit == 0) unit = AllocateSlowly(units);
    if (unit == 0) return 0;
    used_units_.fetch_add(units, std::memory_order_relaxed);
    NoteDirty(units * format::kPageUnit);
    if (IsOverLimit()) needs_eviction_.store(true, std::memory_order_relaxed);
    return unit;
  }
  void Free(std::uint32_t first, unsigned units) {
    dirty_bytes_.fetch_sub(units * format::kPageUnit, std::memory_order_relaxed);
    GiveBack(first, units);
  }
  bool HasRoomFor(std::uint64_t bytes) const { return slab_->HasRoomFor(bytes); }

  bool IsEvicted(std::uint32_t id) const {
    const std::uint8_t state = State(id);
    return state == kAway || state == kLoading || state == kCooling;
  }
  // Whether the page is neither in memory nor being loaded.
  bool MustBeRead(std::uint32_t id) const { return State(id) == kAway; }
  Status LoadPage(std::uint32_t id, int level, bool once);
  // Loads those of these pages that are evicted, with reads that are in flight together. Pages that
  // fail or find no room stay evicted.
  void BringTogether(std::span<const std::uint32_t> ids, int level, bool once);
  // The same in background threads. False, and the pages are not queued, if too much is queued
  // already, no thread can be started, or StopReadingAhead was called.
  bool ReadAhead(std::span<const std::uint32_t> ids, int level);
  // Called when a scan has copied the page. If a scan has loaded it and the file is larger than the
  // memory, it is evicted soon, so the scan continues in the memory that it has and does not take
  // other threads' pages.
  void Demote(std::uint32_t id);
  // How many pages may be read ahead of a scan.
  std::size_t ahead_max() const { return std::min<std::size_t>(kAheadMax, limits_.memory_bytes / 16 / kUsualPage); }
  class HeldPages;  // tree/page_hold-inl.h
  // Whether an update of this many pages should hold them: other threads would otherwise have to
  // wait for the checkpoint that writes them.
  bool IsLarge(std::size_t num_pages) const { return num_pages * kUsualPage > limits_.memory_bytes / 8; }
  // Stops the threads that read ahead, and drops the queued requests.
  void StopReadingAhead() {
    decltype(readers_) readers;
    {
      std::lock_guard lock(ahead_mutex_);
      is_closing_ = true;
      readers.swap(readers_);
      ahead_.clear();
    }
  }

  std::uint8_t mark() const { return mark_.load(std::memory_order_relaxed); }
  HAKO_INLINE void MarkDirty(Line& line) {
    if ((line.shape.kind & Shape::kMark) != mark()) [[unlikely]]
      TouchSlowly(line);
  }

  bool NeedsEviction() const { return needs_eviction_.load(std::memory_order_relaxed); }
  // Evicts pages beyond the limit, and pauses if too much has changed. REQUIRES: the thread holds
  // no lock
  void EvictIfNeeded();

  // ---- long values: ids whose images are not pages ----

  class Deferred;  // tree/page_long-inl.h
  class LongRead;  // also there
  bool has_long_values() const { return num_long_.load(std::memory_order_relaxed) != 0; }
  // The value is copied when `deferred` finishes; until then its readers wait. Then the thread
  // waits too, if too many values are not in the file yet.
  std::uint64_t StoreLong(std::string_view value, Deferred& deferred);
  void FreeLong(const format::OverflowValue& value, Deferred& deferred);

  // ---- checkpoints ----

  // Makes the tree durable as of one moment of the call, beside readers and writers. Calls
  // describe(superblock) at that moment.
  template <class ForEachWriter, class F>
  Status Checkpoint(ForEachWriter&& for_each_writer, F&& describe);
  // Whether something has changed since the last checkpoint began.
  bool IsDirty() const { return changed_.load(std::memory_order_relaxed); }

  std::uint64_t memory_bytes() const { return slab_->page_bytes() + TableBytes() + unsaved_bytes_.load(std::memory_order_relaxed); }
  std::uint64_t num_pages() const { return slab_->num_pages(); }

 private:
  enum : std::uint8_t {
    kAway,
    kLoading,
    kCooling,
    kCached,
    kProbationary,
    kFree,
    kLong,
    kStates = 0x07,
    kUnlisted = 0x08,  // an id that belongs in freed_, but there was no memory for that
    kHeld = 0x10,
    kNew = 0x20,  // no checkpoint knows the id
    kListed = 0x40,
    kPinned = 0x80
  };
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
  static constexpr std::uint8_t kMarks[2] = {0x20, 0x40};

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
  // Pages that a scan will need.
  struct Ahead {
    int level;
    std::vector<std::uint32_t> ids;
  };
  struct Captured {
    std::uint32_t id;
    std::string image;
  };

  BufferPool(std::unique_ptr<PageStore<FileT>> store, std::unique_ptr<PageArena> slab, storage::ReservedMemory states,
             const PageCacheLimits& limits, std::function<void()> ask)
      : store_(std::move(store)),
        slab_(std::move(slab)),
        states_(std::move(states)),
        state_(reinterpret_cast<std::uint8_t*>(states_.base())),
        noted_(state_ + kPagesMax),
        lines_(slab_->lines()),
        memory_(slab_->memory()),
        limits_(limits),
        ask_(std::move(ask)),
        root_(store_->super().root),
        num_long_(store_->super().num_long) {}

  std::uint8_t State(std::uint32_t id) const { return std::atomic_ref(state_[id % kPagesMax]).load(std::memory_order_acquire) & kStates; }
  bool HasFlag(std::uint32_t id, std::uint8_t flag) const { return (state_[id] & flag) != 0; }
  void SetState(std::uint32_t id, std::uint8_t state) {
    std::atomic_ref(state_[id]).store(static_cast<std::uint8_t>((state_[id] & ~kStates) | state), std::memory_order_release);
  }
  void SetFlag(std::uint32_t id, std::uint8_t flag, bool value) {
    std::atomic_ref(state_[id]).store(static_cast<std::uint8_t>(value ? state_[id] | flag : state_[id] & ~flag), std::memory_order_release);
  }

  // Frees the id of a page or a long value. It can be reused at once if no checkpoint knows it.
  // REQUIRES: mutex_
  void ForgetId(std::uint32_t id) {
    SetState(id, kFree);
    if (!HasFlag(id, kNew)) return NoteFreed(id);
    SetFlag(id, kNew, false);
    slab_->FreePage(id);
  }
  // Has this epoch's checkpoint drop the image of an id, which can be reused then. REQUIRES: mutex_
  void NoteFreed(std::uint32_t id) {
    if (TryPushBack(freed_, id)) return;
    SetFlag(id, kUnlisted, true);
    has_unlisted_ = true;
  }
  // REQUIRES: mutex_
  void ListFreed() {
    for (std::uint32_t id = 0; has_unlisted_ && id < slab_->page_end(); ++id) {
      if (!HasFlag(id, kUnlisted)) continue;
      freed_.push_back(id);
      SetFlag(id, kUnlisted, false);
    }
    has_unlisted_ = false;
  }
  // Registers the page for this epoch's checkpoint. REQUIRES: the page has or gets the mark mark(),
  // and had another one
  bool TryNoteChanged(std::uint32_t id) {
    HAKO_TRY { return NoteChanged(id), true; }
    HAKO_CATCH_NO_MEMORY()
#if defined(__cpp_exceptions)
    return false;
#endif
  }
  void NoteChanged(std::uint32_t id) {
    std::lock_guard lock(touched_mutex_);
    std::atomic_ref noted(noted_[id]);
    // The id was registered for a page that was freed since.
    if (noted.load(std::memory_order_relaxed) == mark()) return;
    touched_.push_back(id);
    noted.store(mark(), std::memory_order_relaxed);
  }
  // Ids of the previous epoch, which writers of this one may register at the same time.
  void ForgetNoted(const std::vector<std::uint32_t>& ids, std::uint8_t mark) {
    for (const std::uint32_t id : ids) {
      std::uint8_t expected = mark;
      std::atomic_ref(noted_[id]).compare_exchange_strong(expected, 0, std::memory_order_relaxed);
    }
  }
  // Whether an id is a long value's. In the file, that is an id that no page has registered as its
  // child.
  bool IsLong(std::uint64_t id) const {
    if (id >= slab_->page_end() || slab_->IsFree(static_cast<std::uint32_t>(id))) return false;
    const auto word = std::atomic_ref(lines_[id].version).load(std::memory_order_relaxed);
    return State(static_cast<std::uint32_t>(id)) == kLong ||
           (State(static_cast<std::uint32_t>(id)) == kAway && (word & sync::VersionLock::kLocked) == 0);
  }
  std::uint64_t TableBytes() const { return slab_->page_end() * (sizeof(Line) + 2) + store_->map_bytes(); }
  // A thread that stores a long value waits while this many bytes of long values are not in the
  // file.
  std::uint64_t UnsavedMax() const { return limits_.memory_bytes / 8; }
  // Bytes that pages may take: all that the tables and the unsaved long values leave, less the
  // growth of the tables during an epoch, and at least a quarter of all. More while a large update
  // holds pages. For long values beyond UnsavedMax, pages make no room: other threads would have to
  // wait for that.
  std::uint64_t PageLimit() const {
    const std::uint64_t all = limits_.memory_bytes;
    const std::uint64_t tables = TableBytes() + std::min(unsaved_bytes_.load(std::memory_order_relaxed), UnsavedMax()) + all / 64;
    return std::max(all / 4, all - std::min(all, tables)) + held_bytes_.load(std::memory_order_relaxed);
  }
  std::uint64_t used_bytes() const { return used_units_.load(std::memory_order_relaxed) * format::kPageUnit; }
  // An eighth stays free, as pages of many sizes never fill all memory.
  bool IsOverLimit() const { return used_bytes() > limits_.memory_bytes / 4 && used_bytes() > PageLimit() / 8 * 7; }

  // Bytes of pages that cannot be evicted: changed ones, and those that a checkpoint has not
  // written yet.
  std::int64_t StayingBytes() const { return dirty_bytes_.load(std::memory_order_relaxed) + frozen_bytes_.load(std::memory_order_relaxed); }
  // How long a thread that has changed a page pauses.
  std::chrono::microseconds Pause() const {
    static constexpr std::int64_t kAtLimit = 4096, kHalvingsMax = 5, kDoublingsMax = 8, kDoublingMin = 4 << 20;
    const std::int64_t stays = StayingBytes();
    // The limit is at least 3/16 of all memory.
    if (stays < static_cast<std::int64_t>(limits_.memory_bytes / 8)) return {};
    const auto limit = static_cast<std::int64_t>(PageLimit() / 4 * 3);
    if (stays > limit)
      return std::chrono::microseconds(kAtLimit << std::min((stays - limit) / std::max(limit / 8, kDoublingMin), kDoublingsMax));
    const std::int64_t halvings = (limit - stays) / (limit / 32);
    return std::chrono::microseconds(halvings > kHalvingsMax ? 0 : kAtLimit >> halvings);
  }

  void GiveBack(std::uint32_t first, unsigned units) {
    used_units_.fetch_sub(units, std::memory_order_relaxed);
    slab_->Free(first, units);
  }
  // The changed pages grow by this many bytes.
  void NoteDirty(std::uint64_t bytes) {
    const auto size = static_cast<std::int64_t>(bytes);
    AskIfDue(dirty_bytes_.fetch_add(size, std::memory_order_relaxed) + long_bytes_.load(std::memory_order_relaxed), size);
    if (Pause().count() != 0) needs_eviction_.store(true, std::memory_order_relaxed);
  }
  // Requests a checkpoint if `size` more bytes exceed the limit; `before` bytes had changed
  // already.
  void AskIfDue(std::int64_t before, std::int64_t size) {
    changed_.store(true, std::memory_order_relaxed);
    const auto limit = static_cast<std::int64_t>(limits_.dirty_bytes);
    if (before <= limit && before + size > limit) ask_();
  }
  [[gnu::noinline]] void TouchSlowly(Line& line);
  // REQUIRES: the caller has locked the line, and `shape` is its shape
  static void StoreMark(Line& line, Shape shape, std::uint8_t mark) {
    shape.kind = static_cast<std::uint8_t>((shape.kind & ~Shape::kMark) | mark);
    std::atomic_ref(line.shape).store(shape, std::memory_order_relaxed);
  }
  char* At(std::uint32_t unit) const { return memory_ + std::uint64_t{unit} * format::kPageUnit; }
  // Lists the page for the CLOCK hand. False if out of memory.
  bool List(std::uint32_t id) {
    if (!HasFlag(id, kListed)) SetFlag(id, kListed, TryPushBack(resident_, id));
    return HasFlag(id, kListed);
  }
  // In place of hints, the line of a page that was not loaded yet stores a hash of the fences that
  // its parent has for it. For an evicted page it stores 0: its fences were checked, and do not
  // change while it is evicted.
  std::uint64_t HashOfBounds(std::string_view low, std::string_view high, unsigned edges) const {
    return MixBits(Hash64(low, bounds_seed_) + edges) ^ Hash64(high, bounds_seed_);
  }
  void Expect(std::uint32_t id, std::uint64_t hash) {
    for (const unsigned i : {0u, 1u}) {
      std::atomic_ref(lines_[id].hints[i]).store(static_cast<std::int32_t>(hash >> 32 * i), std::memory_order_relaxed);
    }
  }
  bool HasExpectedBounds(std::uint32_t id, const PageImage& image) const {
    const auto half = [&](unsigned i) { return std::uint64_t{static_cast<std::uint32_t>(lines_[id].hints[i])} << 32 * i; };
    const std::uint64_t expected = half(0) | half(1);
    return expected == 0 || expected == HashOfBounds(image.low(), image.high(), image.edges());
  }
  bool RegisterChildren(const PageImage& image);
  std::uint32_t AllocateSlowly(unsigned units);
  std::uint32_t FindMemory(unsigned units, bool must);
  void ForgetChildren(const PageImage& image, unsigned count);
  void Install(std::span<Arrived> pages, const HowToInstall& how);
  void BringAhead();
  void WaitForCheckpoint(std::unique_lock<std::mutex>& lock);
  void WaitForLongValues();
  void LetGo(std::vector<std::uint32_t>* written, std::size_t kept);
  bool EvictOne();
  void CoolSome();
  bool LockToGo(std::uint32_t id);
  void Evict(std::uint32_t id);
  void EvictToLimit(std::uint64_t bytes);
  void ShrinkMemory();
  struct Epoch;
  Status FindFreeSpace();
  Status WriteEpoch(Epoch& epoch);
  void SortPages(Epoch& epoch);
  Status WritePages(Epoch& epoch);
  Status PutImage(std::uint32_t id, std::span<const char> image);
  Status PutCaptured(Epoch& epoch);
  bool LockIfChanged(std::uint32_t id);
  void TakeBack(Epoch& epoch);

  std::unique_ptr<PageStore<FileT>> store_;
  std::unique_ptr<PageArena> slab_;
  storage::ReservedMemory states_;
  std::uint8_t* const state_;  // by page id: its state and flags
  std::uint8_t* const noted_;  // by id: the mark with which it is in touched_, or 0
  Line* const lines_;
  char* const memory_;
  const PageCacheLimits limits_;
  const std::function<void()> ask_;
  const std::uint64_t bounds_seed_ = RandomSeed();
  std::uint32_t root_;
  sync::WriteGate gate_;

  alignas(64) std::atomic<std::uint8_t> mark_{kMarks[0]};  // of pages that are changed now
  std::atomic<bool> collecting_{false};                    // a checkpoint is copying pages
  std::atomic<bool> needs_eviction_{false};
  alignas(64) std::atomic<std::uint64_t> used_units_{0};
  std::atomic<std::int64_t> dirty_bytes_{0};  // of pages with the current mark
  std::atomic<std::int64_t> long_bytes_{0};   // of long values since the epoch began
  // Of pages that the checkpoint under way has not written yet.
  std::atomic<std::int64_t> frozen_bytes_{0};
  std::atomic<bool> changed_{false};  // since the epoch began
  std::atomic<std::uint64_t> unsaved_bytes_{0};
  std::atomic<std::uint64_t> held_bytes_{0};  // added to the limit, see HeldPages

  mutable std::mutex mutex_;  // Guards the following members; not held during I/O of the file.
  std::condition_variable loaded_;
  // The CLOCK: ids of cached pages, and of some that no longer are.
  std::vector<std::uint32_t> resident_;
  std::size_t hand_ = 0;
  std::vector<std::uint32_t> freed_;  // since the epoch began
  bool has_unlisted_ = false;         // some ids are kUnlisted
  // Long values that are not in the file yet.
  std::unordered_map<std::uint32_t, std::shared_ptr<UnsavedValue>> unsaved_;
  std::atomic<std::uint64_t> num_long_;  // changed with the lock held
  // Ids in the order in which they began to cool; some no longer do.
  std::deque<std::uint32_t> cooling_;
  // Ids of the pages that scans passed last; some are no longer cached.
  std::deque<std::uint32_t> behind_;
  bool is_saving_ = false;   // a checkpoint is under way
  bool is_writing_ = false;  // it needs no page lock any more
  bool has_failed_ = false;  // the last checkpoint
  std::uint64_t saves_ = 0;  // how often a checkpoint has made pages evictable
  std::condition_variable saved_;
  // The part of held_bytes_ that belongs to finished updates, until the next checkpoint has ended.
  std::uint64_t unsaved_held_bytes_ = 0;

  std::mutex hold_mutex_;  // held by the update that holds pages; before mutex_
  std::mutex touched_mutex_;
  // Ids of pages that were marked since the epoch began, and of some that were freed since.
  std::vector<std::uint32_t> touched_;
  // Those of a failed checkpoint; only checkpoints use them.
  std::vector<std::uint32_t> touched_again_;
  std::vector<Captured> captured_;  // by writers, for the checkpoint under way
  std::mutex checkpoint_mutex_;

  std::mutex ahead_mutex_;
  std::deque<Ahead> ahead_;
  bool is_closing_ = false;
  std::array<sync::BackgroundThread::Pointer, 3> readers_;  // the threads that read ahead
};

}  // namespace hako::tree

#include "hako/tree/buffer_pool-inl.h"
#include "hako/tree/page_checkpoint-inl.h"
#include "hako/tree/page_hold-inl.h"
#include "hako/tree/page_long-inl.h"

static_assert(hako::tree::PageSpace<hako::tree::BufferPool<hako::MemoryMapParallelFile>>);
