// Query: rows of a table that meet a condition, in an order; and the operations on them.
//
//   table.Select().Where(Column("age") >= 20).And(Column("city") == "Rome").OrderBy("name").Limit(10, 20)
//
// Nothing is read until Each, Keys, Count, Aggregate, GroupBy, Update, Remove or Explain is called; a
// query may be run many times.
//
// The order. With OrderBy, rows are in the order of the column's values (table/value.h), null
// first; rows with equal values are in the order of their keys, in the same direction. Without
// OrderBy, a query with Limit or After is in the order of the keys, so that its pages are parts of
// one sequence and do not depend on the indices. Any other query shows its rows in an unspecified
// order.
//
// Results stream: memory does not grow with their number, except where a query must group, or sort
// because no index serves OrderBy (with Limit it keeps only that many rows).
// TableOptions::sort_bytes limits that memory (ResourceExhausted). A query by text indices keeps 4 bytes for
// each row that they find, and some 20 while positions decide. With a limit, in the order of the keys, it finds the
// first rows without the others if rows were put in about that order, or before the first text index was created.
//
// A query is not a snapshot, unless it is one of TableDBM::Snapshot, which shows one moment. A row
// that is not changed meanwhile is shown exactly once if it meets
// the condition. Every row that is shown met the condition when it was read. If only keys are
// wanted (Keys, Count, Columns with no column) and the indices decide the condition, the row's
// entries met it when they were read. With OrderBy, rows are always shown in order: the query finds
// a row by its value, and leaves it out if it is gone or has another value when it is read. Later
// rows take its place, so a limit is reached if enough rows exist.
//
// Plans: see table/plan.h, and Explain.
//
// Threads: each query belongs to one thread. Visitors may read the table, but not change it or drop
// an index.
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
#include "hako/base/integer_arg.h"
#include "hako/base/status.h"
#include "hako/base/string_arg.h"
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

// Count, sum, minimum and maximum of a column over rows.
class Aggregates {
 public:
  std::uint64_t count = 0;        // rows that have the column; for an empty name, all rows
  std::uint64_t num_numbers = 0;  // those of them whose value is a number or a bool
  OwnedValue min = {};            // the smallest and the largest value in the order of values (table/value.h);
  OwnedValue max = {};            // null if no row has one

  // Returns the sum of the numbers, where true is 1 and texts add nothing. It is an int64 if all
  // are integers and the sum fits into one, else a double.
  Value Sum() const;

  // Adds a value, unless it is null.
  void Add(const Value& value);

 private:
  std::int64_t int_sum_ = 0;        // of the integers, modulo 2^64
  std::int64_t num_overflows_ = 0;  // overflows of that sum, upwards minus downwards
  double double_sum_ = 0;
  std::uint64_t num_doubles_ = 0;
};

// A query: see the head of this header. Copies are separate queries.
class Query {
 public:
  // TableDBM::Select makes queries.
  explicit Query(table::TableCore* core) : core_(core) {}

  // Adds a condition. A row must meet all of them.
  Query& Where(const Condition& condition) { return And(condition); }
  Query& And(const Condition& condition) {
    where_ = where_ && condition;
    return *this;
  }
  // Sets the order; an empty name is the primary key, here and in Aggregate and GroupBy. Its name in
  // statements, "key", is InvalidArgument there and in a condition, unless a column has it since an
  // earlier version.
  Query& OrderBy(StringArg column, RowOrder order = RowOrder::kAscending) {
    order_by_ = column;
    order_ = order;
    return *this;
  }
  // A negative offset is InvalidArgument.
  Query& Limit(IntegerArg<std::uint64_t> count, IntegerArg<std::uint64_t> offset = 0) {
    limit_ = count;
    offset_ = offset;
    return *this;
  }
  // Shows only rows behind this position in the order, for pages. Pass the key of the last row of
  // the page before and, with OrderBy, also that row's value in the column (null if it has none);
  // without the value such a query is InvalidArgument.
  // Rows that are added or removed between pages never make another row appear twice or be left
  // out. Only the last page has fewer rows than the limit.
  Query& After(StringArg key) {
    after_key_ = key;
    after_value_.reset();
    return *this;
  }
  Query& After(StringArg key, const Value& value) {
    after_key_ = key;
    after_value_ = value;
    return *this;
  }
  // Sets the wanted columns; the default is all. If an index has all of them, the query reads it
  // instead of the rows. The rows that are shown may have more columns.
  Query& Columns(std::vector<std::string> columns) {
    columns_ = std::move(columns);
    return *this;
  }

