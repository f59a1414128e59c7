// LevelDB with its default options, except that its block cache holds everything
// unless --cache says otherwise, and that it does not try to compress.
#include <leveldb/cache.h>
#include <leveldb/db.h>

#include <memory>

#include "short_scans.h"

namespace hako::compare {

class ScanLevelDB {
 public:
  static constexpr std::string_view kName = "leveldb";
  static constexpr bool kConcurrentLoad = true;

  bool Open(const ScanOptions& options, bool) {
    cache_.reset(leveldb::NewLRUCache(options.CacheBytes((std::uint64_t{64} << 20) + options.n * 2 * (kScanKeySize + kScanValueSize))));
    leveldb::Options level;
    level.create_if_missing = true;
    level.compression = leveldb::kNoCompression;
    level.block_cache = cache_.get();
    leveldb::DB* db = nullptr;
    const bool good = leveldb::DB::Open(level, options.path, &db).ok();
    db_.reset(db);
    return good;
  }
  bool Set(std::string_view key, std::string_view value) { return db_->Put({}, Of(key), Of(value)).ok(); }
  bool Load(std::string_view key, std::string_view value) { return Set(key, value); }
  bool EndLoad() { return true; }
  bool Close() { return db_.reset(), true; }

  class Scanner {
   public:
    explicit Scanner(ScanLevelDB& engine) : db_(*engine.db_) {}
    template <class Visit>
    bool Scan(std::string_view key, std::size_t count, Visit visit) {
      const std::unique_ptr<leveldb::Iterator> it(db_.NewIterator({}));
      for (it->Seek(Of(key)); it->Valid(); it->Next()) {
        visit(View(it->key()), View(it->value()));
        if (--count == 0) break;
      }
      return it->status().ok();
    }

   private:
    leveldb::DB& db_;
  };

 private:
  static leveldb::Slice Of(std::string_view bytes) { return {bytes.data(), bytes.size()}; }
  static std::string_view View(const leveldb::Slice& bytes) { return {bytes.data(), bytes.size()}; }

  std::unique_ptr<leveldb::Cache> cache_;
  std::unique_ptr<leveldb::DB> db_;
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::ShortScansMain<hako::compare::ScanLevelDB>(argc, argv); }
