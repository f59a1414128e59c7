// The presence bits of a leaf of an array: 32-bit words that a writer changes, with the line of the leaf
// locked, while others read them.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>

#include "hako/base/assert.h"
#include "hako/base/inline.h"

namespace hako::array {

class PresenceBits {
 public:
  // Wraps the words of `count` bits. The unused bits of the last word must be 0.
  PresenceBits(std::uint32_t* words, unsigned count) : words_(words), count_(count) {}

  HAKO_INLINE bool Has(unsigned i) const { return (Word(i / 32) >> i % 32 & 1) != 0; }
  HAKO_INLINE void Set(unsigned i) const { Store(i / 32, Word(i / 32) | 1u << i % 32); }
  void Clear(unsigned i) const { Store(i / 32, Word(i / 32) & ~(1u << i % 32)); }
  void ClearAll() const {
    for (unsigned i = 0; i < num_words(); ++i) Store(i, 0);
  }
  // Returns the first set bit at or after `from`; count() if there is none.
  unsigned FirstFrom(unsigned from) const {
    if (from >= count_) return count_;
    std::uint32_t word = Word(from / 32) & ~std::uint32_t{0} << from % 32;
    for (unsigned i = from / 32;; word = Word(i)) {
      if (word != 0) return i * 32 + static_cast<unsigned>(std::countr_zero(word));
      if (++i == num_words()) return count_;
    }
  }
  // Returns the last set bit at or before `from`; count() if there is none. REQUIRES: from <
  // count()
  unsigned LastUpTo(unsigned from) const {
    HAKO_DCHECK(from < count_);
    std::uint32_t word = Word(from / 32) & ~std::uint32_t{0} >> (31 - from % 32);
    for (unsigned i = from / 32;; word = Word(i)) {
      if (word != 0) return i * 32 + 31 - static_cast<unsigned>(std::countl_zero(word));
      if (i-- == 0) return count_;
    }
  }
  // Returns the number of set bits in [from, to).
  unsigned CountIn(unsigned from, unsigned to) const {
    unsigned sum = 0;
    for (unsigned i = from / 32; i * 32 < to; ++i) {
      std::uint32_t word = Word(i);
      if (i == from / 32) word &= ~std::uint32_t{0} << from % 32;
      if (to - i * 32 < 32) word &= (1u << (to - i * 32)) - 1;
      sum += static_cast<unsigned>(std::popcount(word));
    }
    return sum;
  }
  // Calls body(begin, end) for each maximal run of set bits, in order.
  template <class F>
  void ForEachRun(F&& body) const {
    for (unsigned begin = FirstFrom(0); begin < count_;) {
      unsigned end = begin + 1;
      while (end < count_ && Has(end)) ++end;
      body(begin, end);
      begin = FirstFrom(end);
    }
  }
  bool IsEmpty() const { return FirstFrom(0) == count_; }
  unsigned count() const { return count_; }

 private:
  unsigned num_words() const { return (count_ + 31) / 32; }
  HAKO_INLINE std::uint32_t Word(unsigned i) const { return std::atomic_ref(words_[i]).load(std::memory_order_relaxed); }
  HAKO_INLINE void Store(unsigned i, std::uint32_t word) const { std::atomic_ref(words_[i]).store(word, std::memory_order_relaxed); }

  std::uint32_t* words_;
  unsigned count_;
};

}  // namespace hako::array
