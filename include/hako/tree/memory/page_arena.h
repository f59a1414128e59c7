// Pages in memory, each only as large as necessary: the space of BabyDBM (tree/page_space.h).
//
// Page memory is one arena of 128-byte units. It consists of the runs of units that pages have, and
// of free runs (tree/memory/unit_runs.h). So pages can grow and shrink by single units with little
// waste between them. The lines that name pages are in a separate arena and never move. Values too
// long for a page are malloc blocks, or runs of units if there is a limit in bytes
// (tree/page_limit.h). They are copied, read and freed while no page is locked
// (tree/memory/shared_value.h).
//
// Invariants
//   1. A unit belongs to one page, one long value, one free run or one hole.
//   2. All memory stays readable: a reader that still reads a freed page may see other bytes, and
//      then finds that the version has changed.
//   3. Without a limit in bytes there are no holes: the huge pages that a free run covers are returned to
//      the system at once, and stay a part of the run.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "hako/base/capacity.h"
#include "hako/base/inline.h"
#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/format/page_format.h"
#include "hako/storage/arena.h"
#include "hako/sync/mutex.h"
#include "hako/sync/thread_slot.h"
#include "hako/sync/version_lock.h"
#include "hako/sync/write_gate.h"
#include "hako/tree/lock_order.h"
#include "hako/tree/memory/id_pool.h"
#include "hako/tree/memory/page_holes.h"
#include "hako/tree/memory/shared_value.h"
#include "hako/tree/memory/unit_runs.h"
#include "hako/tree/page_limit.h"
#include "hako/tree/page_space.h"

namespace hako::tree {

class PageArena : public ResidentSpace {
 public:
  struct WriterState : sync::WriterState, EvictingWriter {};
  using Line = format::PageLine;
  static constexpr std::uint64_t kPagesMax = std::uint64_t{1} << 26;
  static constexpr std::uint32_t kFirstId = storage::Arena::kExtentAlignment / sizeof(Line);
  // A unit number has 32 bits.
  static constexpr std::uint64_t kBytesMax = format::kPageUnit * (std::uint64_t{1} << 32) - (1 << 20);

  // Both limits are lower if the process has less address space. As long as the pages have less
  // than `small` bytes, their memory is taken in small system pages. `id_capacity` is a power of
  // two, above all ids; 0 = enough for all pages that fit into `max_bytes`. Made is PageArena or a
  // derived class with the same constructor.
  template <class Made = PageArena>
  static StatusOr<std::unique_ptr<Made>> Create(std::uint64_t max_bytes, std::uint64_t small = storage::Arena::kSmallUsual,
                                                std::uint64_t id_capacity = 0, const Capacity& capacity = {}) {
    if (capacity.bytes != 0)
      max_bytes = std::min(max_bytes, PageLimit::kAddressesOf * PageLimit::BudgetOf(capacity.bytes) + storage::Arena::kExtentAlignment);
    HAKO_ASSIGN_OR_RETURN(auto pages, storage::Arena::Create(max_bytes, small));
    const std::uint64_t least = id_capacity != 0 ? id_capacity : kPagesMin;
    if (id_capacity == 0) id_capacity = std::clamp(std::bit_ceil(pages->max_bytes() / format::kPageUnit), kPagesMin, kPagesMax);
    HAKO_ASSIGN_OR_RETURN(auto lines,
                          storage::Arena::Create(id_capacity * sizeof(Line), storage::Arena::kSmallUsual, least * sizeof(Line)));
    id_capacity = std::bit_floor(lines->max_bytes() / sizeof(Line));
    std::unique_ptr<Made> made(new Made(std::move(pages), std::move(lines), id_capacity));
    if (capacity.IsLimited()) HAKO_RETURN_IF_ERROR(made->SetLimit(capacity));
    return made;
  }
  PageArena(const PageArena&) = delete;
  PageArena& operator=(const PageArena&) = delete;

