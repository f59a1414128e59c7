// Tokyo Cabinet's fixed-length database. Its ids begin with 1. It has no lock unless tcfdbsetmutex is called;
// with HAKO_LOCKED it is, as several threads need it.
#include <tcfdb.h>

#include "array.h"

namespace hako::compare {

class ArrayTokyo {
 public:
#if defined(HAKO_LOCKED)
  static constexpr std::string_view kName = "tcfdb_mutex";
#else
  static constexpr std::string_view kName = "tcfdb";
#endif

  ~ArrayTokyo() { tcfdbdel(db_); }
  bool Open(const std::string& path, std::uint64_t width, std::uint64_t n) {
#if defined(HAKO_LOCKED)
    if (!tcfdbsetmutex(db_)) return false;
#endif
    // Its limit is 256 MiB by default; enough for all, as its array cannot grow beyond.
    return tcfdbtune(db_, static_cast<std::int32_t>(width), static_cast<std::int64_t>((width + 4) * n + (1 << 20))) &&
           tcfdbopen(db_, path.c_str(), FDBOWRITER | FDBOCREAT | FDBOTRUNC);
  }
  bool Set(std::uint64_t id, std::string_view value) {
    return tcfdbput(db_, static_cast<std::int64_t>(id + 1), value.data(), static_cast<int>(value.size()));
  }
  bool Get(std::uint64_t id, char* out) { return tcfdbget4(db_, static_cast<std::int64_t>(id + 1), out, 4096) >= 0; }
  std::uint64_t Append(std::string_view value) {
    return tcfdbput(db_, FDBIDNEXT, value.data(), static_cast<int>(value.size())) ? ~std::uint64_t{0} : 0;
  }
  template <class Visit>
  bool Scan(Visit visit) {
    char out[4096];
    if (!tcfdbiterinit(db_)) return false;
    while (const std::uint64_t id = tcfdbiternext(db_)) {
      const int size = tcfdbget4(db_, static_cast<std::int64_t>(id), out, sizeof(out));
      if (size < 0) return false;
      visit(id - 1, std::string_view(out, static_cast<std::size_t>(size)));
    }
    return true;
  }
  bool Close() { return tcfdbclose(db_); }

 private:
  TCFDB* db_ = tcfdbnew();
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::ArrayMain<hako::compare::ArrayTokyo>(argc, argv); }
