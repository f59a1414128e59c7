// Recent use of each entry of a hash table in memory, for eviction: two bits per entry, in four
// bytes per line, stored beside the table.
//
//   used  set by each use of the record; cleared by the hand that looks for records to evict
//   kept  set by the hand when it finds a new record used
//
// The word of a line is found by the line's address, so a reader with an outdated handle or line
// changes at most the bits of another entry, which makes the choice of victims slightly worse and
// does no other harm. For the same reason a lost update of a word does no harm, so the stores need
// no locked instruction. A bit that is set already is not set again, so readers of popular records
// write to no shared cache line.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "hako/base/inline.h"
#include "hako/format/bucket_format.h"

namespace hako::hash {

class LineUses {
 public:
  using Line = format::BucketLine;
  static constexpr std::uint64_t kLinesPerByte = sizeof(Line) / sizeof(std::uint32_t);  // bytes of lines for one byte of bits

  // For lines from `base` on. `memory` has Bytes(n) zeros for n bytes of lines, and outlives this.
  LineUses(const std::byte* base, std::byte* memory)
      : origin_(reinterpret_cast<std::uintptr_t>(memory) - reinterpret_cast<std::uintptr_t>(base) / kLinesPerByte) {}
  static constexpr std::uint64_t Bytes(std::uint64_t bytes_of_lines) { return bytes_of_lines / kLinesPerByte; }

  HAKO_INLINE void MarkUsed(const Line& line, unsigned i) const { Set(UseOf(line).used, 1u << i); }
  // From now on the entry names another record, or is empty.
  HAKO_INLINE void Forget(const Line& line, unsigned i) const {
    Clear(UseOf(line).used, 1u << i);
    Clear(UseOf(line).kept, 1u << i);
  }

  // Entry `j` of `to` now names the record of entry `i` of `from`.
  void Move(const Line& from, unsigned i, const Line& to, unsigned j) const {
    const bool used = (Used(from) >> i & 1) != 0, kept = (Kept(from) >> i & 1) != 0;
    Forget(from, i);
    Forget(to, j);
    if (used) Set(UseOf(to).used, 1u << j);
    if (kept) Set(UseOf(to).kept, 1u << j);
  }

  // Masks of a line's entries.
  std::uint32_t Used(const Line& line) const { return std::atomic_ref(UseOf(line).used).load(std::memory_order_relaxed); }
  std::uint32_t Kept(const Line& line) const { return std::atomic_ref(UseOf(line).kept).load(std::memory_order_relaxed); }
  void Keep(const Line& line, std::uint32_t entries) const {
    Set(UseOf(line).kept, entries);
    ForgetUses(line, entries);
  }
  void ForgetUses(const Line& line, std::uint32_t entries) const { Clear(UseOf(line).used, entries); }

 private:
  struct Use {
    std::uint16_t used, kept;
  };

  HAKO_INLINE Use& UseOf(const Line& line) const {
    return *reinterpret_cast<Use*>(origin_ + reinterpret_cast<std::uintptr_t>(&line) / kLinesPerByte);
  }
  HAKO_INLINE static void Set(std::uint16_t& word, std::uint32_t bits) {
    const std::atomic_ref shared(word);
    const std::uint32_t old = shared.load(std::memory_order_relaxed);
    if ((old & bits) != bits) shared.store(static_cast<std::uint16_t>(old | bits), std::memory_order_relaxed);
  }
  HAKO_INLINE static void Clear(std::uint16_t& word, std::uint32_t bits) {
    const std::atomic_ref shared(word);
    const std::uint32_t old = shared.load(std::memory_order_relaxed);
    if ((old & bits) != 0) shared.store(static_cast<std::uint16_t>(old & ~bits), std::memory_order_relaxed);
  }

  const std::uintptr_t origin_;  // where the word of a line at address 0 would be
};

}  // namespace hako::hash
