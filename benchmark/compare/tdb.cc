// Samba's TDB: a chain a record, the better hash function, without its locks and its syncs; or its
// defaults. No transactions.
#include <fcntl.h>
#include <sys/types.h>
// Their order matters: tdb.h needs the types.
#include <tdb.h>

#include "driver.h"

namespace hako::compare {

class TdbEngine {
 public:
  static constexpr std::string_view kName = "tdb";
  static constexpr bool kOnDisk = true, kConcurrent = false, kWritable = true;

  bool Open(const std::string& path, std::uint64_t n) {
    const int flags = IsTuned() ? TDB_NOLOCK | TDB_NOSYNC | TDB_INCOMPATIBLE_HASH : TDB_DEFAULT;
    db_ = tdb_open(path.c_str(), IsTuned() ? static_cast<int>(n) : 0, flags, O_RDWR | O_CREAT, 0644);
    return db_ != nullptr || Fail(std::strerror(errno));
  }
  bool Set(std::string_view key, std::string_view value) { return tdb_store(db_, Data(key), Data(value), 0) == 0; }
  bool Get(std::string_view key, std::string* value) {
    const auto copy = [](TDB_DATA, TDB_DATA found, void* out) { return static_cast<std::string*>(out)->assign(View(found)), 0; };
    return tdb_parse_record(db_, Data(key), copy, value) == 0;
  }
  bool Remove(std::string_view key) { return tdb_delete(db_, Data(key)) == 0; }
  template <class Visit>
  bool Scan(Visit visit) {
    const auto show = [](tdb_context*, TDB_DATA key, TDB_DATA value, void* to) {
      return (*static_cast<Visit*>(to))(View(key), View(value)), 0;
    };
    return tdb_traverse_read(db_, show, &visit) >= 0;
  }
  bool Close() { return tdb_close(db_) == 0; }

 private:
  static TDB_DATA Data(std::string_view bytes) { return {reinterpret_cast<unsigned char*>(const_cast<char*>(bytes.data())), bytes.size()}; }
  static std::string_view View(const TDB_DATA& data) { return {reinterpret_cast<const char*>(data.dptr), data.dsize}; }

  tdb_context* db_ = nullptr;
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::Main<hako::compare::TdbEngine>(argc, argv); }
