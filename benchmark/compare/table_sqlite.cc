// SQLite with a write-ahead log, synchronous = OFF, 256 MiB of cache and prepared statements. Rows are
// in a table WITHOUT ROWID; texts in a table of rowids, with external-content FTS5 tables of trigrams
// and of words. A batch of the driver is one transaction.
#include <sqlite3.h>

#include "table.h"

namespace hako::compare {

class TableSqlite {
 public:
  static constexpr const char* kName = "sqlite";

  bool Open(const std::string& path, std::uint64_t, bool text) {
    if (sqlite3_open_v2((path + ".db").c_str(), &db_, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr) !=
        SQLITE_OK)
      return false;
    is_text_ = text;
    if (!Do("PRAGMA journal_mode = WAL") || !Do("PRAGMA synchronous = OFF") || !Do("PRAGMA cache_size = -262144")) return false;
    if (!Prepare("BEGIN", &begin_) || !Prepare("COMMIT", &commit_)) return false;
    if (text) {
      return Do("CREATE TABLE texts (id INTEGER PRIMARY KEY, key TEXT, text TEXT)") &&
             Do("CREATE VIRTUAL TABLE grams USING fts5(text, content = 'texts', content_rowid = 'id', tokenize = 'trigram case_sensitive "
                "1')") &&
             Do("CREATE VIRTUAL TABLE words USING fts5(text, content = 'texts', content_rowid = 'id', tokenize = 'unicode61')") &&
             Prepare("INSERT INTO texts (key, text) VALUES (?, ?)", &put_) &&
             Prepare("INSERT INTO grams (rowid, text) VALUES (?, ?)", &put_grams_) &&
             Prepare("INSERT INTO words (rowid, text) VALUES (?, ?)", &put_words_) &&
             Prepare("SELECT key FROM texts WHERE id IN (SELECT rowid FROM grams WHERE grams MATCH ?)", &substring_) &&
             Prepare("SELECT key FROM texts WHERE id IN (SELECT rowid FROM words WHERE words MATCH ?)", &words_);
    }
    return Do("CREATE TABLE t (key TEXT PRIMARY KEY, str TEXT, num INTEGER, a TEXT, b TEXT) WITHOUT ROWID") &&
           Do("CREATE INDEX t_str ON t (str)") && Do("CREATE INDEX t_num ON t (num)") &&
           Prepare("INSERT OR REPLACE INTO t VALUES (?, ?, ?, ?, ?)", &put_) &&
           Prepare("SELECT key, str, num, a, b FROM t WHERE key = ?", &get_) &&
           Prepare("SELECT key, str, num, a, b FROM t WHERE str = ?", &search_) &&
           Prepare("SELECT key, str, num, a, b FROM t WHERE num BETWEEN ? AND ? ORDER BY num LIMIT 10", &range_);
  }
  bool Put(const TableRow* rows, std::uint64_t count) {
    bool good = count == 1 || Step(begin_);
    for (std::uint64_t i = 0; i < count && good; ++i) {
      const TableRow& row = rows[i];
      int place = 0;
      for (const std::string* cell : {&row.key, &row.str, &row.num, &row.a, &row.b}) Bind(put_, ++place, *cell);
      good = Step(put_);
    }
    return good && (count == 1 || Step(commit_));
  }
  bool PutTexts(const TableRow* rows, std::uint64_t count) {
    bool good = Step(begin_);
    for (std::uint64_t i = 0; i < count && good; ++i) {
      Bind(put_, 1, rows[i].key);
      Bind(put_, 2, rows[i].text);
      good = Step(put_);
      for (sqlite3_stmt* statement : {put_grams_, put_words_}) {
        sqlite3_bind_int64(statement, 1, sqlite3_last_insert_rowid(db_));
        Bind(statement, 2, rows[i].text);
        good = good && Step(statement);
      }
    }
    return good && Step(commit_);
  }
  // Merges the segments that the loads of the full-text indices have left.
  bool Flush() {
    return !is_text_ || (Do("INSERT INTO grams (grams) VALUES ('optimize')") && Do("INSERT INTO words (words) VALUES ('optimize')"));
  }
  bool Get(const std::string& key, TableSum* sum) { return Bind(get_, 1, key) && Rows(get_, 5, sum); }
  bool Search(const std::string& str, TableSum* sum) { return Bind(search_, 1, str) && Rows(search_, 5, sum); }
  bool Range(std::uint64_t low, std::uint64_t high, TableSum* sum) {
    sqlite3_bind_int64(range_, 1, static_cast<sqlite3_int64>(low));
    sqlite3_bind_int64(range_, 2, static_cast<sqlite3_int64>(high));
    return Rows(range_, 5, sum);
  }
  bool Substring(const std::string& piece, TableSum* sum) {
    text_ = "\"" + piece + "\"";
    return Bind(substring_, 1, text_) && Rows(substring_, 1, sum);
  }
  bool Words(const std::string& words, TableSum* sum) { return Bind(words_, 1, words) && Rows(words_, 1, sum); }
  bool Close() {
    for (sqlite3_stmt** statement : {&begin_, &commit_, &put_, &get_, &search_, &range_, &put_grams_, &put_words_, &substring_, &words_}) {
      sqlite3_finalize(*statement);
      *statement = nullptr;
    }
    return sqlite3_close(db_) == SQLITE_OK;
  }

 private:
  bool Do(const char* text) { return sqlite3_exec(db_, text, nullptr, nullptr, nullptr) == SQLITE_OK; }
  bool Prepare(const char* text, sqlite3_stmt** out) {
    return sqlite3_prepare_v3(db_, text, -1, SQLITE_PREPARE_PERSISTENT, out, nullptr) == SQLITE_OK;
  }
  static bool Bind(sqlite3_stmt* statement, int place, const std::string& text) {
    return sqlite3_bind_text(statement, place, text.data(), static_cast<int>(text.size()), SQLITE_STATIC) == SQLITE_OK;
  }
  static bool Step(sqlite3_stmt* statement) { return sqlite3_step(statement) == SQLITE_DONE && sqlite3_reset(statement) == SQLITE_OK; }
  static bool Rows(sqlite3_stmt* statement, int columns, TableSum* sum) {
    int result;
    while ((result = sqlite3_step(statement)) == SQLITE_ROW) {
      for (int i = 0; i < columns; ++i) {
        const auto* const text = reinterpret_cast<const char*>(sqlite3_column_text(statement, i));
        sum->Add({text, static_cast<std::size_t>(sqlite3_column_bytes(statement, i))});
      }
    }
    return result == SQLITE_DONE && sqlite3_reset(statement) == SQLITE_OK;
  }

  sqlite3* db_ = nullptr;
  bool is_text_ = false;
  std::string text_;
  sqlite3_stmt *begin_ = nullptr, *commit_ = nullptr, *put_ = nullptr, *get_ = nullptr, *search_ = nullptr, *range_ = nullptr,
               *put_grams_ = nullptr, *put_words_ = nullptr, *substring_ = nullptr, *words_ = nullptr;
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::TableMain<hako::compare::TableSqlite>(argc, argv); }
