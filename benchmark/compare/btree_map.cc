// absl::btree_map of strings.
#include "absl/container/btree_map.h"

#include "absl/strings/string_view.h"
#include "map_engine.h"

namespace hako::compare {

using TreeMap = absl::btree_map<std::string, std::string>;

class BtreeMapEngine : public UnlockedMapEngine<TreeMap, absl::string_view> {
 public:
  static constexpr std::string_view kName = "btree_map";

  template <class Visit>
  bool ScanFrom(std::string_view key, std::size_t count, Visit visit) {
    for (auto it = map_.lower_bound(View(key)); count > 0 && it != map_.end(); --count, ++it) visit(it->first, it->second);
    return true;
  }
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::Main<hako::compare::BtreeMapEngine>(argc, argv); }
