// Regular expressions of searches and queries, whose authors may be hostile.
//
// The syntax is that of ECMAScript without back-references. Pattern and text are bytes: a character beyond
// ASCII is several of them. The parts:
//   a  .  [a-z]  [^a-z]            a byte; `.` is any but \n and \r
//   \d \D \s \S \w \W              digits, blanks, letters with digits and _, of ASCII; and all others
//   [[:alpha:]]                    a POSIX class in a class: alnum, alpha, blank, cntrl, digit, graph, lower,
//                                  print, punct, space, upper, xdigit
//   \f \n \r \t \v \0 \cX \xHH     a byte by its code; before any other sign `\` takes away its meaning
//   \uHHHH                         a character as UTF-8; in a class up to 007f
//   ^ $ \b \B                      the text's beginning and end; a border of a word, or none
//   (a) (?:a) ab a|b               groups, sequences, alternatives
//   * + ? {n} {n,} {n,m}           of what is before; a `?` behind makes no difference to a search
//   (?=a) (?!a)                    look-ahead, which may not be in another one
//
// Matching any pattern takes time linear in the text, and memory for the states of the pattern. The text is
// read backwards, from its end: at each byte, the states are known from which a match can be completed. That
// a look-ahead holds is one of them.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "hako/base/function_ref.h"
#include "hako/base/status.h"

namespace hako::text {

// A compiled pattern: a value.
class RegularExpression {
 public:
  static constexpr std::size_t kStatesMax = 32'768;     // of a pattern whose repetitions are written out
  static constexpr std::uint64_t kStepsAtOnce = 4'096;  // some microseconds

  // Matches the empty text anywhere.
  RegularExpression() = default;
  // InvalidArgument if the pattern is malformed or exceeds a limit; the message quotes its beginning.
  static StatusOr<RegularExpression> Compile(std::string_view pattern);

  // Whether a part of the text matches.
  bool Matches(std::string_view text) const {
    return *Search(text, [] { return true; });
  }
  // The same; `goes_on` is called once every kStepsAtOnce steps, and ends it by false: nullopt.
  std::optional<bool> Search(std::string_view text, FunctionRef<bool()> goes_on) const;

 private:
  friend class RegularExpressionCompiler;
  friend struct RegularExpressionTree;
  class Searcher;
  using Bytes = std::bitset<256>;
  using Number = std::uint16_t;  // of a state
  enum class Kind : std::uint8_t { kAccept, kSplit, kByte, kBegin, kEnd, kBorder, kNoBorder, kAhead, kNotAhead };
  struct State {
    Kind kind;
    Number next;          // the state behind it
    std::uint32_t other;  // kByte: the number of its set; kSplit: the other state behind; kAhead, kNotAhead: the first of its states
  };
  // The states from which a match, and one of a look-ahead, has been made.
  static constexpr Number kMatch = 0, kAheadMatch = 1;

  void LinkBackwards();

  std::vector<State> states_ = {{Kind::kAccept, 0, 0}, {Kind::kAccept, 0, 0}};
  std::vector<Bytes> sets_;
  Number start_ = kMatch;
  bool has_look_ahead_ = false;
  // The states before each state: before_[begins_[i]] to before_[begins_[i + 1]].
  std::vector<std::uint32_t> begins_ = {0, 0, 0};
  std::vector<Number> before_;
};

}  // namespace hako::text
