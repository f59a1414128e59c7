// Kyoto Cabinet's TreeDB: 256 MiB for pages, a bucket a page, linear chains, and a map that holds the
// whole file; or its defaults.
#include <kchashdb.h>

#include "kyoto.h"

namespace hako::compare {

class KyotoTreeEngine : public KyotoOrderedEngine<kyotocabinet::TreeDB> {
 public:
  static constexpr std::string_view kName = "kc_tree";
  static constexpr bool kOnDisk = true;

  bool Open(const std::string& path, std::uint64_t n) {
    using kyotocabinet::TreeDB;
    const auto records = static_cast<std::int64_t>(n);
    if (IsTuned() &&
        !(db_.tune_options(TreeDB::TLINEAR) && db_.tune_page_cache(256 << 20) &&
          db_.tune_buckets(std::max<std::int64_t>(records / 10, 1024)) && db_.tune_map(std::max<std::int64_t>(256 << 20, 256 * records))))
      return false;
    return Good(db_.open(path, TreeDB::OWRITER | TreeDB::OCREATE));
  }
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::Main<hako::compare::KyotoTreeEngine>(argc, argv); }
