// The buckets of a hash table: home lines, which are found by number, and overflow lines, by id. A home
// line and the overflow lines that it links to are a chain.
//
// Home lines are in chunks that are allocated as the table grows and never move: 2,048 chunks of 64
// KiB, then chunks of 4 MiB, found through a table of pointers. Overflow lines are carved from
// separate extents and recycled through a list in memory. The id of an overflow line is its offset
// in the space divided by 64.
//
// Invariants
//   1. The chunk of every home line below the engine's line count exists.
//   2. A free overflow line is not reachable from a home line.
//   3. The number of lines only grows, except by Reset.
//
// Thread-safe: Home, Overflow, NewOverflow, FreeOverflow, shape and the visits of a chain. Compact
// requires that the chain is locked. Only one splitter at a time may call EnsureHome and
// PublishLineCount. The other functions require that no other thread uses the table.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "hako/base/assert.h"
#include "hako/base/inline.h"
#include "hako/base/status.h"
#include "hako/format/bucket_format.h"
#include "hako/format/hash_file_format.h"
#include "hako/hash/line_access.h"
#include "hako/hash/lock_order.h"
#include "hako/hash/overflow_ids.h"
#include "hako/hash/record_space.h"
#include "hako/hash/table_shape.h"
#include "hako/sync/mutex.h"
#include "hako/sync/version_lock.h"

namespace hako::hash {

template <class Space>
class LineTable {
 public:
  using Line = format::BucketLine;
  static constexpr std::uint64_t kSmallChunkBytes = format::kSmallIndexExtent;
  static constexpr std::uint64_t kLargeChunkBytes = format::kLargeIndexExtent;
  static constexpr std::uint64_t kSmallChunks = 2048;
  static constexpr std::uint64_t kChunks = 4352;
  static constexpr std::uint64_t kHomeMax = (kSmallChunks * kSmallChunkBytes + (kChunks - kSmallChunks) * kLargeChunkBytes) / sizeof(Line);

  static constexpr unsigned kMaxHops = 4096;        // hops in a chain; more mean that a damaged file has a loop
  static constexpr unsigned kOptimisticTries = 64;  // tries of a reader of a chain before it takes the lock

  explicit LineTable(Space& space) : space_(space), chunks_(new std::atomic<Line*>[kChunks]()) {}
  LineTable(const LineTable&) = delete;

  HAKO_INLINE TableShape shape() const { return TableShape(shape_.load(std::memory_order_acquire)); }
  std::uint64_t num_lines() const { return shape().num_lines(); }
  // From now on the table has `n` lines to which keys may belong. REQUIRES: the lines exist
  void PublishLineCount(std::uint64_t n) {
    HAKO_DCHECK(n > num_lines() && n <= HomeCapacity());
    space_.StoreLineCount(n);
    SetLineCount(n);
  }
  // As above, if the space already knows the number.
  void SetLineCount(std::uint64_t n) { shape_.store(TableShape::Of(n).word(), std::memory_order_release); }

  HAKO_INLINE Line& Home(std::uint64_t index) const {
    const auto [chunk, within] = Split(index);
    return chunks_[chunk].load(std::memory_order_relaxed)[within];
  }

  // Returns nullptr if the id is out of range (a damaged file).
  HAKO_INLINE Line* Overflow(std::uint32_t id) const {
    const std::uint64_t offset = std::uint64_t{id} * sizeof(Line);
    if (id == 0 || offset + sizeof(Line) > space_.index_end()) [[unlikely]]
      return nullptr;
    return reinterpret_cast<Line*>(space_.index_base() + offset);
  }

  // Allocates chunks for home lines [0, count).
  Status EnsureHome(std::uint64_t count) {
    if (count > kHomeMax) return absl::ResourceExhaustedError("the hash table has reached its maximum size");
    while (HomeCapacity() < count) {
      const std::uint64_t bytes = num_chunks_ < kSmallChunks ? kSmallChunkBytes : kLargeChunkBytes;
      HAKO_ASSIGN_OR_RETURN(const std::uint64_t offset, space_.AllocateIndexExtent(bytes, IndexExtent::kHomeLines));
      AppendChunk(offset);
    }
    return absl::OkStatus();
  }

