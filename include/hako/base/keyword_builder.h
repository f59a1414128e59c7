// Builds the arrays of a keyword table, at compile time or at run time: internal to
// base/keyword_table.h. base/keyword_layout.h describes them.
//
// Keywords are sorted into buckets by the upper bits of their hash. A bucket's displacement is the
// first that sends all its keywords to unused entries. The builder places the fullest buckets
// first, while most entries are unused; a bucket of one keyword fits anywhere at the end. The time
// is about linear in the number of keywords.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "hako/base/assert.h"
#include "hako/base/keyword_layout.h"

namespace hako::internal {

// Why a keyword is refused.
enum class KeywordError { kNone, kDuplicate, kNotAscii, kTooLong };

// Fills the arrays of a table and finds the parameters of its hash.
// REQUIRES: names.size() <= kKeywordCountMax; each other array has 1 << Bits(names.size()) items.
class KeywordBuilder {
 public:
  constexpr KeywordBuilder(std::span<const std::string_view> names, std::span<KeywordEntry> entries, std::span<KeywordInfo> infos,
                           std::span<std::uint32_t> displacements)
      : names_(names), entries_(entries), infos_(infos), displacements_(displacements) {
    HAKO_DCHECK(names.size() <= kKeywordCountMax);
    const std::size_t size = std::size_t{1} << Bits(names.size());
    HAKO_DCHECK(entries.size() == size && infos.size() == size && displacements.size() == size);
    hash_.bits = Bits(names.size());
  }

  // Returns log2 of the number of entries for this number of keywords.
  static constexpr unsigned Bits(std::size_t count) { return static_cast<unsigned>(std::bit_width(count < 2 ? 1 : count - 1)); }

  // On an error, *culprit is the index of the keyword that is refused.
  constexpr KeywordError Build(std::size_t* culprit) {
    for (*culprit = 0; *culprit < names_.size(); ++*culprit) {
      if (names_[*culprit].size() > kKeywordSizeMax) return KeywordError::kTooLong;
      for (const char c : names_[*culprit]) {
        if (static_cast<unsigned char>(c) >= 0x80) return KeywordError::kNotAscii;
      }
    }
    SortIntoBuckets();
    if (FindDuplicate(culprit)) return KeywordError::kDuplicate;
    // Another factor may separate keywords that this one does not.
    constexpr int kAttempts = 16;
    for (int attempt = 1; !Place() && attempt < kAttempts; ++attempt) {
      hash_.factor = hash_.factor * 0xd1342543de82ef95 + 2;  // stays odd
      SortIntoBuckets();
    }
    return KeywordError::kNone;
  }

  constexpr KeywordHash hash() const { return hash_; }

 private:
  constexpr std::size_t Bucket(std::size_t i) const { return hash_.Bucket(hashes_[i]); }
  constexpr std::size_t Slot(std::size_t i) const { return hash_.Slot(hashes_[i]); }
  // Encodes a bucket's displacement: XORed with the bits of a hash that select bucket and slot, it
  // yields the entry.
  constexpr std::uint32_t Displacement(std::size_t bucket, std::size_t of_slot) const {
    return static_cast<std::uint32_t>(bucket << hash_.bits | of_slot);
  }
  constexpr std::span<const std::uint16_t> Members(std::size_t bucket) const {
    return std::span(members_).subspan(begins_[bucket], begins_[bucket + 1] - begins_[bucket]);
  }

  // Fills hashes_, members_ and begins_.
  constexpr void SortIntoBuckets() {
    hashes_.assign(names_.size(), 0);
    members_.assign(names_.size(), 0);
    begins_.assign(entries_.size() + 2, 0);
    for (std::size_t i = 0; i < names_.size(); ++i) {
      hashes_[i] = hash_.Of(KeywordEnds::Of(names_[i].data(), names_[i].size()), names_[i].size());
      ++begins_[Bucket(i) + 2];
    }
    for (std::size_t b = 2; b < begins_.size(); ++b) begins_[b] += begins_[b - 1];
    for (std::size_t i = 0; i < names_.size(); ++i) members_[begins_[Bucket(i) + 1]++] = static_cast<std::uint16_t>(i);
  }

