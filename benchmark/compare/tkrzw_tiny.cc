// Tkrzw's TinyDBM, with as many buckets as records; in memory only.
#include <tkrzw_dbm_tiny.h>

#include "tkrzw.h"

namespace hako::compare {

class TkrzwTinyEngine : public TkrzwEngine<tkrzw::TinyDBM> {
 public:
  static constexpr std::string_view kName = "tkrzw_tiny";
  static constexpr bool kOnDisk = false;

  bool Open(const std::string&, std::uint64_t n) {
    dbm_ = std::make_unique<tkrzw::TinyDBM>(static_cast<std::int64_t>(n));
    return true;
  }
  bool Close() {
    dbm_.reset();  // it was never opened on a file
    return true;
  }
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::Main<hako::compare::TkrzwTinyEngine>(argc, argv); }