  // The limit, which never changes; nullptr = none.
  HAKO_INLINE PageLimit* limit() const { return limit_.get(); }

  sync::WriteGate& gate() { return gate_; }

  // Ids are at most this large; one less than a power of two.
  std::uint32_t id_mask() const { return id_mask_; }
  // The lines of all ids up to id_mask(). The line of an id without a page is readable, and nothing
  // changes it.
  Line* lines() const { return lines_; }
  // The address of unit 0.
  char* memory() const { return base_; }

  // Returns the id of a new page without memory, whose line is locked; 0 if out of memory.
  std::uint32_t NewPage() {
    sync::MutexLock lock(mutex_);
    const auto is_locked = [this](std::uint32_t id) {
      return (std::atomic_ref(lines_[id].version).load(std::memory_order_relaxed) & sync::VersionLock::kLocked) != 0;
    };
    std::uint32_t id;
    do {
      id = ids_.Take();
    } while (id != 0 && is_locked(id));
    while (id == 0) {
      if (HasByteLimit() && !MayAddLine()) return 0;
      if (ids_.end() * sizeof(Line) == line_arena_->end() && !line_arena_->Allocate(storage::Arena::kExtentAlignment).ok()) return 0;
      id = ids_.Grow();
      if (is_locked(id)) id = 0;
    }
    std::atomic_ref version(lines_[id].version);
    if (version.load(std::memory_order_relaxed) < least_version_) version.store(least_version_, std::memory_order_relaxed);
    sync::VersionLock(lines_[id].version).Lock();
    if (limit_ != nullptr) limit_->UseOf(lines_[id]).Clear();
    return id;
  }
  // Frees the id of a page and unlocks its line, with another version. REQUIRES: the line is locked
  void FreePage(std::uint32_t id) {
    sync::VersionLock line(lines_[id].version);
    line.AssertLocked();
    if (limit_ != nullptr) std::atomic_ref(lines_[id].shape).store({}, std::memory_order_relaxed);  // invariant 3 of tree/page_limit.h
    line.Unlock(true);
    sync::MutexLock lock(mutex_);
    last_version_ = std::max(last_version_, line.ReadVersion());
    GiveId(id);
  }
  // Frees the id of a long value. Its line belongs to no page, and no thread has locked it.
  void FreeId(std::uint32_t id) {
    sync::MutexLock lock(mutex_);
    GiveId(id);
  }
  // Frees the ids in [first, end) that RestorePages has taken but no page has. NewPage skips ids
  // whose line is locked, because a page of a damaged file names them.
  void FreeIds(std::uint32_t first, std::uint32_t end) {
    sync::MutexLock lock(mutex_);
    ids_.Give(std::max(first, kFirstId), end);
  }
  bool IsFree(std::uint32_t id) const {
    sync::MutexLock lock(mutex_);
    return ids_.IsFree(id);
  }

  // From now on the ids below `end` belong to pages, until FreePage or FreeIds frees them.
  Status RestorePages(std::uint32_t end) {
    sync::MutexLock lock(mutex_);
    if (end <= ids_.end()) return absl::OkStatus();
    HAKO_RETURN_IF_ERROR(line_arena_->Allocate((end - ids_.end()) * sizeof(Line)).status());
    ids_.GrowTo(end);
    return absl::OkStatus();
  }
  std::uint32_t page_end() const {  // no page has an id at or above it
    sync::MutexLock lock(mutex_);
    return ids_.end();
  }
  // Returns what page_end would be if these ids, which ascend, were free, too.
  std::uint32_t PageEndWithout(std::span<const std::uint32_t> ids) const {
    sync::MutexLock lock(mutex_);
    return ids_.EndWithout(ids);
  }
  // Drops free ids at the end and returns the memory of their lines to the system. When such a line
  // is used again, it gets a version that it never had.
  void CutIds() {
    sync::MutexLock lock(mutex_);
    ids_.Cut();
    const std::uint64_t kept = (ids_.end() * sizeof(Line) + storage::Arena::kExtentAlignment - 1) / storage::Arena::kExtentAlignment *
                               storage::Arena::kExtentAlignment;
    if (kept >= line_arena_->end()) return;
    least_version_ = last_version_;
    line_arena_->Shrink(kept);
  }

