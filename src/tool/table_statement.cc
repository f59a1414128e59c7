#include "tool/table_statement.h"

#include <unistd.h>

#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tool/output.h"

namespace hako::tool {
namespace {

using Row = RowPrinter::Row;

// The name of a column in results; that of the primary key is empty.
std::string ShownName(const std::string& column) { return column.empty() ? std::string(kKeyName) : column; }

// A row a group, or one row of all.
int ShowFigures(const DatabaseOptions& database, const Statement& statement, const Query& query, RowStyle style, Output& output) {
  const std::string group = ShownName(statement.group_by.value_or(""));
  std::map<OwnedValue, Row> rows;  // by group
  std::vector<std::string> columns;
  if (statement.group_by) columns.push_back(group);
  for (const Statement::Aggregate& aggregate : statement.aggregates) {
    columns.push_back(LabelOf(aggregate));
    Query::Groups figures;
    if (statement.group_by) {
      auto groups = query.GroupBy(*statement.group_by, aggregate.column);
      if (!groups.ok()) return FailTable(database, groups.status());
      figures = *std::move(groups);
    } else {
      auto all = query.Aggregate(aggregate.column);
      if (!all.ok()) return FailTable(database, all.status());
      figures[Value()] = *std::move(all);
    }
    for (const auto& [name, all] : figures) {
      Row& row = rows[name];
      if (row.empty() && statement.group_by) row.emplace_back(group, name);
      row.emplace_back(columns.back(), FigureOf(aggregate, all));
    }
  }
  RowPrinter printer(style, columns, output);
  for (auto& [name, row] : rows) printer.Add(std::move(row));
  printer.Finish();
  return Finish(output, kExitDone);
}

int Select(const DatabaseOptions& database, TableDBM& table, const Statement& statement, Query query, RowStyle style) {
  Output output(STDOUT_FILENO);
  if (!statement.aggregates.empty()) return ShowFigures(database, statement, query, style, output);
  if (statement.group_by) return FailUsage("table query", "group by needs a function: count(*), sum(x), min(x) or max(x)");
  std::vector<std::string> columns;
  if (!statement.columns.empty()) {
    std::vector<std::string> names = statement.columns;
    for (const std::string& name : names) columns.push_back(ShownName(name));
    std::erase(names, "");
    if (!names.empty()) query.Columns(std::move(names));
  } else {
    columns.emplace_back(kKeyName);
    if (style == RowStyle::kCsv) {
      for (const ColumnInfo& column : table.Columns()) columns.push_back(column.name);
    }
  }
  RowPrinter printer(style, columns, output);
  const Status status = query.Each([&](std::string_view key, const RowView& view) {
    Row row;
    if (statement.columns.empty()) {
      row.emplace_back(kKeyName, OwnedValue(Value(key)));
      for (std::size_t i = 0; i < view.size(); ++i) row.emplace_back(view.name(i), OwnedValue(view.value(i)));
    }
    for (std::size_t i = 0; i < statement.columns.size(); ++i)
      row.emplace_back(columns[i], OwnedValue(statement.columns[i].empty() ? Value(key) : view.Get(statement.columns[i])));
    printer.Add(std::move(row));
    return output.ok();
  });
  printer.Finish();
  const int code = Finish(output, kExitDone);
  return status.ok() ? code : FailTable(database, status);
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
  // What is wrong with the arguments, a statement or a row is no error of the file.
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
  const Query query = table.Select(statement);
  if (statement.kind == Statement::Kind::kSelect) return Select(database, table, statement, query, style);
  std::vector<Cell> cells;
  for (const Statement::Assignment& one : statement.assignments) cells.push_back({one.column, one.value.get()});
  const auto changed = statement.kind == Statement::Kind::kUpdate ? query.Update(cells) : query.Remove();
  if (!changed.ok()) return FailTable(database, changed.status());
  Output output(STDOUT_FILENO);
  absl::StrAppend(output.buffer(), *changed, *changed == 1 ? " row\n" : " rows\n");
  return Finish(output, kExitDone);
}

int ExplainStatement(const DatabaseOptions& database, TableDBM& table, const Statement& statement) {
  const StatusOr<std::string> plan = table.Select(statement).Explain();
  if (!plan.ok()) return FailTable(database, plan.status());
  Output output(STDOUT_FILENO);
  output.buffer()->append(*plan);
  return Finish(output, kExitDone);
}

}  // namespace hako::tool
