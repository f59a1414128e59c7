// The columns and indices of a table, as its user describes them; and the limits of a table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hako/table/value.h"

namespace hako {

// The name of the primary key in statements and results. No column may have this name
// (InvalidArgument). A table of an earlier version that has such a column keeps it, and statements
// name it as "key" in double quotes.
inline constexpr std::string_view kKeyName = "key";

// The limits of a table, in bytes where they are sizes. They are checked before anything is changed
// (OutOfRange).
struct TableLimits {
  static constexpr std::size_t kKeySize = 1024;          // of a primary key
  static constexpr std::size_t kColumnName = 255;        // UTF-8, of a column's or an index's name
  static constexpr std::size_t kColumnsOfRow = 1000;     // cells of one row
  static constexpr std::size_t kColumns = 16'384;        // names of columns in one table
  static constexpr std::size_t kRowSize = 16 << 20;      // an encoded row
  static constexpr std::size_t kIndices = 64;            // at a time
  static constexpr std::size_t kIndexedColumns = 16;     // parts of a composite index
  static constexpr std::size_t kIndexedSize = 2048;      // the value in an index, encoded: a zero byte counts twice
  static constexpr std::size_t kEntriesOfRow = 100'000;  // different words or q-grams of one row in one index
};

// The type of a column. A column of the type kAny takes any value.
enum class ColumnType : std::uint8_t { kAny, kString, kInt64, kDouble, kBool, kBytes };

// The schema of one column. Text that is stored in a column of a number or bool is converted, and
// so is an int64 in a column of doubles; a value that cannot be converted is refused. Literals that are
// compared with the column are converted, too (table/value.h).
struct ColumnOptions {
  ColumnType type = ColumnType::kAny;  // kString: well-formed UTF-8
  bool not_null = false;               // each row has the column
  bool unique = false;                 // no two rows have equal values; makes a unique index of this column
  OwnedValue default_value = {};       // the value in a row that is put without the column
};

// What an index stores of the values of a column. See table/value.h for their order, numbers and
// texts.
enum class IndexKind : std::uint8_t {
  kOrdered,  // the values in their order: for comparisons, orders, unique columns, and beginnings of texts
  kNumeric,  // the cast `numeric` of the values, in their order: for comparisons and orders of the cast
  kToken,    // the words in the text of the value, folded: see table/words.h
  kQGram     // every run of q characters of the text, for substrings
};

// A column of an index.
struct IndexColumn {
  std::string column;                    // its name
  IndexKind kind = IndexKind::kOrdered;  // words and q-grams: in an index of one column only
};

// An index. A row has an entry in an ordered or numeric index even if it lacks the column, so that
// the index can serve an order. A `where` can leave such rows out.
struct IndexOptions {
  std::string name = {};                   // of the index; empty = made of the columns, their kinds, and `where`
  std::vector<IndexColumn> columns = {};   // more than one: a composite index, in this order
  bool unique = false;                     // no two rows have equal values; rows that lack a column do not count
  std::vector<std::string> covering = {};  // further columns that an entry has, so that a query need not read rows
  std::string where = {};                  // a condition (table/query_text.h): the index has only rows that meet it
  unsigned q = 3;                          // characters of a q-gram, 1 to 8
  // Whether an index of words or q-grams has their positions in each row. Then it decides phrases, and
  // substrings longer than a q-gram, and no row is read for that. An index of words becomes 1.1 to 2.5 times as
  // large, one of q-grams 1.6 times for short texts and up to 9 times for texts of some kilobytes.
  bool positions = false;
};

// The description of an index of a table.
struct IndexInfo {
  IndexOptions options;  // with its name
  // False: queries do not use it. It is being built, or it has the words of another version of Unicode
  // (table/words.h) and the table is open for reading only.
  bool is_ready = false;
};

// The description of a column of a table.
struct ColumnInfo {
  std::string name;                    // of the column
  ColumnType type = ColumnType::kAny;  // of its values
  bool not_null = false;               // each row has it
  OwnedValue default_value = {};       // of a row that is put without it
};

std::string_view NameOf(ColumnType type);  // "any", "string", "int64", "double", "bool", "bytes"
std::string_view NameOf(IndexKind kind);   // "ordered", "numeric", "token", "qgram"

}  // namespace hako
