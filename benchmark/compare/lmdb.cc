// LMDB with a writable map and no sync; the map is large enough from the start. A phase that writes
// is one transaction, its commit on the clock (or several, of a million operations each: LMDB
// bounds how much one can change, or of one operation with --settings=process; by default, a sync at
// each commit and no writable map); one read transaction, renewed at each phase, serves the others.
// An ordered engine: it does more than a hash table does.
#include "driver.h"
#include "lmdb_reader.h"

namespace hako::compare {

class LmdbEngine : public LmdbReader {
 public:
  static constexpr std::string_view kName = "lmdb";
  static constexpr bool kOnDisk = true, kConcurrent = false, kWritable = true;

  bool Open(const std::string& path, std::uint64_t n) {
    const std::uint64_t map_size = std::max<std::uint64_t>(256 << 20, n * 2048);  // of address space; the file has holes
    if (settings == Settings::kProcess) max_changes_ = 1;
    return mdb_env_create(&env_) == 0 && mdb_env_set_mapsize(env_, map_size) == 0 &&
           mdb_env_open(env_, path.c_str(), MDB_NOSUBDIR | MDB_NOTLS | (IsTuned() ? MDB_NOSYNC | MDB_WRITEMAP : 0), 0644) == 0;
  }
  bool BeginPhase(Phase phase) {
    writing_ = phase == Phase::kFill || phase == Phase::kUpdate || phase == Phase::kRemove;
    if (writing_) return BeginWriting();
    if (reader_ != nullptr) {
      txn_ = reader_;
      return mdb_txn_renew(reader_) == 0;
    }
    if (mdb_txn_begin(env_, nullptr, MDB_RDONLY, &reader_) != 0) return false;
    txn_ = reader_;
    return dbi_ != 0 || mdb_dbi_open(reader_, nullptr, 0, &dbi_) == 0;
  }
  bool EndPhase(Phase) {
    if (writing_) return mdb_txn_commit(txn_) == 0;
    mdb_txn_reset(reader_);
    return true;
  }

  bool Set(std::string_view key, std::string_view value) {
    MDB_val k = Val(key), v = Val(value);
    return mdb_put(txn_, dbi_, &k, &v, 0) == 0 && Changed();
  }
  bool Remove(std::string_view key) {
    MDB_val k = Val(key);
    return mdb_del(txn_, dbi_, &k, nullptr) == 0 && Changed();
  }
  template <class Visit>
  bool ScanFrom(std::string_view key, std::size_t count, Visit visit) {
    MDB_cursor* cursor;
    if (mdb_cursor_open(txn_, dbi_, &cursor) != 0) return false;
    MDB_val k = Val(key), v;
    int result = mdb_cursor_get(cursor, &k, &v, MDB_SET_RANGE);
    for (; result == 0 && count > 0; --count) {
      visit(View(k), View(v));
      result = mdb_cursor_get(cursor, &k, &v, MDB_NEXT);
    }
    mdb_cursor_close(cursor);
    return result == 0 || result == MDB_NOTFOUND;
  }
  bool Close() {
    if (reader_ != nullptr) mdb_txn_abort(reader_);
    mdb_env_close(env_);
    return true;
  }

 private:
  bool BeginWriting() {
    num_changes_ = 0;
    return mdb_txn_begin(env_, nullptr, 0, &txn_) == 0 && mdb_dbi_open(txn_, nullptr, 0, &dbi_) == 0;
  }
  bool Changed() { return ++num_changes_ < max_changes_ || (mdb_txn_commit(txn_) == 0 && BeginWriting()); }

  MDB_txn* reader_ = nullptr;
  bool writing_ = false;
  std::uint64_t num_changes_ = 0, max_changes_ = 1'000'000;
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::Main<hako::compare::LmdbEngine>(argc, argv); }
