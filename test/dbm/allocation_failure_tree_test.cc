// Memory that runs out in a TreeDBM.
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "dbm/allocation_failure_conformance.h"
#include "dbm/surroundings.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/file/memory_file.h"
#include "support/allocation_counter.h"
#include "support/status_matchers.h"
#include "support/test_types.h"

namespace hako {
namespace {

using All = TestTypes<testing::Types<TreeSurroundings<MemoryMapParallelFile, 256>>, TreeSurroundings<PositionalParallelFile>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Tree, AllocationFailure, All);

// Runs `operation` with the n-th allocation failing, for each n until none fails.
template <class Operation>
void ForEachFailure(Operation operation) {
  for (const auto which : {FailingAllocation::Which::kOnce, FailingAllocation::Which::kFromThenOn}) {
    bool has_failed = true;
    for (std::uint64_t n = 1; has_failed && !testing::Test::HasFailure(); n += 1 + n / 10) {
      SCOPED_TRACE(n);
      ASSERT_LT(n, 20'000u);
      operation([&](auto call) {
        Status status;
        {
          const FailingAllocation failing(n, which, FailingAllocation::Whose::kAllThreads);
          try {
            status = call();
          } catch (const std::bad_alloc&) {
            status = Status(absl::StatusCode::kInternal, absl::string_view());
          }
          has_failed = failing.HasFailed();
        }
        if (!status.ok()) {
          EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted));
          EXPECT_TRUE(has_failed);
        }
        return status;
      });
    }
  }
}

class TreeAllocationFailure : public testing::Test {
 protected:
  using Database = TreeDBM<MemoryFile>;
  static constexpr int kRecords = 500;

  static std::string Value(int i, int round) { return std::to_string(round) + std::string(static_cast<std::size_t>(i % 90) * 40, 'v'); }
  static void Fill(Database& db, int round) {
    for (int i = 0; i < kRecords; ++i) ASSERT_THAT(db.Set(std::to_string(i), Value(i, round)), IsOk());
  }
  static void ExpectHolds(Database& db, int round) {
    EXPECT_EQ(db.Count(), std::uint64_t{kRecords});
    for (int i = 0; i < kRecords; ++i) ASSERT_THAT(db.Get(std::to_string(i)), IsOkAndHolds(Value(i, round)));
    EXPECT_THAT(db.Verify(), IsOk());
  }

  MemoryFile file_;
};

TEST_F(TreeAllocationFailure, OpensAfterAFailedOpen) {
  {
    ASSERT_OK_AND_ASSIGN(auto db, Database::Open(file_.Share()));
    Fill(*db, 1);
    ASSERT_THAT(db->Close(), IsOk());
  }
  ForEachFailure([&](auto run) {
    std::unique_ptr<Database> db;
    (void)run([&]() -> Status {
      HAKO_ASSIGN_OR_RETURN(db, Database::Open(file_.Share()));
      return absl::OkStatus();
    });
    db.reset();
    ASSERT_OK_AND_ASSIGN(db, Database::Open(file_.Share()));
    ExpectHolds(*db, 1);
  });
}

TEST_F(TreeAllocationFailure, FailedCloseKeepsTheLastCheckpoint) {
  int round = 1;
  ForEachFailure([&](auto run) {
    ASSERT_OK_AND_ASSIGN(auto db, Database::Open(file_.Share()));
    Fill(*db, round);
    ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
    Fill(*db, round + 1);
    const Status status = run([&] { return db->Close(); });
    db.reset();
    ASSERT_OK_AND_ASSIGN(db, Database::Open(file_.Share()));
    if (status.ok()) ++round;
    ExpectHolds(*db, round);
  });
}

TEST_F(TreeAllocationFailure, UpdatesSurviveFailedCheckpoints) {
  ASSERT_OK_AND_ASSIGN(auto db, Database::Open(file_.Share()));
  int round = 0;
  ForEachFailure([&](auto run) {
    Fill(*db, ++round);
    (void)run([&] { return db->Synchronize(SyncMode::kHard); });
    ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
    ASSERT_OK_AND_ASSIGN(auto as_synchronized, Database::Open(MemoryFile::Of(file_.View(0, file_.Size()))));
    ExpectHolds(*as_synchronized, round);
  });
  ExpectHolds(*db, round);
}

TEST_F(TreeAllocationFailure, FreedIdsSurviveFailedCheckpoints) {
  ASSERT_OK_AND_ASSIGN(auto db, Database::Open(file_.Share()));
  std::uint64_t size = 0;
  ForEachFailure([&](auto run) {
    Fill(*db, 1);
    ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
    ASSERT_THAT(db->RemoveRange("").status(), IsOk());
    (void)run([&] { return db->Synchronize(SyncMode::kHard); });
    ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
    ASSERT_THAT(db->Rebuild(), IsOk());
    if (size == 0) size = file_.Size();
    EXPECT_LE(file_.Size(), size + (64 << 10)) << "space was lost";
  });
}

// The first call of a thread allocates the thread's state.
TEST_F(TreeAllocationFailure, FirstCallReportsLackOfMemory) {
  ForEachFailure([&](auto run) {
    ASSERT_OK_AND_ASSIGN(auto db, Database::Open(file_.Share()));
    (void)run([&] { return db->Clear(); });
    EXPECT_THAT(db->Clear(), IsOk());
  });
}

// After a checkpoint, with the leaves in the file (if `reopens`) or in memory.
TEST_F(TreeAllocationFailure, ClearRemovesAllOrNothing) {
  for (const bool reopens : {false, true}) {
    ForEachFailure([&](auto run) {
      alarm(60);  // for a lock that stayed locked
      ASSERT_OK_AND_ASSIGN(auto db, Database::Open(file_.Share()));
      Fill(*db, 1);
      ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
      if (reopens) {
        db.reset();
        ASSERT_OK_AND_ASSIGN(db, Database::Open(file_.Share()));
      }
      const Status cleared = run([&] { return db->Clear(); });
      if (!db->GetHealth().ok()) {  // a leaf could not be loaded
        db.reset();
        ASSERT_OK_AND_ASSIGN(db, Database::Open(file_.Share()));
      }
      if (!cleared.ok()) ExpectHolds(*db, 1);
      EXPECT_THAT(db->Clear(), IsOk());
      EXPECT_EQ(db->Count(), 0u);
      EXPECT_THAT(db->Verify(), IsOk());
    });
    alarm(0);
  }
}

TEST_F(TreeAllocationFailure, CopyToCanBeRetried) {
  ASSERT_OK_AND_ASSIGN(auto db, Database::Open(file_.Share()));
  Fill(*db, 1);
  ForEachFailure([&](auto run) {
    ASSERT_THAT(db->Set("0", Value(0, 1)), IsOk());
    MemoryFile failed, copy;
    (void)run([&] { return db->CopyTo(std::move(failed)); });
    ASSERT_THAT(db->CopyTo(copy.Share()), IsOk());
    ASSERT_OK_AND_ASSIGN(auto copied, Database::Open(std::move(copy)));
    ExpectHolds(*copied, 1);
  });
}

}  // namespace
}  // namespace hako
