// Imports and exports the rows of a table as CSV or JSON Lines (tool/table_text.h).
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "tool/database.h"

namespace hako::tool {

struct TableTransfer {
  DatabaseOptions database;
  std::string text;      // empty or "-" = a standard stream
  std::string format;    // "csv" or "jsonl"; empty = by the suffix of the text, and jsonl for a stream
  std::string key_name;  // for an import: the field that is the primary key
};

// ImportRows stores the rows of a text in a table, which it creates if it is absent. ExportRows
// writes all rows of a table. Both return the exit code.
int ImportRows(TableTransfer options);
int ExportRows(TableTransfer options);

}  // namespace hako::tool
