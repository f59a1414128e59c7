#include "tool/table_text.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "hako/text/json_record.h"

namespace hako::tool {
namespace {

using Json = nlohmann::ordered_json;  // members in their order

void AppendCsvField(std::string_view text, bool is_text, std::string* out) {
  const bool quotes = text.find_first_of(",\"\r\n") != text.npos || (is_text && text.empty());
  if (!quotes) {
    out->append(text);
    return;
  }
  out->push_back('"');
  for (const char c : text) out->append(c == '"' ? 2 : 1, c);
  out->push_back('"');
}

// Takes the members of one object of JSON; `error` tells what is wrong with it.
class JsonRow final : public nlohmann::json_sax<Json> {
 public:
  std::vector<std::pair<std::string, OwnedValue>> members;
  std::string error;

  bool null() override { return Take(Value()); }
  bool boolean(bool truth) override { return Take(truth); }
  bool number_integer(Json::number_integer_t number) override { return Take(number); }
  bool number_unsigned(Json::number_unsigned_t number) override {
    return number <= static_cast<std::uint64_t>(INT64_MAX) ? Take(number) : FailRange(std::to_string(number));
  }
  bool number_float(Json::number_float_t number, const std::string& text) override {
    return text.find_first_of(".eE") != text.npos ? Take(number) : FailRange(text);  // an integer that is larger still
  }
  bool string(std::string& text) override {
    if (depth_ < 2) return Take(text);
    const auto size = text::DecodeBase64(text, text.data());
    if (!size) return FailMember();
    return Take(std::string_view(text).substr(0, *size));
  }
  bool binary(Json::binary_t&) override { return FailMember(); }
  bool start_object(std::size_t) override { return ++depth_ <= 2 || FailMember(); }
  bool key(std::string& name) override {
    if (depth_ == 2) return (name == "b64" && !is_taken_) || FailMember();
    name_ = name;
    is_taken_ = false;
    return true;
  }
  bool end_object() override { return (--depth_ == 0 || is_taken_) || FailMember(); }
  bool start_array(std::size_t) override { return FailMember(); }
  bool end_array() override { return true; }
  bool parse_error(std::size_t, const std::string& text, const nlohmann::detail::exception& cause) override {
    static constexpr int kTooLarge = 406;  // of nlohmann/json
    return Fail(cause.id == kTooLarge ? absl::StrCat("member '", name_, "': ", text, " is out of the range of a double") : kNoObject);
  }

 private:
  static constexpr const char* kNoObject = "not an object of JSON";

  bool Take(const Value& value) {
    const bool is_bytes = value.kind() == Value::Kind::kBytes;
    if (depth_ == 0 || (depth_ == 2 && (is_taken_ || !is_bytes))) return FailMember();
    members.emplace_back(name_, value);
    return is_taken_ = true;
  }
  bool Fail(std::string why) {
    error = std::move(why);
    return false;
  }
  bool FailMember() { return Fail(depth_ == 0 ? kNoObject : absl::StrCat("member '", name_, "' is no text, number, bool or null")); }
  bool FailRange(const std::string& number) {
    return Fail(absl::StrCat("member '", name_, "': the integer ", number, " is out of range, from ", INT64_MIN, " to ", INT64_MAX,
                             "; a text in quotes keeps it"));
  }

