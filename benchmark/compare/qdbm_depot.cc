// QDBM's Depot, a hash table in a file: two buckets a record (three with the article's settings), or
// its default.
#include <qdbm/depot.h>

#include "driver.h"

namespace hako::compare {

class DepotEngine {
 public:
  static constexpr std::string_view kName = "qdbm_depot";
  static constexpr bool kOnDisk = true, kConcurrent = false, kWritable = true;

  bool Open(const std::string& path, std::uint64_t n) {
    db_ = dpopen(path.c_str(), DP_OWRITER | DP_OCREAT, IsTuned() ? static_cast<int>((IsSeed() ? 3 : 2) * n) : -1);
    return Good(db_ != nullptr);
  }
  bool Set(std::string_view key, std::string_view value) {
    return dpput(db_, key.data(), static_cast<int>(key.size()), value.data(), static_cast<int>(value.size()), DP_DOVER);
  }
  bool Get(std::string_view key, std::string* value) {
    char out[4096];
    const int size = dpgetwb(db_, key.data(), static_cast<int>(key.size()), 0, sizeof(out), out);
    if (size < 0) return false;
    value->assign(out, static_cast<std::size_t>(size));
    return true;
  }
  bool Remove(std::string_view key) { return dpout(db_, key.data(), static_cast<int>(key.size())); }
  template <class Visit>
  bool Scan(Visit visit) {
    std::string value;
    int size;
    if (!dpiterinit(db_)) return false;
    while (char* const found = dpiternext(db_, &size)) {
      const std::string_view key(found, static_cast<std::size_t>(size));
      const bool good = Get(key, &value);
      if (good) visit(key, value);
      std::free(found);
      if (!good) return false;
    }
    return dpecode == DP_ENOITEM;
  }
  std::uint64_t Count() { return static_cast<std::uint64_t>(dprnum(db_)); }
  bool Close() { return Good(dpclose(db_)); }

 private:
  static bool Good(bool good) { return good || Fail(dperrmsg(dpecode)); }

  DEPOT* db_ = nullptr;
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::Main<hako::compare::DepotEngine>(argc, argv); }
