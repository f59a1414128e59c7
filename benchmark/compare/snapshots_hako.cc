// hako's TreeDBM on a mapped file, or with HAKO_BABY its BabyDBM, with otherwise default options. Readers in other processes
// have the half of the writer's cache.
#include <memory>
#include <string>
#include <string_view>

#include "hako/dbm/baby_dbm.h"
#include "hako/dbm/tree_dbm.h"
#include "snapshots.h"

namespace hako::compare {

class SnapshotHako {
 public:
#ifdef HAKO_BABY
  static constexpr std::string_view kName = "hako_baby";
  using Database = BabyDBM<>;
#else
  static constexpr std::string_view kName = "hako_tree";
  using Database = TreeDBM<>;
  class Reader {
   public:
    bool Open(const std::string& path) {
      auto db = Database::Open(path, {.cache_bytes = kCache / 2}, {.mode = OpenMode::kReadOnly});
      if (db.ok()) db_ = *std::move(db);
      return db.ok();
    }
    bool Get(std::string_view key, std::string* value) { return db_->Get(key, value).ok(); }
    bool Refresh(bool* is_newer) {
      auto newer = db_->Refresh();
      if (!newer.ok()) return false;
      *is_newer = *newer != nullptr;
      if (*is_newer) db_ = *std::move(newer);
      return true;
    }

   private:
    std::unique_ptr<Database> db_;
  };
#endif

  bool Open([[maybe_unused]] const std::string& path) {
#ifdef HAKO_BABY
    auto db = Database::Open({.snapshot_bytes = kCache});
#else
    auto db = Database::Open(path, {.cache_bytes = kCache, .durability = Durability::kNone, .snapshot_bytes = kCache});
#endif
    if (db.ok()) db_ = *std::move(db);
    return db.ok();
  }
  bool Close() { return db_->Close().ok(); }
  bool Flush() { return db_->Synchronize(SyncMode::kHard).ok(); }
  bool Set(std::string_view key, std::string_view value) { return db_->Set(key, value).ok(); }
  bool Get(std::string_view key, std::string* value) { return db_->Get(key, value).ok(); }
  template <class Visit>
  bool Scan(Visit visit) {
    auto it = db_->MakeIterator();
    for (it.First(); it.Valid(); it.Next()) visit(it.key(), it.value());
    return it.status().ok();
  }

  class View {
   public:
    bool Take(SnapshotHako& engine) {
      auto snapshot = engine.db_->Snapshot();
      if (snapshot.ok()) snapshot_ = *std::move(snapshot);
      return snapshot.ok();
    }
    bool Get(std::string_view key, std::string* value) { return snapshot_->Get(key, value).ok(); }
    template <class Visit>
    bool Scan(Visit visit) {
      auto it = snapshot_->MakeIterator();
      for (it.First(); it.Valid(); it.Next()) visit(it.key(), it.value());
      return it.status().ok();
    }

   private:
    std::remove_reference_t<decltype(std::declval<Database&>().Snapshot())>::value_type snapshot_;
  };

 private:
  static constexpr std::size_t kCache = std::size_t{1} << 30;
  std::unique_ptr<Database> db_;
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::SnapshotMain<hako::compare::SnapshotHako>(argc, argv); }
