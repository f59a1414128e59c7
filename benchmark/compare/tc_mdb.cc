// Tokyo Cabinet's on-memory hash database: a bucket a record, or its default of 65,536.
#include <tcutil.h>

#include "driver.h"

namespace hako::compare {

class TokyoMemoryEngine {
 public:
  static constexpr std::string_view kName = "tc_mdb";
  static constexpr bool kOnDisk = false, kConcurrent = true, kWritable = true;

  bool Open(const std::string&, std::uint64_t n) {
    return (db_ = IsTuned() ? tcmdbnew2(static_cast<std::uint32_t>(n)) : tcmdbnew()) != nullptr;
  }
  bool Set(std::string_view key, std::string_view value) {
    tcmdbput(db_, key.data(), static_cast<int>(key.size()), value.data(), static_cast<int>(value.size()));
    return true;
  }
  bool Get(std::string_view key, std::string* value) {
    int size;
    char* const found = static_cast<char*>(tcmdbget(db_, key.data(), static_cast<int>(key.size()), &size));
    if (found == nullptr) return false;
    value->assign(found, static_cast<std::size_t>(size));
    std::free(found);
    return true;
  }
  bool Remove(std::string_view key) { return tcmdbout(db_, key.data(), static_cast<int>(key.size())); }
  template <class Visit>
  bool Scan(Visit visit) {
    std::string value;
    int size;
    tcmdbiterinit(db_);
    while (char* const found = static_cast<char*>(tcmdbiternext(db_, &size))) {
      const std::string_view key(found, static_cast<std::size_t>(size));
      const bool good = Get(key, &value);
      if (good) visit(key, value);
      std::free(found);
      if (!good) return false;
    }
    return true;
  }
  std::uint64_t Count() { return tcmdbrnum(db_); }
  bool Close() { return tcmdbdel(db_), true; }

 private:
  TCMDB* db_ = nullptr;
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::Main<hako::compare::TokyoMemoryEngine>(argc, argv); }
