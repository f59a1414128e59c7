// Keyword tables: look-up of a text in a fixed set of keywords, without regard to the case of ASCII
// letters. For names of commands, words of a query language, names of headers.
//
//   constexpr auto kVerbs = MakeKeywordTable("get", "set", "remove");  // at compile time
//   kVerbs.Find("GET")                                                 // 0: the first keyword
//   kVerbs.Find("gets")                                                // -1: none
//   kVerbs[0]                                                          // "get"
//
//   HAKO_ASSIGN_OR_RETURN(auto names, RuntimeKeywordTable::Make({"user", "group"}));
//
// A look-up is exact: it finds all mixes of upper and lower case of each keyword, and nothing else.
// Case is that of A to Z alone, in every locale. A text may have any bytes and any size; nothing
// outside it is read. A look-up costs the same for every keyword of up to 32 bytes; it hashes a
// part of the text, loads one entry, and compares all of the text with it
// (base/keyword_layout.h). It makes no allocation and is thread-safe.
//
// Keywords are ASCII texts of up to 65,534 bytes; they may be empty and may contain bytes of 0. A
// table has up to 32,768 keywords, and no two of them may differ only in case. A table made at
// compile time that breaks these rules does not compile; the compiler's message has one of the
// names in internal::keyword_refused.
//
// Keywords of one size whose first 8 bytes are equal and whose last 8 are equal are compared one
// after the other, so a table is of no use for a set of very many of these. If a table has one such
// pair, all its look-ups take one more call.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hako/base/assert.h"
#include "hako/base/keyword_builder.h"
#include "hako/base/keyword_layout.h"
#include "hako/base/no_memory.h"
#include "hako/base/status.h"

namespace hako {
namespace internal::keyword_refused {

// These are not constexpr, so that a call of one at compile time is an error.
inline void TwoKeywordsDifferOnlyInCase() {}
inline void KeywordIsNotAscii() {}
inline void KeywordIsTooLong() {}

}  // namespace internal::keyword_refused

// A table of N keywords, made at compile time by MakeKeywordTable. The views of the keywords must
// live as long as the table, as string literals do.
template <std::size_t N>
class KeywordTable {
 public:
  explicit consteval KeywordTable(const std::array<std::string_view, N>& keywords) : keywords_(keywords) {
    static_assert(N <= internal::kKeywordCountMax);
    internal::KeywordBuilder builder(keywords_, entries_, infos_, displacements_);
    std::size_t culprit = 0;
    const internal::KeywordError error = builder.Build(&culprit);
    if (error == internal::KeywordError::kDuplicate) internal::keyword_refused::TwoKeywordsDifferOnlyInCase();
    if (error == internal::KeywordError::kNotAscii) internal::keyword_refused::KeywordIsNotAscii();
    if (error == internal::KeywordError::kTooLong) internal::keyword_refused::KeywordIsTooLong();
    hash_ = builder.hash();
  }

  // The index of the keyword that `text` spells, or -1 if there is none.
  HAKO_INLINE constexpr int Find(std::string_view text) const {
    const internal::KeywordSearch search{keywords_.data(), entries_.data(), infos_.data(), displacements_.data()};
    return search.Find(hash_, text.data(), text.size());
  }

  static constexpr std::size_t size() { return N; }
  // The keyword as it was given.
  constexpr std::string_view operator[](std::size_t index) const { return keywords_[index]; }

 private:
  static constexpr std::size_t kEntries = std::size_t{1} << internal::KeywordBuilder::Bits(N);

  std::array<std::string_view, N> keywords_;
  std::array<internal::KeywordEntry, kEntries> entries_ = {};
  std::array<internal::KeywordInfo, kEntries> infos_ = {};
  std::array<std::uint32_t, kEntries> displacements_ = {};
  internal::KeywordHash hash_ = {};
};

// Makes a table of string literals.
template <std::size_t... Sizes>
consteval KeywordTable<sizeof...(Sizes)> MakeKeywordTable(const char (&... keywords)[Sizes]) {
  return KeywordTable<sizeof...(Sizes)>({std::string_view(keywords, Sizes - 1)...});
}

// A table made at run time, which owns its keywords.
class RuntimeKeywordTable {
 public:
  // InvalidArgument if two keywords differ at most in case, or one is not ASCII; OutOfRange if there
  // are too many or one is too long; ResourceExhausted if memory runs out.
  static StatusOr<RuntimeKeywordTable> Make(std::vector<std::string> keywords) HAKO_TRY {
    if (keywords.size() > internal::kKeywordCountMax)
      return absl::OutOfRangeError(absl::StrCat(keywords.size(), " keywords exceed the limit of ", internal::kKeywordCountMax));
    RuntimeKeywordTable table(std::move(keywords));
    internal::KeywordBuilder builder(table.views_, table.entries_, table.infos_, table.displacements_);
    std::size_t culprit = 0;
    const internal::KeywordError error = builder.Build(&culprit);
    if (error == internal::KeywordError::kTooLong)
      return TooLargeError("a keyword", table.keywords_[culprit].size(), internal::kKeywordSizeMax);
    if (error == internal::KeywordError::kDuplicate)
      return absl::InvalidArgumentError(absl::StrCat("keyword '", table.keywords_[culprit], "' is given twice, perhaps in another case"));
    if (error == internal::KeywordError::kNotAscii)
      return absl::InvalidArgumentError(absl::StrCat("keyword '", table.keywords_[culprit], "' is not ASCII"));
    table.hash_ = builder.hash();
    return table;
  }
  HAKO_OR_NO_MEMORY

  RuntimeKeywordTable(RuntimeKeywordTable&&) = default;
  RuntimeKeywordTable& operator=(RuntimeKeywordTable&&) = default;
  RuntimeKeywordTable(const RuntimeKeywordTable&) = delete;  // the views are of this object's keywords
  RuntimeKeywordTable& operator=(const RuntimeKeywordTable&) = delete;

  // As KeywordTable::Find. REQUIRES: the table was not moved from.
  HAKO_INLINE int Find(std::string_view text) const {
    HAKO_DCHECK(!entries_.empty());
    const internal::KeywordSearch search{views_.data(), entries_.data(), infos_.data(), displacements_.data()};
    return search.Find(hash_, text.data(), text.size());
  }

  std::size_t size() const { return keywords_.size(); }
  // The keyword as it was given.
  std::string_view operator[](std::size_t index) const { return keywords_[index]; }

 private:
  explicit RuntimeKeywordTable(std::vector<std::string> keywords)
      : keywords_(std::move(keywords)),
        views_(keywords_.begin(), keywords_.end()),
        entries_(std::size_t{1} << internal::KeywordBuilder::Bits(keywords_.size())),
        infos_(entries_.size()),
        displacements_(entries_.size()) {}

  std::vector<std::string> keywords_;
  std::vector<std::string_view> views_;  // of keywords_, whose strings stay where they are
  std::vector<internal::KeywordEntry> entries_;
  std::vector<internal::KeywordInfo> infos_;
  std::vector<std::uint32_t> displacements_;
  internal::KeywordHash hash_;
};

}  // namespace hako