  // Allocates this many units for a page, with undefined contents, and returns the first; 0 if all
  // page memory would then exceed `limit` bytes.
  std::uint32_t Allocate(unsigned units, std::uint64_t limit = kBytesMax) {
    sync::MutexLock lock(mutex_);
    std::uint32_t run = 0;
    HAKO_TRY { run = HasByteLimit() ? FindRunWithin(units) : FindRun(units, limit); }
    HAKO_CATCH_NO_MEMORY()
    if (run == 0) return 0;
    const std::uint32_t size = runs_.Unlink(run);
    if (size > units) {
      runs_.Link(run + units, size - units);
      may_have_pages_ |= size - units >= kUnitsOfPage;
    }
    free_units_ -= units;
    return run;
  }

  // From now on memory beyond the first `bytes` bytes is not allocated, unless Allocate has no
  // limit and finds nothing else. CutEnd ends this, and returns the free memory at the end to the
  // system.
  void Retreat(std::uint64_t bytes) {
    sync::MutexLock lock(mutex_);
    retreat_ = static_cast<std::uint32_t>(bytes / format::kPageUnit);
  }
  void CutEnd() {
    sync::MutexLock lock(mutex_);
    const auto end = static_cast<std::uint32_t>(page_arena_->end() / format::kPageUnit);
    retreat_ = kNoRetreat;
    const std::uint32_t first = runs_.BeginOfRunBefore(end);
    if (first == end) return;
    const std::uint32_t units = runs_.Unlink(first);
    page_arena_->Shrink(std::uint64_t{first} * format::kPageUnit);
    const auto left = static_cast<std::uint32_t>(page_arena_->end() / format::kPageUnit) - first;
    free_units_ -= units - left;
    if (left > 0) runs_.Link(first, left);
  }

  // Whether pages of this many bytes in total are likely to fit.
  bool HasRoomFor(std::uint64_t bytes) const {
    sync::MutexLock lock(mutex_);
    return bytes + page_arena_->end() <= page_arena_->max_bytes() + free_units_ * format::kPageUnit / 2;
  }

  void Free(std::uint32_t first, unsigned units) {
    sync::MutexLock lock(mutex_);
    free_units_ += units;
    const UnitRuns::Span run = runs_.Join(first, units);
    may_have_pages_ |= run.units >= kUnitsOfPage;
    HasByteLimit() ? AddToReservation(units) : GiveBackPages(run, first, units);
  }

  // The memory that a thread has reserved.
  struct Reserved {
    unsigned thread = 0;
    std::uint64_t bytes = 0;
    bool exceeds = false, has_exceeded = false;
    Reserved* next = nullptr;
  };
  // Only with a limit in bytes: from Take on no other thread takes the bytes reserved, and the
  // calling thread may use the spare part of the budget. The same thread must end the reservation.
  class Reservation {
   public:
    explicit Reservation(PageArena& arena) : arena_(arena) {}
    Reservation(const Reservation&) = delete;
    ~Reservation() { (void)End(); }
    // Returns false if there is not enough memory. `exceeds`: never refuses memory to the thread.
    bool Take(std::uint64_t bytes, bool exceeds) {
      if (!arena_.HasByteLimit() || is_taken_) return true;
      sync::MutexLock lock(arena_.mutex_);
      if (bytes != 0 && arena_.free_units_ * format::kPageUnit + arena_.Room(false) < bytes + arena_.reserved_) return false;
      is_taken_ = true;
      reserved_ = {sync::ThreadIndex(), bytes, exceeds, false, std::exchange(arena_.reservations_, &reserved_)};
      arena_.reserved_ += bytes;
      return true;
    }
    // Whether the thread has taken more than the budget.
    bool HasExceeded() const { return reserved_.has_exceeded; }
    // Returns false if more memory is in use than the limit allows without a reservation.
    bool End() {
      if (!is_taken_) return true;
      sync::MutexLock lock(arena_.mutex_);
      Reserved** link = &arena_.reservations_;
      while (*link != &reserved_) link = &(*link)->next;
      *link = reserved_.next;
      is_taken_ = false;
      arena_.reserved_ -= reserved_.bytes;
      return arena_.MakeRoom(0, false);
    }

