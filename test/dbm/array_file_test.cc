// ArrayDBM as a file: its size, other files, copies, rebuilds and scrubs.
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dbm/array_places.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/any_dbm.h"
#include "hako/dbm/array_dbm.h"
#include "hako/dbm/restore.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/dbm/write_batch.h"
#include "support/random.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

using testing::HasSubstr;

TEST(ArrayDBMFileTest, TakesAtMostTwelvePercentAndABitARecordMoreThanTheRecords) {
  TempDir directory;
  for (const unsigned width : {8u, 100u}) {
    constexpr std::uint64_t kRecords = 200'000;
    const std::string path = directory.File("db" + std::to_string(width));
    ASSERT_OK_AND_ASSIGN(auto db, ArrayDBM<>::Open(path, {.width = width, .durability = Durability::kNone}));
    for (std::uint64_t id = 0; id < kRecords; ++id) ASSERT_THAT(db->Set(id, "x"), IsOk());
    ASSERT_THAT(db->Verify(), IsOk());
    ASSERT_THAT(db->Close(), IsOk());
    EXPECT_LE(static_cast<double>(std::filesystem::file_size(path)), kRecords * (width * 1.12 + .125));
  }
}

TEST(ArrayDBMFileTest, RefusesAnotherWidthAndOtherKindsOfFiles) {
  TempDir directory;
  const std::string path = directory.File("db.hka"), tree = directory.File("db.hkt");
  ASSERT_OK_AND_ASSIGN(auto db, ArrayDBM<>::Open(path, {.width = 8}));
  ASSERT_THAT(db->Verify(), IsOk());
  ASSERT_THAT(db->Close(), IsOk());
  EXPECT_THAT(ArrayDBM<>::Open(path, {.width = 9}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("have 8 bytes, not 9")));
  EXPECT_THAT(ArrayDBM<>::Open(path, {.width = 8}), IsOk());
  EXPECT_THAT(TreeDBM<>::Open(path), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not a hako tree database")));
  ASSERT_OK_AND_ASSIGN(auto other, TreeDBM<>::Open(tree));
  ASSERT_THAT(other->Close(), IsOk());
  EXPECT_THAT(ArrayDBM<>::Open(tree, {.width = 8}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not a hako array database")));
}

// Copies, rebuilds, scrubs and read-only openings.
TEST(ArrayDBMFileTest, IsMaintainedAsATree) {
  TempDir directory;
  const std::string path = directory.File("db.hka"), copy = directory.File("copy.hka");
  ASSERT_OK_AND_ASSIGN(auto db, ArrayDBM<>::Open(path, {.width = 100}));
  for (std::uint64_t id = 0; id < 30'000; ++id) ASSERT_THAT(db->Set(id, std::to_string(id)), IsOk());
  ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
  EXPECT_THAT(db->RemoveRange(100, 29'900), IsOkAndHolds(29'800u));
  ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
  EXPECT_TRUE(db->ShouldBeRebuilt());
  const std::uint64_t before = db->GetStats().total_bytes;
  ASSERT_THAT(db->Rebuild(), IsOk());
  EXPECT_LT(db->GetStats().total_bytes, before / 4);
  ASSERT_THAT(db->CopyTo(copy), IsOk());
  ASSERT_OK_AND_ASSIGN(const ScrubProgress scrubbed, db->Scrub());
  EXPECT_TRUE(scrubbed.is_complete && scrubbed.damage.empty());
  EXPECT_THAT(db->Inspect(), testing::Contains(std::pair<std::string, std::string>("width", "100")));
  EXPECT_THAT(db->Verify(), IsOk());
  ASSERT_THAT(db->Close(), IsOk());
  ASSERT_OK_AND_ASSIGN(db, ArrayDBM<>::Open(copy, {}, {.mode = OpenMode::kReadOnly}));
  EXPECT_EQ(db->Count(), 200u);
  EXPECT_THAT(db->LastId(), IsOkAndHolds(29'999u));
  EXPECT_THAT(db->Set(1, "x"), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(db->Set(5000, "x"), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(db->Verify(), IsOk());
}

// Its superblock still has the position of a log that is no more.
TEST(ArrayDBMFileTest, CopiesAFileThatWasClosedAndIsOpenForReading) {
  TempDir directory;
  const std::string array = directory.File("a.hka"), tree = directory.File("a.hkt");
  ASSERT_OK_AND_ASSIGN(auto db, ArrayDBM<>::Open(array, {.width = 8}));
  ASSERT_THAT(db->Set(17, "value"), IsOk());
  ASSERT_THAT(db->Close(), IsOk());
  ASSERT_OK_AND_ASSIGN(db, ArrayDBM<>::Open(array, {}, {.mode = OpenMode::kReadOnly}));
  ASSERT_THAT(db->CopyTo(directory.File("b.hka")), IsOk());
  ASSERT_OK_AND_ASSIGN(db, ArrayDBM<>::Open(directory.File("b.hka")));
  EXPECT_THAT(db->Contains(17), IsOkAndHolds(true));
  EXPECT_THAT(db->Verify(), IsOk());
  ASSERT_OK_AND_ASSIGN(auto other, TreeDBM<>::Open(tree));
  ASSERT_THAT(other->Set("key", "value"), IsOk());
  ASSERT_THAT(other->Close(), IsOk());
  ASSERT_OK_AND_ASSIGN(other, TreeDBM<>::Open(tree, {}, {.mode = OpenMode::kReadOnly}));
  ASSERT_THAT(other->CopyTo(directory.File("b.hkt")), IsOk());
  ASSERT_OK_AND_ASSIGN(other, TreeDBM<>::Open(directory.File("b.hkt")));
  EXPECT_THAT(other->Get("key"), IsOkAndHolds("value"));
  EXPECT_THAT(other->Verify(), IsOk());
}

TEST(ArrayDBMFileTest, IsRestoredFromACopyAndTheArchiveOfItsLog) {
  TempDir directory;
  const std::string path = directory.File("db.hka"), copy = directory.File("copy.hka"), archive = directory.File("archive");
  std::filesystem::create_directory(archive);
  ASSERT_OK_AND_ASSIGN(auto db, ArrayDBM<>::Open(path, {.width = 8, .log_archive = archive}));
  for (std::uint64_t id = 0; id < 1000; ++id) ASSERT_THAT(db->Set(id, "first"), IsOk());
  ASSERT_THAT(db->CopyTo(copy), IsOk());
  for (std::uint64_t id = 500; id < 1500; ++id) ASSERT_THAT(db->Set(id, "second"), IsOk());
  EXPECT_THAT(db->RemoveRange(100, 200), IsOkAndHolds(100u));
  WriteBatch batch;
  batch.Set("1000000", "batch");
  batch.Remove("3");
  batch.SetAppliedIndex(17);
  ASSERT_THAT(db->Write(batch), IsOk());
  const auto list = [](ArrayDBM<>& array) {
    std::map<std::uint64_t, std::string> records;
    auto it = array.MakeIterator();
    for (it.First(); it.Valid(); it.Next()) records.emplace(it.id(), it.value());
    return records;
  };
  const auto records = list(*db);
  ASSERT_THAT(db->Close(), IsOk());
  ASSERT_THAT(AnyDBM::Restore(copy, archive, directory.File("restored.hka"), {}), IsOk());
  ASSERT_OK_AND_ASSIGN(db, ArrayDBM<>::Open(directory.File("restored.hka")));
  EXPECT_EQ(list(*db), records);
  EXPECT_EQ(records.size(), 1500u - 100 - 1 + 1);
  EXPECT_EQ(db->AppliedIndex(), 17u);
  EXPECT_THAT(db->Verify(), IsOk());
}

// More than fits the cache: pages are evicted, loaded, scanned both ways, and checkpointed meanwhile.
template <class Place>
void HoldMoreThanItsCache() {
  Place place;
  constexpr std::uint64_t kRecords = 60'000;
  ASSERT_OK_AND_ASSIGN(auto db, place.Open(100));
  const auto value_of = [](std::uint64_t id) {
    std::string value = std::to_string(id * 7);
    value.resize(100, 'x');
    return value;
  };
  for (std::uint64_t id = 0; id < kRecords; ++id) ASSERT_THAT(db->Set(id, value_of(id)), IsOk());
  ASSERT_OK_AND_ASSIGN(db, place.Reopen(std::move(db)));
  Random random(TestSeed());
  for (int i = 0; i < 5000; ++i) {
    const std::uint64_t id = random.Below(kRecords);
    ASSERT_THAT(db->Get(id), IsOkAndHolds(value_of(id)));
    ASSERT_THAT(db->Set(id, value_of(id)), IsOk());
  }
  std::uint64_t count = 0;
  auto it = db->MakeIterator();
  for (it.First(); it.Valid(); it.Next()) ASSERT_EQ(it.value(), value_of(count++));
  ASSERT_THAT(it.status(), IsOk());
  for (it.Last(); it.Valid(); it.Previous()) ASSERT_EQ(it.id(), --count);
  std::vector<std::uint64_t> ids(3000);
  for (std::uint64_t& id : ids) id = random.Below(kRecords + 100);
  ASSERT_THAT(db->GetMulti(ids,
                           [&](std::size_t i, std::optional<std::string_view> value) {
                             EXPECT_EQ(value.has_value(), ids[i] < kRecords);
                             if (value) {
                               EXPECT_EQ(*value, value_of(ids[i]));
                             }
                           }),
              IsOk());
  WriteBatch batch;  // of more pages than an eighth of the cache
  for (std::uint64_t id = 0; id < kRecords; id += 50) batch.Set(std::to_string(id), value_of(id + 1));
  ASSERT_THAT(db->Write(batch), IsOk());
  for (std::uint64_t id = 0; id < kRecords; id += 50) ASSERT_THAT(db->Get(id), IsOkAndHolds(value_of(id + 1)));
  EXPECT_THAT(db->CountRange(0, kRecords), IsOkAndHolds(kRecords));
  EXPECT_THAT(db->Verify(), IsOk());
}
TEST(ArrayDBMFileTest, HoldsMoreThanItsCache) {
  HoldMoreThanItsCache<InFile<MemoryMapParallelFile>>();
  HoldMoreThanItsCache<InFile<PositionalParallelFile, true>>();
}

}  // namespace
}  // namespace hako
