// LMDB with a writable map and no sync. Each scan renews a read transaction and its cursor; a Set
// is a transaction; a load commits every thousand records.
#include <lmdb.h>

#include "lmdb_reader.h"
#include "short_scans.h"

namespace hako::compare {

class ScanLmdb : LmdbReader {
 public:
  static constexpr std::string_view kName = "lmdb";
  static constexpr bool kConcurrentLoad = false;  // one writer at a time

  bool Open(const ScanOptions& options, bool) {
    const std::uint64_t map_size = (std::uint64_t{1} << 30) + options.n * 4096;
    return mdb_env_create(&env_) == 0 && mdb_env_set_mapsize(env_, map_size) == 0 &&
           mdb_env_open(env_, options.path.c_str(), MDB_NOSUBDIR | MDB_NOSYNC | MDB_WRITEMAP | MDB_NOTLS, 0644) == 0;
  }
  bool Set(std::string_view key, std::string_view value) {
    MDB_txn* txn;
    MDB_dbi dbi;
    MDB_val k = Val(key), v = Val(value);
    return mdb_txn_begin(env_, nullptr, 0, &txn) == 0 && mdb_dbi_open(txn, nullptr, 0, &dbi) == 0 && mdb_put(txn, dbi, &k, &v, 0) == 0 &&
           mdb_txn_commit(txn) == 0;
  }
  bool Load(std::string_view key, std::string_view value) {
    if (txn_ == nullptr && (mdb_txn_begin(env_, nullptr, 0, &txn_) != 0 || mdb_dbi_open(txn_, nullptr, 0, &dbi_) != 0)) return false;
    MDB_val k = Val(key), v = Val(value);
    if (mdb_put(txn_, dbi_, &k, &v, 0) != 0) return false;
    return ++num_loaded_ % 1000 != 0 || EndLoad();
  }
  bool EndLoad() { return txn_ == nullptr || mdb_txn_commit(std::exchange(txn_, nullptr)) == 0; }
  bool Close() {
    mdb_env_close(env_);
    return true;
  }

  class Scanner {
   public:
    explicit Scanner(ScanLmdb& engine) {
      if (mdb_txn_begin(engine.env_, nullptr, MDB_RDONLY, &txn_) != 0 || mdb_dbi_open(txn_, nullptr, 0, &dbi_) != 0 ||
          mdb_cursor_open(txn_, dbi_, &cursor_) != 0)
        std::abort();
      mdb_txn_reset(txn_);
    }
    Scanner(const Scanner&) = delete;
    ~Scanner() {
      mdb_cursor_close(cursor_);
      mdb_txn_abort(txn_);
    }
    template <class Visit>
    bool Scan(std::string_view key, std::size_t count, Visit visit) {
      if (mdb_txn_renew(txn_) != 0 || mdb_cursor_renew(txn_, cursor_) != 0) return false;
      MDB_val k = Val(key), v;
      int result = mdb_cursor_get(cursor_, &k, &v, MDB_SET_RANGE);
      while (result == 0) {
        visit(View(k), View(v));
        if (--count == 0) break;
        result = mdb_cursor_get(cursor_, &k, &v, MDB_NEXT);
      }
      mdb_txn_reset(txn_);
      return result == 0 || result == MDB_NOTFOUND;
    }

   private:
    MDB_txn* txn_ = nullptr;
    MDB_cursor* cursor_ = nullptr;
    MDB_dbi dbi_ = 0;
  };

 private:
  std::uint64_t num_loaded_ = 0;
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::ShortScansMain<hako::compare::ScanLmdb>(argc, argv); }
