#include "hako/text/csv.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "hako/text/text_encoding.h"

namespace hako {
namespace {

using text::kByteOrderMark;
constexpr std::size_t kNoMarks = kByteOrderMark.size();

}  // namespace

Status CsvReader::Refuse(std::string_view what, std::uint64_t line) const {
  return absl::InvalidArgumentError(absl::StrCat("line ", line, ": ", ToAbsl(what)));
}

Status CsvReader::Feed(std::string_view piece) {
  for (const char c : piece) {
    if (num_marks_ < kNoMarks) {
      if (c == kByteOrderMark[num_marks_]) {
        ++num_marks_;
        continue;
      }
      // The mark is not complete, so its bytes belong to the first field.
      for (std::size_t i = 0, size = std::exchange(num_marks_, kNoMarks); i < size; ++i) HAKO_RETURN_IF_ERROR(FeedByte(kByteOrderMark[i]));
    }
    HAKO_RETURN_IF_ERROR(FeedByte(c));
  }
  return absl::OkStatus();
}

Status CsvReader::FeedByte(char c) {
  constexpr std::string_view kLoneReturn = "a carriage return without a line feed outside of quotes";
  if (state_ == State::kReturn && c != '\n') return Refuse(kLoneReturn, line_);
  if (state_ == State::kQuoted) {
    if (c == '"') {
      state_ = State::kQuoteInQuotes;
      return absl::OkStatus();
    }
  } else if (c == '"') {
    if (state_ == State::kPlain) return Refuse("a quote in a field that does not begin with one", line_);
    if (state_ == State::kBegin) {
      is_quoted_ = true;
      field_line_ = line_;
      state_ = State::kQuoted;
      return absl::OkStatus();
    }
    state_ = State::kQuoted;  // "" is a quote
  } else if (c == '\r') {
    state_ = State::kReturn;
    return absl::OkStatus();
  } else if (c == ',') {
    EndField();
    return absl::OkStatus();
  } else if (c == '\n') {
    HAKO_RETURN_IF_ERROR(EndRecord());
    record_line_ = ++line_;
    return absl::OkStatus();
  } else if (state_ == State::kQuoteInQuotes) {
    return Refuse("text behind the closing quote of a field", line_);
  } else {
    state_ = State::kPlain;
  }
  if (c == '\n') ++line_;
  if (bytes_.size() - FieldBegin() == field_max_)
    return Refuse(absl::StrCat("a field is longer than ", field_max_, " bytes"), is_quoted_ ? field_line_ : line_);
  bytes_.push_back(c);
  return absl::OkStatus();
}

void CsvReader::EndField() {
  fields_.push_back({bytes_.size(), std::exchange(is_quoted_, false)});
  state_ = State::kBegin;
}

Status CsvReader::EndRecord() {
  const bool is_blank = fields_.empty() && bytes_.empty() && !is_quoted_;
  EndField();
  shown_.clear();
  std::size_t begin = 0;
  for (const Place& field : fields_) {
    shown_.push_back({std::string_view(bytes_).substr(begin, field.end - begin), field.is_quoted});
    begin = field.end;
  }
  const Status taken = is_blank ? absl::OkStatus() : take_(shown_, record_line_);
  fields_.clear();
  bytes_.clear();
  return taken;
}

Status CsvReader::End() {
  // The whole text is a part of a mark, so its bytes are a field.
  for (std::size_t i = 0, size = num_marks_ < kNoMarks ? std::exchange(num_marks_, kNoMarks) : 0; i < size; ++i)
    HAKO_RETURN_IF_ERROR(FeedByte(kByteOrderMark[i]));
  if (state_ == State::kQuoted) return Refuse("the quote of a field is not closed", field_line_);
  if (state_ == State::kReturn) return Refuse("a carriage return without a line feed outside of quotes", line_);
  return EndRecord();
}

void AppendCsvField(std::optional<std::string_view> text, std::string* out) {
  if (!text) return;
  const bool needs_quotes = text->empty() || text->find_first_of(",\"\r\n") != text->npos || text->starts_with(kByteOrderMark);
  if (!needs_quotes) {
    out->append(*text);
    return;
  }
  out->push_back('"');
  for (const char c : *text) out->append(c == '"' ? 2 : 1, c);
  out->push_back('"');
}

}  // namespace hako
