// absl::btree_map of strings, with no lock at all: one thread only. Looked up without making a string.
#include "absl/container/btree_map.h"

#include "absl/strings/string_view.h"
#include "map_engine.h"

namespace hako::compare {

using TreeMap = absl::btree_map<std::string, std::string>;

class BtreeMapEngine : public MapEngine<TreeMap> {
 public:
  static constexpr std::string_view kName = "btree_map";
  static constexpr bool kConcurrent = false;

  bool Set(std::string_view key, std::string_view value) {
    map_.try_emplace(Key(key)).first->second.assign(value);
    return true;
  }
  bool Get(std::string_view key, std::string* value) {
    const auto found = map_.find(Key(key));
    if (found == map_.end()) return false;
    value->assign(found->second);
    return true;
  }
  bool Remove(std::string_view key) { return map_.erase(Key(key)) != 0; }
  template <class Visit>
  bool ScanFrom(std::string_view key, std::size_t count, Visit visit) {
    for (auto it = map_.lower_bound(Key(key)); count > 0 && it != map_.end(); --count, ++it) visit(it->first, it->second);
    return true;
  }
  bool Close() {
    TreeMap().swap(map_);
    return true;
  }

 private:
  static absl::string_view Key(std::string_view key) { return {key.data(), key.size()}; }  // Debian's is not std::string_view
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::Main<hako::compare::BtreeMapEngine>(argc, argv); }
