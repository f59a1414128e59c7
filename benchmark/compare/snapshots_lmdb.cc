// LMDB with MDB_NOSYNC and MDB_WRITEMAP. A snapshot is a read transaction. Each plain Get renews one, as an application
// does that wants the newest value; each Set is a transaction.
#include <lmdb.h>

#include <string>
#include <string_view>

#include "lmdb_reader.h"
#include "snapshots.h"

namespace hako::compare {

class SnapshotLmdb {
  struct InTransaction : LmdbReader {
    bool Begin(MDB_env* env, MDB_dbi dbi) {
      env_ = env;
      dbi_ = dbi;
      return mdb_txn_begin(env, nullptr, MDB_RDONLY, &txn_) == 0;
    }
    ~InTransaction() {
      if (txn_ != nullptr) mdb_txn_abort(txn_);
    }
    void Reset() { mdb_txn_reset(txn_); }
    bool Renew() { return mdb_txn_renew(txn_) == 0; }
  };
  static bool OpenEnvironment(const std::string& path, unsigned flags, MDB_env** env, MDB_dbi* dbi) {
    MDB_txn* txn = nullptr;
    return mdb_env_create(env) == 0 && mdb_env_set_mapsize(*env, std::uint64_t{32} << 30) == 0 &&
           mdb_env_open(*env, path.c_str(), MDB_NOSUBDIR | MDB_NOTLS | flags, 0644) == 0 &&
           mdb_txn_begin(*env, nullptr, flags & MDB_RDONLY, &txn) == 0 && mdb_dbi_open(txn, nullptr, 0, dbi) == 0 &&
           mdb_txn_commit(txn) == 0;
  }

 public:
  static constexpr std::string_view kName = "lmdb";

  bool Open(const std::string& path) { return OpenEnvironment(path, MDB_NOSYNC | MDB_WRITEMAP, &env_, &dbi_) && plain_.Begin(env_, dbi_); }
  bool Close() {
    plain_.~InTransaction();
    new (&plain_) InTransaction;
    mdb_env_close(env_);
    return true;
  }
  bool Flush() { return mdb_env_sync(env_, 1) == 0; }
  bool Set(std::string_view key, std::string_view value) {
    plain_.Reset();
    MDB_txn* txn;
    MDB_val name = Val(key), data = Val(value);
    return mdb_txn_begin(env_, nullptr, 0, &txn) == 0 && mdb_put(txn, dbi_, &name, &data, 0) == 0 && mdb_txn_commit(txn) == 0;
  }
  bool Get(std::string_view key, std::string* value) {
    plain_.Reset();
    return plain_.Renew() && plain_.Get(key, value);
  }
  template <class Visit>
  bool Scan(Visit visit) {
    plain_.Reset();
    return plain_.Renew() && plain_.Scan(visit);
  }

  class View {
   public:
    bool Take(SnapshotLmdb& engine) { return transaction_.Begin(engine.env_, engine.dbi_); }
    bool Get(std::string_view key, std::string* value) { return transaction_.Get(key, value); }
    template <class Visit>
    bool Scan(Visit visit) {
      return transaction_.Scan(visit);
    }

   private:
    InTransaction transaction_;
  };

  class Reader {
   public:
    ~Reader() {
      if (env_ != nullptr) mdb_env_close(env_);
    }
    bool Open(const std::string& path) { return OpenEnvironment(path, MDB_RDONLY, &env_, &dbi_) && transaction_.Begin(env_, dbi_); }
    bool Get(std::string_view key, std::string* value) { return transaction_.Get(key, value); }
    bool Refresh(bool* is_newer) {
      transaction_.Reset();
      return *is_newer = true, transaction_.Renew();
    }

   private:
    MDB_env* env_ = nullptr;
    MDB_dbi dbi_ = 0;
    InTransaction transaction_;
  };

 private:
  static MDB_val Val(std::string_view bytes) { return {bytes.size(), const_cast<char*>(bytes.data())}; }

  MDB_env* env_ = nullptr;
  MDB_dbi dbi_ = 0;
  InTransaction plain_;
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::SnapshotMain<hako::compare::SnapshotLmdb>(argc, argv); }
