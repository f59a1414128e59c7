// TinyDBM, its snapshots, and the memory it takes.
#include "hako/dbm/tiny_dbm.h"

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "dbm/concurrent_dbm_conformance.h"
#include "dbm/dbm_conformance.h"
#include "dbm/listing.h"
#include "dbm/multi_dbm_conformance.h"
#include "dbm/surroundings.h"
#include "gtest/gtest.h"
#include "support/archetypes.h"
#include "support/checked_value.h"
#include "support/fault_file.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"
#include "support/threads.h"

namespace hako {
namespace {

using All = testing::Types<TinySurroundings<MemoryMapParallelFile>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Tiny, DBMConformance, All);
INSTANTIATE_TYPED_TEST_SUITE_P(Tiny, ConcurrentDBMConformance, All);
INSTANTIATE_TYPED_TEST_SUITE_P(Tiny, MultiDBMConformance, All);

static_assert(DBM<TinyDBM<>> && DBM<TinyDBM<MemoryFile>> && DBM<TinyDBM<ArchetypeFile>>);

TEST(TinyDBM, RefusesCallsFromItsVisitor) {
  ASSERT_OK_AND_ASSIGN(auto db, TinyDBM<>::Open());
  Status inner;
  const auto set_again = [&](std::optional<std::string_view>) -> void { inner = db->Set("other", "value"); };
  EXPECT_THAT(db->Process("key", set_again), IsOk());
  EXPECT_THAT(inner, StatusIs(absl::StatusCode::kFailedPrecondition, testing::HasSubstr("visitor")));
  EXPECT_EQ(db->Count(), 0u);
}

// The number of home buckets grows a hundredfold, not only that of records.
TEST(TinyDBM, ConcurrentIterationShowsPresentRecordsOnceWhileTheTableGrowsAHundredfold) {
  ASSERT_OK_AND_ASSIGN(auto db, TinyDBM<>::Open());
  Mishaps mishaps;
  const std::uint64_t lines = db->GetStats().num_buckets;
  IterateWhileGrowingAHundredfold(*db, 8 * lines / kSlowdown, mishaps);
  EXPECT_GE(db->GetStats().num_buckets, 100 * lines / kSlowdown);
  mishaps.ExpectNone();
  EXPECT_THAT(db->Verify(), IsOk());
}

template <class D>
Records LoadRecords(D& db, int count) {
  Records records;
  for (int i = 0; i < count; ++i) {
    const std::string key = NumberedKey(static_cast<std::uint64_t>(i));
    records[key] = CheckedValue(key, static_cast<std::size_t>(i % 300), 1);
    EXPECT_THAT(db.Set(key, records[key]), IsOk());
  }
  return records;
}

template <class FileT>
class TinySnapshotTest : public testing::Test {};
using SnapshotFiles = testing::Types<MemoryMapParallelFile, PositionalParallelFile, MemoryFile, AnyFile>;
TYPED_TEST_SUITE(TinySnapshotTest, SnapshotFiles);

TYPED_TEST(TinySnapshotTest, RoundTripsThroughASnapshot) {
  FileStore<TypeParam> files;
  ASSERT_OK_AND_ASSIGN(auto saved, TinyDBM<TypeParam>::Open());
  Records records = LoadRecords(*saved, 5000);
  records["big"] = CheckedValue("big", 3 << 20);
  records[""] = "";
  ASSERT_THAT(saved->Set("big", records["big"]), IsOk());
  ASSERT_THAT(saved->Set("", ""), IsOk());
  ASSERT_OK_AND_ASSIGN(auto file, files.Open("snapshot"));
  ASSERT_THAT(saved->Save(file), IsOk());
  ASSERT_THAT(saved->Set("later", "than the snapshot"), IsOk());
  ASSERT_OK_AND_ASSIGN(auto loaded, TinyDBM<TypeParam>::Open({.seed = 5}));
  ASSERT_THAT(loaded->Set("earlier", "than the load"), IsOk());
  ASSERT_THAT(loaded->Load(file), IsOk());
  EXPECT_EQ(loaded->Count(), records.size());
  EXPECT_TRUE(ListByIterator(*loaded).records == records);
  EXPECT_THAT(loaded->Verify(), IsOk());
  ASSERT_THAT(loaded->Clear(), IsOk());
  ASSERT_THAT(loaded->Save(file), IsOk());  // an empty one, over the old one
  ASSERT_THAT(saved->Load(file), IsOk());
  EXPECT_EQ(saved->Count(), 0u);
}

TEST(TinyDBM, RefusesInvalidOptions) {
  for (const int align_pow : {-1, 0, 1, 13}) {
    EXPECT_THAT(TinyDBM<>::Open({.align_pow = align_pow}), StatusIs(absl::StatusCode::kInvalidArgument)) << align_pow;
  }
}

TEST(TinyDBM, AlignsRecords) {
  for (const int align_pow : {2, 3, 6}) {
    ASSERT_OK_AND_ASSIGN(auto db, TinyDBM<>::Open({.align_pow = align_pow}));
    const Records records = LoadRecords(*db, 2000);
    EXPECT_TRUE(ListByProcessEach(*db).records == records);
    EXPECT_EQ(db->GetStats().record_bytes % (1u << align_pow), 0u);
    EXPECT_THAT(db->Verify(), IsOk());
  }
}

TEST(TinyDBM, SavesByPathAtomically) {
  TempDir directory;
  const std::string path = directory.File("tiny.hkt");
  ASSERT_OK_AND_ASSIGN(auto db, TinyDBM<>::Open());
  Records records = LoadRecords(*db, 1000);
  ASSERT_THAT(db->Save(path), IsOk());
  records["more"] = "records";
  ASSERT_THAT(db->Set("more", "records"), IsOk());
  ASSERT_THAT(db->Save(path), IsOk());
  ASSERT_OK_AND_ASSIGN(auto loaded, TinyDBM<>::Open());
  ASSERT_THAT(loaded->Load(path), IsOk());
  EXPECT_TRUE(ListByIterator(*loaded).records == records);
  int num_files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(directory.path())) ++num_files;
  EXPECT_EQ(num_files, 1) << "nothing is left beside it";
  EXPECT_FALSE(db->Save(directory.path() + "/no/such/directory").ok());
  EXPECT_FALSE(loaded->Load(directory.File("absent")).ok());
  EXPECT_TRUE(ListByIterator(*loaded).records == records);
}