  StatusOr<std::uint32_t> NewOverflow() {
    sync::MutexLock lock(mutex_);
    if (free_overflow_.empty()) {
      const std::uint64_t bytes = num_overflow_ < kSmallChunks * 128 || IsLimited() ? kSmallChunkBytes : kLargeChunkBytes;
      free_overflow_.reserve(num_overflow_ + bytes / sizeof(Line));
      HAKO_ASSIGN_OR_RETURN(const std::uint64_t offset, space_.AllocateIndexExtent(bytes, IndexExtent::kOverflowLines));
      AddOverflowExtent(offset, bytes);
    }
    const std::uint32_t id = free_overflow_.back();
    free_overflow_.pop_back();
    ++num_overflow_;
    return id;
  }

  // Cannot fail, because the list has capacity for all overflow lines.
  void FreeOverflow(std::uint32_t id) {
    sync::MutexLock lock(mutex_);
    free_overflow_.push_back(id);
    --num_overflow_;
  }

  // For reopening: adds the next chunk of home lines (false if it does not fit), or an overflow
  // extent with the ids in use.
  bool AdoptHome(std::uint64_t offset, std::uint64_t bytes) {
    if (num_chunks_ == kChunks || bytes != (num_chunks_ < kSmallChunks ? kSmallChunkBytes : kLargeChunkBytes)) return false;
    AppendChunk(offset);
    return true;
  }
  void AdoptOverflow(std::uint64_t offset, std::uint64_t bytes, const OverflowIds& used) {
    sync::MutexLock lock(mutex_);
    free_overflow_.reserve(num_overflow_ + free_overflow_.size() + bytes / sizeof(Line));
    for (std::uint64_t at = offset; at < offset + bytes; at += sizeof(Line)) {
      const auto id = static_cast<std::uint32_t>(at / sizeof(Line));
      if (used.Contains(id)) {
        ++num_overflow_;
      } else {
        free_overflow_.push_back(id);
      }
    }
  }

  std::uint64_t HomeCapacity() const { return CapacityOf(num_chunks_); }
  // Whether `count` home lines would take fewer chunks than there are.
  bool WouldShrinkTo(std::uint64_t count) const { return num_chunks_ != 0 && CapacityOf(num_chunks_ - 1) >= count; }
  std::uint64_t num_overflow() {
    sync::MutexLock lock(mutex_);
    return num_overflow_;
  }

  // ---- chains ----
  // The line that this one links to, or nullptr. DataLoss if the link is broken, or after kMaxHops.
  StatusOr<Line*> NextLine(Line& line, std::uint32_t header, unsigned* hops) const {
    if (!HasLink(header)) return nullptr;
    Line* next = Overflow(LoadSlot(line, format::kLinkEntry));
    if (next == nullptr || ++*hops > kMaxHops) [[unlikely]]
      return BrokenChain(line);
    return next;
  }
  Status BrokenChain(const Line& line) const {
    return DataLossError("bad link in a bucket line",
                         static_cast<std::uint64_t>(reinterpret_cast<const std::byte*>(&line) - space_.index_base()));
  }
  // Calls visit(Line&, i, handle) for each entry of a locked chain.
  template <class F>
  Status ForEachEntry(Line& home, F&& visit) const {
    unsigned hops = 0;
    for (Line* line = &home; line != nullptr;) {
      const std::uint32_t header = LoadHeader(*line);
      for (unsigned i = 0; i < EntriesIn(header); ++i) {
        if (const std::uint32_t handle = LoadSlot(*line, i)) visit(*line, i, handle);
      }
      HAKO_ASSIGN_OR_RETURN(line, NextLine(*line, header, &hops));
    }
    return absl::OkStatus();
  }
  // Removes overflow lines from a locked chain of `chain` lines while its `num_entries` entries fit into
  // the remaining ones. An entry is briefly in two places, never in none.
  // REQUIRES: the chain is locked (unchecked: a recovery has none to lock out)
  void Compact(Line& home, std::size_t chain, std::size_t num_entries) {
    for (; chain > 1 && num_entries <= format::kLinkEntry * (chain - 1) + 1; --chain) {
      Line* before = &home;
      for (std::size_t l = 2; l < chain; ++l) before = Overflow(LoadSlot(*before, format::kLinkEntry));
      const std::uint32_t id = LoadSlot(*before, format::kLinkEntry);
      Line& last = *Overflow(id);
      Line* free = &home;
      unsigned f = 0;
      std::uint32_t last_handle = 0;  // replaces the link
      std::uint16_t last_tag = 0;
      for (unsigned i = 0; i < format::kLineEntries; ++i) {
        const std::uint32_t handle = LoadSlot(last, i);
        if (handle == 0) continue;
        while (free != &last && LoadSlot(*free, f) != 0) {
          if (++f < format::kLinkEntry) continue;
          free = Overflow(LoadSlot(*free, format::kLinkEntry));
          f = 0;
        }
        if (free == &last) {
          last_tag = LoadTag(last, i);
          last_handle = handle;
          NoteMoved(last, i, *before, format::kLinkEntry);
          break;
        }
        StoreTag(*free, f, LoadTag(last, i));
        StoreSlot(*free, f, handle);
        NoteMoved(last, i, *free, f);
      }
      StoreTag(*before, format::kLinkEntry, last_tag);
      StoreLinkAndHeader(*before, last_handle, LoadHeader(*before) & ~sync::VersionLock::kFlag);
      FreeOverflow(id);
    }
  }
  // Whether the space evicts records to get memory: then the table asks for little at a time.
  bool IsLimited() const {
    if constexpr (requires { space_.limit(); })
      return space_.limit() != nullptr;
    else
      return false;
  }
  // Entry `j` of `to` now names the record of entry `i` of `from`.
  void NoteMoved(const Line& from, unsigned i, const Line& to, unsigned j) const {
    if constexpr (requires { space_.limit(); }) {
      if (IsLimited()) space_.limit()->uses().Move(from, i, to, j);
    }
  }

