// hako's TreeDBM, or with HAKO_HASH its HashDBM, on a mapped file with Durability::kPower and
// otherwise default options.
#include "durable.h"
#ifdef HAKO_HASH
#include "hako/dbm/hash_dbm.h"
#else
#include "hako/dbm/tree_dbm.h"
#endif
#include "hako/dbm/write_batch.h"
#include "hako/file/memory_map_parallel_file.h"

namespace hako::compare {

class DurableHako {
 public:
#ifdef HAKO_HASH
  static constexpr std::string_view kName = "hako_hash";
  using Database = HashDBM<MemoryMapParallelFile>;
  using Settings = HashOptions;
#else
  static constexpr std::string_view kName = "hako_tree";
  using Database = TreeDBM<MemoryMapParallelFile>;
  using Settings = TreeOptions;
#endif

  bool Open(const DurableOptions& options) {
    Settings settings;
    settings.durability = Durability::kPower;
    auto db = Database::Open(options.path, settings, FileOptions{.mode = OpenMode::kTruncate});
    if (db.ok()) db_ = *std::move(db);
    return db.ok();
  }
  bool Get(std::string_view key, std::string* value) { return db_->Get(key, value).ok(); }
  bool Close() { return db_->Close().ok(); }

  class Writer {
   public:
    explicit Writer(DurableHako& engine) : db_(*engine.db_) {}
    bool Commit(std::span<const Record> records) {
      if (records.size() == 1) return db_.Set(records[0].key, records[0].value).ok();
      batch_.Clear();
      for (const Record& record : records) batch_.Set(record.key, record.value);
      return db_.Write(batch_).ok();
    }

   private:
    Database& db_;
    WriteBatch batch_;
  };

 private:
  std::unique_ptr<Database> db_;
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::DurableMain<hako::compare::DurableHako>(argc, argv); }