TEST(TinyDBM, IsUnchangedOrEmptyIfASnapshotCannotBeRead) {
  MemoryFile snapshot;
  ASSERT_OK_AND_ASSIGN(auto db, TinyDBM<FaultFile<MemoryFile>>::Open());
  const Records records = LoadRecords(*db, 1000);
  const auto plan = std::make_shared<FaultPlan>();
  FaultFile<MemoryFile> file(snapshot.Share(), plan);
  ASSERT_THAT(db->Save(file), IsOk());
  ASSERT_OK_AND_ASSIGN(auto other, TinyDBM<FaultFile<MemoryFile>>::Open());
  ASSERT_THAT(other->Set("key", "value"), IsOk());
  for (std::uint64_t call = 1; call < 1000; ++call) {
    plan->Arm({.kind = FaultKind::kRead, .call = call});
    const Status status = other->Load(file);
    if (plan->fired_count() == 0) {
      EXPECT_THAT(status, IsOk());
      break;
    }
    EXPECT_FALSE(status.ok());
    EXPECT_TRUE(other->Count() == 1 || other->Count() == 0) << "neither what it had nor empty";
  }
  EXPECT_TRUE(ListByIterator(*other).records == records);
}

TEST(TinyDBM, ReportsThatASnapshotCannotBeWritten) {
  ASSERT_OK_AND_ASSIGN(auto db, TinyDBM<FaultFile<MemoryFile>>::Open());
  const Records records = LoadRecords(*db, 1000);
  bool clean = false;
  for (std::uint64_t call = 1; call < 1000 && !clean; ++call) {
    const auto plan = std::make_shared<FaultPlan>();
    FaultFile<MemoryFile> file(MemoryFile(), plan);
    plan->Arm({.call = call, .status = absl::ResourceExhaustedError("full")});
    const Status status = db->Save(file);
    clean = plan->fired_count() == 0;
    EXPECT_EQ(status.code(), clean ? absl::StatusCode::kOk : absl::StatusCode::kResourceExhausted) << call;
  }
  EXPECT_TRUE(clean);
  EXPECT_TRUE(ListByIterator(*db).records == records);
}

TEST(TinyDBM, ConcurrentSaveHasAValueOfEachRecord) {
  ASSERT_OK_AND_ASSIGN(auto db, TinyDBM<MemoryFile>::Open());
  for (std::uint64_t i = 0; i < 1000; ++i) ASSERT_THAT(db->Set(NumberedKey(i), CheckedValue(NumberedKey(i), 50, 0)), IsOk());
  std::atomic<bool> done = false;
  RunThreads(2, [&](int thread) {
    if (thread == 0) {
      for (std::uint64_t i = 0; !done; ++i) {
        const std::string key = NumberedKey(i % 1000);
        EXPECT_THAT(db->Set(key, CheckedValue(key, i % 200, i)), IsOk());
        EXPECT_THAT(db->Set("new" + NumberedKey(i % 20'000), "value"), IsOk());
      }
      return;
    }
    for (int round = 0; round < 5; ++round) {
      MemoryFile file;
      EXPECT_THAT(db->Save(file), IsOk());
      auto loaded = TinyDBM<MemoryFile>::Open();
      EXPECT_THAT((*loaded)->Load(file), IsOk());
      std::string value;
      for (std::uint64_t i = 0; i < 1000; ++i) {
        const bool whole = (*loaded)->Get(NumberedKey(i), &value).ok() && SaltOf(NumberedKey(i), value);
        EXPECT_TRUE(whole) << i;
      }
    }
    done = true;
  });
}

TEST(TinyDBM, TakesAtMost30BytesForA16ByteRecord) {
  constexpr std::uint64_t kRecords = 1'000'000;
  ASSERT_OK_AND_ASSIGN(auto db, TinyDBM<>::Open());
  for (std::uint64_t i = 0; i < kRecords; ++i) {
    const std::string key = NumberedKey(i);
    ASSERT_THAT(db->Set(key, key), IsOk());
  }
  EXPECT_EQ(db->Count(), kRecords);
  EXPECT_LE(db->GetStats().total_bytes, 30 * kRecords);
  RecordProperty("bytes_per_record", std::to_string(static_cast<double>(db->GetStats().total_bytes) / kRecords));
}

}  // namespace
}  // namespace hako
