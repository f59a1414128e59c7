// hako's BabyDBM with default options.
#include "driver.h"
#include "hako/dbm/baby_dbm.h"
#include "hako_engine.h"

namespace hako::compare {

class HakoBabyEngine : public HakoEngine<BabyDBM<>> {
 public:
  static constexpr std::string_view kName = "hako_baby";
  static constexpr bool kOnDisk = false;

  bool Open(const std::string&, std::uint64_t) { return Take(BabyDBM<>::Open()); }
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::Main<hako::compare::HakoBabyEngine>(argc, argv); }