   private:
    PageArena& arena_;
    bool is_taken_ = false;
    Reserved reserved_;
  };

  // Only with a limit in bytes: if more memory is in use than allowed, for example because a writer
  // was added, returns free memory to the system. Returns false if that does not suffice.
  bool FitsBudget() {
    sync::MutexLock lock(mutex_);
    return MakeRoom(0, true);
  }
  // Only with a limit in bytes: returns a part of the memory whose pages should be moved together,
  // so that the free units between them become one run. Returns {0, 0} if few bytes were evicted
  // since the last part, unless `must`.
  UnitRuns::Span NextPart(bool must) {
    static constexpr std::uint32_t kLeast = (128 << 10) / format::kPageUnit, kMost = (8 << 20) / format::kPageUnit;
    sync::MutexLock lock(mutex_);
    const auto end = static_cast<std::uint32_t>(page_arena_->end() / format::kPageUnit);
    const std::uint32_t size = std::clamp(end / 64, kLeast, kMost);
    if (!must && evicted_bytes_.load(std::memory_order_relaxed) < size / kMovedFor * format::kPageUnit) return {0, 0};
    evicted_bytes_.store(0, std::memory_order_relaxed);
    if (next_part_ >= end) next_part_ = 0;
    const std::uint32_t first = next_part_;
    next_part_ += size;
    return {first, size};
  }

  void NoteEvicted(std::uint64_t bytes) { evicted_bytes_.fetch_add(bytes, std::memory_order_relaxed); }
  // Takes the free run before this unit and returns the first unit of the run, or `unit` if there
  // is none.
  std::uint32_t TakeRunBefore(std::uint32_t unit) {
    sync::MutexLock lock(mutex_);
    const std::uint32_t run = runs_.BeginOfRunBefore(unit);
    if (run != unit) free_units_ -= runs_.Unlink(run);
    return run;
  }

  // A reference to a long value.
  struct LongDropper {
    void operator()(SharedValue* value) const { arena->Drop(value); }
    PageArena* arena;
  };
  using LongPointer = std::unique_ptr<SharedValue, LongDropper>;
  // Finishes operations on long values, in Finish or the destructor: fills those that were stored
  // and drops those that were freed. REQUIRES: by then the thread has released its locks, and the
  // values it stored are still valid (unchecked: neither leaves a trace)
  class Deferred {
   public:
    explicit Deferred(PageArena&) {}
    Deferred(const Deferred&) = delete;
    ~Deferred() { Finish(); }
    void Finish() {
      for (const auto& [to, value] : copies_) to->Fill(value);
      copies_.clear();
      dropped_.clear();
    }

    // Used by StoreLong and FreeLong: Finish copies the bytes to `to`, and drops the value. If
    // memory runs out, Drop drops it at once.
    void Fill(LongPointer to, std::string_view value) { copies_.emplace_back(std::move(to), value); }
    void Drop(LongPointer value) { (void)TryPushBack(dropped_, std::move(value)); }

