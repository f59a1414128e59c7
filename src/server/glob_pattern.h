// Patterns of KEYS, SCAN and CONFIG GET: * ? [a-z] [^a] and \ before any byte (stringmatchlen in Redis'
// util.c, whose treatment of an open bracket and of a \ at the end is kept). Case is that of ASCII.
#pragma once

#include <algorithm>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"

namespace hako::server {

class GlobPattern {
 public:
  // Takes time proportional to the size of the pattern.
  explicit GlobPattern(std::string_view pattern, bool ignores_case = false) : ignores_case_(ignores_case) {
    while (!pattern.empty()) pattern.remove_prefix(Read(pattern));
  }

  // Each element of the pattern takes one step for a byte, however many members a set has. The
  // number of steps is at most the product of the sizes, because only the last * is tried again.
  // After the last * of the pattern it is at most the number of elements.
  bool Matches(std::string_view text) const {
    std::size_t p = 0, t = 0, star = kNone, resume = 0;
    while (t < text.size()) {
      if (p < elements_.size() && elements_[p].kind == Kind::kStar) {
        star = ++p;
        resume = t;
        if (star > last_star_) {  // the rest has a fixed size
          const std::size_t rest = elements_.size() - star;
          if (rest > text.size() - t) return false;
          resume = t = text.size() - rest;
        }
      } else if (p < elements_.size() && MatchesOne(elements_[p], text[t])) {
        ++p;
        ++t;
      } else if (star != kNone && star <= last_star_) {
        p = star;
        t = ++resume;
      } else {
        return false;
      }
    }
    while (p < elements_.size() && elements_[p].kind == Kind::kStar) ++p;
    return p == elements_.size();
  }

 private:
  static constexpr std::size_t kNone = std::string_view::npos;
  enum class Kind : std::uint8_t { kStar, kAny, kByte, kSet };
  struct Element {
    Kind kind;
    std::uint8_t byte = 0;  // for kByte: the byte, folded
    std::uint32_t set = 0;  // for kSet: its place in sets_
  };

  std::uint8_t Fold(char c) const {
    const auto byte = static_cast<unsigned char>(c);
    return static_cast<std::uint8_t>(ignores_case_ ? absl::ascii_tolower(byte) : byte);
  }
  bool MatchesOne(const Element& element, char byte) const {
    switch (element.kind) {
      case Kind::kByte:
        return element.byte == Fold(byte);
      case Kind::kSet:
        return sets_[element.set][static_cast<unsigned char>(byte)];
      default:
        return element.kind == Kind::kAny;
    }
  }
  // Reads the element at the beginning of `pattern`, and returns its size.
  std::size_t Read(std::string_view pattern) {
    switch (pattern.front()) {
      case '*':
        last_star_ = elements_.size();
        elements_.push_back({Kind::kStar});
        return 1;
      case '?':
        elements_.push_back({Kind::kAny});
        return 1;
      case '[':
        return ReadSet(pattern);
      default: {
        const std::size_t at = pattern.front() == '\\' && pattern.size() > 1 ? 1 : 0;
        elements_.push_back({Kind::kByte, Fold(pattern[at])});
        return at + 1;
      }
    }
  }
  std::size_t ReadSet(std::string_view pattern) {
    std::size_t at = 1;
    const bool inverted = at < pattern.size() && pattern[at] == '^';
    if (inverted) ++at;
    std::bitset<256> exact, folded;
    for (; at < pattern.size() && pattern[at] != ']'; ++at) {
      if (pattern[at] == '\\' && at + 1 < pattern.size()) {
        exact.set(static_cast<unsigned char>(pattern[++at]));
      } else if (at + 2 < pattern.size() && pattern[at + 1] == '-') {
        const auto [low, high] = std::minmax<unsigned>({Fold(pattern[at]), Fold(pattern[at + 2])});
        for (unsigned byte = low; byte <= high; ++byte) folded.set(byte);
        at += 2;
      } else {
        folded.set(Fold(pattern[at]));
      }
    }
    for (unsigned byte = 0; byte < exact.size(); ++byte) {
      const bool found = exact[byte] || folded[Fold(static_cast<char>(byte))];
      exact[byte] = found != inverted;
    }
    elements_.push_back({Kind::kSet, 0, static_cast<std::uint32_t>(sets_.size())});
    sets_.push_back(exact);
    return std::min(at + 1, pattern.size());
  }

  std::vector<Element> elements_;
  std::vector<std::bitset<256>> sets_;
  std::size_t last_star_ = 0;  // place of the last * in elements_, if there is one
  bool ignores_case_;
};

}  // namespace hako::server
