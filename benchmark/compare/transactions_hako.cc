// hako's TreeDBM, or with HAKO_HASH its HashDBM, on a mapped file with otherwise default options.
#include <memory>

#include "hako/dbm/hash_dbm.h"
#include "hako/dbm/transaction.h"
#include "hako/dbm/tree_dbm.h"
#include "transactions.h"

namespace hako::compare {

class TransactionHako {
 public:
#ifdef HAKO_HASH
  static constexpr std::string_view kName = "hako_hash";
  using Database = HashDBM<>;
  using Settings = HashOptions;
#else
  static constexpr std::string_view kName = "hako_tree";
  using Database = TreeDBM<>;
  using Settings = TreeOptions;
#endif

  bool Open(const TransactionOptions& options) {
    Settings settings;
    settings.durability = options.is_durable ? Durability::kPower : Durability::kNone;
    auto db = Database::Open(options.path, settings, FileOptions{.mode = OpenMode::kTruncate});
    if (db.ok()) db_ = *std::move(db);
    return db.ok();
  }
  bool Close() { return db_->Close().ok(); }

  class Worker {
   public:
    explicit Worker(TransactionHako& engine) : db_(*engine.db_), transaction_(db_) {}
    bool Load(const TwoKeys& keys, std::string_view value) {
      return std::ranges::all_of(keys, [&](std::string_view key) { return db_.Set(key, value).ok(); });
    }
    bool Single(const TwoKeys& reads, const TwoKeys& writes, std::string_view value) {
      for (const std::string_view key : reads)
        if (!db_.Get(key, &read_).ok()) return false;
      return Load(writes, value);
    }
    std::uint64_t Transact(const TwoKeys& reads, const TwoKeys& writes, std::string_view value) {
      std::uint64_t tries = 0;
      const auto body = [&]() -> Status {
        ++tries;
        for (const std::string_view key : reads) HAKO_RETURN_IF_ERROR(transaction_.Get(key, &read_));
        for (const std::string_view key : writes) HAKO_RETURN_IF_ERROR(transaction_.Set(key, value));
        return absl::OkStatus();
      };
      return transaction_.Retry(1'000'000, body).ok() ? tries : 0;
    }

   private:
    Database& db_;
    Transaction<Database> transaction_;
    std::string read_;
  };

 private:
  std::unique_ptr<Database> db_;
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::TransactionMain<hako::compare::TransactionHako>(argc, argv); }