   private:
    absl::InlinedVector<LongPointer, 1> dropped_;
    absl::InlinedVector<std::pair<LongPointer, std::string_view>, 1> copies_;
  };
  // Stores a long value, which `deferred` fills. Returns 0 if memory runs out.
  std::uint64_t StoreLong(std::string_view value, Deferred& deferred) {
    LongPointer block = MakeLong(value.size());
    if (block == nullptr) return 0;
    deferred.Fill(Share(*block), value);
    long_bytes_.fetch_add(value.size(), std::memory_order_relaxed);
    return reinterpret_cast<std::uintptr_t>(block.release());
  }
  class LongRead {
   public:
    explicit LongRead(PageArena& arena) : block_(nullptr, {&arena}) {}
    bool Has(const format::OverflowValue& value) {
      auto* const named = reinterpret_cast<SharedValue*>(value.place);
      if (named != block_.get()) block_ = block_.get_deleter().arena->Share(*named);
      return named->is_filled();
    }
    bool IsBeingFilled() const { return block_ != nullptr && !block_->is_filled(); }
    void Read(char* /*out*/ = nullptr) { (void)block_->Wait(); }
    void Check() { Read(); }
    static Status status() { return absl::OkStatus(); }
    std::string_view bytes() const { return block_->Wait(); }

   private:
    LongPointer block_;
  };
  void FreeLong(const format::OverflowValue& value, Deferred& deferred) {
    LongPointer block(reinterpret_cast<SharedValue*>(value.place), {this});
    long_bytes_.fetch_sub(value.size, std::memory_order_relaxed);
    deferred.Drop(std::move(block));
  }

  static constexpr std::uint8_t mark() { return 0; }
  void MarkDirty(Line&) const {}

  std::uint64_t num_pages() const {
    sync::MutexLock lock(mutex_);
    return ids_.num_used();
  }
  std::uint64_t free_bytes() const {
    sync::MutexLock lock(mutex_);
    return free_units_ * format::kPageUnit;
  }
  // The limit of all page memory.
  std::uint64_t max_page_bytes() const { return page_arena_->max_bytes(); }
  std::uint64_t page_bytes() const { return page_arena_->end() - storage::Arena::kExtentAlignment; }
  std::uint64_t line_bytes() const { return line_arena_->end() - storage::Arena::kExtentAlignment; }
  // For Stats: the memory for anything except pages and values.
  std::uint64_t table_bytes() const {
    if (!HasByteLimit()) return line_bytes();
    sync::MutexLock lock(mutex_);
    return CountedLines() + PageLimit::kBeside + limit_->WriterBytes();
  }
  bool has_long_values() const { return long_bytes() != 0; }
  std::uint64_t long_bytes() const { return long_bytes_.load(std::memory_order_relaxed); }
  std::uint64_t total_bytes() const {
    if (!HasByteLimit()) return page_bytes() + line_bytes() + long_bytes();
    sync::MutexLock lock(mutex_);
    return Counted() + PageLimit::kBeside + limit_->WriterBytes();
  }

 protected:
  PageArena(std::unique_ptr<storage::Arena> pages, std::unique_ptr<storage::Arena> lines, std::uint64_t id_capacity)
      : id_mask_(static_cast<std::uint32_t>(id_capacity - 1)),
        page_arena_(std::move(pages)),
        line_arena_(std::move(lines)),
        base_(reinterpret_cast<char*>(page_arena_->base())),
        lines_(reinterpret_cast<Line*>(line_arena_->base())) {}

 private:
  static constexpr std::uint64_t kPagesMin = std::uint64_t{1} << 16;
  static constexpr std::uint64_t kHugePage = 2 << 20;
  static constexpr std::uint32_t kNoRetreat = ~std::uint32_t{0};

