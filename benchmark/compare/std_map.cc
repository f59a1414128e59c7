// std::map of strings.
#include <map>

#include "map_engine.h"

namespace hako::compare {

using StringMap = std::map<std::string, std::string, std::less<>>;

class StdMapEngine : public UnlockedMapEngine<StringMap, std::string_view> {
 public:
  static constexpr std::string_view kName = "std_map";

  template <class Visit>
  bool ScanFrom(std::string_view key, std::size_t count, Visit visit) {
    for (auto it = map_.lower_bound(key); count > 0 && it != map_.end(); --count, ++it) visit(it->first, it->second);
    return true;
  }
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::Main<hako::compare::StdMapEngine>(argc, argv); }
