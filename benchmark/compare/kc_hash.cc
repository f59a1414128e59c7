// Kyoto Cabinet's HashDB as its manual tunes it: two buckets a record and linear chains, and a map
// that holds the whole file.
#include <kchashdb.h>

#include "kyoto.h"

namespace hako::compare {

class KyotoHashEngine : public KyotoEngine<kyotocabinet::HashDB> {
 public:
  static constexpr std::string_view kName = "kc_hash";
  static constexpr bool kOnDisk = true;

  bool Open(const std::string& path, std::uint64_t n) {
    using kyotocabinet::HashDB;
    const auto records = static_cast<std::int64_t>(n);
    if (!IsTuned()) return Good(db_.open(path, HashDB::OWRITER | HashDB::OCREATE));
    return db_.tune_options(HashDB::TLINEAR) && db_.tune_buckets(2 * records) &&
           db_.tune_map(std::max<std::int64_t>(256 << 20, 256 * records)) && Good(db_.open(path, HashDB::OWRITER | HashDB::OCREATE));
  }
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::Main<hako::compare::KyotoHashEngine>(argc, argv); }
