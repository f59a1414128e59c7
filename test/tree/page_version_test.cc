// Optimistic readers rely on this: a page whose version has not changed has neither moved nor
// changed.
#include <cstdint>
#include <map>
#include <string>

#include "dbm/listing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/cached_tree.h"
#include "support/random.h"

namespace hako {
namespace {

class PageVersionTest : public testing::Test {
 protected:
  struct Seen {
    std::uint32_t version, unit;
    std::string bytes;
  };

  // Compares each resident page with its state at the last call.
  void LookAtPages() {
    std::map<std::uint32_t, Seen> seen;
    tree_.ForEachUnlockedPage([&](std::uint32_t id, const format::PageLine& line, const CachedTree::View& page) {
      seen[id] = {line.version, line.unit, std::string(page.base(), page.shape().size())};
      const auto before = seen_.find(id);
      if (before == seen_.end() || before->second.version != line.version) return;
      EXPECT_EQ(before->second.unit, line.unit) << "page " << id << " has moved";
      EXPECT_TRUE(before->second.bytes == seen[id].bytes) << "page " << id << " has changed";
    });
    seen_ = std::move(seen);
  }

  static constexpr std::uint64_t kCacheBytes = 4 << 20;
  MemoryFile file_;
  CachedTree tree_{file_.Share(), kCacheBytes, 1024};
  std::map<std::uint32_t, Seen> seen_;
};

// New ids make the tables grow, so pages have to move to free memory, also those about to be
// evicted.
TEST_F(PageVersionTest, AdvancesWhenACoolingPageMoves) {
  constexpr std::uint64_t kRecords = 60'000;  // more than have room
  for (std::uint64_t i = 0; i < kRecords; ++i) ASSERT_THAT(tree_.Set(NumberedKey(i), std::string(80, 'v')), IsOk());
  ASSERT_THAT(tree_.Checkpoint(), IsOk());
  for (std::uint64_t round = 0; round < 14 && !HasFailure(); ++round) {
    for (std::uint64_t i = 0; i < kRecords; i += 30) ASSERT_THAT(tree_.Get(NumberedKey(i + round)), IsOk());
    LookAtPages();
    for (std::uint64_t i = 0; i < 500; ++i) ASSERT_THAT(tree_.Set(NumberedKey(kRecords + round * 500 + i), std::string(300, 'x')), IsOk());
    ASSERT_THAT(tree_.Checkpoint(), IsOk());
    for (const auto& [id, seen] : seen_) {
      if (tree_.cache().IsEvicted(id)) {
        ASSERT_THAT(tree_.cache().LoadPage(id, 0, false), IsOk());
      }
    }
    LookAtPages();
  }
}

TEST_F(PageVersionTest, AdvancesWithEveryChangeUnderRandomOperations) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  constexpr std::uint64_t kRecords = 60'000;
  for (std::uint64_t i = 0; i < kRecords; ++i) ASSERT_THAT(tree_.Set(NumberedKey(i), std::string(80, 'v')), IsOk());
  for (int round = 0; round < 60; ++round) {
    const std::uint64_t first = random.Below(kRecords);
    for (std::uint64_t i = 0; i < 400; ++i) {
      const std::string key = NumberedKey(random.OneIn(2) ? first + i : random.Below(kRecords));
      if (random.OneIn(3)) {
        const Status status = tree_.Get(key);
        ASSERT_TRUE(status.ok() || absl::IsNotFound(status)) << status;
      } else if (random.OneIn(3)) {
        ASSERT_THAT(tree_.Remove(key), IsOk());
      } else {
        ASSERT_THAT(tree_.Set(key, std::string(random.OneIn(20) ? random.Below(3000) : random.Below(200), 'v')), IsOk());
      }
    }
    if (random.OneIn(5)) {
      ASSERT_THAT(tree_.Checkpoint(), IsOk());
    }
    if (random.OneIn(50)) {
      CachedTree::Cache::Deferred deferred(tree_.cache());
      ASSERT_THAT(tree_.cache().gate().RunExclusive([](auto&&) {}, [&] { return tree_.tree().RemoveAll(deferred); }), IsOk());
    }
    LookAtPages();
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace hako
