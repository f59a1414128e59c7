// The interface of NDBM as GDBM provides it (gdbm-compat): it has no settings.
#include <fcntl.h>

extern "C" {
#include <ndbm.h>
}

#include "driver.h"

namespace hako::compare {

class NdbmEngine {
 public:
  static constexpr std::string_view kName = "ndbm";
  static constexpr bool kOnDisk = true, kConcurrent = false, kWritable = true;

  bool Open(const std::string& path, std::uint64_t) {
    db_ = dbm_open(const_cast<char*>(path.c_str()), O_RDWR | O_CREAT, 0644);
    return db_ != nullptr || Fail(gdbm_strerror(gdbm_errno));
  }
  bool Set(std::string_view key, std::string_view value) { return dbm_store(db_, Datum(key), Datum(value), DBM_REPLACE) == 0; }
  bool Get(std::string_view key, std::string* value) {
    const datum found = dbm_fetch(db_, Datum(key));
    if (found.dptr == nullptr) return false;
    value->assign(found.dptr, static_cast<std::size_t>(found.dsize));
    return true;
  }
  bool Remove(std::string_view key) { return dbm_delete(db_, Datum(key)) == 0; }
  template <class Visit>
  bool Scan(Visit visit) {
    std::string value;
    for (datum key = dbm_firstkey(db_); key.dptr != nullptr; key = dbm_nextkey(db_)) {
      const std::string_view bytes(key.dptr, static_cast<std::size_t>(key.dsize));
      if (!Get(bytes, &value)) return false;
      visit(bytes, value);
    }
    return dbm_error(db_) == 0;
  }
  bool Close() { return dbm_close(db_), true; }

 private:
  static datum Datum(std::string_view bytes) { return {const_cast<char*>(bytes.data()), static_cast<int>(bytes.size())}; }

  DBM* db_ = nullptr;
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::Main<hako::compare::NdbmEngine>(argc, argv); }
