// hako's TinyDBM; grown from default options, or with HAKO_PRESIZED told how many records to
// expect.
#include "driver.h"
#include "hako/dbm/tiny_dbm.h"
#include "hako_engine.h"

namespace hako::compare {

class HakoTinyEngine : public HakoEngine<TinyDBM<>> {
 public:
  static constexpr std::string_view kName = kPresized ? "hako_tiny_presized" : "hako_tiny";
  static constexpr bool kOnDisk = false;

  bool Open(const std::string&, std::uint64_t n) {
    TinyOptions options;
    if (kPresized) options.num_records = n;
    return Take(TinyDBM<>::Open(options));
  }
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::Main<hako::compare::HakoTinyEngine>(argc, argv); }
