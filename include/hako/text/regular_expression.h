// Regular expressions of searches and queries, whose authors may be hostile: RE2, by the syntax of
// https://github.com/google/re2/wiki/Syntax, without back-references and look-ahead.
//
// A character is one of UTF-8: `.` and [äö] match one, (?i) ignores its case, \x{20ac} is €. \C is any byte. Where
// the pattern is not UTF-8, or has an escape from \x80 to \xff, all of it is of bytes instead: \xff is the byte ff,
// and `.` and a class match one byte. `^` and `$` are the beginning and the end of the whole text, and `.` matches
// no \n; (?m) and (?s) change that.
//
// A match takes time linear in the text, and cannot be stopped. A usual pattern reads 16 MiB in up to 50 ms; the worst
// pattern in a text made for it takes MostSteps steps of 8 to 14 ns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "hako/base/status.h"

namespace re2 {
class RE2;
}

namespace hako::text {

// A compiled pattern: a value, whose copies share the program. Thread-safe.
class RegularExpression {
 public:
  static constexpr std::size_t kPatternMax = 32'768;   // bytes
  static constexpr int kProgramMax = 16'384;           // instructions: one or more a character, repetitions written out
  static constexpr std::int64_t kMemoryMax = 8 << 20;  // bytes of a program and of what its matches remember

  // Matches the empty text anywhere.
  RegularExpression() = default;
  // InvalidArgument if the pattern is malformed or exceeds a limit. The message quotes its beginning, and names the
  // fault and its position if that is known.
  static StatusOr<RegularExpression> Compile(std::string_view pattern);

  // Whether a part of the text matches.
  bool Matches(std::string_view text) const;
  // How many steps that takes at most, for a text of this size.
  std::uint64_t MostSteps(std::size_t text_size) const;

 private:
  std::shared_ptr<const re2::RE2> re2_;
};

}  // namespace hako::text
