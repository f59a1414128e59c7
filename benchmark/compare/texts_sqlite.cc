// SQLite with a write-ahead log, 256 MiB of cache and prepared statements. Rows are in a table with an
// index of their keys. Beside it are contentless FTS5 tables of words (unicode61, with the characters
// of hako's words) and of substrings (trigram). Imports and builds have synchronous = OFF, single rows
// NORMAL. Substrings of two characters are too short for trigram, so they are searched in the rows.
#include <sqlite3.h>

#include "texts.h"

namespace hako::compare {

class TextsSqlite {
 public:
  static constexpr const char* kName = "sqlite";
  static constexpr unsigned kIndices = kWords | kGrams;
  static constexpr bool kBuilds = true, kHasOwnWords = true, kFindsMore = false;

  bool Open(const std::string& path, const Texts& texts, unsigned indices, bool creates) {
    if (sqlite3_open_v2((path + ".db").c_str(), &db_, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr) !=
        SQLITE_OK)
      return false;
    indices_ = indices;
    if (!Do("PRAGMA journal_mode = WAL") || !Do("PRAGMA synchronous = OFF") || !Do("PRAGMA cache_size = -262144")) return false;
    std::string columns, places;
    for (const std::string& column : texts.columns) {
      columns += ", \"" + column + (columns.empty() ? "\" TEXT NOT NULL UNIQUE" : "\" TEXT");
      places += ", ?";
    }
    key_ = "\"" + texts.columns.front() + "\" = ?";
    if (creates && !Do("CREATE TABLE rows (id INTEGER PRIMARY KEY" + columns + ")")) return false;
    for (const unsigned kind : {kWords, kGrams}) {
      if (creates && (indices & kind) != 0 && !Create(kind)) return false;
    }
    return Prepare("BEGIN", &begin_) && Prepare("COMMIT", &commit_) && Prepare("INSERT INTO rows VALUES (NULL" + places + ")", &put_) &&
           Prepare("SELECT id, text FROM rows WHERE " + key_, &find_) && Prepare("UPDATE rows SET text = ? WHERE id = ?", &update_) &&
           Prepare("DELETE FROM rows WHERE id = ?", &remove_) && Prepare("SELECT count(*) FROM rows WHERE instr(text, ?)", &short_.count) &&
           Prepare("SELECT * FROM rows WHERE instr(text, ?) ORDER BY id LIMIT 10", &short_.first) && PrepareIndex(kWords) &&
           PrepareIndex(kGrams);
  }
  bool Put(const TextRow* rows, std::size_t count) {
    bool good = Step(begin_);
    for (std::size_t i = 0; i < count && good; ++i) good = Insert(rows[i].key(), rows[i]);
    return good && Step(commit_);
  }
  bool Flush() { return true; }
  bool Build(unsigned kind) {
    return Create(kind) && Do(std::string("INSERT INTO ") + NameOf(kind) + " (rowid, text) SELECT id, text FROM rows");
  }
  bool Merge(unsigned kind) {
    const std::string name = NameOf(kind);
    return Do("INSERT INTO " + name + " (" + name + ") VALUES ('optimize')");
  }
  bool Compact() { return Do("VACUUM"); }
  bool Close() {
    for (sqlite3_stmt* statement : statements_) sqlite3_finalize(statement);
    statements_.clear();
    return sqlite3_close(db_) == SQLITE_OK;
  }

  bool Answers(const TextQuery&) { return true; }
  bool Count(const TextQuery& query, std::uint64_t* count) {
    sqlite3_stmt* const statement = SearchOf(query).count;
    const std::string text = TextOf(query);
    if (!Bind(statement, 1, text) || sqlite3_step(statement) != SQLITE_ROW) return false;
    *count = static_cast<std::uint64_t>(sqlite3_column_int64(statement, 0));
    return sqlite3_reset(statement) == SQLITE_OK;
  }
  bool First(const TextQuery& query, TableSum* sum, std::uint64_t* rows) {
    sqlite3_stmt* const statement = SearchOf(query).first;
    const std::string text = TextOf(query);
    if (!Bind(statement, 1, text)) return false;
    int result;
    while ((result = sqlite3_step(statement)) == SQLITE_ROW) {
      ++*rows;
      for (int i = 1; i < sqlite3_column_count(statement); ++i) sum->Add(TextAt(statement, i));
    }
    return result == SQLITE_DONE && sqlite3_reset(statement) == SQLITE_OK;
  }

  bool BeginSingles() { return Do("PRAGMA synchronous = NORMAL"); }
  bool PutRow(const std::string& key, const TextRow& row) { return Step(begin_) && Insert(key, row) && Step(commit_); }
  bool UpdateRow(const TextRow& row, const TextRow& other) {
    if (!Step(begin_) || !RemoveEntries(row.key())) return false;
    sqlite3_bind_int64(update_, 2, id_);
    return Bind(update_, 1, other.text()) && Step(update_) && InsertEntries(other.text()) && Step(commit_);
  }
  bool RemoveRow(const std::string& key) {
    return Step(begin_) && RemoveEntries(key) && sqlite3_bind_int64(remove_, 1, id_) == SQLITE_OK && Step(remove_) && Step(commit_);
  }

