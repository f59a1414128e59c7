// LevelDB, whose log is always written and not synced: a cache of 256 MiB, a bloom filter of 10 bits a
// key, no compression; or its defaults.
#include <leveldb/cache.h>
#include <leveldb/db.h>
#include <leveldb/filter_policy.h>

#include <memory>

#include "sorted_engine.h"

namespace hako::compare {

class LeveldbEngine : public SortedEngine<leveldb::DB, leveldb::Slice, leveldb::ReadOptions> {
 public:
  static constexpr std::string_view kName = "leveldb";

  bool Open(const std::string& path, std::uint64_t) {
    leveldb::Options options;
    options.create_if_missing = true;
    if (IsTuned()) {
      cache_.reset(leveldb::NewLRUCache(256 << 20));
      filter_.reset(leveldb::NewBloomFilterPolicy(10));
      options.compression = leveldb::kNoCompression;
      options.block_cache = cache_.get();
      options.filter_policy = filter_.get();
    }
    leveldb::DB* db = nullptr;
    const bool good = Good(leveldb::DB::Open(options, path, &db));
    db_.reset(db);
    return good;
  }
  bool Set(std::string_view key, std::string_view value) { return Good(db_->Put({}, Piece(key), Piece(value))); }
  bool Get(std::string_view key, std::string* value) { return db_->Get({}, Piece(key), value).ok(); }
  bool Remove(std::string_view key) { return Good(db_->Delete({}, Piece(key))); }
  bool Close() { return db_.reset(), true; }

 private:
  std::unique_ptr<leveldb::Cache> cache_;
  std::unique_ptr<const leveldb::FilterPolicy> filter_;
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::Main<hako::compare::LeveldbEngine>(argc, argv); }
