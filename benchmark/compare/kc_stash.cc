// Kyoto Cabinet's StashDB: in memory, records in chains; one bucket a record.
#include <kcstashdb.h>

#include "kyoto.h"

namespace hako::compare {

class KyotoStashEngine : public KyotoEngine<kyotocabinet::StashDB> {
 public:
  static constexpr std::string_view kName = "kc_stash";
  static constexpr bool kOnDisk = false;

  bool Open(const std::string&, std::uint64_t n) {
    using kyotocabinet::StashDB;
    return db_.tune_buckets(static_cast<std::int64_t>(n)) && db_.open("*", StashDB::OWRITER | StashDB::OCREATE);
  }
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::Main<hako::compare::KyotoStashEngine>(argc, argv); }
