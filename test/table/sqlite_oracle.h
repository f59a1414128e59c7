// SQLite as an oracle of queries: see test/table/table_oracle.h.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "table/table_oracle.h"

namespace hako::oracle {

// A table of a key and these columns in a database in memory.
class Sqlite {
 public:
  explicit Sqlite(std::vector<std::string> columns) : columns_(std::move(columns)) {
    Check(sqlite3_open(":memory:", &db_));
    for (const auto& [name, op] : kFunctions)
      Check(sqlite3_create_function(db_, name, 2, SQLITE_UTF8 | SQLITE_DETERMINISTIC, const_cast<Operator*>(&op), &Sqlite::OfText, nullptr,
                                    nullptr));  // NOLINT
    Check(sqlite3_create_function(db_, "is_number", 1, SQLITE_UTF8 | SQLITE_DETERMINISTIC, nullptr, &Sqlite::IsNumber, nullptr, nullptr));
    std::string names = "key BLOB PRIMARY KEY, key_n";
    for (const std::string& column : columns_) names += ", " + column + ", " + column + "_t, " + column + "_n";
    (void)Run("CREATE TABLE rows (" + names + ") WITHOUT ROWID", {});
  }
  ~Sqlite() { sqlite3_close(db_); }
  Sqlite(const Sqlite&) = delete;

  void Put(const std::string& key, const Cells& cells) {
    const auto text_of = [](const Val& value) { return value.is_null() ? Val() : Val{value.Text()}; };
    std::string marks = "?, ?";
    std::vector<Val> values = {{key}, text_of(NumericOf({key}))};
    for (const std::string& column : columns_) {
      const Val value = CellOf(key, cells, column);
      values.insert(values.end(), {value, text_of(value), text_of(NumericOf(value))});
      marks += ", ?, ?, ?";
    }
    (void)Run("INSERT OR REPLACE INTO rows VALUES (" + marks + ")", values);
  }
  void Remove(const std::string& key) { (void)Run("DELETE FROM rows WHERE key = ?", {{key}}); }

  std::vector<std::string> KeysOf(const Wanted& wanted) {
    std::vector<Val> values;
    std::string sql = "SELECT key FROM rows WHERE " + TextOf(wanted.where, &values);
    const std::string c = OrderOf(wanted);
    if (wanted.after) sql += " AND " + Behind(wanted, &values);
    const std::string direction = wanted.is_descending ? " DESC" : "";
    sql += " ORDER BY " + (c.empty() ? "" : c + direction + ", ") + "key" + direction;
    sql += " LIMIT " + (wanted.limit ? std::to_string(*wanted.limit) : "-1") + " OFFSET " + std::to_string(wanted.offset);
    std::vector<std::string> keys;
    for (const std::vector<Val>& row : Run(sql, values)) keys.push_back(row[0].bytes());
    return keys;
  }

  // Runs a statement; `$WHERE` in it is the condition.
  std::vector<std::vector<Val>> Query(std::string sql, const Where& where) {
    std::vector<Val> values;
    const std::string text = TextOf(where, &values);
    sql.replace(sql.find("$WHERE"), 6, text);
    return Run(sql, values);
  }

 private:
  static constexpr std::pair<const char*, Operator> kFunctions[] = {
      {"has_regex", Operator::kRegex}, {"has_all", Operator::kAll}, {"has_any", Operator::kAny}, {"has_phrase", Operator::kPhrase}};

  void Check(int code) const {
    if (code != SQLITE_OK) throw std::runtime_error(std::string("SQLite: ") + sqlite3_errmsg(db_));
  }
  static std::string BytesOf(sqlite3_value* value) {
    const auto* const bytes = static_cast<const char*>(sqlite3_value_blob(value));
    return {bytes, static_cast<std::size_t>(sqlite3_value_bytes(value))};
  }
  static void OfText(sqlite3_context* context, int, sqlite3_value** values) {
    if (sqlite3_value_type(values[0]) == SQLITE_NULL) return sqlite3_result_null(context);
    const auto op = *static_cast<const Operator*>(sqlite3_user_data(context));
    sqlite3_result_int(context, HasText(op, BytesOf(values[0]), BytesOf(values[1])) ? 1 : 0);
  }

  static void IsNumber(sqlite3_context* context, int, sqlite3_value** values) {
    sqlite3_result_int(context, NumericOf({BytesOf(values[0])}).is_null() ? 0 : 1);
  }
  // The cast `numeric`.
  static std::string NumericText(const std::string& name) {
    return "(CASE WHEN typeof(" + name + ") <> 'blob' THEN " + name + " WHEN is_number(" + name + ") THEN CAST(CAST(" + name +
           " AS TEXT) AS NUMERIC) END)";
  }
  // The expression of an order; empty: the key.
  static std::string OrderOf(const Wanted& wanted) {
    return wanted.is_numeric ? NumericText(wanted.order.empty() ? "key" : wanted.order) : wanted.order;
  }
  static std::string SearchText(const Where& where, const std::string& text, std::vector<Val>* values) {
    std::string any = "0";
    for (const std::vector<SearchTerm>& terms : Asked(where.search)) {
      any += " OR (1";
      for (const SearchTerm& term : terms) {
        any += std::string(" AND ") + (term.is_absent ? "NOT " : "") + (term.is_phrase ? "has_phrase(" : "has_all(") + text + ", ?)";
        values->push_back({term.words});
      }
      any += ")";
    }
    return "coalesce(" + any + ", 0)";
  }

