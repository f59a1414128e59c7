// Kyoto Cabinet's GrassDB: in memory, in order; 256 MiB for pages that are not serialized.
#include <kccachedb.h>

#include "kyoto.h"

namespace hako::compare {

class KyotoGrassEngine : public KyotoOrderedEngine<kyotocabinet::GrassDB> {
 public:
  static constexpr std::string_view kName = "kc_grass";
  static constexpr bool kOnDisk = false;

  bool Open(const std::string&, std::uint64_t) {
    using kyotocabinet::GrassDB;
    return (!IsTuned() || db_.tune_page_cache(256 << 20)) && Good(db_.open("%", GrassDB::OWRITER | GrassDB::OCREATE));
  }
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::Main<hako::compare::KyotoGrassEngine>(argc, argv); }
