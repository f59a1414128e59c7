#include "hako/text/regular_expression.h"

#include <re2/re2.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hako/text/text_encoding.h"

namespace hako::text {
namespace {

RE2::Options OptionsOf(std::string_view pattern) {
  RE2::Options options(RE2::Quiet);
  options.set_never_capture(true);
  options.set_max_mem(RegularExpression::kMemoryMax);
  static const RE2 names_byte("(?:^|[^\\\\])(?:\\\\\\\\)*\\\\x[89A-Fa-f][0-9A-Fa-f]", RE2::Latin1);
  if (!IsUtf8(pattern) || RE2::PartialMatch(pattern, names_byte)) options.set_encoding(RE2::Options::EncodingLatin1);
  return options;
}

// Makes the error for a pattern, which quotes the beginning of the pattern.
Status Refused(std::string_view pattern, std::string_view fault) {
  std::string message = "'";
  AppendPrintable(pattern.substr(0, 64), &message);
  message += pattern.size() > 64 ? "...' " : "' ";
  AppendPrintable(fault, &message, /*escapes_backslash=*/false);
  return absl::InvalidArgumentError(message);
}

// Returns RE2's message about a malformed pattern, and the position of the fault if the part that
// RE2 quotes occurs only once.
std::string FaultOf(std::string_view pattern, const RE2& re2) {
  const std::string_view part = re2.error_arg();
  const std::size_t at = pattern.find(part);
  const bool is_known = !part.empty() && part.size() < pattern.size() && at != pattern.npos && pattern.find(part, at + 1) == pattern.npos;
  return absl::StrCat("is not a regular expression: ", re2.error(), is_known ? absl::StrCat(" at position ", at + 1) : "");
}

}  // namespace

StatusOr<RegularExpression> RegularExpression::Compile(std::string_view pattern) {
  static constexpr const char* kTooLarge = "is too large for a regular expression";
  if (pattern.size() > kPatternMax) return Refused(pattern, kTooLarge);
  auto re2 = std::make_shared<const RE2>(pattern, OptionsOf(pattern));
  if (re2->error_code() == RE2::ErrorPatternTooLarge) return Refused(pattern, kTooLarge);
  if (!re2->ok()) return Refused(pattern, FaultOf(pattern, *re2));
  if (re2->ProgramSize() > kProgramMax) return Refused(pattern, kTooLarge);
  RegularExpression regex;
  regex.re2_ = std::move(re2);
  return regex;
}

bool RegularExpression::Matches(std::string_view text) const {
  return re2_ == nullptr || re2_->Match(text, 0, text.size(), RE2::UNANCHORED, nullptr, 0);
}

std::uint64_t RegularExpression::MostSteps(std::size_t text_size) const {
  return re2_ == nullptr ? 0 : std::uint64_t{text_size} * static_cast<std::uint64_t>(re2_->ProgramSize());
}

}  // namespace hako::text
