#include "tool/table_statement.h"

#include <unistd.h>

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tool/output.h"

namespace hako::tool {
namespace {

int Select(const DatabaseOptions& database, TableDBM& table, const Statement& statement, RowStyle style) {
  Output output(STDOUT_FILENO);
  std::vector<std::string> columns = ResultNames(statement);
  if (columns.empty()) {  // `select *`
    columns.emplace_back(kKeyName);
    if (style == RowStyle::kCsv) {
      for (const ColumnInfo& column : table.Columns()) columns.push_back(column.name);
    }
  }
  RowPrinter printer(style, columns, output);
  const StatusOr<std::uint64_t> shown = table.Run(statement, [&](const ResultRow& result) {
    RowPrinter::Row row;
    for (const Cell& cell : result.cells) row.emplace_back(cell.column, OwnedValue(cell.value));
    printer.Add(std::move(row));
    return output.ok();
  });
  if (absl::IsInvalidArgument(shown.status())) return FailTable(database, shown.status());  // nothing was printed yet
  printer.Finish();
  const int code = Finish(output, kExitDone);
  return shown.ok() ? code : FailTable(database, shown.status());
}

}  // namespace

OwnedValue LiteralOf(const std::string& text) {
  if (text == "null") return {};
  if (text == "true" || text == "false") return OwnedValue(Value(text == "true"));
  if (text.size() >= 2 && text.front() == '\'' && text.back() == '\'')
    return OwnedValue(Value(std::string_view(text).substr(1, text.size() - 2)));
  return Value::Untyped(text);
}

StatusOr<Statement> ParseWithParameters(const std::string& statement, const std::vector<std::string>& parameters) {
  std::vector<OwnedValue> owned;
  for (const std::string& parameter : parameters) {
    const std::optional<Value> number = table::ParseDecimal(parameter);
    owned.push_back(number ? OwnedValue(*number) : LiteralOf(parameter));
  }
  std::vector<Value> values;
  for (const OwnedValue& value : owned) values.push_back(value.get());
  return ParseStatement(statement, values);
}

int FailTable(const DatabaseOptions& database, const Status& status) {
  // An error in the arguments, a statement or a row is not an error of the file.
  if (absl::IsInvalidArgument(status) || absl::IsOutOfRange(status) || absl::IsAlreadyExists(status)) {
    Complain(absl::StrCat(database.path(), ": ", status.message()), "table");
    return kExitUsage;
  }
  return FailDatabase(database, status);
}

int Finish(Output& output, int code) {
  const Status written = output.Flush();
  return written.ok() ? code : Fail("standard output", written);
}

int RunStatement(const DatabaseOptions& database, TableDBM& table, const Statement& statement, RowStyle style) {
  if (statement.kind == Statement::Kind::kSelect) return Select(database, table, statement, style);
  const StatusOr<std::uint64_t> changed = table.Run(statement, [](const ResultRow&) { return true; });
  if (!changed.ok()) return FailTable(database, changed.status());
  Output output(STDOUT_FILENO);
  absl::StrAppend(output.buffer(), *changed, *changed == 1 ? " row\n" : " rows\n");
  return Finish(output, kExitDone);
}

int ExplainStatement(const DatabaseOptions& database, TableDBM& table, const Statement& statement) {
  const StatusOr<Query> query = table.Select(statement);
  const StatusOr<std::string> plan = query.ok() ? query->Explain() : query.status();
  if (!plan.ok()) return FailTable(database, plan.status());
  Output output(STDOUT_FILENO);
  output.buffer()->append(*plan);
  return Finish(output, kExitDone);
}

}  // namespace hako::tool
