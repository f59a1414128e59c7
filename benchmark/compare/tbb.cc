// oneTBB's concurrent_hash_map of strings, grown from empty; looked up without making a string.
#include <oneapi/tbb/concurrent_hash_map.h>

#include "map_engine.h"

namespace hako::compare {

struct HashCompare {
  using is_transparent = void;
  std::size_t hash(std::string_view key) const { return std::hash<std::string_view>()(key); }
  bool equal(std::string_view a, std::string_view b) const { return a == b; }
};
using TbbMap = tbb::concurrent_hash_map<std::string, std::string, HashCompare>;

class TbbEngine : public MapEngine<TbbMap> {
 public:
  static constexpr std::string_view kName = "tbb";
  static constexpr bool kConcurrent = true;

  bool Set(std::string_view key, std::string_view value) {
    TbbMap::accessor found;
    map_.insert(found, key);
    found->second.assign(value);
    return true;
  }
  bool Get(std::string_view key, std::string* value) {
    TbbMap::const_accessor found;
    if (!map_.find(found, key)) return false;
    value->assign(found->second);
    return true;
  }
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::Main<hako::compare::TbbEngine>(argc, argv); }
