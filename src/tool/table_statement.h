// Runs a statement on a table and prints its result.
#pragma once

#include <string>
#include <vector>

#include "hako/base/status.h"
#include "hako/table/table_dbm.h"
#include "tool/database.h"
#include "tool/row_printer.h"

namespace hako::tool {

// Converts a word of the command line to the value of a cell: true, false, null and 'text' as in a
// statement; everything else becomes a text of unknown type (Value::Untyped).
OwnedValue LiteralOf(const std::string& text);

// Parses a statement whose parameters are words of the command line, converted by LiteralOf;
// decimal numbers become numbers.
StatusOr<Statement> ParseWithParameters(const std::string& statement, const std::vector<std::string>& parameters);

// Calls Fail for an error of a statement, a row or the table itself.
int FailTable(const DatabaseOptions& database, const Status& status);

// Flushes the output. Returns `code`, or the exit code of a failed write.
int Finish(Output& output, int code);

int RunStatement(const DatabaseOptions& database, TableDBM& table, const Statement& statement, RowStyle style);
int ExplainStatement(const DatabaseOptions& database, TableDBM& table, const Statement& statement);

}  // namespace hako::tool
