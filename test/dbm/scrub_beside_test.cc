// Scrub beside writers, which replace and remove what it reads, and everything else that runs beside
// them: it finds no damage. And Scrub on a device that fails.
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "dbm/listing.h"
#include "dbm/scrub_passes.h"
#include "dbm/shared_databases.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/dbm/positional_hash_dbm.h"
#include "hako/dbm/positional_tree_dbm.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/dbm/write_batch.h"
#include "support/archetypes.h"
#include "support/checked_value.h"
#include "support/fault_file.h"
#include "support/full_size.h"
#include "support/random.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"
#include "support/test_file.h"
#include "support/test_types.h"

namespace hako {
namespace {

template <class Database, bool kDirect>
struct BesideCase {
  using D = Database;
  static StatusOr<std::unique_ptr<D>> Open(const std::string& path) {
    FileOptions file;
    file.direct = kDirect && HasDirectIo();
    file.cache_bytes = 256 << 10;
    if constexpr (requires(D & db) { db.Range(); }) {
      return D::Open(path, TreeOptions{.page_size = 1024, .cache_bytes = 1 << 20, .checkpoint_bytes = 256 << 10}, file);
    } else {
      return D::Open(path, HashOptions{.reclaim_bytes = 1 << 20}, file);
    }
  }
};

template <class Case>
class ScrubConcurrentTest : public testing::Test {
 protected:
  using D = typename Case::D;
  static constexpr std::uint64_t kKeys = 3000;
  // At least this many passes, and changes beside them.
  const std::uint64_t num_passes_ = FullSize() ? 300 : 2;
  const std::uint64_t num_changes_ = FullSize() ? 1'000'000 : 3'000;

  static void Change(D& db, Random& random) {
    const std::string key = NumberedKey(random.Below(kKeys));
    const std::uint64_t what = random.Below(100);
    if (what < 25) {
      const Status removed = db.Remove(key);
      ASSERT_TRUE(removed.ok() || absl::IsNotFound(removed)) << removed;
    } else if (what == 25) {
      ASSERT_THAT(db.Set(key, CheckedValue(key, 20'000 + random.Below(300'000), random.Next())), IsOk());
    } else if (what < 40) {
      const std::string other = NumberedKey(random.Below(kKeys));
      const std::string value = CheckedValue(key, random.Below(2000), random.Next());
      WriteBatch both;
      both.Set(key, value);
      both.Set(other, value);
      ASSERT_THAT(db.Write(both), IsOk());
    } else {
      ASSERT_THAT(db.Set(key, CheckedValue(key, random.Below(random.OneIn(10) ? 3000 : 100), random.Next())), IsOk());
    }
  }

  TempDir dir_;
};

using BesideCases = TestTypes<testing::Types<BesideCase<HashDBM<>, false>, BesideCase<TreeDBM<PositionalParallelFile>, true>>,
                              BesideCase<HashDBM<PositionalParallelFile>, false>, BesideCase<HashDBM<PositionalParallelFile>, true>,
                              BesideCase<TreeDBM<>, false>, BesideCase<TreeDBM<PositionalParallelFile>, false>>;
TYPED_TEST_SUITE(ScrubConcurrentTest, BesideCases);

TYPED_TEST(ScrubConcurrentTest, FindsNothingBesideWriters) {
  ASSERT_OK_AND_ASSIGN(auto db, TypeParam::Open(this->dir_.File("casket")));
  std::atomic<std::uint64_t> num_passes{0}, num_changes{0};
  const auto goes_on = [&] {
    return (num_passes < this->num_passes_ || num_changes < this->num_changes_) && !this->HasFatalFailure() && !this->HasFailure();
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      Random random(TestSeed() + static_cast<std::uint64_t>(i));
      while (goes_on()) {
        this->Change(*db, random);
        ++num_changes;
      }
    });
  }
  threads.emplace_back([&] {
    Random random(TestSeed() + 77);
    while (goes_on()) {
      switch (random.Below(8)) {
        case 0:
          EXPECT_THAT(db->Rebuild(), IsOk());
          break;
        case 1:
          EXPECT_THAT(db->Verify(), IsOk());
          break;
        case 2:
          EXPECT_THAT(db->CopyTo(this->dir_.File("copy")), IsOk());
          break;
        case 3:
          if (random.OneIn(4)) {
            EXPECT_THAT(db->Clear(), IsOk());
          }
          break;
        default:
          EXPECT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
      }
    }
  });
  Random random(TestSeed() + 5);
  while (goes_on()) {
    const ScrubbedPass pass = ScrubWhole(*db, std::uint64_t{1} << random.Between(14, 24));
    for (const auto& damage : pass.damage) ADD_FAILURE() << NameOf(damage.kind) << " " << damage.error;
    ++num_passes;
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(db->Verify(), IsOk());
  EXPECT_THAT(db->Close(), IsOk());
}