  void GiveId(std::uint32_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_){HAKO_TRY{ids_.Give(id, id + 1);
} HAKO_CATCH_NO_MEMORY()  // the id is lost until the database is opened again
}  // namespace hako::tree

// Finds the smallest free run that fits, as far as the bins distinguish sizes.
std::uint32_t FindRun(unsigned units, std::uint64_t limit) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
  for (;;) {
    if (const std::uint32_t run = runs_.Find(units, retreat_); run != 0) return run;
    if (retreat_ != kNoRetreat) {
      if (limit != kBytesMax) return 0;
      retreat_ = kNoRetreat;
      continue;
    }
    const std::uint64_t bytes = std::max<std::uint64_t>(std::min(page_arena_->end() / 32, kHugePage), units * format::kPageUnit);
    if (page_arena_->end() + bytes > limit) return 0;
    // Reserve now, because freeing must not need memory.
    runs_.Reserve((page_arena_->end() + bytes + 2 * kHugePage) / format::kPageUnit);
    const auto offset = page_arena_->Allocate(bytes);
    if (!offset.ok()) return 0;
    const std::uint64_t size = page_arena_->end() - *offset;
    free_units_ += size / format::kPageUnit;
    runs_.Join(static_cast<std::uint32_t>(*offset / format::kPageUnit), static_cast<std::uint32_t>(size / format::kPageUnit));
  }
}

// Returns the huge pages that a free run covers now, after the units at `first` have joined it, to
// the system.
void GiveBackPages(UnitRuns::Span run, std::uint32_t first, unsigned units) {
  const auto bytes = [](std::uint64_t unit) { return unit * format::kPageUnit; };
  const std::uint64_t begin = bytes(first) & ~(kHugePage - 1);
  const std::uint64_t end = (bytes(first + units) + kHugePage - 1) & ~(kHugePage - 1);
  for (std::uint64_t page = begin; page < end; page += kHugePage) {
    if (page >= bytes(run.first + 1) && page + kHugePage < bytes(run.first + run.units)) ::madvise(base_ + page, kHugePage, MADV_DONTNEED);
  }
}

Status SetLimit(const Capacity& capacity) {
  HAKO_ASSIGN_OR_RETURN(uses_, storage::ReservedMemory::Reserve((std::uint64_t{id_mask_} + 1) * sizeof(PageUse)));
  limit_ = std::make_unique<PageLimit>(capacity, lines_, uses_.base());
  has_byte_limit_ = capacity.bytes != 0;
  if (!has_byte_limit_) return absl::OkStatus();
  page_arena_->KeepSmallPages();
  line_arena_->KeepSmallPages();
  uses_.KeepSmallPages();
  sync::MutexLock lock(mutex_);
  runs_.ReserveMost(page_arena_->max_bytes() / format::kPageUnit);
  return absl::OkStatus();
}

LongPointer MakeLong(std::size_t size) {
  const std::uint64_t bytes = SharedValue::BytesFor(size);
  void* block;
  if (HasByteLimit()) [[unlikely]] {
    const std::uint32_t unit = Allocate(UnitsOf(bytes));
    block = unit != 0 ? base_ + std::uint64_t{unit} * format::kPageUnit : nullptr;
  } else {
    block = std::malloc(bytes);
  }
  return {block != nullptr ? SharedValue::MakeAt(block, size) : nullptr, {this}};
}
LongPointer Share(SharedValue& value) {
  value.AddReference();
  return {&value, {this}};
}
void Drop(SharedValue* value) {
  if (!value->DropReference()) return;
  if (!HasByteLimit()) return std::free(value);
  const auto offset = static_cast<std::uint64_t>(reinterpret_cast<char*>(value) - base_);
  Free(static_cast<std::uint32_t>(offset / format::kPageUnit), UnitsOf(SharedValue::BytesFor(value->size())));
}
static std::uint32_t UnitsOf(std::uint64_t bytes) {
  return static_cast<std::uint32_t>((bytes + format::kPageUnit - 1) / format::kPageUnit);
}

// ---- only with a limit in bytes (tree/page_limit.h) ----
static constexpr std::uint64_t kSystemPage = 4096, kUnitsOfPage = kSystemPage / format::kPageUnit;
static constexpr std::uint64_t kPagesAtOnce = 16;  // pages that become a free run together, as long as there are enough
static constexpr unsigned kRunsSeen = 32;          // of each bin
static constexpr std::uint32_t kMovedFor = 8;      // bytes that may be moved for each evicted byte
bool HasByteLimit() const { return has_byte_limit_; }
// Makes a free run that is large enough and returns its first unit; 0 if the thread must evict
// first.
[[gnu::noinline]] std::uint32_t FindRunWithin(std::uint32_t units) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
  const std::uint64_t bytes = std::uint64_t{units} * format::kPageUnit;
  Reserved* const mine = MyReservation();
  if (mine == nullptr && free_units_ * format::kPageUnit + Room(false) < bytes + reserved_) return 0;
  std::uint32_t run = runs_.Find(units, kNoRetreat, kRunsSeen);
  if (run == 0 && TakePages((bytes + kSystemPage - 1) / kSystemPage, mine)) run = runs_.Find(units, kNoRetreat);
  if (run != 0 && mine != nullptr) {
    const std::uint64_t used = std::min(mine->bytes, bytes);
    mine->bytes -= used;
    reserved_ -= used;
  }
  return run;
}

