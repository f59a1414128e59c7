// LMDB with a writable map and no sync: all Sets of a command are one transaction.
#include <lmdb.h>

#include "lmdb_reader.h"
#include "recovery.h"

namespace hako::compare {

class RecoveryLmdb : LmdbReader {
 public:
  static constexpr std::string_view kName = "lmdb";

  bool Open(const RecoveryOptions& options, bool create) {
    if (create) std::filesystem::remove(options.path);
    return mdb_env_create(&env_) == 0 && mdb_env_set_mapsize(env_, (std::uint64_t{1} << 30) + options.n * 1024) == 0 &&
           mdb_env_open(env_, options.path.c_str(), MDB_NOSUBDIR | MDB_NOSYNC | MDB_WRITEMAP | MDB_NOTLS, 0644) == 0;
  }
  bool Set(std::string_view key, std::string_view value) {
    if (txn_ == nullptr && !Begin(0)) return false;
    MDB_val k = Val(key), v = Val(value);
    return mdb_put(txn_, dbi_, &k, &v, 0) == 0;
  }
  bool EndSets() { return txn_ == nullptr || mdb_txn_commit(std::exchange(txn_, nullptr)) == 0; }
  bool Sync() { return mdb_env_sync(env_, 1) == 0; }
  bool Get(std::string_view key, std::string* value) { return (txn_ != nullptr || Begin(MDB_RDONLY)) && LmdbReader::Get(key, value); }
  std::uint64_t Count() {
    MDB_stat facts{};
    return mdb_env_stat(env_, &facts) == 0 ? facts.ms_entries : 0;
  }
  bool Close() {
    if (txn_ != nullptr) mdb_txn_abort(txn_);
    return mdb_env_close(env_), true;
  }

 private:
  bool Begin(unsigned flags) { return mdb_txn_begin(env_, nullptr, flags, &txn_) == 0 && mdb_dbi_open(txn_, nullptr, 0, &dbi_) == 0; }
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::RecoveryMain<hako::compare::RecoveryLmdb>(argc, argv); }
