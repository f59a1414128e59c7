// Prints rows, each a list of named values: as a box on a terminal, else as JSON Lines, or as CSV.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hako/table/value.h"
#include "tool/output.h"

namespace hako::tool {

enum class RowStyle { kBox, kJson, kCsv };

// The options --csv, --json and --box.
class RowStyleOption {
 public:
  void AddTo(CLI::App* app);
  RowStyle style() const;
  bool is_given() const { return csv_ || json_ || box_; }

 private:
  bool csv_ = false, json_ = false, box_ = false;
};

class RowPrinter {
 public:
  using Row = std::vector<std::pair<std::string, OwnedValue>>;

  // `columns` are the columns of CSV, and the first columns of a box, in this order. Rows may lack
  // some.
  RowPrinter(RowStyle style, std::vector<std::string> columns, Output& output);

  // Prints a row, or keeps it, because a box depends on the widths of its first kBoxRows rows.
  void Add(Row row);
  // Call after the last row. Prints the number of rows after a box.
  void Finish();
  std::uint64_t num_rows() const { return num_rows_; }

 private:
  static constexpr std::size_t kBoxRows = 1000;

  void AddToBox(Row row);
  void PrintBox();

  const RowStyle style_;
  std::vector<std::string> columns_;
  Output& output_;
  std::uint64_t num_rows_ = 0;
  std::vector<Row> rows_;  // the rows of the box
};

// Returns how many columns a text takes on a terminal.
std::size_t DisplayWidth(std::string_view text);
// Returns the beginning of a text that takes at most `width` columns, with … at its end if it is
// cut.
std::string CutToWidth(std::string_view text, std::size_t width);

}  // namespace hako::tool
