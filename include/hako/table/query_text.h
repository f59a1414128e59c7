// Statements and conditions as text, in a small subset of SQL:
//
//   select name, age where age >= 20 and city = 'Rome' order by age desc limit 10 offset 20
//   select count(*), sum(age), min(age), max(age) where text search 'tree "page cache"' group by city
//   select city, count(*) group by city order by count(*) desc limit 3
//   update set city = 'Roma', age = null where city = 'Rome'
//   delete where key between 'a' and 'b' or not name begins 'A' in batches
//
// A function is named in results as it is written: "count(*)", "min(key)". Rows that lack the
// column of `group by` form a separate group, null. `order by`, `limit` and `offset` apply to the
// rows of the result. Groups are ordered by their column or by a function; beside functions no
// other column may be named.
//
// An update or a delete is one atomic step, which takes at most 1,048,576 rows and entries of
// indices. Larger ones need a `limit`, or `in batches` at the end (Query::InBatches). A delete
// without a condition and without a limit removes all rows in one step of any size.
//
// If the table has any column, it is an error when a statement reads a column that no row has had
// and no schema names. An update may set a new column.
//
// A condition consists of comparisons, `and`, `or`, `not` and parentheses. The comparisons are
//   = != <> < <= > >=  between A and B  in (A, B ...)  is null  is not null
//   contains  begins  ends  matches  all  any  phrase  search     of text: see table/condition.h
// `not` may stand before between, in and the comparisons of text. Literals are 'text' (two quotes
// for one in it), x'00ff' for other bytes, numbers, inf and -inf, true and false; an integer beyond
// int64 is accepted only if it is exactly a double. A ? in place of a literal, a text or a number
// of rows stands for the next parameter, so that text from outside need not be quoted:
//   ParseStatement("select * where name = ? limit ?", {name, 10})
// A column is a word, or anything in double quotes; the word `key` is the primary key, and no column may
// have this name. Words of the language may be in any case. As names of columns, those of
// IsReservedWord need quotes.
//
// Values are compared and ordered by their types, as SQLite does: see table/value.h. numeric(age)
// in a condition, and `order by age desc numeric`, use the numbers that texts spell.
//
// Errors are InvalidArgument and name the position, from 1.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hako/base/status.h"
#include "hako/base/string_arg.h"
#include "hako/table/condition.h"

namespace hako {

// How a query orders rows: by the values of a column, or by their cast `numeric` (table/value.h).
enum class RowOrder : std::uint8_t { kAscending, kDescending, kNumericAscending, kNumericDescending };

// A statement: see the head of this header.
struct Statement {
  // The verb.
  enum class Kind : std::uint8_t { kSelect, kUpdate, kDelete };
  // A function over the rows.
  struct Aggregate {
    std::string function;  // count, sum, min or max
    std::string column;    // empty = the primary key
    bool of_rows = false;  // count(*); the column is empty then
  };
  // A column that the statement reads, for errors.
  struct Mention {
    std::string column;    // empty = the primary key
    std::size_t position;  // in the text, from 0
  };
  // A cell that an update sets.
  struct Assignment {
    std::string column;  // its name
    OwnedValue value;    // null removes it
  };

  Kind kind = Kind::kSelect;                        // the verb
  std::vector<std::string> columns = {};            // to show; empty = all
  std::vector<Aggregate> aggregates = {};           // functions of a select
  std::vector<Assignment> assignments = {};         // cells that an update sets
  Condition where = {};                             // which rows
  std::optional<std::string> group_by = {};         // the column of the groups
  std::optional<std::string> order_by = {};         // the column of the order; empty string: the primary key
  std::optional<Aggregate> order_by_function = {};  // the function by which groups are ordered
  RowOrder order = RowOrder::kAscending;            // see RowOrder
  std::optional<std::uint64_t> limit = {};          // the largest number of rows
  std::uint64_t offset = 0;                         // rows that are skipped first
  bool in_batches = false;                          // of an update or delete: see Query::InBatches
  std::vector<Mention> mentions = {};               // the columns that it reads, in the order of the text
};

// Parse a text as a statement or as a condition.
StatusOr<Statement> ParseStatement(StringArg text, std::span<const Value> parameters = {});
inline StatusOr<Statement> ParseStatement(StringArg text, std::initializer_list<Value> parameters) {
  return ParseStatement(text, std::span(parameters.begin(), parameters.size()));
}
StatusOr<Condition> ParseCondition(StringArg text);

namespace table {
// Append a literal, and the name of a column, as they are written in a statement.
void AppendLiteral(const Value& value, std::string* out);
void AppendColumnName(std::string_view name, std::string* out);
// Whether the name of a column must be quoted, because it is a word of the language in any case.
bool IsReservedWord(std::string_view name);
}  // namespace table

}  // namespace hako