  static std::string TextOf(const Where& where, std::vector<Val>* values) {
    const auto joined = [&](const std::string& word) {
      std::string text = "(";
      for (const Where& part : where.parts) text += (text.size() > 1 ? word : "") + TextOf(part, values);
      return text + ")";
    };
    const std::string column = where.column.empty() ? "key" : where.column, name = where.is_numeric ? NumericText(column) : column,
                      text = where.is_numeric       ? column + "_n"
                             : where.column.empty() ? "key"
                                                    : column + "_t";
    const auto leaf = [&](const std::string& expression, std::size_t repeats = 1) {
      for (; repeats > 0; --repeats) {
        for (std::size_t i = 0; i < where.values.size(); ++i) values->push_back(where.Literal(i));
      }
      return "coalesce(" + expression + ", 0)";
    };
    switch (where.op) {
      case Operator::kAlways:
        return "1";
      case Operator::kAnd:
        return joined(" AND ");
      case Operator::kOr:
        return joined(" OR ");
      case Operator::kNot:
        return "(NOT " + TextOf(where.parts[0], values) + ")";
      case Operator::kEqual:
        return leaf(name + " = ?");
      case Operator::kNotEqual:
        return leaf(name + " <> ?");
      case Operator::kLess:
        return leaf(name + " < ?");
      case Operator::kLessEqual:
        return leaf(name + " <= ?");
      case Operator::kGreater:
        return leaf(name + " > ?");
      case Operator::kGreaterEqual:
        return leaf(name + " >= ?");
      case Operator::kBetween:
        return leaf(name + " BETWEEN ? AND ?");
      case Operator::kIn: {
        std::string marks;
        for (std::size_t i = 0; i < where.values.size(); ++i) marks += i == 0 ? "?" : ", ?";
        return leaf(name + " IN (" + marks + ")");
      }
      case Operator::kContains:
        return leaf("instr(" + text + ", ?) > 0");
      case Operator::kBegins:  // substr of an empty blob is null
      case Operator::kEnds: {
        const std::string piece = where.op == Operator::kBegins ? ", 1, length(?))" : ", -length(?))";
        return leaf("(" + text + " IS NOT NULL AND length(?) = 0) OR substr(" + text + piece + " = ?", 3);
      }
      case Operator::kSearch:
        return SearchText(where, text, values);
      case Operator::kIsNull:
        return name + " IS NULL";
      case Operator::kIsNotNull:
        return name + " IS NOT NULL";
      default:
        for (const auto& [function, op] : kFunctions) {
          if (op == where.op) return leaf(std::string(function) + "(" + text + ", ?)");
        }
    }
    throw std::logic_error("no SQL for an operator");
  }

  static std::string Behind(const Wanted& wanted, std::vector<Val>* values) {
    const std::string c = OrderOf(wanted), sign = wanted.is_descending ? " < " : " > ";
    const Val key = {wanted.after->key}, value = wanted.is_numeric ? NumericOf(wanted.after->value) : wanted.after->value;
    if (c.empty()) return values->push_back(key), "key" + sign + "?";
    if (value.is_null()) {
      values->push_back(key);
      return "(" + c + (wanted.is_descending ? " IS NULL AND" : " IS NOT NULL OR") + " key" + sign + "?)";
    }
    values->insert(values->end(), {value, value, key});
    return "((" + c + sign + "?) OR (" + c + " = ? AND key" + sign + "?)" + (wanted.is_descending ? " OR " + c + " IS NULL)" : ")");
  }

  std::vector<std::vector<Val>> Run(const std::string& sql, const std::vector<Val>& values) {
    sqlite3_stmt* statement = nullptr;
    Check(sqlite3_prepare_v2(db_, sql.data(), static_cast<int>(sql.size()), &statement, nullptr));
    for (std::size_t i = 0; i < values.size(); ++i) Check(Bind(statement, static_cast<int>(i + 1), values[i]));
    std::vector<std::vector<Val>> rows;
    int code = sqlite3_step(statement);
    for (; code == SQLITE_ROW; code = sqlite3_step(statement)) {
      std::vector<Val>& row = rows.emplace_back();
      for (int i = 0; i < sqlite3_column_count(statement); ++i) row.push_back(ColumnOf(statement, i));
    }
    if (code != SQLITE_DONE) Check(code);
    sqlite3_finalize(statement);
    return rows;
  }
  static int Bind(sqlite3_stmt* statement, int at, const Val& value) {
    switch (value.held.index()) {
      case 0:
        return sqlite3_bind_null(statement, at);
      case 1:
        return sqlite3_bind_int64(statement, at, std::get<std::int64_t>(value.held));
      case 2:
        return sqlite3_bind_double(statement, at, std::get<double>(value.held));
      case 3:
        return sqlite3_bind_int64(statement, at, std::get<bool>(value.held) ? 1 : 0);
      default:
        if (value.bytes().empty()) return sqlite3_bind_zeroblob(statement, at, 0);
        return sqlite3_bind_blob(statement, at, value.bytes().data(), static_cast<int>(value.bytes().size()), SQLITE_TRANSIENT);
    }
  }
  static Val ColumnOf(sqlite3_stmt* statement, int i) {
    switch (sqlite3_column_type(statement, i)) {
      case SQLITE_INTEGER:
        return {std::int64_t{sqlite3_column_int64(statement, i)}};
      case SQLITE_FLOAT:
        return {sqlite3_column_double(statement, i)};
      case SQLITE_NULL:
        return {};
      default:
        return {BytesOf(sqlite3_column_value(statement, i))};
    }
  }

  const std::vector<std::string> columns_;
  sqlite3* db_ = nullptr;
};

}  // namespace hako::oracle
