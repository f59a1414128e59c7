// Recent use of each slot of the leaves in memory, for eviction: two bits per slot, in 64 bytes per
// page, stored beside the pages. hash/line_uses.h has the same bits for a table.
//
// Invariants
//   1. Slots and bits move together: PageEditor opens and closes gaps, and TreeShape moves the bits where
//      it divides, joins or moves pages, all with the pages locked.
//   2. A reader sets the bit of the slot that it has read, without a lock. It may set the bit of
//      another record, or lose a bit, which only makes the choice of victims slightly worse.
//
// Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "hako/base/inline.h"
#include "hako/format/page_format.h"

namespace hako::tree {

// A bit for each slot of a page.
class SlotBits {
 public:
  using Words = std::array<std::uint64_t, 4>;
  static_assert(format::kPageSlotsMax <= 256);

  HAKO_INLINE bool Has(unsigned i) const { return (Load(i / 64) >> i % 64 & 1) != 0; }
  // A bit that is set already is not set again, so readers of popular records write to no shared line.
  HAKO_INLINE void Set(unsigned i) {
    const std::uint64_t old = Load(i / 64 % 4);
    if ((old >> i % 64 & 1) == 0) Store(i / 64 % 4, old | std::uint64_t{1} << i % 64);
  }
  void Clear(unsigned i) { Store(i / 64, Load(i / 64) & ~(std::uint64_t{1} << i % 64)); }
  Words Read() const { return {Load(0), Load(1), Load(2), Load(3)}; }
  void Write(const Words& words) {
    for (unsigned w = 0; w < 4; ++w) Store(w, words[w]);
  }

  // Inserts a slot at i, with the bit 0.
  void Open(unsigned i) {
    Words words = Read();
    const std::uint64_t low = (std::uint64_t{1} << i % 64) - 1;
    std::uint64_t carry = words[i / 64] >> 63;
    words[i / 64] = (words[i / 64] & low) | (words[i / 64] & ~low) << 1;
    for (unsigned w = i / 64 + 1; w < 4; ++w) {
      const std::uint64_t top = words[w] >> 63;
      words[w] = words[w] << 1 | carry;
      carry = top;
    }
    Write(words);
  }
  // Erases the slot i.
  void Close(unsigned i) {
    Words words = Read();
    const std::uint64_t low = (std::uint64_t{1} << i % 64) - 1;
    for (unsigned w = i / 64; w < 4; ++w) {
      const std::uint64_t moved = words[w] >> 1 | (w + 1 < 4 ? words[w + 1] << 63 : 0);
      words[w] = w == i / 64 ? (words[w] & low) | (moved & ~low) : moved;
    }
    Write(words);
  }

 private:
  HAKO_INLINE std::uint64_t Load(unsigned w) const { return words_[w].load(std::memory_order_relaxed); }
  HAKO_INLINE void Store(unsigned w, std::uint64_t word) { words_[w].store(word, std::memory_order_relaxed); }

  std::array<std::atomic<std::uint64_t>, 4> words_;
};

struct alignas(64) PageUse {
  SlotBits used;  // set by each use of the record; cleared by the hand that looks for records to evict
  SlotBits kept;  // set by the hand when it finds a new record used

  void Clear() {
    used.Write({});
    kept.Write({});
  }
  void Open(unsigned i) {
    used.Open(i);
    kept.Open(i);
  }
  void Close(unsigned i) {
    used.Close(i);
    kept.Close(i);
  }
  // Copies the bits of the slots [begin, end) of `from` to the slots from `to` on.
  void Take(const PageUse& from, unsigned begin, unsigned end, unsigned to) {
    for (unsigned i = begin; i < end; ++i, ++to) {
      from.used.Has(i) ? used.Set(to) : used.Clear(to);
      from.kept.Has(i) ? kept.Set(to) : kept.Clear(to);
    }
  }
  // Moves the bits of slots [at, end) to `right`.
  void Divide(unsigned at, unsigned end, PageUse* right) {
    right->Take(*this, at, end, 0);
    PageUse left;
    left.Clear();
    left.Take(*this, 0, at, 0);
    used.Write(left.used.Read());
    kept.Write(left.kept.Read());
  }
};
static_assert(sizeof(PageUse) == 64);

}  // namespace hako::tree
