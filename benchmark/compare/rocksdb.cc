// RocksDB with a cache of 256 MiB, a bloom filter of 10 bits a key, no compression, two jobs in the
// background, and without its log, or with --settings=process with it, not synced; or its defaults,
// which are the latter.
#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/table.h>

#include <memory>

#include "sorted_engine.h"

namespace hako::compare {

class RocksdbEngine : public SortedEngine<rocksdb::DB, rocksdb::Slice, rocksdb::ReadOptions> {
 public:
  static constexpr std::string_view kName = "rocksdb";

  bool Open(const std::string& path, std::uint64_t) {
    rocksdb::Options options;
    options.create_if_missing = true;
    if (IsTuned()) {
      rocksdb::BlockBasedTableOptions table;
      table.block_cache = rocksdb::NewLRUCache(256 << 20);
      table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
      options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
      options.compression = rocksdb::kNoCompression;
      options.max_background_jobs = 2;
    }
    write_.disableWAL = settings == Settings::kFast;
    rocksdb::DB* db = nullptr;
    const bool good = Good(rocksdb::DB::Open(options, path, &db));
    db_.reset(db);
    return good;
  }
  bool Set(std::string_view key, std::string_view value) { return Good(db_->Put(write_, Piece(key), Piece(value))); }
  bool Get(std::string_view key, std::string* value) {
    rocksdb::PinnableSlice found;
    if (!db_->Get({}, db_->DefaultColumnFamily(), Piece(key), &found).ok()) return false;
    value->assign(found.data(), found.size());
    return true;
  }
  bool Remove(std::string_view key) { return Good(db_->Delete(write_, Piece(key))); }
  bool Close() { return Good(db_->Close()); }  // writes what is in memory if there is no log

 private:
  rocksdb::WriteOptions write_;
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::Main<hako::compare::RocksdbEngine>(argc, argv); }
