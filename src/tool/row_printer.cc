#include "tool/row_printer.h"

#include <langinfo.h>
#include <locale.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "hako/text/csv.h"
#include "hako/text/json_record.h"
#include "hako/text/text_encoding.h"
#include "tool/numbers.h"
#include "tool/table_text.h"
#include "tool/terminal.h"

namespace hako::tool {
namespace {

constexpr std::size_t kCellMin = 8;  // columns that a narrowed cell keeps

// Returns how many columns and bytes the character at the beginning of `text` takes.
std::pair<std::size_t, std::size_t> WidthOfCharacter(std::string_view text) {
  static const locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  const std::size_t size = text::Utf8Length(text);
  if (size <= 1) return {1, 1};
  if (utf8 == nullptr) return {1, size};
  const locale_t before = uselocale(utf8);
  const int width = wcwidth(static_cast<wchar_t>(text::CodePoint(text.substr(0, size))));
  uselocale(before);
  return {width < 0 ? 1 : static_cast<std::size_t>(width), size};
}

std::size_t TerminalWidth() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

// Returns the text of a cell: one line, without control characters.
std::string Shown(const Value& value) {
  std::string text, buffer;
  if (value.is_null()) return text;
  text::AppendPrintable(value.Text(&buffer), &text, /*escapes_backslash=*/false);
  return text;
}

bool IsNumber(const Value& value) { return value.kind() == Value::Kind::kInt || value.kind() == Value::Kind::kDouble; }

void AppendPadded(std::string_view text, std::size_t width, bool is_right, std::string* out) {
  const std::string cut = CutToWidth(text, width);
  const std::string padding(width - std::min(width, DisplayWidth(cut)), ' ');
  absl::StrAppend(out, " ", is_right ? padding : "", cut, is_right ? "" : padding, " ");
}

void AppendRule(const std::vector<std::size_t>& widths, const char* left, const char* middle, const char* right, std::string* out) {
  out->append(left);
  for (std::size_t i = 0; i < widths.size(); ++i) {
    if (i > 0) out->append(middle);
    for (std::size_t j = 0; j < widths[i] + 2; ++j) out->append("─");
  }
  absl::StrAppend(out, right, "\n");
}

// Narrows the widest columns until the box fits. Returns false if it cannot fit.
bool Narrow(std::size_t limit, std::vector<std::size_t>* widths) {
  while (std::accumulate(widths->begin(), widths->end(), 3 * widths->size() + 1) > limit) {
    const auto widest = std::max_element(widths->begin(), widths->end());
    if (*widest <= kCellMin) return false;
    const std::size_t excess = std::accumulate(widths->begin(), widths->end(), 3 * widths->size() + 1) - limit;
    std::size_t second = kCellMin;
    for (const std::size_t width : *widths) second = width < *widest ? std::max(second, width) : second;
    *widest = std::max(std::min(second, *widest - 1), *widest - std::min(excess, *widest - kCellMin));
  }
  return true;
}

}  // namespace

std::size_t DisplayWidth(std::string_view text) {
  std::size_t width = 0;
  while (!text.empty()) {
    const auto [columns, size] = WidthOfCharacter(text);
    width += columns;
    text.remove_prefix(size);
  }
  return width;
}

std::string CutToWidth(std::string_view text, std::size_t width) {
  if (DisplayWidth(text) <= width) return std::string(text);
  std::size_t used = 0, at = 0;
  while (true) {
    const auto [columns, size] = WidthOfCharacter(text.substr(at));
    if (used + columns + 1 > width) break;
    used += columns;
    at += size;
  }
  return absl::StrCat(ToAbsl(text.substr(0, at)), "…");
}

void RowStyleOption::AddTo(CLI::App* app) {
  const auto styles = app->add_option_group("Output", "How rows are printed; default a box on a terminal, JSON Lines in a pipe");
  styles->add_flag("--csv", csv_, "CSV, with a line of the columns first");
  styles->add_flag("--json", json_, "JSON Lines, on a terminal too");
  styles->add_flag("--box", box_, "A box, in a pipe too");
  styles->require_option(0, 1);
}

RowStyle RowStyleOption::style() const {
  if (csv_) return RowStyle::kCsv;
  if (json_) return RowStyle::kJson;
  return box_ || isatty(STDOUT_FILENO) == 1 ? RowStyle::kBox : RowStyle::kJson;
}

RowPrinter::RowPrinter(RowStyle style, std::vector<std::string> columns, Output& output)
    : style_(style), columns_(std::move(columns)), output_(output) {
  if (style_ != RowStyle::kCsv) return;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    if (i > 0) output_.buffer()->push_back(',');
    AppendCsvField(columns_[i], output_.buffer());
  }
  output_.buffer()->push_back('\n');
}

