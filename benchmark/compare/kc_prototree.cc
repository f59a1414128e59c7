// Kyoto Cabinet's ProtoTreeDB: a std::map of strings under a lock.
#include <kcprotodb.h>

#include "kyoto.h"

namespace hako::compare {

class KyotoProtoTreeEngine : public KyotoOrderedEngine<kyotocabinet::ProtoTreeDB> {
 public:
  static constexpr std::string_view kName = "kc_prototree";
  static constexpr bool kOnDisk = false;

  bool Open(const std::string&, std::uint64_t) {
    using kyotocabinet::ProtoTreeDB;
    return Good(db_.open("-", ProtoTreeDB::OWRITER | ProtoTreeDB::OCREATE));
  }
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::Main<hako::compare::KyotoProtoTreeEngine>(argc, argv); }
