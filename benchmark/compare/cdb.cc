// tinycdb: a constant database, written once and then read only through a map. Fill includes the
// writing of its index.
#include <cdb.h>
#include <fcntl.h>
#include <unistd.h>

#include "driver.h"

namespace hako::compare {

class CdbEngine {
 public:
  static constexpr std::string_view kName = "cdb";
  static constexpr bool kOnDisk = true, kConcurrent = false, kWritable = false;

  bool Open(const std::string& path, std::uint64_t) {
    fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd_ < 0) return false;
    return lseek(fd_, 0, SEEK_END) > 0 ? cdb_init(&cdb_, fd_) == 0 : cdb_make_start(&make_, fd_) == 0;
  }
  bool Set(std::string_view key, std::string_view value) {
    return cdb_make_add(&make_, key.data(), static_cast<unsigned>(key.size()), value.data(), static_cast<unsigned>(value.size())) == 0;
  }
  bool EndPhase(Phase phase) { return phase != Phase::kFill || (cdb_make_finish(&make_) == 0 && cdb_init(&cdb_, fd_) == 0); }

  bool Get(std::string_view key, std::string* value) {
    if (cdb_find(&cdb_, key.data(), static_cast<unsigned>(key.size())) <= 0) return false;
    const void* data = cdb_getdata(&cdb_);
    if (data == nullptr) return false;
    value->assign(static_cast<const char*>(data), cdb_datalen(&cdb_));
    return true;
  }
  template <class Visit>
  bool Scan(Visit visit) {
    unsigned position;
    cdb_seqinit(&position, &cdb_);
    int found;
    while ((found = cdb_seqnext(&position, &cdb_)) > 0)
      visit(std::string_view(static_cast<const char*>(cdb_getkey(&cdb_)), cdb_keylen(&cdb_)),
            std::string_view(static_cast<const char*>(cdb_getdata(&cdb_)), cdb_datalen(&cdb_)));
    return found == 0;
  }
  bool Remove(std::string_view) { return false; }
  bool Close() {
    cdb_free(&cdb_);
    return close(fd_) == 0;
  }

 private:
  int fd_ = -1;
  cdb_make make_{};
  cdb cdb_{};
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::Main<hako::compare::CdbEngine>(argc, argv); }
