// LMDB with its default flags: each transaction writes its pages and calls fdatasync. One write
// transaction at a time.
#include <lmdb.h>

#include "durable.h"
#include "lmdb_reader.h"

namespace hako::compare {

class DurableLmdb : LmdbReader {
 public:
  static constexpr std::string_view kName = "lmdb";

  bool Open(const DurableOptions& options) {
    return mdb_env_create(&env_) == 0 && mdb_env_set_mapsize(env_, std::uint64_t{4} << 30) == 0 &&
           mdb_env_open(env_, options.path.c_str(), MDB_NOSUBDIR, 0644) == 0 && mdb_txn_begin(env_, nullptr, 0, &txn_) == 0 &&
           mdb_dbi_open(txn_, nullptr, 0, &dbi_) == 0 && mdb_txn_commit(txn_) == 0;
  }
  bool Get(std::string_view key, std::string* value) {
    if (mdb_txn_begin(env_, nullptr, MDB_RDONLY, &txn_) != 0) return false;
    const bool good = LmdbReader::Get(key, value);
    mdb_txn_abort(txn_);
    return good;
  }
  bool Close() { return mdb_env_close(env_), true; }

  class Writer {
   public:
    explicit Writer(DurableLmdb& engine) : engine_(engine) {}
    bool Commit(std::span<const Record> records) {
      MDB_txn* txn;
      if (mdb_txn_begin(engine_.env_, nullptr, 0, &txn) != 0) return false;
      for (const Record& record : records) {
        MDB_val key = Val(record.key), value = Val(record.value);
        if (mdb_put(txn, engine_.dbi_, &key, &value, 0) != 0) return mdb_txn_abort(txn), false;
      }
      return mdb_txn_commit(txn) == 0;
    }

   private:
    DurableLmdb& engine_;
  };
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::DurableMain<hako::compare::DurableLmdb>(argc, argv); }
