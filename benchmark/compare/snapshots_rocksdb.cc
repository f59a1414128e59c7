// RocksDB with default options but without a log and compression, and with a block cache of 1 GiB.
#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/table.h>

#include <memory>
#include <string>
#include <string_view>

#include "snapshots.h"

namespace hako::compare {

class SnapshotRocksdb {
 public:
  static constexpr std::string_view kName = "rocksdb";

  bool Open(const std::string& path) {
    rocksdb::Options settings;
    settings.compression = rocksdb::kNoCompression;
    settings.create_if_missing = true;
    rocksdb::BlockBasedTableOptions table;
    table.block_cache = rocksdb::NewLRUCache(std::size_t{1} << 30);
    settings.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
    write_.disableWAL = true;
    rocksdb::DB* db = nullptr;
    const bool good = rocksdb::DB::Open(settings, path, &db).ok();
    db_.reset(db);
    return good;
  }
  bool Close() { return db_->Close().ok(); }
  bool Flush() { return db_->Flush({}).ok(); }
  bool Set(std::string_view key, std::string_view value) { return db_->Put(write_, Slice(key), Slice(value)).ok(); }
  bool Get(std::string_view key, std::string* value) { return db_->Get({}, Slice(key), value).ok(); }
  template <class Visit>
  bool Scan(Visit visit) {
    return ScanWith({}, visit);
  }

  class View {
   public:
    ~View() {
      if (snapshot_ != nullptr) engine_->db_->ReleaseSnapshot(snapshot_);
    }
    bool Take(SnapshotRocksdb& engine) {
      engine_ = &engine;
      options_.snapshot = snapshot_ = engine.db_->GetSnapshot();
      return true;
    }
    bool Get(std::string_view key, std::string* value) { return engine_->db_->Get(options_, Slice(key), value).ok(); }
    template <class Visit>
    bool Scan(Visit visit) {
      return engine_->ScanWith(options_, visit);
    }

   private:
    SnapshotRocksdb* engine_ = nullptr;
    const rocksdb::Snapshot* snapshot_ = nullptr;
    rocksdb::ReadOptions options_;
  };

 private:
  static rocksdb::Slice Slice(std::string_view bytes) { return {bytes.data(), bytes.size()}; }
  template <class Visit>
  bool ScanWith(const rocksdb::ReadOptions& options, Visit visit) {
    const std::unique_ptr<rocksdb::Iterator> it(db_->NewIterator(options));
    for (it->SeekToFirst(); it->Valid(); it->Next())
      visit(std::string_view(it->key().data(), it->key().size()), std::string_view(it->value().data(), it->value().size()));
    return it->status().ok();
  }

  std::unique_ptr<rocksdb::DB> db_;
  rocksdb::WriteOptions write_;
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::SnapshotMain<hako::compare::SnapshotRocksdb>(argc, argv); }
