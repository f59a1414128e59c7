// Rows of tables as CSV (hako/text/csv.h) and as JSON Lines.
//
// CSV: the first line names the columns. An empty field without quotes means no cell; "" is an
// empty text. Fields are texts of unknown type (Value::Untyped). JSON Lines: each line has an
// object, whose members are cells: a string, a number, a bool, null (no cell), or {"b64":"..."} for
// bytes that are not UTF-8.
//
// The primary key is the field or member with a given name, by default "key". If a CSV lacks that
// field, the first field is the key.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hako/base/status.h"
#include "hako/table/query_text.h"
#include "hako/table/row.h"
#include "hako/text/csv.h"

namespace hako::tool {

// A row that was read.
struct TextRow {
  std::string key;
  std::vector<std::pair<std::string, OwnedValue>> cells;
  std::uint64_t line = 0;
};

// Reads rows of a text, piece by piece. Errors are InvalidArgument, and name the line.
class TableReader {
 public:
  using Take = std::function<Status(const TextRow& row)>;
  static constexpr std::size_t kLineMax = 64 << 20;  // bytes of a line of JSON

  TableReader(bool is_csv, std::string key_name, Take take)
      : is_csv_(is_csv),
        key_name_(std::move(key_name)),
        take_(std::move(take)),
        csv_([this](auto fields, std::uint64_t line) { return header_.empty() ? TakeHeader(fields, line) : TakeCsv(fields, line); }) {}
  TableReader(const TableReader&) = delete;
  TableReader& operator=(const TableReader&) = delete;
  Status Feed(std::string_view piece);
  // Call after the last piece.
  Status End();

 private:
  Status TakeHeader(std::span<const CsvField> names, std::uint64_t line);
  Status TakeCsv(std::span<const CsvField> fields, std::uint64_t line);
  Status TakeJson();

  const bool is_csv_;
  const std::string key_name_;
  const Take take_;
  CsvReader csv_;
  std::vector<std::string> header_;
  std::size_t key_at_ = 0;
  std::uint64_t line_ = 1;  // number of the line of JSON
  std::string json_;        // the present line of JSON
};

// Appends {"key":"...","name":value ...} and a line feed. If `columns` is empty, appends all cells
// of the row.
void AppendJsonRow(std::string_view key, const RowView& row, const std::vector<std::string>& columns, std::string* out);
// Appends the values of the columns as CSV. An empty name is the key.
void AppendCsvRow(std::string_view key, const RowView& row, const std::vector<std::string>& columns, std::string* out);
void AppendCsvHeader(const std::vector<std::string>& columns, std::string* out);
void AppendJsonValue(const Value& value, std::string* out);

}  // namespace hako::tool
