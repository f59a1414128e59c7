// TableDBM::Run: checks the columns of a statement, and shows its rows or figures.
#include "hako/table/statement_run.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hako/base/no_memory.h"
#include "hako/dbm/search.h"
#include "hako/table/query_run.h"
#include "hako/table/table_core.h"
#include "hako/table/table_dbm.h"

namespace hako {
namespace {

using ShowResult = FunctionRef<bool(const ResultRow& row)>;

std::string NameOfColumn(const std::string& column) { return column.empty() ? std::string(kKeyName) : column; }

// Returns the name that a misspelt one was probably meant to be; empty if none is similar.
std::string NearestName(const table::ColumnNames& names, std::string_view given) {
  std::string nearest(kKeyName);
  std::size_t distance = EditDistance(given, nearest);
  for (std::size_t number = 1; number <= names.size(); ++number) {
    const std::string& name = names.Get(static_cast<ColumnId>(number))->name;
    if (const std::size_t found = EditDistance(given, name); found < distance) distance = found, nearest = name;
  }
  return distance <= given.size() / 3 + 1 ? nearest : std::string();
}

// Refuses columns that no row has had. They are probably misspelt, and the statement would show or
// change nothing.
Status CheckColumns(const table::ColumnNames& names, const Statement& statement) {
  if (names.size() == 0) return absl::OkStatus();  // the table has no rows yet
  for (const Statement::Mention& mention : statement.mentions) {
    if (mention.column.empty() || names.Find(mention.column) != nullptr) continue;
    const std::string nearest = NearestName(names, mention.column);
    return absl::InvalidArgumentError(absl::StrCat("position ", mention.position + 1, ": no row has had a column '", mention.column, "'",
                                                   nearest.empty() ? "" : absl::StrCat("; did you mean '", nearest, "'?")));
  }
  return absl::OkStatus();
}

StatusOr<std::uint64_t> ShowRows(const table::ColumnNames& names, const Statement& statement, Query query, ShowResult show) {
  struct Shown {
    std::string name;
    std::optional<ColumnId> id;  // nullopt = no row has had the column
  };
  const auto id_of = [&names](const std::string& column) -> std::optional<ColumnId> {
    if (column.empty()) return ColumnId::kKey;
    const table::StoredColumn* const found = names.Find(column);
    return found == nullptr ? std::nullopt : std::optional(found->id);
  };
  const auto value_of = [](std::optional<ColumnId> id, std::string_view key, const RowView& row) {
    return id == ColumnId::kKey ? Value(key) : id ? row.Get(*id) : Value();
  };
  std::vector<Shown> columns;
  for (const std::string& column : statement.columns) columns.push_back({NameOfColumn(column), id_of(column)});
  const std::optional<ColumnId> order = statement.order_by ? id_of(*statement.order_by) : std::nullopt;
  if (!columns.empty()) {
    std::vector<std::string> needed = statement.columns;
    if (statement.order_by) needed.push_back(*statement.order_by);
    std::erase(needed, "");
    if (!needed.empty()) query.Columns(std::move(needed));
  }
  std::vector<Cell> cells;
  std::uint64_t count = 0;
  HAKO_RETURN_IF_ERROR(query.Each([&](std::string_view key, const RowView& row) {
    cells.clear();
    for (const Shown& column : columns) cells.push_back({column.name, value_of(column.id, key, row)});
    if (columns.empty()) {
      cells.push_back({kKeyName, Value(key)});
      for (std::size_t i = 0; i < row.size(); ++i) cells.push_back({row.name(i), row.value(i)});
    }
    ++count;
    return show({cells, key, order == ColumnId::kKey ? Value() : value_of(order, key, row)});
  }));
  return count;
}

// A row of figures in the result.
struct Figures {
  OwnedValue group;
  std::vector<OwnedValue> values;  // values of the functions, including that of `order by`
};

StatusOr<std::vector<Figures>> FindFigures(const Statement& statement, const Query& query,
                                           const std::vector<Statement::Aggregate>& functions) {
  std::vector<Figures> rows;
  const auto is_count_of_rows = [](const Statement::Aggregate& one) { return one.function == "count" && one.column.empty(); };
  if (!statement.group_by && std::all_of(functions.begin(), functions.end(), is_count_of_rows)) {
    HAKO_ASSIGN_OR_RETURN(const std::uint64_t count, query.Count());
    rows.push_back({{}, std::vector<OwnedValue>(functions.size(), Value(static_cast<std::int64_t>(count)))});
    return rows;
  }
  std::vector<std::string> columns;
  for (const Statement::Aggregate& one : functions) {
    if (std::find(columns.begin(), columns.end(), one.column) == columns.end()) columns.push_back(one.column);
  }
  table::QueryRun run(query);
  HAKO_ASSIGN_OR_RETURN(table::FiguresByGroup groups, run.FindFigures(statement.group_by, columns));
  if (!statement.group_by) groups.try_emplace(OwnedValue(), columns.size());  // even if there are no rows
  for (const auto& [group, all] : groups) {
    Figures& row = rows.emplace_back();
    row.group = group;
    for (const Statement::Aggregate& one : functions) {
      const auto column = std::find(columns.begin(), columns.end(), one.column) - columns.begin();
      row.values.push_back(FigureOf(one, all[static_cast<std::size_t>(column)]));
    }
  }
  return rows;
}

StatusOr<std::uint64_t> ShowFigures(const Statement& statement, const Query& query, ShowResult show) {
  std::vector<Statement::Aggregate> functions = statement.aggregates;
  if (statement.order_by_function) functions.push_back(*statement.order_by_function);
  HAKO_ASSIGN_OR_RETURN(std::vector<Figures> rows, FindFigures(statement, query, functions));
  if (statement.order_by_function) {  // otherwise the map has the order of the groups
    std::stable_sort(rows.begin(), rows.end(), [](const Figures& a, const Figures& b) { return a.values.back() < b.values.back(); });
  }
  if (statement.order == RowOrder::kDescending) std::reverse(rows.begin(), rows.end());
  const std::vector<std::string> names = ResultNames(statement);
  std::vector<Cell> cells(names.size());
  std::uint64_t count = 0;
  for (std::size_t i = statement.offset; i < rows.size() && count < statement.limit.value_or(~std::uint64_t{0}); ++i, ++count) {
    const std::size_t first = statement.group_by ? 1 : 0;
    if (statement.group_by) cells[0] = {names[0], rows[i].group.get()};
    for (std::size_t k = first; k < names.size(); ++k) cells[k] = {names[k], rows[i].values[k - first].get()};
    if (!show({cells})) return count + 1;
  }
  return count;
}

}  // namespace

std::vector<std::string> ResultNames(const Statement& statement) {
  std::vector<std::string> names;
  if (statement.group_by) names.push_back(NameOfColumn(*statement.group_by));
  for (const Statement::Aggregate& one : statement.aggregates) names.push_back(LabelOf(one));
  if (names.empty()) {
    for (const std::string& column : statement.columns) names.push_back(NameOfColumn(column));
  }
  return names;
}

bool RemovesAllRows(const Statement& statement) {
  return statement.kind == Statement::Kind::kDelete && !statement.where.node() && !statement.limit && statement.offset == 0 &&
         !statement.in_batches;
}

StatusOr<Query> TableDBM::Select(const Statement& statement) HAKO_TRY {
  HAKO_RETURN_IF_ERROR(CheckColumns(core_->catalogue.names(), statement));
  Query query = Select();
  query.Where(statement.where);
  if (!statement.aggregates.empty()) return query;  // order and limits apply to the figures
  if (statement.order_by) query.OrderBy(*statement.order_by, statement.order);
  if (statement.limit) query.Limit(*statement.limit);
  query.offset_ = statement.offset;
  if (statement.in_batches) query.InBatches();
  return query;
}
HAKO_OR_NO_MEMORY

StatusOr<std::uint64_t> TableDBM::Run(const Statement& statement, FunctionRef<bool(const ResultRow& row)> show,
                                      const StatementOptions& options) HAKO_TRY {
  HAKO_ASSIGN_OR_RETURN(Query query, Select(statement));
  query.Within(options.effort);
  if (options.after) {
    if (statement.kind != Statement::Kind::kSelect || !statement.aggregates.empty())
      return absl::InvalidArgumentError("only a select of columns has pages");
    query.After(options.after->key, options.after->value.get());
  }
  if (statement.kind == Statement::Kind::kUpdate) {
    std::vector<Cell> cells;
    for (const Statement::Assignment& one : statement.assignments) cells.push_back({one.column, one.value.get()});
    return query.Update(cells);
  }
  if (statement.kind == Statement::Kind::kDelete)
    return RemovesAllRows(statement) && !core_->IsInTransaction() ? RemoveAll() : query.Remove();
  return statement.aggregates.empty() ? ShowRows(core_->catalogue.names(), statement, std::move(query), show)
                                      : ShowFigures(statement, query, show);
}
HAKO_OR_NO_MEMORY

}  // namespace hako
