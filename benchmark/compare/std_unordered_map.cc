// std::unordered_map of strings, with room for all records reserved.
#include <unordered_map>

#include "map_engine.h"

namespace hako::compare {

struct StringHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view key) const { return std::hash<std::string_view>()(key); }
};
using StringMap = std::unordered_map<std::string, std::string, StringHash, std::equal_to<>>;

class StdUnorderedMapEngine : public UnlockedMapEngine<StringMap, std::string_view> {
 public:
  static constexpr std::string_view kName = "std_unordered_map";
  bool Open(const std::string&, std::uint64_t n) {
    map_.reserve(n);
    return true;
  }
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::Main<hako::compare::StdUnorderedMapEngine>(argc, argv); }
