// SQLite with a write-ahead log: a table of blobs whose key is its primary key, WITHOUT ROWID, prepared statements.
// synchronous = FULL for durable transactions, else OFF. Threads share a connection under a mutex: those with connections of
// their own would sleep while one writes.
#include <sqlite3.h>

#include <mutex>

#include "transactions.h"

namespace hako::compare {

class TransactionSqlite {
 public:
  static constexpr std::string_view kName = "sqlite";

  bool Open(const TransactionOptions& options) {
    return sqlite3_open_v2(options.path.c_str(), &db_, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr) ==
               SQLITE_OK &&
           Run("PRAGMA journal_mode = WAL") && Run(options.is_durable ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = OFF") &&
           Run("PRAGMA cache_size = -262144") && Run("CREATE TABLE records (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID") &&
           Prepare("INSERT OR REPLACE INTO records VALUES (?, ?)", &set_) && Prepare("SELECT value FROM records WHERE key = ?", &get_) &&
           Prepare("BEGIN IMMEDIATE", &begin_) && Prepare("COMMIT", &commit_);
  }
  bool Close() {
    for (sqlite3_stmt* statement : {set_, get_, begin_, commit_}) sqlite3_finalize(statement);
    return sqlite3_close(db_) == SQLITE_OK;
  }

  class Worker {
   public:
    explicit Worker(TransactionSqlite& engine) : engine_(engine) {}
    ~Worker() {
      if (is_loading_) (void)Step(engine_.commit_);
    }
    // All in one transaction.
    bool Load(const TwoKeys& keys, std::string_view value) {
      if (!is_loading_) is_loading_ = Step(engine_.begin_);
      return is_loading_ && Set(keys[0], value) && Set(keys[1], value);
    }
    bool Single(const TwoKeys& reads, const TwoKeys& writes, std::string_view value) {
      for (const std::string_view key : reads) {
        std::lock_guard lock(engine_.mutex_);
        if (!Get(key)) return false;
      }
      for (const std::string_view key : writes) {
        std::lock_guard lock(engine_.mutex_);
        if (!Set(key, value)) return false;
      }
      return true;
    }
    std::uint64_t Transact(const TwoKeys& reads, const TwoKeys& writes, std::string_view value) {
      std::lock_guard lock(engine_.mutex_);
      const bool good = Step(engine_.begin_) && Get(reads[0]) && Get(reads[1]) && Set(writes[0], value) && Set(writes[1], value);
      return good && Step(engine_.commit_) ? 1 : 0;
    }

   private:
    bool Get(std::string_view key) {
      if (!Bind(engine_.get_, 1, key)) return false;
      const bool found = sqlite3_step(engine_.get_) == SQLITE_ROW;
      if (found) read_.assign(static_cast<const char*>(sqlite3_column_blob(engine_.get_, 0)), 100);
      return sqlite3_reset(engine_.get_) == SQLITE_OK && found;
    }
    bool Set(std::string_view key, std::string_view value) {
      return Bind(engine_.set_, 1, key) && Bind(engine_.set_, 2, value) && Step(engine_.set_);
    }

    TransactionSqlite& engine_;
    bool is_loading_ = false;
    std::string read_;
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

  std::mutex mutex_;
  sqlite3* db_ = nullptr;
  sqlite3_stmt *set_ = nullptr, *get_ = nullptr, *begin_ = nullptr, *commit_ = nullptr;
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::TransactionMain<hako::compare::TransactionSqlite>(argc, argv); }
