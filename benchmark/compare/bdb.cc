// Berkeley DB, a hash table or with HAKO_BTREE a B-tree: 256 MiB of cache and pages of 4 KiB, without
// an environment; with --settings=process in one, whose log is written and not synced at each Set
// (DB_TXN_WRITE_NOSYNC), with recovery when it is opened; or its defaults, without an environment.
#include <db.h>

#include "driver.h"

namespace hako::compare {

class BerkeleyEngine {
 public:
#ifdef HAKO_BTREE
  static constexpr std::string_view kName = "bdb_tree";
  static constexpr DBTYPE kType = DB_BTREE;
#else
  static constexpr std::string_view kName = "bdb_hash";
  static constexpr DBTYPE kType = DB_HASH;
#endif
  static constexpr bool kOnDisk = true, kConcurrent = false, kWritable = true;

  bool Open(const std::string& path, std::uint64_t n) {
    constexpr unsigned kCache = 256 << 20;
    const bool logged = settings == Settings::kProcess;
    if (logged) {
      std::filesystem::create_directory(path);
      if (!Good(db_env_create(&env_, 0)) || !Good(env_->set_cachesize(env_, 0, kCache, 1)) ||
          !Good(env_->set_flags(env_, DB_TXN_WRITE_NOSYNC, 1)) ||
          !Good(env_->open(env_, path.c_str(),
                           DB_CREATE | DB_PRIVATE | DB_RECOVER | DB_INIT_MPOOL | DB_INIT_LOG | DB_INIT_LOCK | DB_INIT_TXN, 0644)))
        return false;
    }
    if (!Good(db_create(&db_, env_, 0))) return false;
    if (IsTuned() && (!Good(db_->set_pagesize(db_, 4096)) || (!logged && !Good(db_->set_cachesize(db_, 0, kCache, 1))))) return false;
#ifndef HAKO_BTREE
    if (IsTuned() && !Good(db_->set_h_nelem(db_, static_cast<u_int32_t>(n)))) return false;
#endif
    return Good(
        db_->open(db_, nullptr, logged ? "records" : path.c_str(), nullptr, kType, DB_CREATE | (logged ? DB_AUTO_COMMIT : 0), 0644));
  }
  bool Set(std::string_view key, std::string_view value) {
    DBT k = Dbt(key), v = Dbt(value);
    return db_->put(db_, nullptr, &k, &v, 0) == 0;
  }
  bool Get(std::string_view key, std::string* value) {
    char out[4096];
    DBT k = Dbt(key), v{};
    v.data = out, v.ulen = sizeof(out), v.flags = DB_DBT_USERMEM;
    if (db_->get(db_, nullptr, &k, &v, 0) != 0) return false;
    value->assign(out, v.size);
    return true;
  }
  bool Remove(std::string_view key) {
    DBT k = Dbt(key);
    return db_->del(db_, nullptr, &k, 0) == 0;
  }
#ifdef HAKO_BTREE
  template <class Visit>
  bool ScanFrom(std::string_view key, std::size_t count, Visit visit) {
    return Show(key, DB_SET_RANGE, count, visit);
  }
#else
  template <class Visit>
  bool Scan(Visit visit) {
    return Show({}, DB_FIRST, ~std::size_t{0}, visit);
  }
#endif
  bool Close() {
    const bool good = Good(db_->close(db_, 0));
    return (env_ == nullptr || Good(env_->close(env_, 0))) && good;
  }

 private:
  template <class Visit>
  bool Show(std::string_view key, u_int32_t first, std::size_t count, Visit& visit) {
    DBC* cursor;
    if (!Good(db_->cursor(db_, nullptr, &cursor, 0))) return false;
    DBT k = Dbt(key), v{};
    int result = cursor->get(cursor, &k, &v, first);
    for (; result == 0 && count > 0; --count) {
      visit(View(k), View(v));
      result = cursor->get(cursor, &k, &v, DB_NEXT);
    }
    cursor->close(cursor);
    return result == 0 || result == DB_NOTFOUND;
  }
  static DBT Dbt(std::string_view bytes) {
    DBT dbt{};
    dbt.data = const_cast<char*>(bytes.data()), dbt.size = static_cast<u_int32_t>(bytes.size());
    return dbt;
  }
  static std::string_view View(const DBT& bytes) { return {static_cast<const char*>(bytes.data), bytes.size}; }
  static bool Good(int result) { return result == 0 || Fail(db_strerror(result)); }

  DB_ENV* env_ = nullptr;
  DB* db_ = nullptr;
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::Main<hako::compare::BerkeleyEngine>(argc, argv); }
