// RocksDB with default options, except that each write is synchronous and nothing is compressed.
#include <rocksdb/db.h>
#include <rocksdb/write_batch.h>

#include <memory>

#include "durable.h"

namespace hako::compare {

class DurableRocksdb {
 public:
  static constexpr std::string_view kName = "rocksdb";

  bool Open(const DurableOptions& options) {
    rocksdb::Options settings;
    settings.compression = rocksdb::kNoCompression;
    settings.create_if_missing = true;
    rocksdb::DB* db = nullptr;
    const bool good = rocksdb::DB::Open(settings, options.path, &db).ok();
    db_.reset(db);
    return good;
  }
  bool Get(std::string_view key, std::string* value) { return db_->Get({}, Slice(key), value).ok(); }
  bool Close() { return db_->Close().ok(); }

  class Writer {
   public:
    explicit Writer(DurableRocksdb& engine) : db_(*engine.db_) { options_.sync = true; }
    bool Commit(std::span<const Record> records) {
      if (records.size() == 1) return db_.Put(options_, Slice(records[0].key), Slice(records[0].value)).ok();
      batch_.Clear();
      for (const Record& record : records)
        if (!batch_.Put(Slice(record.key), Slice(record.value)).ok()) return false;
      return db_.Write(options_, &batch_).ok();
    }

   private:
    rocksdb::DB& db_;
    rocksdb::WriteOptions options_;
    rocksdb::WriteBatch batch_;
  };

 private:
  static rocksdb::Slice Slice(std::string_view bytes) { return {bytes.data(), bytes.size()}; }

  std::unique_ptr<rocksdb::DB> db_;
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::DurableMain<hako::compare::DurableRocksdb>(argc, argv); }
