// GDBM, which does not sync unless it is asked to, without its lock of the file. Its cache grows by
// itself, which is the default.
#include <gdbm.h>

#include "driver.h"

namespace hako::compare {

class GdbmEngine {
 public:
  static constexpr std::string_view kName = "gdbm";
  static constexpr bool kOnDisk = true, kConcurrent = false, kWritable = true;

  bool Open(const std::string& path, std::uint64_t) {
    db_ = gdbm_open(path.c_str(), 0, GDBM_WRCREAT | (IsTuned() ? GDBM_NOLOCK : 0), 0644, nullptr);
    return db_ != nullptr || Fail(gdbm_strerror(gdbm_errno));
  }
  bool Set(std::string_view key, std::string_view value) { return gdbm_store(db_, Datum(key), Datum(value), GDBM_REPLACE) == 0; }
  bool Get(std::string_view key, std::string* value) {
    const datum found = gdbm_fetch(db_, Datum(key));
    if (found.dptr == nullptr) return false;
    value->assign(found.dptr, static_cast<std::size_t>(found.dsize));
    std::free(found.dptr);
    return true;
  }
  bool Remove(std::string_view key) { return gdbm_delete(db_, Datum(key)) == 0; }
  template <class Visit>
  bool Scan(Visit visit) {
    std::string value;
    for (datum key = gdbm_firstkey(db_); key.dptr != nullptr;) {
      const std::string_view bytes(key.dptr, static_cast<std::size_t>(key.dsize));
      if (!Get(bytes, &value)) return false;
      visit(bytes, value);
      const datum next = gdbm_nextkey(db_, key);
      std::free(key.dptr);
      key = next;
    }
    return gdbm_errno == GDBM_ITEM_NOT_FOUND;
  }
  bool Close() { return gdbm_close(db_) == 0 || Fail(gdbm_strerror(gdbm_errno)); }

 private:
  static datum Datum(std::string_view bytes) { return {const_cast<char*>(bytes.data()), static_cast<int>(bytes.size())}; }

  GDBM_FILE db_ = nullptr;
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::Main<hako::compare::GdbmEngine>(argc, argv); }
