// Tokyo Cabinet's hash database: two buckets a record and a map that holds the whole file; or its
// defaults; or the article's settings, with asynchronous puts. Without its mutex.
#include <tchdb.h>

#include "driver.h"

namespace hako::compare {

class TokyoHashEngine {
 public:
  static constexpr std::string_view kName = "tc_hash";
  static constexpr bool kOnDisk = true, kConcurrent = false, kWritable = true;

  ~TokyoHashEngine() { tchdbdel(db_); }
  bool Open(const std::string& path, std::uint64_t n) {
    const auto records = static_cast<std::int64_t>(n);
    if (IsSeed())
      tchdbtune(db_, 3 * records, 0, 0, 0), tchdbsetxmsiz(db_, 48 * records);
    else if (IsTuned())
      tchdbtune(db_, 2 * records, -1, -1, 0), tchdbsetxmsiz(db_, 256 * records);
    return Good(tchdbopen(db_, path.c_str(), HDBOWRITER | HDBOCREAT));
  }
  bool Set(std::string_view key, std::string_view value) {
    const auto put = IsSeed() ? tchdbputasync : tchdbput;
    return put(db_, key.data(), static_cast<int>(key.size()), value.data(), static_cast<int>(value.size()));
  }
  bool Get(std::string_view key, std::string* value) {
    char out[4096];
    const int size = tchdbget3(db_, key.data(), static_cast<int>(key.size()), out, sizeof(out));
    if (size < 0) return false;
    value->assign(out, static_cast<std::size_t>(size));
    return true;
  }
  bool Remove(std::string_view key) { return tchdbout(db_, key.data(), static_cast<int>(key.size())); }
  template <class Visit>
  bool Scan(Visit visit) {
    TCXSTR *key = tcxstrnew(), *value = tcxstrnew();
    const bool good = tchdbiterinit(db_);
    while (tchdbiternext3(db_, key, value)) visit(View(key), View(value));
    tcxstrdel(key), tcxstrdel(value);
    return good && tchdbecode(db_) != TCERHEAD && tchdbecode(db_) != TCEREAD;
  }
  std::uint64_t Count() { return tchdbrnum(db_); }
  bool Close() { return Good(tchdbclose(db_)); }

 private:
  static std::string_view View(const TCXSTR* text) {
    return {static_cast<const char*>(tcxstrptr(text)), static_cast<std::size_t>(tcxstrsize(text))};
  }
  bool Good(bool good) { return good || Fail(tchdberrmsg(tchdbecode(db_))); }

  TCHDB* db_ = tchdbnew();
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::Main<hako::compare::TokyoHashEngine>(argc, argv); }
