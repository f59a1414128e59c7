// The rows of a table from and to text: CSV or JSON Lines (tool/table_text.h).
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "tool/database.h"

namespace hako::tool {

struct TableTransfer {
  DatabaseOptions database;
  std::string text;      // empty or "-": a standard stream
  std::string format;    // "csv", "jsonl" or empty: by the suffix of the text; of a stream jsonl
  std::string key_name;  // of an import: the field that is the primary key
};

// Stores the rows of a text in a table, which is created if it is absent; writes all rows of one. Return the
// exit code.
int ImportRows(TableTransfer options);
int ExportRows(TableTransfer options);

}  // namespace hako::tool
