// A fuzz target: a function that takes any bytes, and must neither crash nor hang, whatever they are.
//
// Each target is one file. With libfuzzer.cc it is a program that searches for inputs; with
// replay_test.cc all targets are one test, which runs each input of the corpus and mutants of it.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "hako/base/status.h"
#include "support/random.h"

namespace hako::fuzz {

struct Target {
  const char* name;
  void (*run)(std::string_view input);
  // Changes an input, which may be empty; random.Next() decides. nullptr: its bytes are changed.
  void (*mutate)(std::string& input, Random& random) = nullptr;
  // Makes the inputs that the target begins with, which are then kept in its corpus.
  std::vector<std::string> (*make_seeds)() = nullptr;
  int mutants = 100;  // of each input, in the replay
  // Golden files (dbm/golden) that are inputs of the replay, too, and how one is made an input.
  std::vector<std::string> golden = {};
  std::string (*input_of)(std::string_view file) = nullptr;
};

inline std::vector<Target>& Targets() {
  static std::vector<Target> targets;
  return targets;
}
struct Registration {
  explicit Registration(const Target& target) { Targets().push_back(target); }
};

// Which input runs, for the report of a failure.
inline std::string& CurrentInput() {
  static std::string name;
  return name;
}
// Ends the program if the condition does not hold.
inline void Require(bool condition, std::string_view what, const Status& status = {}) {
  if (condition) return;
  std::fprintf(stderr, "%s: %.*s %s\n", CurrentInput().c_str(), static_cast<int>(what.size()), what.data(), status.ToString().c_str());
  std::abort();
}

// Takes numbers from an input; zeros at its end.
class Bytes {
 public:
  explicit Bytes(std::string_view input) : left_(input) {}
  bool empty() const { return left_.empty(); }
  unsigned Byte() {
    const unsigned byte = left_.empty() ? 0 : static_cast<unsigned char>(left_[0]);
    left_.remove_prefix(left_.empty() ? 0 : 1);
    return byte;
  }
  std::string_view Take(std::size_t size) {
    const std::string_view taken = left_.substr(0, size);
    left_.remove_prefix(taken.size());
    return taken;
  }

 private:
  std::string_view left_;
};

// Changes some bytes, as LLVMFuzzerMutate does.
inline void MutateBytes(std::string& bytes, Random& random) {
  for (std::uint64_t step = random.Between(1, 4); step > 0; --step) {
    const std::size_t at = bytes.empty() ? 0 : random.Below(bytes.size());
    switch (random.Below(bytes.empty() ? 1 : 5)) {
      case 0:
        bytes.insert(at, random.Bytes(random.Between(1, 8)));
        break;
      case 1:
        bytes.erase(at, random.Between(1, 8));
        break;
      case 2:
        bytes[at] = static_cast<char>(bytes[at] ^ 1 << random.Below(8));
        break;
      case 3:
        bytes.insert(random.Below(bytes.size()), bytes.substr(at, random.Between(1, 32)));
        break;
      default:
        bytes[at] = static_cast<char>(random.Next());
    }
  }
}

}  // namespace hako::fuzz
