// The limit of a hash table in memory (base/capacity.h): the part that RecordArena and BucketIndex share.
// The index chooses and removes the records (hash/bucket_eviction-inl.h), the arena asks for it when
// it finds no memory (hash/record_arena-inl.h).
//
// Policy. The hand goes over the table in the order of the buckets, 16 of them at a time, and evicts a
// sixteenth of their records. A record is new until the hand finds that it was used; from then on it is kept.
// Where more than a quarter of the records are new, new ones that were not used go, else kept ones that
// were not used since the hand was there. So a scan of any length evicts its own records, and a
// popular record stays if it is used between two rounds of the hand. The idea is that of S3-FIFO (Yang et
// al., SOSP 2023) and SIEVE (Zhang et al., NSDI 2024), with the order of the buckets in place of that of
// insertions, which would take 4 to 16 bytes a record.
// benchmark/eviction_simulator.cc compares the hit ratios.
//
// Invariants
//   1. The arena never takes more than its part of Capacity::bytes. The rest is for memory outside
//      the arena: use bits, magazines, writer states, tables.
//   2. A record is evicted as Remove removes it: its bucket is locked, the removal is logged first. The
//      bucket's lock is only tried, so a thread may evict whatever it has locked itself.
//   3. An extent for the index is emptied only if no record and no free block in it belongs to a thread,
//      so that a search for one that is free evicts nothing.
//   4. As many records are evicted as were inserted, at most: an eviction costs a constant time for each
//      update, on average. One update may evict many, if it needs a block of another size than they had.
//
// Thread-safe, except SetEvictor and Show.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "hako/base/capacity.h"
#include "hako/hash/line_uses.h"
#include "hako/sync/cache_limit.h"
#include "hako/sync/write_gate.h"

namespace hako::hash {

// Memory for an extent of the index that the arena has returned before it is needed, as a thread that
// needs it cannot evict.
class SpareExtent {
 public:
  bool IsAsked() const { return asked_.load(std::memory_order_relaxed) != 0; }
  void Ask(std::uint64_t bytes) { asked_.store(bytes, std::memory_order_relaxed); }
  // The bytes to offer; 0 = none, or another thread has taken the task.
  std::uint64_t TakeAsked() { return asked_.exchange(0, std::memory_order_relaxed); }
  void Offer(std::uint64_t bytes) { offered_.fetch_add(bytes); }
  // False: there is less.
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

class RecordLimit : public sync::CacheLimit {
 public:
  static constexpr std::uint64_t kUnit = 64 << 10;  // of the memory of arenas
  // Functions of the index; they return how many records they have evicted. The writer is busy.
  struct Evictor {
    void* index = nullptr;
    unsigned (*some)(void* index, sync::WriterState& writer, unsigned wanted) = nullptr;
    unsigned (*part)(void* index, sync::WriterState& writer, Part part) = nullptr;
    void (*survey)(void* index, sync::WriterState& writer, Part part, std::uint64_t* bytes) = nullptr;
  };

  RecordLimit(const Capacity& capacity, const LineUses& uses) : CacheLimit(capacity), uses_(uses) {}

  static constexpr std::uint64_t kBeside = 32 << 10;  // for the objects of a database and of its first thread
  // How much of the capacity an arena may take, and space before the first extent that is not used.
  static std::uint64_t ArenaBytes(std::uint64_t capacity_bytes) { return capacity_bytes - kBeside - capacity_bytes / 128 + kUnit; }
  // Bytes of free blocks that a magazine may have, and that a chunk may have: the less memory there is,
  // and the more threads write, the less of it may wait in a thread.
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
  unsigned EvictPart(sync::WriterState& writer, Part part) const { return evictor_.part(evictor_.index, writer, part); }
  // For each kUnit of the part, the bytes of records that begin in the part and could be evicted now.
  // REQUIRES: the part has at most kSurveyed units
  static constexpr std::uint64_t kSurveyed = 64;
  std::array<std::uint64_t, kSurveyed> Survey(sync::WriterState& writer, Part part) const {
    std::array<std::uint64_t, kSurveyed> bytes{};
    evictor_.survey(evictor_.index, writer, part, bytes.data());
    return bytes;
  }

  // The next part of the arena to be emptied, of at least `bytes`, and of a 64th of `end`.
  Part NextWindow(std::uint64_t bytes, std::uint64_t end) {
    const std::uint64_t size = (std::max(bytes > kUnit / 2 ? bytes + kUnit : 0, end / 64) + kUnit) / kUnit * kUnit;
    std::uint64_t begin = window_.fetch_add(size, std::memory_order_relaxed);
    if (begin >= end) {
      begin = kUnit;
      window_.store(begin + size, std::memory_order_relaxed);
    }
    return {begin, begin + size};
  }

  SpareExtent& overflow_extent() { return overflow_extent_; }
  SpareExtent& home_extent() { return home_extent_; }
  // The memory beside the arena has grown beyond its part of the limit. The returned extent is never offered.
  SpareExtent& excess_extent() { return excess_extent_; }
  bool IsExtentAsked() const { return overflow_extent_.IsAsked() || home_extent_.IsAsked() || excess_extent_.IsAsked(); }
  // After a search for an extent that found none, threads give their free blocks back, and search again
  // after a number of insertions. The number of failed searches:
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
  const LineUses uses_;
  Evictor evictor_;
  std::atomic<std::uint64_t> window_{0}, pause_{0}, failed_searches_{0};
  SpareExtent overflow_extent_, home_extent_, excess_extent_;
};

}  // namespace hako::hash
