// Patterns of KEYS, SCAN and CONFIG GET: * ? [a-z] [^a] and \ before any byte (stringmatchlen in Redis'
// util.c, whose treatment of an open bracket and of a \ at the end is kept).
#pragma once

#include <cctype>
#include <cstddef>
#include <string_view>
#include <utility>

namespace hako::server {

class GlobPattern {
 public:
  explicit GlobPattern(std::string_view pattern, bool ignores_case = false) : pattern_(pattern), ignores_case_(ignores_case) {}

  // Takes time proportional to the product of the sizes at most: only the last * is tried again.
  bool Matches(std::string_view text) const {
    std::size_t p = 0, t = 0, star = std::string_view::npos, resume = 0;
    while (t < text.size()) {
      if (p < pattern_.size() && pattern_[p] == '*') {
        star = ++p;
        if (star == pattern_.size()) return true;
        resume = t;
      } else if (std::size_t next = p; p < pattern_.size() && MatchesOne(&next, text[t])) {
        p = next;
        ++t;
      } else if (star != std::string_view::npos) {
        p = star;
        t = ++resume;
      } else {
        return false;
      }
    }
    while (p < pattern_.size() && pattern_[p] == '*') ++p;
    return p == pattern_.size();
  }

 private:
  int Fold(char c) const {
    const auto byte = static_cast<unsigned char>(c);
    return ignores_case_ ? std::tolower(byte) : byte;
  }
  // Whether one element of the pattern, which begins at *p, matches the byte; moves *p behind it.
  bool MatchesOne(std::size_t* p, char byte) const {
    switch (pattern_[*p]) {
      case '?':
        ++*p;
        return true;
      case '[':
        return MatchesSet(p, byte);
      case '\\':
        if (*p + 1 < pattern_.size()) ++*p;
        [[fallthrough]];
      default:
        return Fold(pattern_[(*p)++]) == Fold(byte);
    }
  }
  bool MatchesSet(std::size_t* p, char byte) const {
    std::size_t at = *p + 1;
    const bool inverted = at < pattern_.size() && pattern_[at] == '^';
    if (inverted) ++at;
    bool found = false;
    for (; at < pattern_.size() && pattern_[at] != ']'; ++at) {
      if (pattern_[at] == '\\' && at + 1 < pattern_.size()) {
        found |= pattern_[++at] == byte;
      } else if (at + 2 < pattern_.size() && pattern_[at + 1] == '-') {
        int low = Fold(pattern_[at]), high = Fold(pattern_[at + 2]);
        if (low > high) std::swap(low, high);
        found |= Fold(byte) >= low && Fold(byte) <= high;
        at += 2;
      } else {
        found |= Fold(pattern_[at]) == Fold(byte);
      }
    }
    *p = at < pattern_.size() ? at + 1 : at;
    return found != inverted;
  }

  std::string_view pattern_;
  bool ignores_case_;
};

}  // namespace hako::server
