// RocksDB with direct I/O for reads, flushes and compactions, a block cache, a bloom filter of 10
// bits a key, no compression, and its log written but not synced until it is asked for.
#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/table.h>

#include <memory>

#include "large.h"

namespace hako::compare {

class LargeRocksdb {
 public:
  static constexpr std::string_view kName = "rocksdb";
  static constexpr bool kConcurrent = true;

  bool Open(const LargeOptions& options, bool create) {
    rocksdb::BlockBasedTableOptions table;
    table.no_block_cache = options.cache_bytes == 0;
    if (options.cache_bytes != 0) table.block_cache = rocksdb::NewLRUCache(options.cache_bytes);
    table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
    rocksdb::Options db;
    db.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
    db.compression = rocksdb::kNoCompression;
    db.use_direct_reads = db.use_direct_io_for_flush_and_compaction = options.direct != 0;
    db.create_if_missing = create;
    if (create) std::filesystem::remove_all(options.path);
    rocksdb::DB* opened = nullptr;
    const bool good = Good(rocksdb::DB::Open(db, options.path, &opened));
    db_.reset(opened);
    return good;
  }

  bool Set(std::string_view key, std::string_view value) { return db_->Put({}, Piece(key), Piece(value)).ok(); }
  bool Get(std::string_view key, std::string* value) {
    rocksdb::PinnableSlice found;
    if (!db_->Get({}, db_->DefaultColumnFamily(), Piece(key), &found).ok()) return false;
    value->assign(found.data(), found.size());
    return true;
  }
  bool GetMulti(std::span<const std::string_view> keys, std::span<std::optional<std::string>> values) {
    std::vector<rocksdb::Slice> slices;
    for (std::string_view key : keys) slices.push_back(Piece(key));
    std::vector<rocksdb::PinnableSlice> found(keys.size());
    std::vector<rocksdb::Status> statuses(keys.size());
    db_->MultiGet({}, db_->DefaultColumnFamily(), keys.size(), slices.data(), found.data(), statuses.data());
    bool good = true;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      good = statuses[i].ok() && good;
      if (!values[i]) values[i].emplace();
      values[i]->assign(found[i].data(), found[i].size());
    }
    return good;
  }
  template <class Visit>
  bool Scan(Visit visit) {
    rocksdb::ReadOptions options;
    options.readahead_size = 1 << 20;
    options.fill_cache = false;
    const std::unique_ptr<rocksdb::Iterator> it(db_->NewIterator(options));
    for (it->SeekToFirst(); it->Valid(); it->Next()) visit(it->key().ToStringView(), it->value().ToStringView());
    return Good(it->status());
  }
  bool Sync() { return Good(db_->FlushWAL(true)); }
  bool Close() { return Good(db_->Close()); }

 private:
  static rocksdb::Slice Piece(std::string_view bytes) { return {bytes.data(), bytes.size()}; }
  static bool Good(const rocksdb::Status& status) {
    if (!status.ok()) std::fprintf(stderr, "rocksdb: %s\n", status.ToString().c_str());
    return status.ok();
  }

  std::unique_ptr<rocksdb::DB> db_;
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::LargeMain<hako::compare::LargeRocksdb>(argc, argv); }
