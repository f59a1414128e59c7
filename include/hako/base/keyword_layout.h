// The layout of a keyword table and its search: internal to base/keyword_table.h. The table is built
// by base/keyword_builder.h.
//
// The first and the last 8 bytes of a text and its size give its hash, which selects one entry. The
// text is compared with that entry word by word; a mask of the entry says at which bytes case
// counts. Texts of up to 15 bytes take two words of 8 bytes, texts of 16 to 32 bytes two words of
// 16. The words overlap where the text is shorter than both. A longer text is compared in a loop.
//
// The hash is perfect, of the kind "hash and displace" (Pagh 1999; Belazzougui, Botelho,
// Dietzfelbinger 2009): its upper bits select a displacement, and the next bits, XORed with it, the
// entry. Removing the case of 4 bytes at once by OR 0x20202020 is from the post "h2o kosokuka
// challenge" (jonigata 2014), which notes that it also accepts bytes that are not letters, and that
// a mask could avoid it; overlapping words are as in XXH3.
//
// Invariants
//   1. No byte outside the text is read, whatever its size and alignment.
//   2. The mask of an entry, `significant`, lacks exactly bit 5 of each letter of its keyword. So
//      (text ^ words) & significant is 0 for all spellings of the keyword, and for nothing else: at
//      a letter both cases are accepted, elsewhere only the same byte.
//   3. The hash ignores bit 5 of every byte, so all spellings of a keyword have one hash. Other
//      texts may have the same hash, so an entry is always compared in full, with its size.
//   4. Every keyword is in the entry that its hash selects, or on the chain of entries that starts
//      there. Chains exist where no displacement separates the keywords, as when their hashes are
//      equal: the keywords differ only in bit 5 of bytes that are not letters ("a[", "a{"), or have
//      one size and differ neither in the first nor in the last 8 bytes.
//   5. An unused entry has a size that no text compared with it can have.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "hako/base/assert.h"
#include "hako/base/inline.h"

namespace hako::internal {

inline constexpr std::size_t kKeywordCountMax = std::size_t{1} << 15;
inline constexpr std::size_t kKeywordSizeMax = 65534;

// Reads a word in the machine's byte order. At compile time it assembles the same value from single
// bytes.
template <class Word>
HAKO_INLINE constexpr Word LoadWord(const char* p) {
  if (std::is_constant_evaluated()) {
    std::array<char, sizeof(Word)> bytes{};
    for (std::size_t i = 0; i < sizeof(Word); ++i) bytes[i] = p[i];
    return std::bit_cast<Word>(bytes);
  } else {
    Word word;
    std::memcpy(&word, p, sizeof(word));
    return word;
  }
}

// The first 8 and the last 8 bytes of a text. A text of less than 16 bytes has no others.
struct KeywordEnds {
  std::uint64_t first = 0, last = 0;

  HAKO_INLINE static constexpr KeywordEnds Of(const char* p, std::size_t size) {
    using Eight = std::uint64_t;
    using Four = std::uint32_t;
    if (size >= 8) return {LoadWord<Eight>(p), LoadWord<Eight>(p + size - 8)};
    if (size >= 4) return {LoadWord<Four>(p), LoadWord<Four>(p + size - 4)};
    if (size == 0) return {};
    const auto byte = [p](std::size_t i) { return std::uint64_t{static_cast<unsigned char>(p[i])}; };
    return {byte(0) | byte(size / 2) << 8, byte(size - 1)};
  }
};

// Returns bit 5 of each byte that is an ASCII letter.
constexpr std::uint64_t CaseBits(std::uint64_t word) {
  constexpr std::uint64_t kOnes = 0x0101010101010101;
  const std::uint64_t low = (word | 0x20 * kOnes) & 0x7f * kOnes;  // no sum carries into the next byte
  const std::uint64_t from_a = low + (0x80 - 'a') * kOnes, above_z = low + (0x7f - 'z') * kOnes;
  return (from_a & ~above_z & ~word & 0x80 * kOnes) >> 2;
}

// Whether two texts of one size differ at most in the case of ASCII letters.
constexpr bool EqualIgnoringCase(const char* a, const char* b, std::size_t size) {
  const auto fold = [](char c) { return c >= 'A' && c <= 'Z' ? c + 32 : c + 0; };
  for (std::size_t i = 0; i < size; ++i) {
    if (fold(a[i]) != fold(b[i])) return false;
  }
  return true;
}

// One cache line: the ends of a keyword; of a keyword of 16 bytes or more, its first 16 bytes and
// its last 16.
struct alignas(64) KeywordEntry {
  using TwoWords [[gnu::vector_size(16)]] = std::uint64_t;

  std::array<std::uint64_t, 4> words = {};
  std::array<std::uint64_t, 4> significant = {};

  constexpr KeywordEntry() = default;
  constexpr explicit KeywordEntry(std::string_view keyword) : words(WordsOf(keyword.data(), keyword.size())) {
    for (std::size_t i = 0; i < words.size(); ++i) significant[i] = ~CaseBits(words[i]);
  }