  // Makes Update and Remove change the rows in several atomic steps, in the order of the keys
  // (InvalidArgument with another order). Each step has this many rows, or fewer if these have many
  // entries. If a step fails, or the process dies, the steps before it remain; the error tells how
  // many rows they have changed.
  Query& InBatches(IntegerArg<std::uint64_t> rows = 10'000) {
    batch_rows_ = std::max<std::uint64_t>(rows, 1);
    return *this;
  }
  // Bounds the runs of this query and its copies (see QueryEffort). `effort` must outlive them.
  Query& Within(QueryEffort* effort) {
    effort_ = effort;
    return *this;
  }

  // Return a query for the rows of either query, of both, or of this one but not the other. The
  // result has no order and no limit. A part with a limit is run first, and its keys are kept.
  StatusOr<Query> Union(const Query& other) const;
  StatusOr<Query> Intersection(const Query& other) const;
  StatusOr<Query> Difference(const Query& other) const;

  // Shows the rows until visit returns false. The view is valid during the call.
  using Visit = FunctionRef<bool(std::string_view key, const RowView& row)>;
  Status Each(Visit visit) const;
  // Returns the keys in order.
  StatusOr<std::vector<std::string>> Keys() const;
  // Return the number of rows, and figures over them, after Limit and offset are applied. (In a
  // statement, figures are over all rows, and the limit applies to the rows of figures; see
  // table/statement_run.h.) A column that no row has counts as null.
  StatusOr<std::uint64_t> Count() const;
  StatusOr<Aggregates> Aggregate(StringArg column) const;
  // Groups the rows by the value of a column. Rows without the column form the first group, null.
  // `of` is the column of the figures.
  using Groups = std::map<OwnedValue, Aggregates>;
  StatusOr<Groups> GroupBy(StringArg column, StringArg of = {}) const;
  // Update or remove the rows in one atomic step, or in batches, and return their number.
  // OutOfRange if one step would take more than 1,048,576 rows and entries of indices, or 256 MiB;
  // use a limit or InBatches then. A row that another thread has changed meanwhile is changed only
  // if it still meets the condition.
  StatusOr<std::uint64_t> Update(std::span<const Cell> cells) const;
  StatusOr<std::uint64_t> Update(std::initializer_list<Cell> cells) const { return Update(std::span(cells.begin(), cells.size())); }
  StatusOr<std::uint64_t> Remove() const;

  // Returns the plan for people to read, with a line for each step.
  StatusOr<std::string> Explain() const;

 private:
  friend class TableDBM;
  friend class table::QueryRun;
  bool HasLimit() const { return limit_ || offset_ != 0 || after_key_; }
  StatusOr<Condition> AsCondition() const;
  Status CheckOffset() const;
  StatusOr<std::uint64_t> Change(table::ChangeKind kind, std::span<const Cell> cells) const;

  table::TableCore* core_;
  Condition where_;
  std::optional<std::string> order_by_;
  RowOrder order_ = RowOrder::kAscending;
  std::optional<std::uint64_t> limit_;
  std::uint64_t offset_ = 0;
  std::uint64_t batch_rows_ = 0;  // 0 = all in one step
  std::optional<std::string> after_key_;
  std::optional<OwnedValue> after_value_;
  std::optional<std::vector<std::string>> columns_;
  QueryEffort* effort_ = nullptr;
};

// Returns the figure of a function in a statement; null if no row has one.
OwnedValue FigureOf(const Statement::Aggregate& aggregate, const Aggregates& all);
// Returns the name of the function in results, such as "count(*)" or "min(key)".
std::string LabelOf(const Statement::Aggregate& aggregate);

}  // namespace hako
