// Tkrzw's BabyDBM with default options; in memory only.
#include <tkrzw_dbm_baby.h>

#include "tkrzw.h"

namespace hako::compare {

class TkrzwBabyEngine : public TkrzwOrderedEngine<tkrzw::BabyDBM> {
 public:
  static constexpr std::string_view kName = "tkrzw_baby";
  static constexpr bool kOnDisk = false;

  bool Open(const std::string&, std::uint64_t) {
    dbm_ = std::make_unique<tkrzw::BabyDBM>();
    return true;
  }
  bool Close() {
    dbm_.reset();  // it was never opened on a file
    return true;
  }
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::Main<hako::compare::TkrzwBabyEngine>(argc, argv); }
