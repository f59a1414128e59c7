// RocksDB's OptimisticTransactionDB, or with PESSIMISTIC its TransactionDB, with default options, but nothing is compressed.
// GetForUpdate makes a read a part of what is validated or locked. Without durability nothing goes to a log.
#include <rocksdb/db.h>
#include <rocksdb/utilities/optimistic_transaction_db.h>
#include <rocksdb/utilities/transaction_db.h>

#include <memory>

#include "transactions.h"

namespace hako::compare {

class TransactionRocksdb {
 public:
#ifdef PESSIMISTIC
  static constexpr std::string_view kName = "rocksdb_pessimistic";
  using Database = rocksdb::TransactionDB;
#else
  static constexpr std::string_view kName = "rocksdb_optimistic";
  using Database = rocksdb::OptimisticTransactionDB;
#endif

  bool Open(const TransactionOptions& options) {
    rocksdb::Options settings;
    settings.compression = rocksdb::kNoCompression;
    settings.create_if_missing = true;
    write_.sync = options.is_durable;
    write_.disableWAL = !options.is_durable;
    Database* db = nullptr;
#ifdef PESSIMISTIC
    const bool good = Database::Open(settings, {}, options.path, &db).ok();
#else
    const bool good = Database::Open(settings, options.path, &db).ok();
#endif
    db_.reset(db);
    return good;
  }
  bool Close() { return db_->Close().ok(); }

  class Worker {
   public:
    explicit Worker(TransactionRocksdb& engine) : db_(*engine.db_), write_(engine.write_) {}
    bool Load(const TwoKeys& keys, std::string_view value) {
      rocksdb::WriteOptions options = write_;
      options.sync = false;
      return std::ranges::all_of(keys, [&](std::string_view key) { return db_.Put(options, Slice(key), Slice(value)).ok(); });
    }
    bool Single(const TwoKeys& reads, const TwoKeys& writes, std::string_view value) {
      for (const std::string_view key : reads)
        if (!db_.Get({}, Slice(key), &read_).ok()) return false;
      return std::ranges::all_of(writes, [&](std::string_view key) { return db_.Put(write_, Slice(key), Slice(value)).ok(); });
    }
    std::uint64_t Transact(const TwoKeys& reads, const TwoKeys& writes, std::string_view value) {
      for (std::uint64_t tries = 1;; ++tries) {
        transaction_.reset(db_.BeginTransaction(write_, {}, transaction_.release()));
        rocksdb::Status status;
        for (const std::string_view key : reads)
          if (status.ok()) status = transaction_->GetForUpdate({}, Slice(key), &read_);
        for (const std::string_view key : writes)
          if (status.ok()) status = transaction_->Put(Slice(key), Slice(value));
        if (status.ok()) status = transaction_->Commit();
        if (status.ok()) return tries;
        if (!status.IsBusy() && !status.IsTryAgain() && !status.IsTimedOut()) return 0;
        if (!transaction_->Rollback().ok()) return 0;
      }
    }

   private:
    Database& db_;
    const rocksdb::WriteOptions write_;
    std::unique_ptr<rocksdb::Transaction> transaction_;
    std::string read_;
  };

 private:
  static rocksdb::Slice Slice(std::string_view bytes) { return {bytes.data(), bytes.size()}; }

  std::unique_ptr<Database> db_;
  rocksdb::WriteOptions write_;
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::TransactionMain<hako::compare::TransactionRocksdb>(argc, argv); }
