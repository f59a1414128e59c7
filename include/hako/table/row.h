// Rows for readers. RowView is a view of an encoded row; Row has its own bytes.
//
// Encoding. A row has the numbers of its columns, not their names; the table keeps the names
// (table/column_names.h). Reading one column decodes no other: the numbers ascend, and the row has
// the end of each cell.
//
//   head     1 byte: bit 0 set: numbers have 2 bytes, else 1; bits 1-2: the ends have 1, 2 or 4
//            bytes; bit 3: the row has a number; bits 4-7: the version of the encoding, 1
//   count    of cells, as wide as a number
//   numbers  of the columns, ascending
//   kinds    of the values, 4 bits each, the first in the low bits
//   ends     of the cells, from the first cell on
//   cells    bytes as they are; an int64 in as few bytes as it needs, 0 to 8, little-endian; a
//            double in 8; true in 1 byte, false in none
//   number   of the row, for text indices (table/row_numbers.h): 4 bytes, little-endian, or none
//
// A row of 5 columns with values of 8 bytes takes 15 bytes more than the values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hako/base/status.h"
#include "hako/base/string_arg.h"
#include "hako/table/value.h"

namespace hako {

namespace table {
class ColumnNames;
}

// The number of a column in one table, which ColumnId of the table returns. It never changes.
enum class ColumnId : std::uint16_t { kKey = 0 };  // kKey: the primary key, which is no column of the row

// An encoded row: see the head of this header. The view is valid as long as the bytes of the row;
// names of columns are valid as long as the table is open.
class RowView {
 public:
  // An empty view without columns.
  RowView() = default;
  // REQUIRES: the bytes are an encoded row; a damaged cell reads as null (unchecked here: Check
  // reports damage)
  RowView(std::string_view bytes, const table::ColumnNames* names);

  // Returns the value of a column; null if the row lacks the column.
  Value Get(ColumnId column) const;
  Value Get(StringArg column) const;
  Value operator[](StringArg column) const { return Get(column); }

  // The cells in the order of their columns' numbers.
  std::size_t size() const { return count_; }
  ColumnId column(std::size_t i) const { return static_cast<ColumnId>(NumberAt(i)); }
  std::string_view name(std::size_t i) const;
  Value value(std::size_t i) const;

  // The encoded row, and the columns of its table.
  std::string_view bytes() const { return bytes_; }
  const table::ColumnNames* names() const { return names_; }
  // Returns DataLoss if the encoding is damaged.
  Status Check() const;

 private:
  friend class Row;
  unsigned NumberAt(std::size_t i) const {
    const auto* const at = reinterpret_cast<const unsigned char*>(bytes_.data()) + numbers_;
    return wide_ ? static_cast<unsigned>(at[2 * i] | at[2 * i + 1] << 8) : at[i];
  }
  std::uint32_t EndAt(std::size_t i) const;

  std::string_view bytes_;
  const table::ColumnNames* names_ = nullptr;
  bool wide_ = false;
  std::uint8_t end_width_ = 1;
  std::uint16_t count_ = 0;
  std::uint32_t numbers_ = 0, kinds_ = 0, ends_ = 0, cells_ = 0;  // where these parts begin
  std::uint32_t cells_end_ = 0;
};

// A row with its own bytes. Reading another row into it reuses its memory.
class Row {
 public:
  // An empty row.
  Row() = default;
  // Copies a row.
  explicit Row(const RowView& view) : bytes_(view.bytes()), names_(view.names()) {}

  // The row as a view, and functions like those of RowView.
  RowView view() const { return bytes_.empty() ? RowView() : RowView(bytes_, names_); }
  Value Get(ColumnId column) const { return view().Get(column); }
  Value Get(StringArg column) const { return view().Get(column); }
  Value operator[](StringArg column) const { return Get(column); }
  std::size_t size() const { return view().size(); }

  // For the table: the bytes into which it reads a row.
  std::string& buffer() { return bytes_; }
  void set_names(const table::ColumnNames* names) { names_ = names; }

 private:
  std::string bytes_;
  const table::ColumnNames* names_ = nullptr;
};

namespace table {

// Returns the number of an encoded row; nullopt if it has none.
std::optional<std::uint32_t> NumberOfRow(std::string_view bytes);
// Gives a row without a number this number.
void SetNumberOfRow(std::uint32_t number, std::string* bytes);
// Removes the number of a row, if it has one.
void RemoveNumberOfRow(std::string* bytes);

// Encodes a row: first Begin, then Add in ascending order of the columns, then End.
class RowBuilder {
 public:
  void Begin() {
    numbers_.clear();
    kinds_.clear();
    ends_.clear();
    cells_.clear();
  }
  // Adds a cell. Leaves out a null.
  // REQUIRES: the number of the column is higher than those of the columns added before
  void Add(ColumnId column, const Value& value);
  std::size_t size() const { return numbers_.size(); }
  std::size_t bytes() const { return 4 + cells_.size() + 7 * numbers_.size(); }  // at most
  // Returns the row, which is valid until the next Begin.
  std::string_view End();

 private:
  std::vector<std::uint16_t> numbers_;
  std::vector<std::uint8_t> kinds_;
  std::vector<std::uint32_t> ends_;
  std::string cells_, row_;
};

}  // namespace table
}  // namespace hako
