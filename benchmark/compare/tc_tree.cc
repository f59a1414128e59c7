// Tokyo Cabinet's B+ tree: a cache that holds all pages, a bucket a page and a map that holds the
// whole file; or its defaults; or the article's settings. Without its mutex.
#include <tcbdb.h>

#include "driver.h"

namespace hako::compare {

class TokyoTreeEngine {
 public:
  static constexpr std::string_view kName = "tc_tree";
  static constexpr bool kOnDisk = true, kConcurrent = false, kWritable = true;

  ~TokyoTreeEngine() { tcbdbdel(db_); }
  bool Open(const std::string& path, std::uint64_t n) {
    const auto records = static_cast<std::int64_t>(n);
    if (settings == Settings::kSeed) {
      tcbdbtune(db_, 101, 256, -1, 0, 0, 0), tcbdbsetcache(db_, 256, 256), tcbdbsetxmsiz(db_, 32 * records);
    } else if (settings == Settings::kSeedRandom) {
      const int pages = static_cast<int>(records / 77 + 1);
      tcbdbtune(db_, 77, 256, -1, 0, 0, 0), tcbdbsetcache(db_, pages, pages), tcbdbsetxmsiz(db_, 32 * records);
    } else if (IsTuned()) {
      const int pages = static_cast<int>(records / 64 + 1024);
      tcbdbtune(db_, -1, -1, pages, -1, -1, 0), tcbdbsetcache(db_, pages, pages), tcbdbsetxmsiz(db_, 256 * records);
    }
    return Good(tcbdbopen(db_, path.c_str(), BDBOWRITER | BDBOCREAT));
  }
  bool Set(std::string_view key, std::string_view value) {
    return tcbdbput(db_, key.data(), static_cast<int>(key.size()), value.data(), static_cast<int>(value.size()));
  }
  bool Get(std::string_view key, std::string* value) {
    int size;
    const void* const found = tcbdbget3(db_, key.data(), static_cast<int>(key.size()), &size);
    if (found == nullptr) return false;
    value->assign(static_cast<const char*>(found), static_cast<std::size_t>(size));
    return true;
  }
  bool Remove(std::string_view key) { return tcbdbout(db_, key.data(), static_cast<int>(key.size())); }
  template <class Visit>
  bool ScanFrom(std::string_view key, std::size_t count, Visit visit) {
    BDBCUR* const cursor = tcbdbcurnew(db_);
    bool more = tcbdbcurjump(cursor, key.data(), static_cast<int>(key.size()));
    for (; more && count > 0; --count, more = tcbdbcurnext(cursor)) {
      int key_size, value_size;
      const auto* const k = static_cast<const char*>(tcbdbcurkey3(cursor, &key_size));
      const auto* const v = static_cast<const char*>(tcbdbcurval3(cursor, &value_size));
      visit(std::string_view(k, static_cast<std::size_t>(key_size)), std::string_view(v, static_cast<std::size_t>(value_size)));
    }
    tcbdbcurdel(cursor);
    return count == 0 || tcbdbecode(db_) == TCENOREC;
  }
  std::uint64_t Count() { return tcbdbrnum(db_); }
  bool Close() { return Good(tcbdbclose(db_)); }

 private:
  bool Good(bool good) { return good || Fail(tcbdberrmsg(tcbdbecode(db_))); }

  TCBDB* db_ = tcbdbnew();
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::Main<hako::compare::TokyoTreeEngine>(argc, argv); }
