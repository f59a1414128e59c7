// Regular expressions for searches and queries, whose authors may be hostile: RE2, with the syntax
// of https://github.com/google/re2/wiki/Syntax, which has no back-references and no look-ahead.
//
// Characters are those of UTF-8: `.` and [äö] match one, (?i) ignores its case, \x{20ac} is €. \C
// matches any byte. A pattern that is not UTF-8, or has an escape from \x80 to \xff, consists of
// bytes instead: \xff is the byte ff, and `.` and a class match one byte. `^` and `$` match the
// beginning and the end of the whole text, and `.` does not match \n; (?m) and (?s) change that.
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
  static constexpr int kProgramMax = 16'384;           // instructions: one or more for each character, with repetitions expanded
  static constexpr std::int64_t kMemoryMax = 8 << 20;  // bytes of a program and of the states of its matches

  // Matches every text.
  RegularExpression() = default;
  // Returns InvalidArgument if the pattern is malformed or exceeds a limit. The message quotes the
  // beginning of the pattern, and names the fault and, if it is known, its position.
  static StatusOr<RegularExpression> Compile(std::string_view pattern);

  // Whether some part of the text matches.
  bool Matches(std::string_view text) const;
  // Returns the most steps that Matches takes for a text of this size.
  std::uint64_t MostSteps(std::size_t text_size) const;

 private:
  std::shared_ptr<const re2::RE2> re2_;
};

}  // namespace hako::text
