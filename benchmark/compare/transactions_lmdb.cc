// LMDB: each transaction is a write transaction, of which there is one at a time. Durable ones with the default flags, others
// with MDB_NOSYNC and MDB_WRITEMAP.
#include <lmdb.h>

#include "transactions.h"

namespace hako::compare {

class TransactionLmdb {
 public:
  static constexpr std::string_view kName = "lmdb";

  bool Open(const TransactionOptions& options) {
    MDB_txn* txn = nullptr;
    const unsigned flags = MDB_NOSUBDIR | MDB_NOTLS | (options.is_durable ? 0 : MDB_NOSYNC | MDB_WRITEMAP);
    return mdb_env_create(&env_) == 0 && mdb_env_set_mapsize(env_, std::uint64_t{4} << 30) == 0 &&
           mdb_env_open(env_, options.path.c_str(), flags, 0644) == 0 && mdb_txn_begin(env_, nullptr, 0, &txn) == 0 &&
           mdb_dbi_open(txn, nullptr, 0, &dbi_) == 0 && mdb_txn_commit(txn) == 0;
  }
  bool Close() { return mdb_env_close(env_), true; }

  class Worker {
   public:
    explicit Worker(TransactionLmdb& engine) : env_(engine.env_), dbi_(engine.dbi_) {}
    ~Worker() { (void)EndLoad(); }
    // Many in one transaction, which would else take minutes.
    bool Load(const TwoKeys& keys, std::string_view value) {
      if (load_ == nullptr && mdb_txn_begin(env_, nullptr, 0, &load_) != 0) return false;
      if (!Put(load_, keys, value)) return false;
      return ++num_loaded_ % 10'000 != 0 || EndLoad();
    }
    bool Single(const TwoKeys& reads, const TwoKeys& writes, std::string_view value) {
      for (const std::string_view key : reads) {
        MDB_txn* txn;
        if (mdb_txn_begin(env_, nullptr, MDB_RDONLY, &txn) != 0) return false;
        const bool found = Get(txn, {key, key});
        mdb_txn_abort(txn);
        if (!found) return false;
      }
      for (const std::string_view key : writes) {
        MDB_txn* txn;
        if (mdb_txn_begin(env_, nullptr, 0, &txn) != 0 || !Put(txn, {key, key}, value) || mdb_txn_commit(txn) != 0) return false;
      }
      return true;
    }
    std::uint64_t Transact(const TwoKeys& reads, const TwoKeys& writes, std::string_view value) {
      MDB_txn* txn;
      if (mdb_txn_begin(env_, nullptr, 0, &txn) != 0) return 0;
      return Get(txn, reads) && Put(txn, writes, value) && mdb_txn_commit(txn) == 0 ? 1 : 0;
    }

   private:
    bool EndLoad() { return load_ == nullptr || mdb_txn_commit(std::exchange(load_, nullptr)) == 0; }
    bool Get(MDB_txn* txn, const TwoKeys& keys) {
      for (const std::string_view key : keys) {
        MDB_val name = Val(key), value;
        if (mdb_get(txn, dbi_, &name, &value) != 0) return false;
        read_.assign(static_cast<const char*>(value.mv_data), value.mv_size);
      }
      return true;
    }
    bool Put(MDB_txn* txn, const TwoKeys& keys, std::string_view value) {
      for (const std::string_view key : keys) {
        MDB_val name = Val(key), data = Val(value);
        if (mdb_put(txn, dbi_, &name, &data, 0) != 0) return false;
      }
      return true;
    }
    static MDB_val Val(std::string_view bytes) { return {bytes.size(), const_cast<char*>(bytes.data())}; }

    MDB_env* env_;
    MDB_dbi dbi_;
    MDB_txn* load_ = nullptr;
    std::uint64_t num_loaded_ = 0;
    std::string read_;
  };

 private:
  MDB_env* env_ = nullptr;
  MDB_dbi dbi_ = 0;
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::TransactionMain<hako::compare::TransactionLmdb>(argc, argv); }