// ---- failing devices ----

using FailingFile = FaultFile<ArchetypeFile>;

template <class D>
std::unique_ptr<D> OpenFailing(const std::shared_ptr<FaultPlan>& plan) {
  StatusOr<std::unique_ptr<D>> db = D::Open(FailingFile(ArchetypeFile::Make(), plan), {});
  EXPECT_THAT(db.status(), IsOk());
  for (std::uint64_t i = 0; i < 300; ++i) {
    const std::string key = NumberedKey(i);
    EXPECT_THAT((*db)->Set(key, CheckedValue(key, i % 50 == 0 ? 9000 : 50, i)), IsOk());
  }
  EXPECT_THAT((*db)->Synchronize(SyncMode::kHard), IsOk());
  return *std::move(db);
}

// One failed read costs what it was to read, and the pass goes on.
TEST(ScrubFault, TreeReportsWhatCannotBeRead) {
  const auto plan = std::make_shared<FaultPlan>();
  const auto db = OpenFailing<TreeDBM<TestFile>>(plan);
  const std::uint64_t num_reads = [&] {
    const std::uint64_t before = plan->call_count(FaultKind::kRead);
    EXPECT_THAT(ScrubWhole(*db, 4096).damage, testing::IsEmpty());
    return plan->call_count(FaultKind::kRead) - before;
  }();
  ASSERT_GT(num_reads, 3u);
  for (std::uint64_t call = 1; call <= num_reads; ++call) {
    plan->Arm({.kind = FaultKind::kRead, .call = call});
    const ScrubbedPass pass = ScrubWhole(*db, 4096);
    EXPECT_LE(pass.damage.size(), 1u);  // a run that cannot be read is read again image by image
    for (const auto& damage : pass.damage) EXPECT_EQ(NameOf(damage.kind), "unreadable");
  }
  plan->Arm({.kind = FaultKind::kRead, .forever = true});
  EXPECT_GT(ScrubWhole(*db, 4096).damage.size(), 10u);
  plan->Disarm();
  EXPECT_THAT(ScrubWhole(*db, 4096).damage, testing::IsEmpty());
}

TEST(ScrubFault, HashReportsWhatCannotBeRead) {
  const auto plan = std::make_shared<FaultPlan>();
  const auto db = OpenFailing<HashDBM<TestFile>>(plan);
  const std::uint64_t before = plan->call_count(FaultKind::kRead);
  EXPECT_THAT(ScrubWhole(*db, 4096).damage, testing::IsEmpty());
  const std::uint64_t num_reads = plan->call_count(FaultKind::kRead) - before;
  ASSERT_GT(num_reads, 2u);
  for (std::uint64_t call = 1; call <= num_reads; ++call) {
    plan->Arm({.kind = FaultKind::kRead, .call = call});
    const ScrubbedPass pass = ScrubWhole(*db, 4096);
    EXPECT_EQ(plan->fired_count(), 1u);
    for (const auto& damage : pass.damage) EXPECT_EQ(damage.offset % 4096, 0u) << damage.error;  // a superblock, at most
  }
  plan->Arm({.kind = FaultKind::kRead, .forever = true});
  const ScrubbedPass pass = ScrubWhole(*db, 4096);
  EXPECT_EQ(pass.damage.size(), 2 + db->Count());
  for (const auto& damage : pass.damage) EXPECT_EQ(NameOf(damage.kind), "unreadable");
  plan->Disarm();
  EXPECT_THAT(ScrubWhole(*db, 4096).damage, testing::IsEmpty());
}

// After a failed sync a tree has images of which nobody knows whether the device has them.
TEST(ScrubFault, PoisonedTreeIsRefused) {
  const auto plan = std::make_shared<FaultPlan>();
  const auto db = OpenFailing<TreeDBM<TestFile>>(plan);
  ASSERT_THAT(db->Scrub({.max_bytes = 1}), IsOk());
  ASSERT_THAT(db->Set("new", "record"), IsOk());
  plan->Arm({.kind = FaultKind::kSync});
  ASSERT_FALSE(db->Synchronize(SyncMode::kHard).ok());
  EXPECT_THAT(db->Scrub(), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST(ScrubFault, PoisonedHashTableIsScrubbed) {
  const auto plan = std::make_shared<FaultPlan>();
  const auto db = OpenFailing<HashDBM<TestFile>>(plan);
  ASSERT_THAT(db->Scrub({.max_bytes = 1}), IsOk());
  ASSERT_THAT(db->Set("new", "record"), IsOk());
  plan->Arm({.kind = FaultKind::kSync});
  ASSERT_FALSE(db->Synchronize(SyncMode::kHard).ok());
  EXPECT_THAT(ScrubWhole(*db, 4096).damage, testing::IsEmpty());
}

}  // namespace
}  // namespace hako
