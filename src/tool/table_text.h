// The texts of tables: rows as CSV (RFC 4180) and as JSON Lines.
//
// CSV: the first line names the columns. An empty field without quotes is no cell; "" is an empty
// text. Fields are texts without a type: Value::Untyped. JSON Lines: an object a line, whose members are cells: a string, a number, a bool,
// null (no cell), or {"b64":"..."} for bytes that are not UTF-8.
//
// The primary key is the field or member of one name, by default "key"; in CSV without it the first.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "hako/base/status.h"
#include "hako/table/query_text.h"
#include "hako/table/row.h"

namespace hako::tool {

// A row that was read.
struct TextRow {
  std::string key;
  std::vector<std::pair<std::string, table::OwnedValue>> cells;
  std::uint64_t line = 0;
};

// Reads rows of a text, piece by piece. The errors are InvalidArgument and name the line.
class TableReader {
 public:
  using Take = std::function<Status(const TextRow& row)>;
  static constexpr std::size_t kFieldMax = 64 << 20;  // bytes of a field, or of a line of JSON

  TableReader(bool is_csv, std::string key_name, Take take) : is_csv_(is_csv), key_name_(std::move(key_name)), take_(std::move(take)) {}
  Status Feed(std::string_view piece);
  // After the last piece.
  Status End();

 private:
  Status FeedCsv(char c);
  Status EndField();
  Status EndRecord();
  Status TakeJson();
  Status Fail(std::string_view what) const;

  const bool is_csv_;
  const std::string key_name_;
  const Take take_;
  std::uint64_t line_ = 1, first_line_ = 1;  // of the present record
  std::string field_;                        // or the line of JSON
  enum class State { kBegin, kPlain, kQuoted, kQuoteInQuotes } state_ = State::kBegin;
  std::vector<std::pair<std::string, bool>> fields_;  // and whether they were in quotes
  std::vector<std::string> header_;
  std::size_t key_at_ = 0;
};

// {"key":"...","name":value ...} and a line feed; `columns` empty: all of the row.
void AppendJsonRow(std::string_view key, const RowView& row, const std::vector<std::string>& columns, std::string* out);
// The values of the columns, of which an empty name is the key, in CSV.
void AppendCsvRow(std::string_view key, const RowView& row, const std::vector<std::string>& columns, std::string* out);
void AppendCsvHeader(const std::vector<std::string>& columns, std::string* out);
void AppendJsonValue(const Value& value, std::string* out);

}  // namespace hako::tool
