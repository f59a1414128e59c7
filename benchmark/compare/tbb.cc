// oneTBB's concurrent_hash_map of strings, grown from empty; looked up without making a string.
#include <oneapi/tbb/concurrent_hash_map.h>

#include "driver.h"

namespace hako::compare {

class TbbEngine {
 public:
  static constexpr std::string_view kName = "tbb";
  static constexpr bool kOnDisk = false, kConcurrent = true, kWritable = true;

  bool Open(const std::string&, std::uint64_t) { return true; }
  bool Set(std::string_view key, std::string_view value) {
    Map::accessor found;
    map_.insert(found, key);
    found->second.assign(value);
    return true;
  }
  bool Get(std::string_view key, std::string* value) {
    Map::const_accessor found;
    if (!map_.find(found, key)) return false;
    value->assign(found->second);
    return true;
  }
  bool Remove(std::string_view key) { return map_.erase(key); }
  template <class Visit>
  bool Scan(Visit visit) {
    for (const auto& [key, value] : map_) visit(key, value);
    return true;
  }
  std::uint64_t Count() { return map_.size(); }
  bool Close() {
    map_.clear();
    return true;
  }

 private:
  struct HashCompare {
    using is_transparent = void;
    std::size_t hash(std::string_view key) const { return std::hash<std::string_view>()(key); }
    bool equal(std::string_view a, std::string_view b) const { return a == b; }
  };
  using Map = tbb::concurrent_hash_map<std::string, std::string, HashCompare>;
  Map map_;
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::Main<hako::compare::TbbEngine>(argc, argv); }
