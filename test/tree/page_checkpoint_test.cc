// The cost of a checkpoint of a cached tree.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>

#include "dbm/listing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/tree_dbm.h"
#include "support/cached_tree.h"
#include "support/cpu_time.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"

namespace hako {
namespace {

// The processor time of a checkpoint after one change, the least of several.
std::uint64_t CostOfACheckpoint(CachedTree& tree) {
  std::uint64_t least = ~std::uint64_t{0};
  for (int i = 0; i < 20; ++i) {
    EXPECT_THAT(tree.Set(NumberedKey(7), std::to_string(i % 10)), IsOk());
    const std::uint64_t begin = CpuNanoseconds();
    EXPECT_THAT(tree.Checkpoint(), IsOk());
    least = std::min(least, CpuNanoseconds() - begin);
  }
  return least;
}

TEST(PageCheckpoint, CostDoesNotDependOnResidentPages) {
  CachedTree few(MemoryFile(), 1 << 30, 128), many(MemoryFile(), 1 << 30, 128);
  for (std::uint64_t i = 0; i < 100; ++i) ASSERT_THAT(few.Set(NumberedKey(i), "0"), IsOk());
  for (std::uint64_t i = 0; i < 300'000 / kSlowdown; ++i) ASSERT_THAT(many.Set(NumberedKey(i), "0"), IsOk());
  ASSERT_THAT(few.Checkpoint(), IsOk());
  ASSERT_THAT(many.Checkpoint(), IsOk());
  const std::uint64_t small = CostOfACheckpoint(few), large = CostOfACheckpoint(many);
  std::printf("%llu pages: %llu us; %llu pages: %llu us\n", static_cast<unsigned long long>(few.cache().num_pages()),
              static_cast<unsigned long long>(small / 1000), static_cast<unsigned long long>(many.cache().num_pages()),
              static_cast<unsigned long long>(large / 1000));
  EXPECT_LE(large, 4 * small + 50'000);
}

TEST(PageCheckpoint, WritesPagesThatChangeInEverySecondEpoch) {
  MemoryFile file;
  ASSERT_OK_AND_ASSIGN(auto db, TreeDBM<MemoryFile>::Open(file.Share()));
  const std::string keys[] = {NumberedKey(0), NumberedKey(4999)};  // in different leaves
  for (std::uint64_t i = 0; i < 5000; ++i) ASSERT_THAT(db->Set(NumberedKey(i), "0"), IsOk());
  for (unsigned epoch = 0; epoch < 8; ++epoch) {
    ASSERT_THAT(db->Set(keys[epoch % 2], std::to_string(epoch)), IsOk());
    ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
  }
  ASSERT_THAT(db->Close(), IsOk());
  ASSERT_OK_AND_ASSIGN(db, TreeDBM<MemoryFile>::Open(file.Share()));
  EXPECT_THAT(db->Get(keys[0]), IsOkAndHolds("6"));
  EXPECT_THAT(db->Get(keys[1]), IsOkAndHolds("7"));
}

}  // namespace
}  // namespace hako
