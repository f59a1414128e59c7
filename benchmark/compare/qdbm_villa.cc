// QDBM's Villa, a B+ tree over Depot: a cache that holds all pages, or its defaults; or the settings
// of the article for Tokyo Cabinet's tree, whose parameters are the same.
#include <qdbm/depot.h>
// Their order matters: villa.h needs cabin.h.
#include <qdbm/cabin.h>
#include <qdbm/villa.h>

#include "driver.h"

namespace hako::compare {

class VillaEngine {
 public:
  static constexpr std::string_view kName = "qdbm_villa";
  static constexpr bool kOnDisk = true, kConcurrent = false, kWritable = true;

  bool Open(const std::string& path, std::uint64_t n) {
    db_ = vlopen(path.c_str(), VL_OWRITER | VL_OCREAT, VL_CMPLEX);
    if (!Good(db_ != nullptr)) return false;
    const int pages = static_cast<int>(n / 40 + 1024);
    if (settings == Settings::kSeed)
      vlsettuning(db_, 101, 256, 256, 256);
    else if (settings == Settings::kSeedRandom)
      vlsettuning(db_, 77, 256, static_cast<int>(n / 77 + 1), static_cast<int>(n / 77 + 1));
    else if (IsTuned())
      vlsettuning(db_, 49, 192, pages, pages);
    return true;
  }
  bool Set(std::string_view key, std::string_view value) {
    return vlput(db_, key.data(), static_cast<int>(key.size()), value.data(), static_cast<int>(value.size()), VL_DOVER);
  }
  bool Get(std::string_view key, std::string* value) {
    int size;
    const char* const found = vlgetcache(db_, key.data(), static_cast<int>(key.size()), &size);
    if (found == nullptr) return false;
    value->assign(found, static_cast<std::size_t>(size));
    return true;
  }
  bool Remove(std::string_view key) { return vlout(db_, key.data(), static_cast<int>(key.size())); }
  template <class Visit>
  bool ScanFrom(std::string_view key, std::size_t count, Visit visit) {
    bool more = key.empty() ? vlcurfirst(db_) : vlcurjump(db_, key.data(), static_cast<int>(key.size()), VL_JFORWARD);
    for (; more && count > 0; --count, more = vlcurnext(db_)) {
      int key_size, value_size;
      const char* const k = vlcurkeycache(db_, &key_size);
      const char* const v = vlcurvalcache(db_, &value_size);
      visit(std::string_view(k, static_cast<std::size_t>(key_size)), std::string_view(v, static_cast<std::size_t>(value_size)));
    }
    return count == 0 || dpecode == DP_ENOITEM;
  }
  std::uint64_t Count() { return static_cast<std::uint64_t>(vlrnum(db_)); }
  bool Close() { return Good(vlclose(db_)); }

 private:
  static bool Good(bool good) { return good || Fail(dperrmsg(dpecode)); }

  VILLA* db_ = nullptr;
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::Main<hako::compare::VillaEngine>(argc, argv); }