void RowPrinter::Add(Row row) {
  ++num_rows_;
  std::string* const out = output_.buffer();
  const auto value_of = [&row](const std::string& name) {
    const auto it = std::find_if(row.begin(), row.end(), [&name](const auto& cell) { return cell.first == name; });
    return it == row.end() ? Value() : it->second.get();
  };
  switch (style_) {
    case RowStyle::kBox:
      AddToBox(std::move(row));
      break;
    case RowStyle::kJson:
      out->push_back('{');
      for (const auto& [name, value] : row) {
        if (out->back() != '{' || &name != &row.front().first) out->push_back(',');
        text::AppendJsonBytes(name, out);
        out->push_back(':');
        AppendJsonValue(value.get(), out);
      }
      out->append("}\n");
      break;
    case RowStyle::kCsv:
      for (std::size_t i = 0; i < columns_.size(); ++i) {
        std::string buffer;
        const Value value = value_of(columns_[i]);
        if (i > 0) out->push_back(',');
        AppendCsvField(value.is_null() ? std::nullopt : std::optional(value.Text(&buffer)), out);
      }
      out->push_back('\n');
      break;
  }
  output_.MaybeFlush();
}

void RowPrinter::AddToBox(Row row) {
  for (const auto& cell : row) {
    if (std::find(columns_.begin(), columns_.end(), cell.first) == columns_.end()) columns_.push_back(cell.first);
  }
  rows_.push_back(std::move(row));
  if (rows_.size() == kBoxRows) PrintBox();
}

void RowPrinter::PrintBox() {
  std::vector<std::size_t> widths;
  std::vector<bool> is_right(columns_.size(), true);
  for (const std::string& column : columns_) widths.push_back(DisplayWidth(Shown(Value(column))));
  const auto place = [this](const std::string& name) {
    return static_cast<std::size_t>(std::find(columns_.begin(), columns_.end(), name) - columns_.begin());
  };
  std::vector<std::vector<std::string>> cells;
  for (const Row& row : rows_) {
    std::vector<std::string>& line = cells.emplace_back(columns_.size());
    for (const auto& [name, value] : row) {
      const std::size_t i = place(name);
      line[i] = Shown(value.get());
      widths[i] = std::max(widths[i], DisplayWidth(line[i]));
      if (!value.get().is_null() && !IsNumber(value.get())) is_right[i] = false;
    }
  }
  std::string* const out = output_.buffer();
  if (!Narrow(TerminalWidth(), &widths)) {  // prints the columns one below the other
    std::size_t name_width = 0;
    for (const std::string& column : columns_) name_width = std::max(name_width, DisplayWidth(Shown(Value(column))));
    const std::size_t rest = std::max(TerminalWidth(), name_width + 20) - name_width - 6;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      absl::StrAppend(out, "── row ", num_rows_ - rows_.size() + i + 1, "\n");
      for (std::size_t j = 0; j < columns_.size(); ++j) {
        if (cells[i][j].empty()) continue;
        AppendPadded(Shown(Value(columns_[j])), name_width, false, out);
        absl::StrAppend(out, "│ ", CutToWidth(cells[i][j], rest), "\n");
      }
      output_.MaybeFlush();
    }
    rows_.clear();
    return;
  }
  static const bool has_color = WantsColor(STDOUT_FILENO);
  AppendRule(widths, "┌", "┬", "┐", out);
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    absl::StrAppend(out, "│", has_color ? ToAbsl(kKeyColor) : "");
    AppendPadded(Shown(Value(columns_[i])), widths[i], is_right[i], out);
    if (has_color) out->append(kNoColor);
  }
  out->append("│\n");
  AppendRule(widths, "├", "┼", "┤", out);
  for (const std::vector<std::string>& line : cells) {
    for (std::size_t i = 0; i < line.size(); ++i) {
      out->append("│");
      AppendPadded(line[i], widths[i], is_right[i], out);
    }
    out->append("│\n");
    output_.MaybeFlush();
  }
  AppendRule(widths, "└", "┴", "┘", out);
  rows_.clear();
}

void RowPrinter::Finish() {
  if (style_ != RowStyle::kBox) return;
  if (!rows_.empty() || (num_rows_ == 0 && !columns_.empty())) PrintBox();
  absl::StrAppend(output_.buffer(), GroupDigits(num_rows_), num_rows_ == 1 ? " row\n" : " rows\n");
}

}  // namespace hako::tool