  // Returns 0 if the text equals the keyword, provided that their sizes are equal.
  // REQUIRES: size < 16 (unchecked: KeywordEnds does not store the size)
  HAKO_INLINE constexpr std::uint64_t Difference(const KeywordEnds& text) const {
    return ((text.first ^ words[0]) & significant[0]) | ((text.last ^ words[3]) & significant[3]);
  }
  // Returns 0 if the first 16 and the last 16 bytes of the text equal those of the keyword.
  // REQUIRES: size >= 16
  HAKO_INLINE constexpr std::uint64_t Difference(const char* p, std::size_t size) const {
    HAKO_DCHECK(size >= 16);
    if (std::is_constant_evaluated()) {
      const auto text = WordsOf(p, size);
      std::uint64_t difference = 0;
      for (std::size_t i = 0; i < words.size(); ++i) difference |= (text[i] ^ words[i]) & significant[i];
      return difference;
    } else {
      const TwoWords first = (Load(p) ^ Load(&words[0])) & Load(&significant[0]);
      const TwoWords last = (Load(p + size - 16) ^ Load(&words[2])) & Load(&significant[2]);
      const TwoWords both = first | last;
      return both[0] | both[1];
    }
  }

 private:
  static constexpr std::array<std::uint64_t, 4> WordsOf(const char* p, std::size_t size) {
    using Eight = std::uint64_t;
    const KeywordEnds ends = KeywordEnds::Of(p, size);
    if (size < 16) return {ends.first, 0, 0, ends.last};
    return {ends.first, LoadWord<Eight>(p + 8), LoadWord<Eight>(p + size - 16), ends.last};
  }
  HAKO_INLINE static TwoWords Load(const void* p) {
    TwoWords words;
    std::memcpy(&words, p, sizeof(words));
    return words;
  }
};

// The other facts of an entry, packed into one word so that one load reads them: the size of the
// keyword, the number of the next entry of the chain plus 1 (0 at its end), the index of the
// keyword.
class KeywordInfo {
 public:
  constexpr KeywordInfo() = default;
  constexpr KeywordInfo(std::size_t size, std::size_t next, std::size_t index) : word_(size | next << 16 | std::uint64_t{index} << 32) {}

  HAKO_INLINE constexpr std::size_t size() const { return static_cast<std::uint16_t>(word_); }
  constexpr std::size_t next() const { return static_cast<std::uint16_t>(word_ >> 16); }
  HAKO_INLINE constexpr int index() const { return static_cast<int>(word_ >> 32); }

 private:
  std::uint64_t word_ = kKeywordSizeMax + 1;  // unused
};

// The parameters of the hash.
struct KeywordHash {
  std::uint64_t factor = 0x9e3779b97f4a7c15;
  unsigned bits = 1;        // there are 1 << bits entries, and as many displacements
  bool has_chains = false;  // whether there is an entry with a next one

  HAKO_INLINE constexpr std::uint64_t Of(const KeywordEnds& text, std::size_t size) const {
    constexpr std::uint64_t kAllButBit5 = 0xdfdfdfdfdfdfdfdf;  // the rotation moves whole bytes
    return (((text.first ^ std::rotl(text.last, 24)) & kAllButBit5) + size) * factor;
  }
  HAKO_INLINE constexpr std::size_t Bucket(std::uint64_t hash) const { return static_cast<std::size_t>(hash >> (64 - bits)); }
  HAKO_INLINE constexpr std::size_t Slot(std::uint64_t hash) const { return Both(hash) & ((std::size_t{1} << bits) - 1); }
  // Returns the bucket in the upper bits and the slot in the lower bits.
  HAKO_INLINE constexpr std::size_t Both(std::uint64_t hash) const { return static_cast<std::size_t>(hash >> (64 - 2 * bits)); }
};

// The arrays of a table, and the search.
struct KeywordSearch {
  const std::string_view* names;
  const KeywordEntry* entries;
  const KeywordInfo* infos;
  const std::uint32_t* displacements;

  // Returns the index of the keyword, or -1.
  HAKO_INLINE constexpr int Find(const KeywordHash& hash, const char* p, std::size_t size) const {
    const KeywordEnds text = KeywordEnds::Of(p, size);
    const std::uint64_t h = hash.Of(text, size);
    const std::size_t slot = hash.Both(h) ^ displacements[hash.Bucket(h)];
    if (hash.has_chains) [[unlikely]]
      return FindOnChain(p, size, slot, names, entries, infos);
    const KeywordInfo info = infos[slot];
    std::uint64_t difference = size ^ info.size();
    if (size < 16) {
      difference |= entries[slot].Difference(text);
    } else {
      if (size > 32) [[unlikely]]
        return FindOnChain(p, size, slot, names, entries, infos);
      difference |= entries[slot].Difference(p, size);
    }
    const int index = info.index();
    return difference == 0 ? index : -1;
  }

 private:
  [[gnu::noinline]] static constexpr int FindOnChain(const char* p, std::size_t size, std::size_t slot, const std::string_view* names,
                                                     const KeywordEntry* entries, const KeywordInfo* infos) {
    if (size > kKeywordSizeMax) return -1;
    for (;;) {
      const KeywordInfo info = infos[slot];
      if (info.size() == size &&
          (size < 16 ? entries[slot].Difference(KeywordEnds::Of(p, size)) : entries[slot].Difference(p, size)) == 0 &&
          (size <= 32 || EqualIgnoringCase(p + 16, names[info.index()].data() + 16, size - 32)))
        return info.index();
      if (info.next() == 0) return -1;
      slot = info.next() - 1;
    }
  }
};

}  // namespace hako::internal
