// hako's TreeDBM, or with HAKO_HASH its HashDBM, on a mapped file, or with HAKO_POSITIONAL a
// positional one.
#include "recovery.h"
#ifdef HAKO_HASH
#include "hako/dbm/hash_dbm.h"
#else
#include "hako/dbm/tree_dbm.h"
#endif
#include "hako/file/memory_map_parallel_file.h"
#include "hako/file/positional_parallel_file.h"

namespace hako::compare {

#ifdef HAKO_POSITIONAL
using RecoveryFile = PositionalParallelFile;
#else
using RecoveryFile = MemoryMapParallelFile;
#endif

class RecoveryHako {
 public:
#ifdef HAKO_HASH
  static constexpr std::string_view kName = "hako_hash";
  using Database = HashDBM<RecoveryFile>;
  using Settings = HashOptions;
#else
  static constexpr std::string_view kName = "hako_tree";
  using Database = TreeDBM<RecoveryFile>;
  using Settings = TreeOptions;
#endif

  bool Open(const RecoveryOptions& options, bool create) {
    Settings settings;
    settings.durability = options.durability == "none"    ? Durability::kNone
                          : options.durability == "power" ? Durability::kPower
                                                          : Durability::kProcess;
    if (options.log != 0) settings.log_bytes = options.log << 20;
#ifndef HAKO_HASH
    settings.cache_bytes = options.cache << 20;
    if (options.checkpoint != 0) settings.checkpoint_bytes = options.checkpoint << 20;
#endif
    auto db = Database::Open(options.path, settings, FileOptions{.mode = create ? OpenMode::kTruncate : OpenMode::kReadWrite});
    if (!db.ok()) return std::fprintf(stderr, "hako: %s\n", db.status().ToString().c_str()), false;
    db_ = *std::move(db);
    return true;
  }
  bool Set(std::string_view key, std::string_view value) { return db_->Set(key, value).ok(); }
  bool EndSets() { return true; }
  bool Sync() { return db_->Synchronize(SyncMode::kHard).ok(); }
  bool Get(std::string_view key, std::string* value) { return db_->Get(key, value).ok(); }
  std::uint64_t Count() { return db_->Count(); }
  bool Close() { return db_->Close().ok(); }

 private:
  std::unique_ptr<Database> db_;
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::RecoveryMain<hako::compare::RecoveryHako>(argc, argv); }
