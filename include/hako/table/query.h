// Query: rows of a table that meet a condition, in an order; and the operations on them.
//
//   table.Select().Where(Column("age") >= 20).And(Column("city") == "Rome").OrderBy("name").Limit(10, 20)
//
// Nothing is read until Each, Keys, Count, Aggregate, GroupBy, Update, Remove or Explain is called; a
// query may be run many times.
//
// The order: with OrderBy, rows are in the order of values (table/value.h) of the column, of which null is the
// first, and rows of equal values in the order of their keys, in the same direction. Without OrderBy, a query
// with Limit or After is in the order of the keys, so that its pages are parts of one sequence, and any set of
// indices shows the same rows; another query shows its rows in no order that may be relied on.
//
// Results stream: memory does not grow with their number, except where a query must sort (OrderBy
// without an index that serves it, and then only Limit rows are kept, if there is one) or group; that
// is limited by TableOptions::sort_bytes (ResourceExhausted).
//
// A query is not a snapshot. A row that is not changed meanwhile is shown exactly once if it meets the
// condition. Every row shown met it when it was read; where only keys are wanted (Keys, Count, Columns
// of none) and the indices decide, its entries did when they were read. With OrderBy, rows are always
// shown in order: a row is found by its value, and is left out if it has another value, or is gone,
// when it is read. The next rows take its place, so a limit is reached if enough rows exist.
//
// Plans: see table/plan.h, and Explain.
//
// Threads: one thread a query. Visitors may read the table, but not change it or drop an index.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hako/base/function_ref.h"
#include "hako/base/status.h"
#include "hako/table/condition.h"
#include "hako/table/query_effort.h"
#include "hako/table/query_text.h"
#include "hako/table/row.h"

namespace hako {

namespace table {
struct TableCore;
class QueryRun;
enum class ChangeKind : std::uint8_t;
}  // namespace table

// Figures over the rows of a query that have a column.
class Aggregates {
 public:
  std::uint64_t count = 0;        // rows that have the column; of an empty name: all rows
  std::uint64_t num_numbers = 0;  // of these, the ones whose value is a number or a bool
  OwnedValue min = {};            // the least and the greatest value in the order of values (table/value.h);
  OwnedValue max = {};            // null if no row has one

  // The sum of the numbers, of which true is 1; texts add nothing. An int64 if all are integers and their
  // sum is one, else a double.
  Value Sum() const;

  // Adds a value, unless it is null.
  void Add(const Value& value);

 private:
  std::int64_t int_sum_ = 0;        // of the integers, modulo 2^64
  std::int64_t num_overflows_ = 0;  // of it, upwards less downwards
  double double_sum_ = 0;
  std::uint64_t num_doubles_ = 0;
};

// A query: see the head of this header. A value: copies are separate queries.
class Query {
 public:
  // TableDBM::Select makes queries.
  explicit Query(table::TableCore* core) : core_(core) {}

  // Adds a condition: all must hold.
  Query& Where(const Condition& condition) { return And(condition); }
  Query& And(const Condition& condition) {
    where_ = where_ && condition;
    return *this;
  }
  // The order: an empty name is the primary key.
  Query& OrderBy(std::string_view column, RowOrder order = RowOrder::kAscending) {
    order_by_ = column;
    order_ = order;
    return *this;
  }
  Query& Limit(std::uint64_t count, std::uint64_t offset = 0) {
    limit_ = count;
    offset_ = offset;
    return *this;
  }
  // Only rows behind this one in the order, for pages: the last key of the page before, and in an
  // order by a column also that row's value, null if it has none. Rows that have come or gone meanwhile make
  // no other row appear twice or be left out. Fewer rows than the limit are shown only by the last page.
  Query& After(std::string_view key, const Value& value = Value()) {
    after_key_ = std::string(key);
    after_value_ = value;
    return *this;
  }
  // The columns that are wanted: an index that has them all is read instead of the rows. Rows may be
  // shown with further columns. Default: all.
  Query& Columns(std::vector<std::string> columns) {
    columns_ = std::move(columns);
    return *this;
  }

  // Has Update and Remove change the rows in one atomic step after another, of this many rows or of fewer
  // where those have many entries, in the order of the keys (InvalidArgument with another order). If a step
  // fails, or the process dies, the steps before it remain; the error tells how many rows they have changed.
  Query& InBatches(std::uint64_t rows = 10'000) {
    batch_rows_ = std::max<std::uint64_t>(rows, 1);
    return *this;
  }
  // Bounds the runs of this query and its copies: see QueryEffort, which must outlive them.
  Query& Within(QueryEffort* effort) {
    effort_ = effort;
    return *this;
  }

  // Rows of either query, of both, or of this one alone; without order, and of limits those of the
  // parts. A part with a limit is run first, and its keys are kept.
  StatusOr<Query> Union(const Query& other) const;
  StatusOr<Query> Intersection(const Query& other) const;
  StatusOr<Query> Difference(const Query& other) const;

  // Shows the rows until visit returns false. The view is valid during the call.
  using Visit = FunctionRef<bool(std::string_view key, const RowView& row)>;
  Status Each(Visit visit) const;
  // The keys in order.
  StatusOr<std::vector<std::string>> Keys() const;
  // The number of rows, and figures over them, after limit and offset: those of a statement are of all rows,
  // and its limit is about the rows of figures (table/statement_run.h). A column that no row has is null.
  StatusOr<std::uint64_t> Count() const;
  StatusOr<Aggregates> Aggregate(std::string_view column) const;
  // By the value of a column: a group of all equal values. The first group, null, has the rows without it.
  // `of`: the column of the figures.
  using Groups = std::map<OwnedValue, Aggregates>;
  StatusOr<Groups> GroupBy(std::string_view column, std::string_view of = {}) const;
  // Updates or removes the rows in one atomic step, or in batches; returns their number. OutOfRange if one
  // step would take more than 1,048,576 rows and entries of indices, or 256 MiB: give a limit, or change them
  // InBatches. A row that another thread changes meanwhile is changed only if it still meets the condition.
  StatusOr<std::uint64_t> Update(std::span<const Cell> cells) const;
  StatusOr<std::uint64_t> Update(std::initializer_list<Cell> cells) const { return Update(std::span(cells.begin(), cells.size())); }
  StatusOr<std::uint64_t> Remove() const;

  // The plan, for people to read: a line a step.
  StatusOr<std::string> Explain() const;

 private:
  friend class TableDBM;
  friend class table::QueryRun;
  bool HasLimit() const { return limit_ || offset_ != 0 || after_key_; }
  StatusOr<Condition> AsCondition() const;
  StatusOr<std::uint64_t> Change(table::ChangeKind kind, std::span<const Cell> cells) const;

  table::TableCore* core_;
  Condition where_;
  std::optional<std::string> order_by_;
  RowOrder order_ = RowOrder::kAscending;
  std::optional<std::uint64_t> limit_;
  std::uint64_t offset_ = 0;
  std::uint64_t batch_rows_ = 0;  // 0: all in one step
  std::optional<std::string> after_key_;
  OwnedValue after_value_;
  std::optional<std::vector<std::string>> columns_;
  QueryEffort* effort_ = nullptr;
};

// The figure that a function of a statement is; null if no row has one.
OwnedValue FigureOf(const Statement::Aggregate& aggregate, const Aggregates& all);
// Its name in results, such as "count(*)" or "min(key)".
std::string LabelOf(const Statement::Aggregate& aggregate);

}  // namespace hako
