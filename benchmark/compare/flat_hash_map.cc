// absl::flat_hash_map of strings, grown from empty.
#include "absl/container/flat_hash_map.h"

#include "absl/strings/string_view.h"
#include "map_engine.h"

namespace hako::compare {

using FlatMap = absl::flat_hash_map<std::string, std::string>;

class FlatHashMapEngine : public UnlockedMapEngine<FlatMap, absl::string_view> {
 public:
  static constexpr std::string_view kName = "flat_hash_map";
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::Main<hako::compare::FlatHashMapEngine>(argc, argv); }