  // Equal keywords have equal hashes, and are thus in one bucket.
  constexpr bool FindDuplicate(std::size_t* culprit) const {
    for (std::size_t bucket = 0; bucket < entries_.size(); ++bucket) {
      const auto members = Members(bucket);
      for (std::size_t k = 1; k < members.size(); ++k) {
        for (std::size_t j = 0; j < k; ++j) {
          const std::string_view a = names_[members[j]], b = names_[members[k]];
          *culprit = members[k];
          if (hashes_[members[j]] == hashes_[members[k]] && a.size() == b.size() && EqualIgnoringCase(a.data(), b.data(), a.size()))
            return true;
        }
      }
    }
    return false;
  }

  // Fills the entries, large buckets first while most entries are unused. Returns whether no chain
  // was needed.
  constexpr bool Place() {
    std::fill(entries_.begin(), entries_.end(), KeywordEntry());
    std::fill(infos_.begin(), infos_.end(), KeywordInfo());
    used_.assign(entries_.size(), false);
    chained_.clear();
    std::size_t size_max = 0;
    for (std::size_t b = 0; b < entries_.size(); ++b) {
      displacements_[b] = Displacement(b, 0);
      size_max = std::max(size_max, Members(b).size());
    }
    for (std::size_t size = size_max; size > 0; --size) {
      for (std::size_t b = 0; b < entries_.size(); ++b) {
        if (Members(b).size() == size) PlaceBucket(b);
      }
    }
    std::size_t free = 0;
    for (const Chained& chained : chained_) {
      while (used_[free]) ++free;
      Fill(free, chained.keyword);
      Link(chained.first, free);
    }
    hash_.has_chains = !chained_.empty();
    return chained_.empty();
  }

  // Selects the displacement of a bucket: the first that sends each hash to an unused entry. If
  // there is none, or hashes are equal, chains the remaining keywords to the entries that their
  // hashes select.
  constexpr void PlaceBucket(std::size_t bucket) {
    const auto members = Members(bucket);
    const auto is_free = [&](std::size_t displacement) {
      for (const std::size_t i : members) {
        if (used_[Slot(i) ^ displacement]) return false;
      }
      return true;
    };
    std::size_t displacement = 0;
    while (displacement < entries_.size() && !is_free(displacement)) ++displacement;
    if (displacement == entries_.size()) displacement = 0;
    displacements_[bucket] = Displacement(bucket, displacement);
    for (const std::size_t i : members) {
      const std::size_t entry = Slot(i) ^ displacement;
      if (used_[entry]) {
        chained_.push_back({i, entry});
      } else {
        Fill(entry, i);
      }
    }
  }

  constexpr void Fill(std::size_t entry, std::size_t keyword) {
    used_[entry] = true;
    entries_[entry] = KeywordEntry(names_[keyword]);
    infos_[entry] = KeywordInfo(names_[keyword].size(), 0, keyword);
  }

  // Inserts an entry into a chain, after its first.
  constexpr void Link(std::size_t first, std::size_t entry) {
    const auto with_next = [](KeywordInfo info, std::size_t next) {
      return KeywordInfo(info.size(), next, static_cast<std::size_t>(info.index()));
    };
    infos_[entry] = with_next(infos_[entry], infos_[first].next());
    infos_[first] = with_next(infos_[first], entry + 1);
  }

  struct Chained {
    std::size_t keyword;
    std::size_t first;  // entry of the chain
  };

  std::span<const std::string_view> names_;
  std::span<KeywordEntry> entries_;
  std::span<KeywordInfo> infos_;
  std::span<std::uint32_t> displacements_;
  KeywordHash hash_ = {};
  std::vector<std::uint64_t> hashes_ = {};   // of each keyword
  std::vector<std::uint16_t> members_ = {};  // keywords, in the order of their buckets
  std::vector<std::size_t> begins_ = {};     // of each bucket in members_
  std::vector<unsigned char> used_ = {};     // whether each entry is
  std::vector<Chained> chained_ = {};
};

}  // namespace hako::internal
