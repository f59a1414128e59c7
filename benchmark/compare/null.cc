// No engine: touches the operands and returns the key as the value. What it takes is the cost of
// the measuring itself.
#include "driver.h"

namespace hako::compare {

class NullEngine {
 public:
  static constexpr std::string_view kName = "null";
  static constexpr bool kOnDisk = false, kConcurrent = true, kWritable = true, kNull = true;

  bool Open(const std::string&, std::uint64_t) { return true; }
  bool Set(std::string_view key, std::string_view value) { return Edges(key) + Edges(value) != 0; }
  bool Get(std::string_view key, std::string* value) {
    value->assign(key);
    return true;
  }
  bool Remove(std::string_view key) { return Edges(key) != 0; }
  template <class Visit>
  bool Scan(Visit) {
    return true;
  }
  bool Close() { return true; }
};

}  // namespace hako::compare

int main(int argc, char** argv) { return hako::compare::Main<hako::compare::NullEngine>(argc, argv); }
