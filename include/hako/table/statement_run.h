// The options and results of TableDBM::Run, by which programs, the tool and the server run a
// statement (table/query_text.h).
//
//   HAKO_ASSIGN_OR_RETURN(const Statement statement, ParseStatement("select city, count(*) group by city"));
//   const StatusOr<std::uint64_t> shown = table->Run(statement, [](const ResultRow& row) { ...; return true; });
//
// A select of columns shows rows of the table. One of functions shows one row of figures or, with `group by`,
// a row for each group, which begins with the column of the group. `order by`, `limit` and `offset`
// apply to the rows that are shown. Groups are ordered by their value or by a function; without
// `order by`, by their value. Groups with equal figures are ordered by their value in the same
// direction.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hako/table/query.h"
#include "hako/table/query_effort.h"
#include "hako/table/query_text.h"
#include "hako/table/value.h"

namespace hako {

// A row that a select shows. It is valid during the call.
struct ResultRow {
  std::span<const Cell> cells = {};  // in the order of ResultNames; for `select *`, the key and the cells of the row
  std::string_view key = {};         // of the row in the table; empty for figures
  Value order = {};                  // its value in the column of `order by`, for StatementOptions::after
};

// Options of TableDBM::Run.
struct StatementOptions {
  // The position of a row: see Query::After.
  struct Position {
    std::string key;   // of the row
    OwnedValue value;  // in the column of `order by`
  };
  QueryEffort* effort = nullptr;       // see Query::Within
  std::optional<Position> after = {};  // only rows behind this one, of a select of columns
};

// Returns the names of the cells that a select shows; empty for `select *`, whose rows differ in
// their cells.
std::vector<std::string> ResultNames(const Statement& statement);
// Whether the statement deletes all rows, for which Run calls Clear.
bool RemovesAllRows(const Statement& statement);

}  // namespace hako
