// Kyoto Cabinet's CacheDB: in memory, a hash table that can forget the oldest records, here without a
// limit; one bucket a record.
#include <kccachedb.h>

#include "kyoto.h"

namespace hako::compare {

class KyotoCacheEngine : public KyotoEngine<kyotocabinet::CacheDB> {
 public:
  static constexpr std::string_view kName = "kc_cache";
  static constexpr bool kOnDisk = false;

  bool Open(const std::string&, std::uint64_t n) {
    using kyotocabinet::CacheDB;
    return (!IsTuned() || db_.tune_buckets(static_cast<std::int64_t>(n))) && Good(db_.open("*", CacheDB::OWRITER | CacheDB::OCREATE));
  }
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::Main<hako::compare::KyotoCacheEngine>(argc, argv); }
