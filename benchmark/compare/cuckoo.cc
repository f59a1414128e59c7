// libcuckoo's cuckoohash_map of strings, grown from its default size; looked up without making a
// string.
#include <libcuckoo/cuckoohash_map.hh>

#include "map_engine.h"

namespace hako::compare {

using CuckooMap = libcuckoo::cuckoohash_map<std::string, std::string, std::hash<std::string_view>, std::equal_to<>>;

class CuckooEngine : public MapEngine<CuckooMap> {
 public:
  static constexpr std::string_view kName = "cuckoo";
  static constexpr bool kConcurrent = true;

  bool Set(std::string_view key, std::string_view value) {
    map_.insert_or_assign(key, value);
    return true;
  }
  bool Get(std::string_view key, std::string* value) { return map_.find(key, *value); }
  template <class Visit>
  bool Scan(Visit visit) {
    const auto locked = map_.lock_table();
    for (const auto& [key, value] : locked) visit(key, value);
    return true;
  }
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::Main<hako::compare::CuckooEngine>(argc, argv); }
