// SQLite: a table of blobs whose key is its primary key, WITHOUT ROWID, prepared statements, 256 MiB of
// cache, and one connection that holds the file. Without a journal and syncs, a transaction a phase; or
// with --settings=process a write-ahead log without syncs, a transaction a Set; or its defaults (a
// journal, and a sync at each commit), a transaction a phase.
#include <sqlite3.h>

#include "driver.h"

namespace hako::compare {

class SqliteEngine {
 public:
  static constexpr std::string_view kName = "sqlite";
  static constexpr bool kOnDisk = true, kConcurrent = false, kWritable = true;

  bool Open(const std::string& path, std::uint64_t) {
    const char* const pragmas =
        settings == Settings::kProcess
            ? "PRAGMA locking_mode = EXCLUSIVE; PRAGMA cache_size = -262144; PRAGMA synchronous = OFF; PRAGMA journal_mode = WAL"
        : IsTuned() ? "PRAGMA locking_mode = EXCLUSIVE; PRAGMA cache_size = -262144; PRAGMA synchronous = OFF; PRAGMA journal_mode = OFF"
                    : "";
    return Good(sqlite3_open_v2(path.c_str(), &db_, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr) ==
                SQLITE_OK) &&
           Run(pragmas) && Run("CREATE TABLE IF NOT EXISTS records (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID") &&
           Prepare("INSERT OR REPLACE INTO records VALUES (?, ?)", &set_) && Prepare("SELECT value FROM records WHERE key = ?", &get_) &&
           Prepare("DELETE FROM records WHERE key = ?", &remove_) &&
           Prepare("SELECT key, value FROM records WHERE key >= ? ORDER BY key", &scan_);
  }
  bool BeginPhase(Phase) { return settings == Settings::kProcess || Run("BEGIN"); }
  bool EndPhase(Phase) { return settings == Settings::kProcess || Run("COMMIT"); }

  bool Set(std::string_view key, std::string_view value) { return Bind(set_, 2, value) && Step(set_, key); }
  bool Get(std::string_view key, std::string* value) {
    const bool found = Bind(get_, 1, key) && sqlite3_step(get_) == SQLITE_ROW;
    if (found) value->assign(Column(get_, 0));
    return sqlite3_reset(get_) == SQLITE_OK && found;
  }
  bool Remove(std::string_view key) { return Step(remove_, key) && sqlite3_changes(db_) == 1; }
  template <class Visit>
  bool ScanFrom(std::string_view key, std::size_t count, Visit visit) {
    if (!Bind(scan_, 1, key)) return false;
    for (; count > 0 && sqlite3_step(scan_) == SQLITE_ROW; --count) visit(Column(scan_, 0), Column(scan_, 1));
    return Good(sqlite3_reset(scan_) == SQLITE_OK);
  }
  bool Close() {
    for (sqlite3_stmt* statement : {set_, get_, remove_, scan_}) sqlite3_finalize(statement);
    return sqlite3_close(db_) == SQLITE_OK;
  }

 private:
  bool Good(bool good) { return good || Fail(sqlite3_errmsg(db_)); }
  bool Run(const char* text) { return Good(sqlite3_exec(db_, text, nullptr, nullptr, nullptr) == SQLITE_OK); }
  bool Prepare(const char* text, sqlite3_stmt** out) {
    return Good(sqlite3_prepare_v3(db_, text, -1, SQLITE_PREPARE_PERSISTENT, out, nullptr) == SQLITE_OK);
  }
  static bool Bind(sqlite3_stmt* statement, int place, std::string_view bytes) {
    return sqlite3_bind_blob(statement, place, bytes.data() == nullptr ? "" : bytes.data(), static_cast<int>(bytes.size()),
                             SQLITE_STATIC) == SQLITE_OK;
  }
  bool Step(sqlite3_stmt* statement, std::string_view key) {
    const bool done = Bind(statement, 1, key) && sqlite3_step(statement) == SQLITE_DONE;
    return Good(sqlite3_reset(statement) == SQLITE_OK && done);
  }
  static std::string_view Column(sqlite3_stmt* statement, int place) {
    return {static_cast<const char*>(sqlite3_column_blob(statement, place)),
            static_cast<std::size_t>(sqlite3_column_bytes(statement, place))};
  }

  sqlite3* db_ = nullptr;
  sqlite3_stmt *set_ = nullptr, *get_ = nullptr, *remove_ = nullptr, *scan_ = nullptr;
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::Main<hako::compare::SqliteEngine>(argc, argv); }
