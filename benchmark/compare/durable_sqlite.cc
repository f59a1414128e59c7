// SQLite with a write-ahead log and synchronous = FULL: a table of blobs whose key is its primary
// key, WITHOUT ROWID, prepared statements. Threads share a connection under a mutex: those with
// connections of their own would sleep while one writes.
#include <sqlite3.h>

#include <mutex>

#include "durable.h"

namespace hako::compare {

class DurableSqlite {
 public:
  static constexpr std::string_view kName = "sqlite";

  bool Open(const DurableOptions& options) {
    return sqlite3_open_v2(options.path.c_str(), &db_, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr) ==
               SQLITE_OK &&
           Run("PRAGMA journal_mode = WAL") && Run("PRAGMA synchronous = FULL") &&
           Run("CREATE TABLE records (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID") &&
           Prepare("INSERT OR REPLACE INTO records VALUES (?, ?)", &set_) && Prepare("SELECT value FROM records WHERE key = ?", &get_) &&
           Prepare("BEGIN", &begin_) && Prepare("COMMIT", &commit_);
  }
  bool Get(std::string_view key, std::string* value) {
    if (!Bind(get_, 1, key)) return false;
    const bool found = sqlite3_step(get_) == SQLITE_ROW;
    if (found)
      value->assign(static_cast<const char*>(sqlite3_column_blob(get_, 0)), static_cast<std::size_t>(sqlite3_column_bytes(get_, 0)));
    return sqlite3_reset(get_) == SQLITE_OK && found;
  }
  bool Close() {
    for (sqlite3_stmt* statement : {set_, get_, begin_, commit_}) sqlite3_finalize(statement);
    return sqlite3_close(db_) == SQLITE_OK;
  }

  class Writer {
   public:
    explicit Writer(DurableSqlite& engine) : engine_(engine) {}
    bool Commit(std::span<const Record> records) {
      std::lock_guard lock(engine_.mutex_);
      if (records.size() == 1) return engine_.Set(records[0]);
      bool good = Step(engine_.begin_);
      for (const Record& record : records) good = good && engine_.Set(record);
      return good && Step(engine_.commit_);
    }

   private:
    DurableSqlite& engine_;
  };

 private:
  bool Run(const char* text) { return sqlite3_exec(db_, text, nullptr, nullptr, nullptr) == SQLITE_OK; }
  bool Prepare(const char* text, sqlite3_stmt** out) {
    return sqlite3_prepare_v3(db_, text, -1, SQLITE_PREPARE_PERSISTENT, out, nullptr) == SQLITE_OK;
  }
  static bool Bind(sqlite3_stmt* statement, int place, std::string_view bytes) {
    return sqlite3_bind_blob(statement, place, bytes.data(), static_cast<int>(bytes.size()), SQLITE_STATIC) == SQLITE_OK;
  }
  static bool Step(sqlite3_stmt* statement) { return sqlite3_step(statement) == SQLITE_DONE && sqlite3_reset(statement) == SQLITE_OK; }
  bool Set(const Record& record) { return Bind(set_, 1, record.key) && Bind(set_, 2, record.value) && Step(set_); }

  std::mutex mutex_;
  sqlite3* db_ = nullptr;
  sqlite3_stmt *set_ = nullptr, *get_ = nullptr, *begin_ = nullptr, *commit_ = nullptr;
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::DurableMain<hako::compare::DurableSqlite>(argc, argv); }
