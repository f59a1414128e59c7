// Runs each input of the corpora, and mutants of it, which follow from a fixed seed.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "fuzz/seeds.h"
#include "fuzz/target.h"
#include "hako/base/hash.h"
#include "support/failing_calls_definitions.h"
#include "support/random.h"
#include "support/sanitizers.h"

namespace hako::fuzz {
namespace {

class FuzzReplayTest : public testing::TestWithParam<Target> {};

TEST_P(FuzzReplayTest, SurvivesTheCorpusAndMutants) {
  const Target& target = GetParam();
  const auto inputs = InputsOf(target);
  ASSERT_FALSE(inputs.empty());
  for (const auto& [name, input] : inputs) {
    Random random(Hash64(name, 1));
    const bool is_golden = name.starts_with("golden");  // long
    for (int i = 0; i <= target.mutants / (is_golden ? 10 : 1) / kSlowdown; ++i) {
      std::string mutant = input;
      for (std::uint64_t step = i == 0 ? 0 : random.Between(1, 3); step > 0; --step)
        target.mutate != nullptr ? target.mutate(mutant, random) : MutateBytes(mutant, random);
      CurrentInput() = std::string(target.name) + ", " + name + ", mutant " + std::to_string(i);
      target.run(mutant);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, FuzzReplayTest, testing::ValuesIn(Targets()),
                         [](const auto& target) { return std::string(target.param.name); });

}  // namespace
}  // namespace hako::fuzz
