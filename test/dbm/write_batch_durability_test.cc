// A WriteBatch in a TreeDBM: what of it the file has, the applied index above all, and batches that are
// larger than the cache. For crashes see tree_log_crash_test.cc and tree_crash_test.cc.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dbm/listing.h"
#include "dbm/shared_databases.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/file/memory_file.h"
#include "hako/format/tree_file_format.h"
#include "hako/storage/superblock_slots.h"
#include "support/checked_value.h"
#include "support/status_matchers.h"

namespace hako {
namespace {

using Database = TreeDBM<MemoryFile>;

WriteBatch BatchOf(std::uint64_t index, std::uint64_t num_records) {
  WriteBatch batch;
  for (std::uint64_t i = 0; i < num_records; ++i) batch.Set(NumberedKey(i), CheckedValue(NumberedKey(i), 100, index));
  batch.SetAppliedIndex(index);
  return batch;
}

class WriteBatchDurability : public testing::TestWithParam<Durability> {
 protected:
  StatusOr<std::unique_ptr<Database>> Open(TreeOptions options = {}) {
    options.durability = GetParam();
    return Database::Open(database_.Share(), log_.Share(), options);
  }
  void Reopen(std::unique_ptr<Database>& db) {
    ASSERT_THAT(db->Close(), IsOk());
    db.reset();
    ASSERT_OK_AND_ASSIGN(db, Open());
  }

  MemoryFile database_, log_;
};
INSTANTIATE_TEST_SUITE_P(Levels, WriteBatchDurability, testing::Values(Durability::kNone, Durability::kProcess, Durability::kPower));

TEST_P(WriteBatchDurability, AppliedIndexSurvivesCloseCopyAndRebuild) {
  ASSERT_OK_AND_ASSIGN(auto db, Open());
  EXPECT_EQ(db->AppliedIndex(), 0u);
  ASSERT_THAT(db->Write(BatchOf(7, 3000)), IsOk());
  ASSERT_NO_FATAL_FAILURE(Reopen(db));
  EXPECT_EQ(db->AppliedIndex(), 7u);
  EXPECT_EQ(db->Count(), 3000u);
  ASSERT_THAT(db->Rebuild(), IsOk());
  MemoryFile copy;
  ASSERT_THAT(db->CopyTo(copy.Share()), IsOk());
  ASSERT_OK_AND_ASSIGN(auto copied, Database::Open(copy.Share()));
  EXPECT_EQ(copied->AppliedIndex(), 7u);
  ASSERT_THAT(copied->Close(), IsOk());
  ASSERT_THAT(db->Clear(), IsOk());
  ASSERT_NO_FATAL_FAILURE(Reopen(db));
  EXPECT_EQ(db->AppliedIndex(), 7u);
  EXPECT_EQ(db->Count(), 0u);
  ASSERT_THAT(db->Close(), IsOk());
}

TEST_P(WriteBatchDurability, AppliedIndexAloneIsStored) {
  ASSERT_OK_AND_ASSIGN(auto db, Open());
  ASSERT_THAT(db->Write(BatchOf(7, 10)), IsOk());
  ASSERT_NO_FATAL_FAILURE(Reopen(db));
  ASSERT_THAT(db->Write(BatchOf(8, 0)), IsOk());
  ASSERT_NO_FATAL_FAILURE(Reopen(db));
  EXPECT_EQ(db->AppliedIndex(), 8u);
  ASSERT_THAT(db->Close(), IsOk());
}

TEST_P(WriteBatchDurability, BatchOfPowerIsSynchronized) {
  ASSERT_OK_AND_ASSIGN(auto db, Open());
  const std::uint64_t before = db->GetStats().epoch;
  ASSERT_THAT(db->Write(BatchOf(7, 10), {.durability = Durability::kPower}), IsOk());
  EXPECT_EQ(db->GetStats().epoch - before, GetParam() == Durability::kNone ? 1u : 0u) << "a log makes a checkpoint unnecessary";
  ASSERT_THAT(db->Close(), IsOk());
}

// All leaves of the range and of the keys are in memory at once; a checkpoint gives the memory back.
TEST_P(WriteBatchDurability, BatchBeyondTheCacheReplacesAllRecords) {
  ASSERT_OK_AND_ASSIGN(auto db, Open({.page_size = 1024, .cache_bytes = 1 << 20}));
  constexpr std::uint64_t kRecords = 20'000;
  for (std::uint64_t i = 0; i < kRecords; ++i) {
    ASSERT_THAT(db->Set(NumberedKey(i) + "x", CheckedValue("x", i % 50 == 0 ? 3000 : 150)), IsOk());
  }
  WriteBatch batch = BatchOf(9, kRecords);
  batch.RemoveRange(NumberedKey(kRecords - 100), NumberedKey(kRecords - 50));
  batch.RemoveRange("", NumberedKey(0));
  ASSERT_THAT(db->Write(batch), IsOk());
  EXPECT_EQ(db->Count(), 2 * kRecords - 100);
  WriteBatch all;
  all.RemoveRange("");
  all.Set("alone", "1");
  all.SetAppliedIndex(10);
  ASSERT_THAT(db->Write(all), IsOk());
  EXPECT_EQ(db->Count(), 1u);
  ASSERT_THAT(db->Verify(), IsOk());
  EXPECT_LT(db->GetStats().num_buckets, 10u) << "empty leaves are joined";
  for (std::uint64_t i = 0; i < 1000; ++i) ASSERT_THAT(db->Set(NumberedKey(i), CheckedValue(NumberedKey(i), 1000)), IsOk());
  ASSERT_NO_FATAL_FAILURE(Reopen(db));
  EXPECT_EQ(db->AppliedIndex(), 10u);
  EXPECT_EQ(db->Count(), 1001u);
  ASSERT_THAT(db->Verify(), IsOk());
  ASSERT_THAT(db->Close(), IsOk());
}

// A file of version 1 has zeros where the applied index is.
TEST(WriteBatchFormat, FileOfVersion1TakesAnAppliedIndex) {
  MemoryFile file;
  {
    ASSERT_OK_AND_ASSIGN(auto db, Database::Open(file.Share()));
    ASSERT_THAT(db->Set("a", "1"), IsOk());
    ASSERT_THAT(db->Close(), IsOk());
  }
  const auto version_of = [&file](std::uint64_t slot) {
    format::TreeSuperBlock super;
    EXPECT_THAT(file.ReadAt(slot * storage::kSlotDistance, std::as_writable_bytes(std::span(&super, 1))), IsOk());
    return super;
  };
  for (const std::uint64_t slot : {0u, 1u}) {
    format::TreeSuperBlock super = version_of(slot);
    super.version = 1;
    super.check = CheckOf(super);
    ASSERT_THAT(file.WriteAt(slot * storage::kSlotDistance, std::as_bytes(std::span(&super, 1))), IsOk());
  }
  ASSERT_OK_AND_ASSIGN(auto db, Database::Open(file.Share()));
  EXPECT_EQ(db->AppliedIndex(), 0u);
  ASSERT_THAT(db->Write(BatchOf(5, 1)), IsOk());
  ASSERT_THAT(db->Close(), IsOk());
  const auto first = version_of(0), second = version_of(1);
  EXPECT_EQ((first.sequence > second.sequence ? first : second).version, format::kTreeFilePlainVersion);
  ASSERT_OK_AND_ASSIGN(db, Database::Open(file.Share()));
  EXPECT_EQ(db->AppliedIndex(), 5u);
  ASSERT_THAT(db->Close(), IsOk());
}

}  // namespace
}  // namespace hako
