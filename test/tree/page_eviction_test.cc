// Loading pages into a cache that is full of changed ones, which cannot be evicted.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "dbm/listing.h"
#include "gtest/gtest.h"
#include "support/cached_tree.h"
#include "support/cpu_time.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"

namespace hako {
namespace {

constexpr std::uint64_t kMemory = 32 << 20, kPageSize = 128, kStep = 30;  // of keys: one at most is in a leaf

// A tree with `changed` changed leaves in memory, and `others` in the file, whose cache has no
// memory left.
std::unique_ptr<CachedTree> FullOfChangedPages(std::uint64_t changed, std::uint64_t others) {
  MemoryFile file;
  {
    CachedTree tree(file.Share(), 1 << 30, kPageSize);
    for (std::uint64_t i = 0; i < (changed + others) * kStep; ++i) EXPECT_THAT(tree.Set(NumberedKey(i), "0"), IsOk());
    EXPECT_THAT(tree.Checkpoint(), IsOk());
  }
  auto tree = std::make_unique<CachedTree>(file.Share(), kMemory, kPageSize);
  for (std::uint64_t i = 0; i < changed; ++i) EXPECT_THAT(tree->SetAlone(NumberedKey(i * kStep), "1"), IsOk());
  while (tree->cache().memory_bytes() < kMemory) tree->cache().Allocate(64);  // as if by large changed pages
  return tree;
}

// The processor time of changing a record of a page that is not in memory, the least of several.
std::uint64_t CostOfAChange(std::uint64_t changed) {
  constexpr std::uint64_t kOthers = 20;
  const std::unique_ptr<CachedTree> tree = FullOfChangedPages(changed, kOthers);
  std::uint64_t least = ~std::uint64_t{0};
  for (std::uint64_t i = 0; i < kOthers; ++i) {
    const std::uint64_t begin = CpuNanoseconds();
    EXPECT_THAT(tree->SetAlone(NumberedKey((changed + i) * kStep), "1"), IsOk());
    least = std::min(least, CpuNanoseconds() - begin);
  }
  return least;
}

TEST(PageEviction, CostDoesNotDependOnUnevictablePages) {
  const std::uint64_t few = CostOfAChange(100), many = CostOfAChange(20'000 / kSlowdown);
  std::printf("100 pages: %llu us; %llu pages: %llu us\n", static_cast<unsigned long long>(few / 1000),
              static_cast<unsigned long long>(20'000 / kSlowdown), static_cast<unsigned long long>(many / 1000));
  EXPECT_LE(many, 4 * few + 50'000);
}

TEST(PageEviction, ReadersStayNearTheLimitIfFewPagesCanBeEvicted) {
  constexpr std::uint64_t kChanged = 8000 / kSlowdown, kOthers = 2000;
  const std::unique_ptr<CachedTree> tree = FullOfChangedPages(kChanged, kOthers);
  for (std::uint64_t i = 0; i < kOthers; ++i) EXPECT_THAT(tree->Get(NumberedKey((kChanged + i) * kStep)), IsOk());
  std::uint64_t unchanged = 0;
  tree->ForEachUnlockedPage([&](std::uint32_t, const format::PageLine& line, const CachedTree::View& page) {
    if (page.level() == 0 && (line.shape.kind & format::PageShape::kMark) == 0) ++unchanged;
  });
  std::printf("%llu of %llu stay\n", static_cast<unsigned long long>(unchanged), static_cast<unsigned long long>(kOthers));
  EXPECT_LE(unchanged, kOthers / 4);
}

}  // namespace
}  // namespace hako
