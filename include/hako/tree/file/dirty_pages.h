// The pages that were changed since the last checkpoint, and the ids that were freed.
//
// A checkpoint begins an epoch (BeginEpoch). A page that is changed gets the mark of the present
// epoch and is registered. The checkpoint clears the mark when it encodes the page. If a thread is
// about to change a page that still has the mark of the previous epoch, it first captures the
// page's image for the checkpoint. So a checkpoint shows a single moment.
//
// Invariants
//   1. A page whose mark is not 0 differs from its image. Marks other than mark() belong to the
//      previous epoch; no page has one when an epoch begins.
//   2. An id that a checkpoint names is reused only after a later checkpoint no longer names it.
//
// Thread-safe, except the functions that say otherwise.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hako/base/inline.h"
#include "hako/base/no_memory.h"
#include "hako/format/page_format.h"
#include "hako/storage/arena.h"
#include "hako/sync/mutex.h"
#include "hako/tree/file/page_encoding.h"
#include "hako/tree/file/page_kind.h"
#include "hako/tree/lock_order.h"
#include "hako/tree/memory/page_arena.h"

namespace hako::tree {

class DirtyPages {
 public:
  using Line = format::PageLine;
  using Shape = format::PageShape;

  // The image of a page as it was when an epoch began.
  struct Captured {
    std::uint32_t id;
    std::string image;
  };
  // The changes of an epoch.
  struct Epoch {
    std::uint8_t mark = 0;
    std::vector<std::uint32_t> pages;  // registered ids; some were freed since
    std::vector<std::uint32_t> freed;  // ids whose images the checkpoint drops
  };

  // `table` has a byte for each id that a page can have. For `inlined` see EncodePage. `kind` is
  // the kind of the pages; nullptr = pages of a B+ tree.
  DirtyPages(storage::ReservedMemory table, const PageArena& pages, unsigned inlined, const PageKind* kind = nullptr)
      : table_(std::move(table)),
        flags_(reinterpret_cast<std::uint8_t*>(table_.base())),
        lines_(pages.lines()),
        memory_(pages.memory()),
        inlined_(inlined),
        kind_(kind) {}
  DirtyPages(const DirtyPages&) = delete;
  DirtyPages& operator=(const DirtyPages&) = delete;

  // ---- pages; the caller has locked their lines ----

  std::uint8_t mark() const { return mark_.load(std::memory_order_relaxed); }
  HAKO_INLINE bool Has(const Line& line) const { return (line.shape.kind & Shape::kMark) == mark(); }
  // Marks a page before its first change in this epoch.
  void Add(Line& line) {
    const Shape shape = line.shape;
    Register(IdOf(line), false);
    if ((shape.kind & Shape::kMark) != 0 && collecting_.load(std::memory_order_relaxed)) Capture(line, shape);
    StoreMark(line, mark());
  }
  // As Add, for a new page. Returns false if out of memory.
  bool TryAddNew(Line& line) {
    HAKO_TRY { Register(IdOf(line), true); }
    HAKO_CATCH_NO_MEMORY(return false;)
    StoreMark(line, mark());
    return true;
  }
  // Reserves memory for marking this many pages.
  void Reserve(std::size_t count) {
    sync::MutexLock lock(mutex_);
    if (pages_.capacity() - pages_.size() < count) pages_.reserve(std::max(pages_.size() + count, 2 * pages_.capacity()));
  }
  // REQUIRES: the caller has locked the line
  static void StoreMark(Line& line, std::uint8_t mark) {
    sync::VersionLock(line.version).AssertLocked();
    Shape shape = line.shape;
    shape.kind = static_cast<std::uint8_t>((shape.kind & ~Shape::kMark) | mark);
    std::atomic_ref(line.shape).store(shape, std::memory_order_relaxed);
  }

  // Encodes a page, which the caller has locked, and returns the size of its image. `out` has room for
  // format::kPageImageMax bytes.
  std::size_t Encode(const Line& line, char* out) const {
    const char* const base = memory_ + std::uint64_t{line.unit} * format::kPageUnit;
    return kind_ != nullptr ? kind_->Encode(IdOf(line), line, base, out) : EncodePage(IdOf(line), line.shape, base, inlined_, out);
  }

  // ---- ids ----

