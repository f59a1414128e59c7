// hako's TreeDBM on a mapped file, or a positional one, with its default options, except that the cache holds everything
// unless --cache says otherwise.
#include "hako/dbm/tree_dbm.h"
#include "hako/file/memory_map_parallel_file.h"
#include "hako/file/positional_parallel_file.h"
#include "short_scans.h"

namespace hako::compare {

#ifdef HAKO_POSITIONAL
using Tree = TreeDBM<PositionalParallelFile>;
#else
using Tree = TreeDBM<MemoryMapParallelFile>;
#endif

class ScanHakoTree {
 public:
  static constexpr std::string_view kName = "hako_tree";
  static constexpr bool kConcurrentLoad = true;

  bool Open(const ScanOptions& options, bool create) {
    const TreeOptions tree{.cache_bytes = options.CacheBytes((std::uint64_t{64} << 20) + options.n * 4 * (kScanKeySize + kScanValueSize))};
    auto db = Tree::Open(options.path, tree, FileOptions{.mode = create ? OpenMode::kTruncate : OpenMode::kReadWrite});
    if (db.ok()) db_ = *std::move(db);
    return db.ok();
  }
  bool Set(std::string_view key, std::string_view value) { return db_->Set(key, value).ok(); }
  bool Load(std::string_view key, std::string_view value) { return Set(key, value); }
  bool EndLoad() { return true; }
  bool Close() { return db_ == nullptr || db_->Close().ok(); }

  // Its iterator is made for each scan.
  class Scanner {
   public:
    explicit Scanner(ScanHakoTree& engine) : db_(*engine.db_) {}
    template <class Visit>
    bool Scan(std::string_view key, std::size_t count, Visit visit) {
      auto it = db_.MakeIterator();
      for (it.Jump(key); count > 0 && it.Valid(); it.Next()) {
        visit(it.key(), it.value());
        if (--count == 0) break;
      }
      return it.status().ok();
    }

   private:
    Tree& db_;
  };

 private:
  std::unique_ptr<Tree> db_;
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::ShortScansMain<hako::compare::ScanHakoTree>(argc, argv); }
