#include "hako/file/block_ranges.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>

#include "support/random.h"

namespace hako {
namespace {

TEST(BlockRanges, AgreesWithASetOfBlocks) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  constexpr std::uint64_t kBlocks = 60;
  BlockRanges ranges;
  std::set<std::uint64_t> model;
  for (int step = 0; step < 20'000; ++step) {
    const std::uint64_t first = random.Below(kBlocks), end = first + random.Below(random.OneIn(4) ? 30 : 3);
    if (random.OneIn(2)) {
      ranges.Add(first, end);
      for (std::uint64_t block = first; block < end; ++block) model.insert(block);
    } else {
      ranges.Remove(first, end);
      for (std::uint64_t block = first; block < end; ++block) model.erase(block);
    }
    for (std::uint64_t block = 0; block < kBlocks + 40; ++block) ASSERT_EQ(ranges.Contains(block), model.contains(block)) << step;
  }
}

}  // namespace
}  // namespace hako