 private:
  struct Search {
    sqlite3_stmt *count = nullptr, *first = nullptr;
  };
  struct TextIndex {
    sqlite3_stmt *insert = nullptr, *remove = nullptr;
    Search search;
  };

  static const char* NameOf(unsigned kind) { return kind == kWords ? "words" : "grams"; }
  bool Create(unsigned kind) {
    return Do(std::string("CREATE VIRTUAL TABLE ") + NameOf(kind) + " USING fts5(text, content = '', tokenize = " +
              (kind == kWords ? "\"unicode61 remove_diacritics 0 categories 'L* M* N* Co Pc'\")" : "'trigram case_sensitive 1')"));
  }
  bool PrepareIndex(unsigned kind) {
    if ((indices_ & kind) == 0) return true;
    const std::string name = NameOf(kind);
    TextIndex& index = kind == kWords ? words_ : grams_;
    return Prepare("INSERT INTO " + name + " (rowid, text) VALUES (?, ?)", &index.insert) &&
           Prepare("INSERT INTO " + name + " (" + name + ", rowid, text) VALUES ('delete', ?, ?)", &index.remove) &&
           Prepare("SELECT count(*) FROM " + name + " WHERE " + name + " MATCH ?", &index.search.count) &&
           Prepare("SELECT rows.* FROM " + name + " JOIN rows ON rows.id = " + name + ".rowid WHERE " + name + " MATCH ? ORDER BY " + name +
                       ".rowid LIMIT 10",
                   &index.search.first);
  }
  bool Insert(std::string_view key, const TextRow& row) {
    if (!Bind(put_, 1, key)) return false;
    for (std::size_t i = 1; i < row.cells.size(); ++i) {
      if (!Bind(put_, static_cast<int>(i + 1), row.cells[i])) return false;
    }
    if (!Step(put_)) return false;
    id_ = sqlite3_last_insert_rowid(db_);
    return InsertEntries(row.text());
  }
  bool InsertEntries(std::string_view text) { return Entries(&TextIndex::insert, text); }
  // Removes the entries of the row, whose number is id_ then.
  bool RemoveEntries(std::string_view key) {
    if (!Bind(find_, 1, key) || sqlite3_step(find_) != SQLITE_ROW) return false;
    id_ = sqlite3_column_int64(find_, 0);
    return Entries(&TextIndex::remove, TextAt(find_, 1)) && sqlite3_reset(find_) == SQLITE_OK;
  }
  bool Entries(sqlite3_stmt* TextIndex::*change, std::string_view text) {
    for (const TextIndex* index : {&words_, &grams_}) {
      sqlite3_stmt* const statement = index->*change;
      if ((indices_ & (index == &words_ ? kWords : kGrams)) == 0) continue;
      sqlite3_bind_int64(statement, 1, id_);
      if (!Bind(statement, 2, text) || !Step(statement)) return false;
    }
    return true;
  }
  const Search& SearchOf(const TextQuery& query) const {
    return query.IsOfWords() ? words_.search : query.kind == TextQuery::kTwoCharacters ? short_ : grams_.search;
  }
  static std::string TextOf(const TextQuery& query) {
    const std::string quoted = "\"" + query.argument + "\"";
    if (query.kind == TextQuery::kTwoCharacters) return query.argument;
    if (query.kind == TextQuery::kTwoWords) return "\"" + query.First() + "\" AND \"" + query.Second() + "\"";
    return query.kind == TextQuery::kNotWord ? "\"" + query.First() + "\" NOT \"" + query.Second() + "\"" : quoted;
  }

  bool Do(const std::string& text) {
    if (sqlite3_exec(db_, text.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK) return true;
    std::fprintf(stderr, "sqlite: %s: %s\n", text.c_str(), sqlite3_errmsg(db_));
    return false;
  }
  bool Prepare(const std::string& text, sqlite3_stmt** out) {
    if (sqlite3_prepare_v3(db_, text.c_str(), -1, SQLITE_PREPARE_PERSISTENT, out, nullptr) != SQLITE_OK)
      return std::fprintf(stderr, "sqlite: %s: %s\n", text.c_str(), sqlite3_errmsg(db_)), false;
    statements_.push_back(*out);
    return true;
  }
  static bool Bind(sqlite3_stmt* statement, int place, std::string_view text) {
    return sqlite3_bind_text(statement, place, text.data(), static_cast<int>(text.size()), SQLITE_STATIC) == SQLITE_OK;
  }
  static bool Step(sqlite3_stmt* statement) { return sqlite3_step(statement) == SQLITE_DONE && sqlite3_reset(statement) == SQLITE_OK; }
  static std::string_view TextAt(sqlite3_stmt* statement, int column) {
    const auto* const text = reinterpret_cast<const char*>(sqlite3_column_text(statement, column));
    return {text, static_cast<std::size_t>(sqlite3_column_bytes(statement, column))};
  }

  sqlite3* db_ = nullptr;
  unsigned indices_ = 0;
  sqlite3_int64 id_ = 0;
  std::string key_;
  std::vector<sqlite3_stmt*> statements_;
  sqlite3_stmt *begin_ = nullptr, *commit_ = nullptr, *put_ = nullptr, *find_ = nullptr, *update_ = nullptr, *remove_ = nullptr;
  TextIndex words_, grams_;
  Search short_;
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::TextsMain<hako::compare::TextsSqlite>(argc, argv); }
