// Runs a statement on a table and prints its result.
#pragma once

#include <string>
#include <vector>

#include "hako/base/status.h"
#include "hako/table/table_dbm.h"
#include "tool/database.h"
#include "tool/row_printer.h"

namespace hako::tool {

// A word of the command line as the value of a cell: true, false, null and 'text' as in a statement; all
// else is a text without a type (Value::Untyped).
OwnedValue LiteralOf(const std::string& text);

// The same of several, as the parameters of a statement: a number in decimal is one.
StatusOr<Statement> ParseWithParameters(const std::string& statement, const std::vector<std::string>& parameters);

// Fail for an error of a statement, a row or the table itself.
int FailTable(const DatabaseOptions& database, const Status& status);

// Flushes; returns `code`, or the exit code of a failed write.
int Finish(Output& output, int code);

int RunStatement(const DatabaseOptions& database, TableDBM& table, const Statement& statement, RowStyle style);
int ExplainStatement(const DatabaseOptions& database, TableDBM& table, const Statement& statement);

}  // namespace hako::tool