  // Adds the id of a new long value.
  void AddNewId(std::uint32_t id) {
    sync::MutexLock lock(mutex_);
    flags_[id] |= kNew;
  }
  // Returns true if no checkpoint names the id, so that it can be reused at once. Otherwise the
  // next checkpoint drops its image.
  bool Forget(std::uint32_t id) {
    sync::MutexLock lock(mutex_);
    const bool is_new = (flags_[id] & kNew) != 0;
    flags_[id] &= static_cast<std::uint8_t>(~kNew);
    if (!is_new) AddFreed(id);
    return is_new;
  }

  // ---- bytes ----

  // Changes the size of the changed pages by this many bytes. Returns the previous size.
  std::int64_t AddBytes(std::int64_t bytes) { return bytes_.fetch_add(bytes, std::memory_order_relaxed); }
  // As AddBytes, for the long values that were stored in this epoch.
  std::int64_t AddLongBytes(std::int64_t bytes) { return long_bytes_.fetch_add(bytes, std::memory_order_relaxed); }
  std::int64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  std::int64_t long_bytes() const { return long_bytes_.load(std::memory_order_relaxed); }
  // Bytes of the pages that cannot be evicted: changed pages, and pages that a checkpoint has not
  // written yet.
  std::int64_t staying_bytes() const { return bytes() + frozen_bytes_.load(std::memory_order_relaxed); }
  // Whether anything has changed in this epoch.
  bool has_changed() const { return changed_.load(std::memory_order_relaxed); }
  void NoteChange() { changed_.store(true, std::memory_order_relaxed); }

  // ---- checkpoints: for one thread ----

  // Call PrepareEpoch, which needs memory, then BeginEpoch, which needs none. Ids are below
  // `id_end`.
  // REQUIRES: no writer is active (checked in Checkpointer::BeginEpoch)
  void PrepareEpoch(std::uint32_t id_end);
  void BeginEpoch(Epoch* epoch);
  // From now on a checkpoint names this id of a long value.
  void NoteKnown(std::uint32_t id) {
    sync::MutexLock lock(mutex_);
    flags_[id] &= static_cast<std::uint8_t>(~kNew);
  }
  // From now on the pages of the epoch can be registered again, and a checkpoint names their ids.
  void Unregister(const Epoch& epoch);
  // Returns the images that were captured since the last call.
  std::vector<Captured> TakeCaptured() {
    sync::MutexLock lock(mutex_);
    return std::exchange(captured_, {});
  }
  // Call this once no page has the mark of the epoch, or when the checkpoint has failed.
  void EndCapturing() { collecting_.store(false, std::memory_order_relaxed); }
  // Pages of this many bytes were written and can be evicted.
  void NoteWritten(std::uint64_t bytes) { frozen_bytes_.fetch_sub(static_cast<std::int64_t>(bytes), std::memory_order_relaxed); }
  void NoteAllWritten() { frozen_bytes_.store(0, std::memory_order_relaxed); }
  // After a failed checkpoint: moves a page of its epoch, which the caller has locked, to this
  // epoch.
  void TakeBack(Line& line) {
    if (Has(line)) return;
    StoreMark(line, mark());
    AddBytes(static_cast<std::int64_t>(line.shape.size()));
  }
  // Moves all pages and freed ids of the failed epoch to this one. Needs no memory.
  void TakeBack(Epoch* epoch);

 private:
  enum : std::uint8_t {
    kNew = 0x01,       // no checkpoint names the id
    kUnlisted = 0x02,  // the id belongs in freed_, but there was no memory to add it
    // 0x60: the mark with which the page is registered, or 0
  };
  static constexpr std::uint8_t kMarks[2] = {0x20, 0x40};
  static_assert((kMarks[0] | kMarks[1]) == Shape::kMark);

  std::uint32_t IdOf(const Line& line) const { return static_cast<std::uint32_t>(&line - lines_); }
  void Register(std::uint32_t id, bool is_new) {
    sync::MutexLock lock(mutex_);
    // The id may be registered already, for a page that was freed since.
    if ((flags_[id] & Shape::kMark) != mark()) {
      pages_.push_back(id);
      flags_[id] = static_cast<std::uint8_t>((flags_[id] & ~Shape::kMark) | mark());
    }
    if (is_new) flags_[id] |= kNew;
  }
  [[gnu::noinline]] void Capture(const Line& line, const Shape& shape) {
    alignas(64) char image[format::kPageImageMax];
    const std::size_t size = Encode(line, image);
    Captured captured{IdOf(line), std::string(image, size)};
    sync::MutexLock lock(mutex_);
    flags_[IdOf(line)] &= static_cast<std::uint8_t>(~kNew);
    captured_.push_back(std::move(captured));
    frozen_bytes_.fetch_sub(static_cast<std::int64_t>(shape.size()), std::memory_order_relaxed);
  }
  void AddFreed(std::uint32_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (TryPushBack(freed_, id)) return;
    flags_[id] |= kUnlisted;
    has_unlisted_ = true;
  }