// Turns holes of this many pages into a free run.
bool TakePages(std::uint64_t pages, Reserved* mine) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
  const bool is_reserved = mine != nullptr;
  if (!MakeRoom(pages, is_reserved)) {
    if (!is_reserved || !mine->exceeds) return false;
    mine->has_exceeded = true;
  }
  const std::uint64_t most = std::max(pages, std::min(Room(is_reserved) / kSystemPage, kPagesAtOnce));
  PageHoles::Range taken = holes_.Take(pages, most);
  if (taken.pages == 0) {
    if (!AddAddresses(most)) (void)MakeHoles(~std::uint64_t{0});
    taken = holes_.Take(pages, most);
    if (taken.pages == 0) return false;
  }
  const auto first = static_cast<std::uint32_t>(taken.first * kUnitsOfPage), units = static_cast<std::uint32_t>(taken.pages * kUnitsOfPage);
  free_units_ += units;
  runs_.Join(first, units);
  return true;
}

// Makes the arena longer, by a hole of at least this many pages.
bool AddAddresses(std::uint64_t pages) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
  const std::uint64_t bytes = pages * kSystemPage;
  runs_.Reserve((page_arena_->end() + bytes + storage::Arena::kExtentAlignment) / format::kPageUnit);
  const auto offset = page_arena_->Allocate(bytes);
  if (!offset.ok()) return false;
  if (holes_.Add({*offset / kSystemPage, (page_arena_->end() - *offset) / kSystemPage})) return true;
  page_arena_->Shrink(*offset);
  return false;
}

// Turns up to this many whole system pages of free runs into holes, and returns their number.
std::uint64_t MakeHoles(std::uint64_t pages) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
  std::uint64_t made = 0;
  while (made < pages) {
    UnitRuns::Span run = runs_.Largest();
    if (run.units < 2 * kUnitsOfPage - 1) {  // a shorter run need not contain a whole page
      if (!may_have_pages_) break;
      run = runs_.FindAligned(kUnitsOfPage);
      may_have_pages_ = run.units != 0;
      if (!may_have_pages_) break;
    }
    const std::uint64_t first = (run.first + kUnitsOfPage - 1) / kUnitsOfPage, end = (std::uint64_t{run.first} + run.units) / kUnitsOfPage;
    const std::uint64_t count = std::min(pages - made, end - first);
    if (!holes_.Add({first, count})) break;
    runs_.Unlink(run.first);
    const auto begin = static_cast<std::uint32_t>(first * kUnitsOfPage), rest = static_cast<std::uint32_t>((first + count) * kUnitsOfPage);
    if (begin > run.first) runs_.Link(run.first, begin - run.first);
    if (rest < run.first + run.units) runs_.Link(rest, run.first + run.units - rest);
    page_arena_->Discard(first * kSystemPage, count * kSystemPage);
    free_units_ -= count * kUnitsOfPage;
    made += count;
  }
  return made;
}

