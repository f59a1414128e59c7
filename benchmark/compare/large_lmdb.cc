// LMDB with a writable map, no sync until it is asked for and no read-ahead. Phases that write
// commit every thousand operations, which spares it much; one read transaction serves each of the
// others. Its map is the page cache: it has no direct I/O.
#include "large.h"
#include "lmdb_reader.h"

namespace hako::compare {

class LargeLmdb : public LmdbReader {
 public:
  static constexpr std::string_view kName = "lmdb";
  static constexpr bool kConcurrent = false;

  bool Open(const LargeOptions& options, bool create) {
    if (create)
      for (const char* suffix : {"", "-lock"}) std::filesystem::remove(options.path + suffix);
    const std::uint64_t map_size =
        (std::uint64_t{1} << 30) + 8 * options.records * (options.key_size + options.value_size);  // of address space
    return mdb_env_create(&env_) == 0 && mdb_env_set_mapsize(env_, map_size) == 0 &&
           mdb_env_open(env_, options.path.c_str(), MDB_NOSUBDIR | MDB_NOSYNC | MDB_WRITEMAP | MDB_NOTLS | MDB_NORDAHEAD, 0644) == 0;
  }

  bool BeginPhase(bool writing) {
    num_changes_ = 0;
    return mdb_txn_begin(env_, nullptr, writing ? 0 : MDB_RDONLY, &txn_) == 0 && mdb_dbi_open(txn_, nullptr, 0, &dbi_) == 0;
  }
  bool EndPhase() { return mdb_txn_commit(txn_) == 0; }

  bool Set(std::string_view key, std::string_view value) {
    MDB_val k = Val(key), v = Val(value);
    if (mdb_put(txn_, dbi_, &k, &v, 0) != 0) return false;
    return ++num_changes_ % 1000 != 0 || (EndPhase() && BeginPhase(true));
  }
  bool GetMulti(std::span<const std::string_view> keys, std::span<std::optional<std::string>> values) {
    bool good = true;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (!values[i]) values[i].emplace();
      good = Get(keys[i], &*values[i]) && good;
    }
    return good;
  }
  bool Sync() { return mdb_env_sync(env_, 1) == 0; }
  bool Close() {
    mdb_env_close(env_);
    return true;
  }

 private:
  std::uint64_t num_changes_ = 0;
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::LargeMain<hako::compare::LargeLmdb>(argc, argv); }
