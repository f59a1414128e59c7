// The memory that the building of an index takes.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <string>

#include "hako/table/table_dbm.h"
#include "support/allocation_counter.h"
#include "support/random.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

// The lists take several times as much as the option allows, so they are written in parts.
TEST(IndexMemoryTest, BuildTakesNoMoreMemoryThanItsOption) {
  constexpr std::uint64_t kBuildBytes = 1 << 20, kBytesOfSteps = 1 << 20;
  const TempDir dir;
  const auto table = *TableDBM::Open(dir.path() + "/t.hktb", {.build_bytes = kBuildBytes});
  Random random(TestSeed());
  TableBatch batch;
  for (int i = 0; i < 2000; ++i) {
    std::string text;
    for (int k = 0; k < 80; ++k) text += static_cast<char>('a' + random.SkewedSize(20));
    batch.Put(std::to_string(i), {{"t", text}});
    if (i % 1000 != 999) continue;
    ASSERT_THAT(table->Write(batch), IsOk());
    batch.Clear();
  }
  for (const unsigned q : {3, 8}) {
    AllocationCounter::ForgetPeak();
    const std::uint64_t before = AllocationCounter::bytes();
    ASSERT_THAT(table->CreateIndex({.name = std::to_string(q), .columns = {{"t", IndexKind::kQGram}}, .q = q}), IsOk());
    const std::uint64_t taken = AllocationCounter::peak_bytes() - before;
    std::printf("q-grams of %u characters: %.2f MiB\n", q, static_cast<double>(taken) / (1 << 20));
    EXPECT_LT(taken, kBuildBytes + kBuildBytes / 10 + kBytesOfSteps);
    EXPECT_GT(taken, kBuildBytes / 2);
  }
  EXPECT_THAT(table->Verify(), IsOk());
}

}  // namespace
}  // namespace hako
