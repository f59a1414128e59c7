// Writers that pause because most of the cache's memory holds changed pages.
#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "support/cached_tree.h"
#include "support/status_matchers.h"

namespace hako {
namespace {

TEST(PagePause, ReadersDoNotPause) {
  CachedTree tree(MemoryFile(), 1 << 20, 1024);
  ASSERT_THAT(tree.Set("key", "value"), IsOk());
  std::vector<std::uint32_t> changed;
  while (!tree.cache().NeedsEviction()) changed.push_back(tree.cache().Allocate(1));

  EXPECT_THAT(tree.Look("key"), IsOk());
  EXPECT_TRUE(tree.cache().NeedsEviction()) << "a reader paused instead of a writer";
  EXPECT_THAT(tree.Set("key", "other"), IsOk());
  EXPECT_FALSE(tree.cache().NeedsEviction());

  for (const std::uint32_t unit : changed) tree.cache().Free(unit, 1);
}

}  // namespace
}  // namespace hako