  int depth_ = 0;
  std::string name_;
  bool is_taken_ = false;
};

}  // namespace

Status TableReader::Fail(std::string_view what) const {
  return absl::InvalidArgumentError(absl::StrCat("line ", first_line_, ": ", ToAbsl(what)));
}

Status TableReader::Feed(std::string_view piece) {
  for (const char c : piece) {
    if (field_.size() > kFieldMax) return Fail("a field is longer than 64 MiB");
    if (is_csv_) {
      HAKO_RETURN_IF_ERROR(FeedCsv(c));
    } else if (c == '\n') {
      HAKO_RETURN_IF_ERROR(TakeJson());
      first_line_ = ++line_;
    } else {
      field_.push_back(c);
    }
    if (is_csv_ && c == '\n') ++line_;
  }
  return absl::OkStatus();
}

Status TableReader::End() {
  if (!is_csv_) return TakeJson();
  if (state_ == State::kQuoted) return Fail("the quote is not closed");
  if (state_ == State::kBegin && fields_.empty()) return absl::OkStatus();
  HAKO_RETURN_IF_ERROR(EndField());
  return EndRecord();
}

Status TableReader::FeedCsv(char c) {
  switch (state_) {
    case State::kQuoted:
      if (c == '"')
        state_ = State::kQuoteInQuotes;
      else
        field_.push_back(c);
      return absl::OkStatus();
    case State::kQuoteInQuotes:
      if (c == '"') {
        field_.push_back(c);
        state_ = State::kQuoted;
        return absl::OkStatus();
      }
      if (c != ',' && c != '\n' && c != '\r') return Fail("text after the closing quote");
      break;
    case State::kBegin:
      if (c == '"') {
        state_ = State::kQuoted;
        return absl::OkStatus();
      }
      break;
    case State::kPlain:
      break;
  }
  if (c == '\r') return absl::OkStatus();
  if (c == ',') return EndField();
  if (c == '\n') {
    const bool is_blank = state_ == State::kBegin && fields_.empty();
    if (!is_blank) {
      HAKO_RETURN_IF_ERROR(EndField());
      HAKO_RETURN_IF_ERROR(EndRecord());
    }
    first_line_ = line_ + 1;
    return absl::OkStatus();
  }
  field_.push_back(c);
  state_ = State::kPlain;
  return absl::OkStatus();
}

Status TableReader::EndField() {
  fields_.emplace_back(std::move(field_), state_ == State::kQuoteInQuotes);
  field_.clear();
  state_ = State::kBegin;
  return absl::OkStatus();
}

Status TableReader::EndRecord() {
  auto fields = std::move(fields_);
  fields_.clear();
  if (header_.empty()) {
    for (auto& [name, quoted] : fields) header_.push_back(std::move(name));
    if (header_[0].starts_with("\xef\xbb\xbf")) header_[0].erase(0, 3);
    const auto key = std::find(header_.begin(), header_.end(), key_name_.empty() ? "key" : key_name_);
    if (key == header_.end() && !key_name_.empty()) return Fail(absl::StrCat("no field is named '", key_name_, "'"));
    key_at_ = key == header_.end() ? 0 : static_cast<std::size_t>(key - header_.begin());
    return absl::OkStatus();
  }
  if (fields.size() != header_.size()) return Fail(absl::StrCat(fields.size(), " fields, but the first line names ", header_.size()));
  TextRow row{.key = std::move(fields[key_at_].first), .cells = {}, .line = first_line_};
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (i == key_at_ || (fields[i].first.empty() && !fields[i].second)) continue;
    row.cells.emplace_back(header_[i], Value::Untyped(fields[i].first));
  }
  return take_(row);
}

Status TableReader::TakeJson() {
  const std::string line = std::move(field_);
  field_.clear();
  if (line.find_first_not_of(" \t\r") == line.npos) return absl::OkStatus();
  JsonRow object;
  if (!Json::sax_parse(line, &object)) return Fail(object.error);
  const std::string key_name = key_name_.empty() ? "key" : key_name_;
  TextRow row{.key = {}, .cells = {}, .line = line_};
  bool has_key = false;
  for (auto& [name, value] : object.members) {
    if (name != key_name) {
      if (!value.get().is_null()) row.cells.emplace_back(name, std::move(value));
      continue;
    }
    if (value.get().is_null()) return Fail(absl::StrCat("member '", name, "', the primary key, is null"));
    if (has_key) return Fail(absl::StrCat("member '", name, "', the primary key, is given twice"));
    row.key = value.get().ToText();
    has_key = true;
  }
  if (!has_key) return Fail(absl::StrCat("no member '", key_name, "'"));
  return take_(row);
}

void AppendJsonValue(const Value& value, std::string* out) {
  std::string buffer;
  if (value.is_null())
    out->append("null");
  else if (value.kind() == Value::Kind::kBytes)
    text::AppendJsonBytes(value.bytes(), out);
  else if (value.kind() == Value::Kind::kDouble && !std::isfinite(value.double_value()))
    text::AppendJsonBytes(value.Text(&buffer), out);
  else if (value.kind() == Value::Kind::kDouble && value.Text(&buffer).find_first_of(".e") == std::string_view::npos)
    out->append(buffer).append(".0");  // so that it comes back as a double
  else
    out->append(value.Text(&buffer));
}

void AppendJsonRow(std::string_view key, const RowView& row, const std::vector<std::string>& columns, std::string* out) {
  bool is_first = true;
  const auto add = [&](std::string_view name, const Value& value) {
    out->push_back(is_first ? '{' : ',');
    is_first = false;
    text::AppendJsonBytes(name, out);
    out->push_back(':');
    AppendJsonValue(value, out);
  };
  if (columns.empty()) {
    add("key", Value(key));
    for (std::size_t i = 0; i < row.size(); ++i) add(row.name(i), row.value(i));
  }
  for (const std::string& column : columns) add(column.empty() ? "key" : column, column.empty() ? Value(key) : row.Get(column));
  out->append("}\n");
}

void AppendCsvRow(std::string_view key, const RowView& row, const std::vector<std::string>& columns, std::string* out) {
  std::string buffer;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (i > 0) out->push_back(',');
    const Value value = columns[i].empty() ? Value(key) : row.Get(columns[i]);
    AppendCsvField(value.Text(&buffer), !value.is_null(), out);
  }
  out->push_back('\n');
}

void AppendCsvHeader(const std::vector<std::string>& columns, std::string* out) {
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (i > 0) out->push_back(',');
    AppendCsvField(columns[i].empty() ? "key" : columns[i], true, out);
  }
  out->push_back('\n');
}

}  // namespace hako::tool