// Whether there is memory for the line of a new id, and for its use bits.
bool MayAddLine() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
  if ((ids_.end() - kFirstId) * sizeof(Line) % kSystemPage != 0) return true;
  const Reserved* const mine = MyReservation();
  return MakeRoom(2, mine != nullptr) || (mine != nullptr && mine->exceeds);
}

// Returns how many more bytes may be counted.
std::uint64_t Room(bool is_reserved) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
  const std::uint64_t budget = limit_->Budget() - (is_reserved ? 0 : limit_->Spare());
  return budget - std::min(budget, Counted());
}
// Makes holes until this many more pages may be counted. Returns false if that is not possible.
bool MakeRoom(std::uint64_t pages, bool is_reserved) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
  const std::uint64_t budget = limit_->Budget() - (is_reserved ? 0 : limit_->Spare());
  const std::uint64_t wanted = Counted() + pages * kSystemPage;
  if (wanted <= budget) return true;
  const std::uint64_t missing = (wanted - budget + kSystemPage - 1) / kSystemPage;
  return MakeHoles(missing) >= missing;
}

// Lines and their use bits.
std::uint64_t CountedLines() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
  return 2 * (((ids_.end() - kFirstId) * sizeof(Line) + kSystemPage - 1) / kSystemPage * kSystemPage);
}
std::uint64_t Counted() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return page_bytes() - holes_.pages() * kSystemPage + CountedLines(); }
Reserved* MyReservation() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
  if (reservations_ == nullptr) [[likely]]
    return nullptr;
  const unsigned thread = sync::ThreadIndex();
  Reserved* mine = reservations_;
  while (mine != nullptr && mine->thread != thread) mine = mine->next;
  return mine;
}

// Adds the units that the thread is about to free to the reservation, because it needs as many for
// the pages that replace them.
void AddToReservation(std::uint32_t units) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
  Reserved* const mine = MyReservation();
  if (mine == nullptr) return;
  mine->bytes += std::uint64_t{units} * format::kPageUnit;
  reserved_ += std::uint64_t{units} * format::kPageUnit;
}

const std::uint32_t id_mask_;
std::unique_ptr<storage::Arena> page_arena_, line_arena_;
storage::ReservedMemory uses_;  // PageUse of each page, where there is a limit
std::unique_ptr<PageLimit> limit_;
bool has_byte_limit_ = false;  // never changes
char* base_;
Line* lines_;
sync::WriteGate gate_;
std::atomic<std::uint64_t> long_bytes_{0};
std::atomic<std::uint64_t> evicted_bytes_{0};  // since NextPart

mutable sync::Mutex mutex_ ABSL_ACQUIRED_AFTER(kPoolLocks);
UnitRuns runs_ ABSL_GUARDED_BY(mutex_){base_};
std::uint64_t free_units_ ABSL_GUARDED_BY(mutex_) = 0;
std::uint32_t retreat_ ABSL_GUARDED_BY(mutex_) = kNoRetreat;  // units from here on are not allocated
PageHoles holes_ ABSL_GUARDED_BY(mutex_);
std::uint32_t next_part_ ABSL_GUARDED_BY(mutex_) = 0;
bool may_have_pages_ ABSL_GUARDED_BY(mutex_) = true;  // free runs of fewer than 64 units
Reserved* reservations_ ABSL_GUARDED_BY(mutex_) = nullptr;
std::uint64_t reserved_ ABSL_GUARDED_BY(mutex_) = 0;  // bytes, of all reservations
IdPool ids_ ABSL_GUARDED_BY(mutex_){kFirstId};
std::uint32_t last_version_ ABSL_GUARDED_BY(mutex_) = 0;   // no line of a freed id has a later version
std::uint32_t least_version_ ABSL_GUARDED_BY(mutex_) = 0;  // version that the line of a new page has at least
}
;

static_assert(PageSpace<PageArena>);

}  // namespace hako::tree