  const storage::ReservedMemory table_;
  std::uint8_t* const flags_ ABSL_PT_GUARDED_BY(mutex_);  // by id
  Line* const lines_;
  const char* const memory_;
  const unsigned inlined_;
  const PageKind* const kind_;

  alignas(64) std::atomic<std::uint8_t> mark_{kMarks[0]};  // mark of the pages that are changed now
  std::atomic<bool> collecting_{false};                    // whether pages may have the previous epoch's mark
  alignas(64) std::atomic<std::int64_t> bytes_{0};         // of pages with the current mark
  std::atomic<std::int64_t> long_bytes_{0};
  // Bytes of pages that the running checkpoint has not yet written.
  std::atomic<std::int64_t> frozen_bytes_{0};
  std::atomic<bool> changed_{false};

  sync::Mutex mutex_ ABSL_ACQUIRED_AFTER(kPoolLocks);
  // Ids of pages that were marked since the epoch began, and of some that were freed since.
  std::vector<std::uint32_t> pages_ ABSL_GUARDED_BY(mutex_);
  // Ids of the pages of a failed checkpoint.
  std::vector<std::uint32_t> taken_back_ ABSL_GUARDED_BY(mutex_);
  std::vector<Captured> captured_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::uint32_t> freed_ ABSL_GUARDED_BY(mutex_);  // since the epoch began
  bool has_unlisted_ ABSL_GUARDED_BY(mutex_) = false;         // some ids are kUnlisted
};

inline void DirtyPages::PrepareEpoch(std::uint32_t id_end) {
  sync::MutexLock lock(mutex_);
  for (std::uint32_t id = 0; has_unlisted_ && id < id_end; ++id) {
    if ((flags_[id] & kUnlisted) == 0) continue;
    freed_.push_back(id);
    flags_[id] &= static_cast<std::uint8_t>(~kUnlisted);
  }
  has_unlisted_ = false;
  pages_.insert(pages_.end(), taken_back_.begin(), taken_back_.end());
  taken_back_.clear();
}

inline void DirtyPages::BeginEpoch(Epoch* epoch) {
  sync::MutexLock lock(mutex_);
  epoch->mark = mark();
  epoch->pages.swap(pages_);
  epoch->freed.swap(freed_);
  collecting_.store(true, std::memory_order_relaxed);
  mark_.store(epoch->mark == kMarks[0] ? kMarks[1] : kMarks[0], std::memory_order_relaxed);
  frozen_bytes_.store(bytes_.exchange(0, std::memory_order_relaxed), std::memory_order_relaxed);
  long_bytes_.store(0, std::memory_order_relaxed);
  changed_.store(false, std::memory_order_relaxed);
}

inline void DirtyPages::Unregister(const Epoch& epoch) {
  static constexpr std::size_t kTogether = 256;  // pages per hold of the lock, for which writers wait
  for (std::span<const std::uint32_t> ids = epoch.pages; !ids.empty(); ids = ids.subspan(std::min(ids.size(), kTogether))) {
    sync::MutexLock lock(mutex_);
    for (const std::uint32_t id : ids.first(std::min(ids.size(), kTogether))) {
      // Otherwise writers of this epoch have registered the page already.
      if ((flags_[id] & Shape::kMark) == epoch.mark) flags_[id] &= static_cast<std::uint8_t>(~(Shape::kMark | kNew));
    }
  }
}

inline void DirtyPages::TakeBack(Epoch* epoch) {
  sync::MutexLock lock(mutex_);
  captured_.clear();
  taken_back_.swap(epoch->pages);
  freed_.swap(epoch->freed);
  for (const std::uint32_t id : epoch->freed) AddFreed(id);
}

}  // namespace hako::tree
