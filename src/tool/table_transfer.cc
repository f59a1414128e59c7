#include "tool/table_transfer.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "hako/table/table_dbm.h"
#include "tool/interrupt.h"
#include "tool/numbers.h"
#include "tool/table_statement.h"
#include "tool/table_text.h"
#include "tool/text_file.h"

namespace hako::tool {
namespace {

// Returns whether the text is CSV; nullopt if its name does not tell.
std::optional<bool> IsCsv(const TableTransfer& options) {
  if (options.format == "csv" || options.format == "jsonl") return options.format == "csv";
  if (!options.format.empty()) return std::nullopt;
  if (options.text.ends_with(".csv")) return true;
  if (options.text.ends_with(".jsonl") || IsStandardStream(options.text)) return false;
  return std::nullopt;
}

std::string UnknownFormat(const TableTransfer& options) {
  return absl::StrCat(options.database.path(),
                      " is a table, whose rows are written as CSV or JSON Lines; give the text the suffix .csv or ",
                      ".jsonl, or set --format csv or jsonl");
}

// How many fields of a column of CSV without a type are numbers, and how many are texts.
struct FieldCounts {
  std::uint64_t numbers = 0, texts = 0;
  std::string text;        // the first text,
  std::uint64_t line = 0;  // and its line
};

// Warns about columns that mix numbers and texts: all numbers are ordered before all texts, which
// users seldom want.
void NoteMixedColumns(const TableTransfer& options, TableDBM& table, const std::map<std::string, FieldCounts>& fields) {
  for (const ColumnInfo& column : table.Columns()) {
    const auto it = fields.find(column.name);
    if (column.type != ColumnType::kAny || it == fields.end() || it->second.numbers == 0 || it->second.texts == 0) continue;
    const FieldCounts& counts = it->second;
    const std::string name = column.name;
    Note(absl::StrCat(options.database.path(), ": column '", name, "' has no type, and mixes ", GroupDigits(counts.numbers),
                      counts.numbers == 1 ? " number and " : " numbers and ", GroupDigits(counts.texts),
                      counts.texts == 1 ? " text ('" : " texts (as '", counts.text.substr(0, 40), "' in line ", counts.line,
                      "); to give it one, create the table first: 'hako table create FILE --column ", name, ":double' (or int64, string)"));
  }
}

}  // namespace

int ImportRows(TableTransfer options) {
  // Text indices write each block of a word once a step.
  constexpr std::size_t kRowsAtOnce = 8000, kBytesAtOnce = 2 << 20, kPiece = 256 << 10;
  const std::optional<bool> is_csv = IsCsv(options);
  if (!is_csv) return FailUsage("import", UnknownFormat(options));
  if (IsSameFile(options.database.path(), options.text)) return FailUsage("import", "the table and the text are the same file");
  if (HoldsDatabase(options.text)) return FailUsage("import", absl::StrCat(options.text, " is a database, not a text; export it first"));
  if (IsStandardStream(options.text) && SharedDatabase::IsThere())
    return FailUsage("import", "the shell reads its commands from standard input; name a file");
  TextInput text;
  if (const Status opened = text.Open(options.text); !opened.ok()) return FailText(text.name(), opened);
  options.database.any.file.mode = OpenMode::kCreate;
  const NewFile file(options.database);
  bool is_refused = false;
  const Interrupt interrupt;
  const int code = WithTable(options.database, [&](TableDBM& table) -> int {
    TableBatch batch;
    std::size_t batch_bytes = 0;
    const std::uint64_t before = table.Count().value_or(0);
    std::uint64_t num_rows = 0, first_line = 0, last_line = 0;
    std::map<std::string, FieldCounts> fields;
    Status stored;
    const auto write = [&]() -> Status {
      if (batch.size() == 0) return absl::OkStatus();
      stored = table.Write(batch);
      if (!stored.ok()) return Status(stored.code(), absl::StrCat("lines ", first_line, " to ", last_line, ": ", stored.message()));
      num_rows += batch.size();
      batch.Clear();
      batch_bytes = 0;
      return absl::OkStatus();
    };
    TableReader reader(*is_csv, options.key_name, [&](const TextRow& row) -> Status {
      std::vector<Cell> cells;
      for (const auto& [name, value] : row.cells) {
        cells.push_back({name, value.get()});
        if (value.get().kind() == Value::Kind::kBytes) batch_bytes += value.get().bytes().size();
        if (!*is_csv) continue;
        FieldCounts& counts = fields[name];
        if (table::StoredOf(value.get()).kind() != Value::Kind::kBytes) {
          ++counts.numbers;
        } else if (counts.texts++ == 0) {
          counts.text = value.get().bytes();
          counts.line = row.line;
        }
      }
      if (batch.size() == 0) first_line = row.line;
      last_line = row.line;
      batch.Put(row.key, cells);
      return batch.size() < kRowsAtOnce && batch_bytes < kBytesAtOnce ? absl::OkStatus() : write();
    });
    std::string piece(kPiece, '\0');
    Status status;
    while (status.ok()) {
      const auto size = text.Read(interrupt, std::span(piece));
      status = !size.ok() ? size.status() : *size == 0 ? reader.End() : reader.Feed(std::string_view(piece).substr(0, *size));
      if (size.value_or(0) == 0) break;
    }
    if (stored.ok() && (status.ok() || absl::IsInvalidArgument(status))) {  // stores the rows before a malformed line
      const Status last = write();
      if (status.ok()) status = last;
    }
    const std::uint64_t after = table.Count().value_or(0), num_more = after - std::min(before, after);
    Note(absl::StrCat(options.database.path(), ": ", CountOfRows(num_rows), " imported",
                      num_more < num_rows
                          ? absl::StrCat("; the table has ", GroupDigits(num_more), " more than before, as later rows replace earlier ones")
                          : ""));
    if (status.ok()) NoteMixedColumns(options, table, fields);
    is_refused = num_rows == 0 && absl::IsInvalidArgument(status);
    if (absl::IsCancelled(status)) return kExitSignal + interrupt.signal();
    if (status.ok()) return kExitDone;
    return stored.ok() ? FailText(text.name(), status) : FailTable(options.database, status);
  });
  if (is_refused) file.Remove();
  return code;
}

int ExportRows(TableTransfer options) {
  const std::optional<bool> is_csv = IsCsv(options);
  if (!is_csv) return FailUsage("export", UnknownFormat(options));
  if (IsNamedAsDatabase(options.text) || HoldsDatabase(options.text))
    return FailUsage("export", absl::StrCat(options.text, " is a database, not a text; 'hako copy' copies a table"));
  const Interrupt interrupt;
  return WithTable(options.database, [&](TableDBM& table) -> int {
    TextOutput text;
    if (const Status opened = text.Open(options.text); !opened.ok()) return FailText(text.name(), opened);
    std::vector<std::string> columns;
    std::string buffer;
    if (*is_csv) {
      columns.emplace_back();
      for (const ColumnInfo& column : table.Columns()) columns.push_back(column.name);
      AppendCsvHeader(columns, &buffer);
    }
    Status written;
    const auto flush = [&] {
      written = text.Write(interrupt, buffer);
      buffer.clear();
      return written.ok();
    };
    const Status status = table.Select().Each([&](std::string_view key, const RowView& row) {
      *is_csv ? AppendCsvRow(key, row, columns, &buffer) : AppendJsonRow(key, row, {}, &buffer);
      return buffer.size() < (64 << 10) || flush();
    });
    if (!status.ok()) return FailTable(options.database, status);
    if (written.ok()) flush();
    if (absl::IsCancelled(written) && interrupt.signal() != 0) return kExitSignal + interrupt.signal();
    if (written.ok()) written = text.Commit();
    return written.ok() ? kExitDone : Fail(text.name(), written);
  });
}

}  // namespace hako::tool
