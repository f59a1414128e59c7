#include "tool/table_text.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hako/text/json_record.h"

namespace hako::tool {
namespace {

using Json = nlohmann::ordered_json;  // keeps the order of members

Status FailAt(std::uint64_t line, std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("line ", line, ": ", ToAbsl(what)));
}

// Returns the cell of a field of CSV.
OwnedValue ValueOf(const CsvField& field) { return Value::Untyped(field.text); }

// Takes the members of one JSON object. `error` says what is wrong with it.
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
    return text.find_first_of(".eE") != text.npos ? Take(number) : FailRange(text);  // the number is an even larger integer
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
    static constexpr int kTooLarge = 406;  // the number of an error of nlohmann/json
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

Status TableReader::Feed(std::string_view piece) {
  if (is_csv_) return csv_.Feed(piece);
  while (!piece.empty()) {
    const std::size_t end = piece.find('\n');
    if (json_.size() + std::min(end, piece.size()) > kLineMax) return FailAt(line_, "longer than 64 MiB");
    json_.append(piece.substr(0, end));
    if (end == piece.npos) break;
    HAKO_RETURN_IF_ERROR(TakeJson());
    ++line_;
    piece.remove_prefix(end + 1);
  }
  return absl::OkStatus();
}

Status TableReader::End() {
  if (!is_csv_) return TakeJson();
  HAKO_RETURN_IF_ERROR(csv_.End());
  return header_.empty() ? FailAt(1, "no line names the columns") : absl::OkStatus();
}

Status TableReader::TakeHeader(std::span<const CsvField> names, std::uint64_t line) {
  for (const CsvField& name : names) header_.emplace_back(name.text);
  const auto key = std::find(header_.begin(), header_.end(), key_name_.empty() ? "key" : key_name_);
  if (key == header_.end() && !key_name_.empty()) return FailAt(line, absl::StrCat("no field is named '", key_name_, "'"));
  key_at_ = key == header_.end() ? 0 : static_cast<std::size_t>(key - header_.begin());
  for (std::size_t i = 0; i < header_.size(); ++i) {
    if (i != key_at_ && header_[i].empty()) return FailAt(line, absl::StrCat("field ", i + 1, " names no column"));
    if (std::find(header_.begin(), header_.begin() + static_cast<std::ptrdiff_t>(i), header_[i]) !=
        header_.begin() + static_cast<std::ptrdiff_t>(i))
      return FailAt(line, absl::StrCat("two fields are named '", header_[i], "'"));
  }
  return absl::OkStatus();
}

Status TableReader::TakeCsv(std::span<const CsvField> fields, std::uint64_t line) {
  if (fields.size() != header_.size())
    return FailAt(line, absl::StrCat(fields.size(), " fields, but the first line names ", header_.size()));
  if (fields[key_at_].text.empty() && !fields[key_at_].is_quoted)
    return FailAt(line, "the field of the key is empty; \"\" in quotes is the empty key");
  TextRow row{.key = std::string(fields[key_at_].text), .cells = {}, .line = line};
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (i == key_at_ || (fields[i].text.empty() && !fields[i].is_quoted)) continue;
    row.cells.emplace_back(header_[i], ValueOf(fields[i]));
  }
  return take_(row);
}

Status TableReader::TakeJson() {
  std::string line = std::exchange(json_, {});
  if (line_ == 1 && line.starts_with(text::kByteOrderMark)) line.erase(0, text::kByteOrderMark.size());
  if (line.find_first_not_of(" \t\r") == line.npos) return absl::OkStatus();
  JsonRow object;
  if (!Json::sax_parse(line, &object)) return FailAt(line_, object.error);
  const std::string key_name = key_name_.empty() ? "key" : key_name_;
  TextRow row{.key = {}, .cells = {}, .line = line_};
  bool has_key = false;
  for (auto& [name, value] : object.members) {
    if (name != key_name) {
      if (!value.get().is_null()) row.cells.emplace_back(name, std::move(value));
      continue;
    }
    if (value.get().is_null()) return FailAt(line_, absl::StrCat("member '", name, "', the primary key, is null"));
    if (has_key) return FailAt(line_, absl::StrCat("member '", name, "', the primary key, is given twice"));
    row.key = value.get().ToText();
    has_key = true;
  }
  if (!has_key) return FailAt(line_, absl::StrCat("no member '", key_name, "'"));
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
    out->append(buffer).append(".0");  // so that it is read as a double again
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
    AppendCsvField(value.is_null() ? std::nullopt : std::optional(value.Text(&buffer)), out);
  }
  out->push_back('\n');
}

void AppendCsvHeader(const std::vector<std::string>& columns, std::string* out) {
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (i > 0) out->push_back(',');
    AppendCsvField(columns[i].empty() ? "key" : columns[i], out);
  }
  out->push_back('\n');
}

}  // namespace hako::tool
