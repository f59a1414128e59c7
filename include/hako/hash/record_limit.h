// The limit of a hash table in memory (base/capacity.h): the part that RecordArena and BucketIndex share.
// The index chooses and removes records (hash/bucket_eviction.h) when the arena finds no memory and
// asks it to (hash/memory/record_arena-inl.h).
//
// Policy. A CLOCK hand goes over the table in the order of the buckets, 16 at a time, and evicts a
// sixteenth of their records. A record is new until the hand finds that it was used; from then on
// it is kept. If more than a quarter of the records are new, the hand evicts new records that were
// not used; otherwise it evicts kept records that were not used since its last visit. So a scan of
// any length evicts its own records, and a popular record stays if it is used between two rounds of
// the hand. The idea comes from S3-FIFO (Yang et al., SOSP 2023) and SIEVE (Zhang et al., NSDI
// 2024). The hand uses the order of the buckets instead of the order of insertions, which would
// take 4 to 16 bytes per record. benchmark/eviction_simulator.cc compares the hit ratios.
//
// Invariants
//   1. The arena never takes more than its part of Capacity::bytes. The rest is for memory outside
//      the arena: use bits, magazines, writer states, tables.
//   2. Records are evicted like Remove removes them: the bucket is locked, and the removal is
//      logged first. The evicting thread only tries to lock the bucket, so it may evict while it
//      has buckets locked itself.
//   3. An extent is emptied for the index only if it has no record that cannot be evicted and no
//      free block of a thread. So a search that finds no such extent evicts nothing.
//   4. At most as many records are evicted as were inserted, so on average evictions cost each
//      update a constant time. A single update may evict many records if it needs a block of
//      another size.
//   5. A block above FreeBlockPool::kSmallMax needs a run of bytes. If there is none, one window of the arena is
//      emptied (hash/memory/record_room-inl.h). The window is as long as the block, but at least
//      WindowBytes. To make room for used records that are moved out of the window, more records
//      may be evicted: a quarter of the window's bytes, and up to eight records in the usual order.
//
// Thread-safe, except SetEvictor, SetWriters and Show.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "hako/base/capacity.h"
#include "hako/base/function_ref.h"
#include "hako/hash/line_uses.h"
#include "hako/sync/cache_limit.h"
#include "hako/sync/write_gate.h"

namespace hako::hash {

// Memory for an extent of the index. The arena returns the memory to the system before it is
// needed, because the thread that needs it cannot evict.
class SpareExtent {
 public:
  bool IsAsked() const { return asked_.load(std::memory_order_relaxed) != 0; }
  void Ask(std::uint64_t bytes) { asked_.store(bytes, std::memory_order_relaxed); }
  // Returns the number of bytes to offer; 0 if none were requested, or another thread offers them.
  std::uint64_t TakeAsked() { return asked_.exchange(0, std::memory_order_relaxed); }
  void Offer(std::uint64_t bytes) { offered_.fetch_add(bytes); }
  // Takes the memory. Returns false if there is less.
  bool Take(std::uint64_t bytes) {
    std::uint64_t offered = offered_.load();
    while (offered >= bytes) {
      if (offered_.compare_exchange_weak(offered, offered - bytes)) return true;
    }
    return false;
  }

 private:
  std::atomic<std::uint64_t> asked_{0}, offered_{0};
};

// Bytes of the arena.
struct Part {
  std::uint64_t begin = 0, end = 0;
  std::uint64_t bytes() const { return end - begin; }
};

// The buckets that a thread has locked to change several records. The thread may evict the other
// records in them.
class OwnBuckets {
 public:
  virtual bool Has(std::uint64_t index) const = 0;
  virtual bool Names(std::uint32_t handle) const = 0;  // whether the thread is going to change this record
  virtual void MarkChanged() = 0;

 protected:
  ~OwnBuckets() = default;
};

class RecordLimit : public sync::CacheLimit {
 public:
  static constexpr std::uint64_t kUnit = 64 << 10;  // of the memory of arenas
  // Copies a record to another block and returns the handle of the copy; 0 if the record is to be
  // evicted.
  using Mover = FunctionRef<std::uint32_t(std::uint32_t handle)>;
  using Surveyor = FunctionRef<void(std::uint32_t handle, bool is_used)>;
  using WriterVisitor = FunctionRef<void(sync::WriterState&)>;
  // Functions of the index, called by a busy writer. Those that evict return the number of records
  // evicted.
  struct Evictor {
    void* index = nullptr;
    unsigned (*some)(void* index, sync::WriterState& writer, unsigned wanted) = nullptr;
    unsigned (*part)(void* index, sync::WriterState& writer, Part part, Mover move) = nullptr;
    void (*survey)(void* index, sync::WriterState& writer, Part part, Surveyor visit) = nullptr;
  };
  // Visits the writers of the database.
  struct Writers {
    void* database = nullptr;
    void (*for_each)(void* database, WriterVisitor visit) = nullptr;
  };

  RecordLimit(const Capacity& capacity, const LineUses& uses) : CacheLimit(capacity), uses_(uses) {}

  static constexpr std::uint64_t kBeside = 32 << 10;  // for the objects of a database and of its first thread
  // ArenaBytes is the part of the capacity that an arena may take.
  static std::uint64_t ArenaBytes(std::uint64_t capacity_bytes) { return capacity_bytes - kBeside - capacity_bytes / 128 + kUnit; }
  // How many bytes of free blocks a magazine or a chunk may have. The less memory there is and the
  // more threads write, the less free memory each thread may keep.
  static std::uint64_t MagazineBytes(std::uint64_t capacity_bytes) {
    return std::clamp<std::uint64_t>(capacity_bytes / 2048, 1 << 10, 32 << 10);
  }
  std::uint64_t ChunkBytes() const {
    const std::uint64_t bytes = capacity().bytes;
    return std::min(std::clamp<std::uint64_t>(bytes / 256, 4 << 10, 64 << 10), bytes / 64 / std::max<std::uint64_t>(num_writers(), 1));
  }