  // Makes home line 0, which must be the only one, a line that stays locked.
  void Seal() { chunks_[0].store(&sealed_, std::memory_order_relaxed); }
  // Forgets all lines; the space has taken their memory back. Takes no lock, which another thread
  // may have held when this process was forked.
  // REQUIRES: no other thread uses the table (checked in WriterStates::Close)
  void Reset() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    shape_.store(0, std::memory_order_release);
    num_chunks_ = 0;
    num_overflow_ = 0;
    free_overflow_.clear();
  }

 private:
  static constexpr std::uint64_t kSmallLines = kSmallChunks * (kSmallChunkBytes / sizeof(Line));

  static std::uint64_t CapacityOf(std::uint64_t num_chunks) {
    if (num_chunks <= kSmallChunks) return num_chunks * (kSmallChunkBytes / sizeof(Line));
    return kSmallLines + (num_chunks - kSmallChunks) * (kLargeChunkBytes / sizeof(Line));
  }

  struct InChunk {
    std::uint64_t chunk;
    std::uint64_t within;
  };
  HAKO_INLINE static InChunk Split(std::uint64_t index) {
    if (index < kSmallLines) [[likely]]
      return {index >> 10, index & 1023};
    const std::uint64_t beyond = index - kSmallLines;
    return {kSmallChunks + (beyond >> 16), beyond & 65535};
  }

  void AppendChunk(std::uint64_t offset) {
    chunks_[num_chunks_++].store(reinterpret_cast<Line*>(space_.index_base() + offset), std::memory_order_relaxed);
  }
  // Ids are taken in ascending order. REQUIRES: mutex_ held
  void AddOverflowExtent(std::uint64_t offset, std::uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (std::uint64_t at = bytes; at != 0; at -= sizeof(Line)) {
      free_overflow_.push_back(static_cast<std::uint32_t>((offset + at - sizeof(Line)) / sizeof(Line)));
    }
  }

  static inline constinit Line sealed_{.tags = {}, .slots = {}, .header = sync::VersionLock::kLocked};

  Space& space_;
  std::unique_ptr<std::atomic<Line*>[]> chunks_;
  alignas(64) std::atomic<std::uint64_t> shape_{0};  // a TableShape; read by every operation
  alignas(64) std::uint64_t num_chunks_ = 0;
  sync::Mutex mutex_ ABSL_ACQUIRED_AFTER(kBucketLocks) ABSL_ACQUIRED_BEFORE(kHeapLocks);
  std::vector<std::uint32_t> free_overflow_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t num_overflow_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace hako::hash
