// Fails each allocation in turn while an AnyDBM makes an iterator or a range. No exception escapes,
// and the status reports the failure.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "dbm/listing.h"
#include "hako/dbm/any_dbm.h"
#include "support/allocation_counter.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

class AllocationFailureAnyTest : public testing::TestWithParam<const char*> {
 protected:
  static constexpr std::uint64_t kRecords = 50, kAllocationsMax = 10'000;

  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(db_, AnyDBM::Open(directory_.File(GetParam())));
    for (std::uint64_t i = 0; i < kRecords; ++i) ASSERT_THAT(db_->Set(NumberedKey(i), "value"), IsOk());
  }

  // Runs count(&shown), which returns a status, with each of its allocations failing.
  template <class Count>
  void Try(Count count) {
    std::uint64_t num_failed = 0;
    for (std::uint64_t n = 1; n < kAllocationsMax; ++n) {
      std::uint64_t shown = 0;
      bool has_failed = false;
      Status status;
      {
        FailingAllocation failing(n, FailingAllocation::Which::kOnce, FailingAllocation::Whose::kThisThread);
        status = count(&shown);
        has_failed = failing.HasFailed();
      }
      if (status.ok()) {
        EXPECT_EQ(shown, kRecords) << "allocation " << n;
      } else {
        EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted)) << "allocation " << n;
      }
      num_failed += !status.ok();
      if (!has_failed) break;
    }
    EXPECT_NE(num_failed, 0u);
  }

  TempDir directory_;
  std::unique_ptr<AnyDBM> db_;
};
INSTANTIATE_TEST_SUITE_P(, AllocationFailureAnyTest, testing::Values("db.hkh", "db.hkt", "db.hks"),
                         [](const auto& tested) { return std::string(tested.param).substr(3); });

TEST_P(AllocationFailureAnyTest, MakeIteratorReportsFailureInItsStatus) {
  Try([this](std::uint64_t* shown) {
    auto it = db_->MakeIterator();
    for (it.First(); it.Valid(); it.Next()) ++*shown;
    return it.status();
  });
}

TEST_P(AllocationFailureAnyTest, RangeReportsFailureInItsStatus) {
  Try([this](std::uint64_t* shown) {
    auto range = db_->Range();
    for ([[maybe_unused]] const auto& record : range) ++*shown;
    return range.status();
  });
}

TEST_P(AllocationFailureAnyTest, SnapshotReportsFailure) {
  if (!db_->IsOrdered()) {
    EXPECT_THAT(db_->Snapshot().status(), StatusIs(absl::StatusCode::kUnimplemented));
    return;
  }
  Try([this](std::uint64_t* shown) -> Status {
    HAKO_ASSIGN_OR_RETURN(const auto snapshot, db_->Snapshot());
    HAKO_RETURN_IF_ERROR(db_->Set(NumberedKey(5), "value"));  // its leaf is captured
    for (std::uint64_t i = 0; i < kRecords; ++i) HAKO_RETURN_IF_ERROR(snapshot->Get(NumberedKey(i)).status());
    HAKO_ASSIGN_OR_RETURN(const std::uint64_t count, snapshot->CountRange(""));
    EXPECT_EQ(count, kRecords);
    auto range = snapshot->Range();
    for ([[maybe_unused]] const auto& record : range) ++*shown;
    return range.status();
  });
  EXPECT_EQ(db_->GetStats().num_snapshots, 0u);
}

TEST_P(AllocationFailureAnyTest, IteratorStaysAtTheEndWhenOutOfMemory) {
  std::unique_ptr<AnyDBM::Iterator> it;
  {
    FailingAllocation failing(1, FailingAllocation::Which::kOnce, FailingAllocation::Whose::kThisThread);
    auto made = db_->MakeIterator();
    EXPECT_TRUE(failing.HasFailed());
    it = std::make_unique<AnyDBM::Iterator>(std::move(made));
  }
  it->First();
  it->Jump(NumberedKey(1));
  it->Next();
  it->Last();
  it->JumpLower(NumberedKey(3));
  it->JumpUpper(NumberedKey(3));
  it->Previous();
  EXPECT_FALSE(it->Valid());
  EXPECT_FALSE(it->SkipDamage());
  EXPECT_THAT(it->status(), StatusIs(absl::StatusCode::kResourceExhausted));
}

}  // namespace
}  // namespace hako
