// The common part of LMDB's adapters: reads within a transaction, which the adapter begins and ends.
#pragma once

#include <lmdb.h>

#include <string>
#include <string_view>

namespace hako::compare {

class LmdbReader {
 public:
  bool Get(std::string_view key, std::string* value) {
    MDB_val k = Val(key), v;
    if (mdb_get(txn_, dbi_, &k, &v) != 0) return false;
    value->assign(View(v));
    return true;
  }
  template <class Visit>
  bool Scan(Visit visit) {
    MDB_cursor* cursor;
    if (mdb_cursor_open(txn_, dbi_, &cursor) != 0) return false;
    MDB_val k, v;
    int result;
    while ((result = mdb_cursor_get(cursor, &k, &v, MDB_NEXT)) == 0) visit(View(k), View(v));
    mdb_cursor_close(cursor);
    return result == MDB_NOTFOUND;
  }

 protected:
  static MDB_val Val(std::string_view bytes) { return {bytes.size(), const_cast<char*>(bytes.data())}; }
  static std::string_view View(const MDB_val& bytes) { return {static_cast<const char*>(bytes.mv_data), bytes.mv_size}; }

  MDB_env* env_ = nullptr;
  MDB_txn* txn_ = nullptr;
  MDB_dbi dbi_ = 0;
};

}  // namespace hako::compare