  const LineUses& uses() const { return uses_; }

  void SetEvictor(const Evictor& evictor) { evictor_ = evictor; }
  unsigned Evict(sync::WriterState& writer, unsigned wanted) const { return evictor_.some(evictor_.index, writer, wanted); }
  // Evicts the records that begin in the part. Those that were used are moved instead, if `move` can.
  unsigned EvictPart(sync::WriterState& writer, Part part, Mover move = kMovesNone) const {
    return evictor_.part(evictor_.index, writer, part, move);
  }
  // Visits the records that begin in the part and could be evicted now, with their buckets locked.
  void Survey(sync::WriterState& writer, Part part, Surveyor visit) const { evictor_.survey(evictor_.index, writer, part, visit); }
  void SetWriters(const Writers& writers) { writers_ = writers; }
  void ForEachWriter(WriterVisitor visit) const {
    if (writers_.for_each != nullptr) writers_.for_each(writers_.database, visit);
  }

  // The size of a part of the arena that is emptied at once: a 64th of the arena, but at most 512
  // KiB, because other threads wait meanwhile.
  static std::uint64_t WindowBytes(std::uint64_t end) { return std::min<std::uint64_t>(end / 64, 512 << 10); }
  // The next part of the arena to be emptied for small records.
  Part NextWindow(std::uint64_t end) {
    const std::uint64_t size = (WindowBytes(end) + kUnit) / kUnit * kUnit;
    std::uint64_t begin = window_.fetch_add(size, std::memory_order_relaxed);
    if (begin >= end) {
      begin = kUnit;
      window_.store(begin + size, std::memory_order_relaxed);
    }
    return {begin, begin + size};
  }

  // Where to look next for a window of `size` bytes. After the search, call EndSection with the end
  // of the section.
  std::uint64_t NextSection(std::uint64_t size, std::uint64_t end) const {
    const std::uint64_t begin = std::max(section_.load(std::memory_order_relaxed), kUnit);
    return begin + size > end ? kUnit : begin;
  }
  void EndSection(std::uint64_t end) { section_.store(end, std::memory_order_relaxed); }
  // The part of the arena in which to look next for extents to return. The first part is at the
  // end, so that returned extents do not divide the arena.
  Part NextReturned(std::uint64_t end) {
    const std::uint64_t last = returned_.load(std::memory_order_relaxed);
    if (last > kUnit && last < end) end = last;
    return {end - std::min(end - kUnit, kSurveyed * kUnit), end};
  }
  void EndReturned(Part part) { returned_.store(part.begin, std::memory_order_relaxed); }

  // The handles of the large records that were stored last, up to a quarter of the memory; 0 =
  // none.
  static constexpr std::size_t kNewest = 16;
  void NoteLarge(std::uint32_t handle, std::uint64_t bytes) {
    const std::uint64_t number = num_large_.fetch_add(1, std::memory_order_relaxed);
    newest_[number % kNewest].store(std::uint64_t{handle} << 32 | bytes / kLargeUnit, std::memory_order_relaxed);
  }
  std::array<std::uint32_t, kNewest> Newest() const {
    std::array<std::uint32_t, kNewest> newest{};
    const std::uint64_t end = num_large_.load(std::memory_order_relaxed);
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < kNewest; ++i) {
      const std::uint64_t word = newest_[(end - 1 - i) % kNewest].load(std::memory_order_relaxed);
      bytes += (word & 0xffffffff) * kLargeUnit;
      if (bytes > capacity().bytes / 4) break;
      newest[i] = static_cast<std::uint32_t>(word >> 32);
    }
    return newest;
  }

  SpareExtent& overflow_extent() { return overflow_extent_; }
  SpareExtent& home_extent() { return home_extent_; }
  // The extent that is returned to the system when the memory outside the arena has grown beyond
  // its part of the limit. It is never offered to the index.
  SpareExtent& excess_extent() { return excess_extent_; }
  bool IsExtentAsked() const { return overflow_extent_.IsAsked() || home_extent_.IsAsked() || excess_extent_.IsAsked(); }
  // Returns the number of searches for an extent that found none. After such a search, threads give
  // their free blocks back, and search again after a number of insertions.
  std::uint64_t failed_searches() const { return failed_searches_.load(std::memory_order_relaxed); }
  void NoteFailedSearch(std::uint64_t insertions) {
    failed_searches_.fetch_add(1, std::memory_order_relaxed);
    pause_.store(insertions, std::memory_order_relaxed);
  }
  bool SearchPauses() {
    const std::uint64_t left = pause_.load(std::memory_order_relaxed);
    if (left != 0) pause_.store(left - 1, std::memory_order_relaxed);
    return left != 0;
  }

 private:
  static constexpr std::uint64_t kSurveyed = 64;  // units
  static constexpr std::uint64_t kLargeUnit = 64;
  static std::uint32_t EvictsAll(std::uint32_t) { return 0; }
  static inline const Mover kMovesNone{EvictsAll};

  const LineUses uses_;
  Evictor evictor_;
  Writers writers_;
  std::atomic<std::uint64_t> window_{0}, section_{0}, returned_{0}, pause_{0}, failed_searches_{0};
  std::atomic<std::uint64_t> num_large_{0};
  std::array<std::atomic<std::uint64_t>, kNewest> newest_{};
  SpareExtent overflow_extent_, home_extent_, excess_extent_;
};

}  // namespace hako::hash
