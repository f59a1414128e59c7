// The program of one target, with libFuzzer.
//
// HAKO_FUZZ_SEEDS=write writes the seeds of the target into its corpus, and ends.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "fuzz/seeds.h"
#include "fuzz/target.h"
#include "support/failing_calls_definitions.h"
#include "support/random.h"

using hako::fuzz::Target;

namespace {
const Target& TheTarget() { return hako::fuzz::Targets().front(); }
}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  hako::fuzz::CurrentInput() = TheTarget().name;
  if (std::getenv("HAKO_FUZZ_SEEDS") == nullptr || TheTarget().make_seeds == nullptr) return 0;
  hako::fuzz::WriteSeeds(TheTarget());
  std::exit(0);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  TheTarget().run({reinterpret_cast<const char*>(data), size});
  return 0;
}

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

// Most mutants of a target with a mutator are its own.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size, unsigned seed) {
  hako::Random random(seed);
  if (TheTarget().mutate == nullptr || random.OneIn(8)) return LLVMFuzzerMutate(data, size, max_size);
  std::string input(reinterpret_cast<const char*>(data), size);
  TheTarget().mutate(input, random);
  if (input.size() > max_size) return size;
  std::copy(input.begin(), input.end(), reinterpret_cast<char*>(data));
  return input.size();
}
