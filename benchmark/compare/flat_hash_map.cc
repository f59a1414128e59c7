// absl::flat_hash_map of strings, grown from empty, with no lock at all: one thread only. Looked up without making a string.
#include "absl/container/flat_hash_map.h"

#include "absl/strings/string_view.h"
#include "driver.h"

namespace hako::compare {

class FlatHashMapEngine {
 public:
  static constexpr std::string_view kName = "flat_hash_map";
  static constexpr bool kOnDisk = false, kConcurrent = false, kWritable = true;

  bool Open(const std::string&, std::uint64_t) { return true; }
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
  bool Remove(std::string_view key) {
    const auto found = map_.find(Key(key));
    if (found == map_.end()) return false;
    map_.erase(found);
    return true;
  }
  template <class Visit>
  bool Scan(Visit visit) {
    for (const auto& [key, value] : map_) visit(key, value);
    return true;
  }
  std::uint64_t Count() { return map_.size(); }
  bool Close() {
    absl::flat_hash_map<std::string, std::string>().swap(map_);
    return true;
  }

 private:
  static absl::string_view Key(std::string_view key) { return {key.data(), key.size()}; }  // Debian's is not std::string_view

  absl::flat_hash_map<std::string, std::string> map_;
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::Main<hako::compare::FlatHashMapEngine>(argc, argv); }
