#include "hako/hash/scan_tracker.h"

#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hako::hash {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// A scan of records whose handles are 10, 20, ... 50.
class ScanTrackerTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(log_.Claim());
    log_.Start(5);
  }
  std::vector<std::uint32_t> Advance(std::vector<std::uint32_t> handles, std::uint64_t end) {
    std::vector<std::uint32_t> shown;
    log_.Advance(handles, end, [&](std::size_t i) { shown.push_back(handles[i]); });
    return shown;
  }
  std::vector<std::uint32_t> OwedHandles() const {
    std::vector<std::uint32_t> handles;
    for (const ScanTracker::Owed& owed : log_.SomeOwed(100)) handles.push_back(owed.handle);
    return handles;
  }
  ScanTracker log_;
};

TEST_F(ScanTrackerTest, ShowsAllWithoutWriters) {
  EXPECT_THAT(Advance({10, 20}, 25), ElementsAre(10, 20));
  EXPECT_EQ(log_.left(), 3);
  EXPECT_THAT(Advance({30, 40, 50}, 100), ElementsAre(30, 40, 50));
  log_.FinishPass();
  EXPECT_THAT(OwedHandles(), IsEmpty());
  EXPECT_EQ(log_.left(), 0);
}

TEST_F(ScanTrackerTest, OwesMovedRecordsUnlessShown) {
  EXPECT_THAT(Advance({10, 20}, 25), ElementsAre(10, 20));
  log_.Note(20, 60);  // ahead, already shown
  log_.Note(30, 5);   // behind, not shown
  log_.Note(40, 45);  // twice
  log_.Note(45, 30);  // to another's old place
  EXPECT_THAT(Advance({5, 30, 45, 50, 60}, 100), ElementsAre(50));
  log_.FinishPass();
  EXPECT_THAT(OwedHandles(), ElementsAre(5, 30));
  log_.Note(60, 20);
  log_.Note(30, 70);
  EXPECT_THAT(OwedHandles(), ElementsAre(5, 70));
  for (const ScanTracker::Owed& owed : log_.SomeOwed(2)) EXPECT_TRUE(log_.Pay(owed));
  log_.Note(5, 80);
  EXPECT_THAT(OwedHandles(), IsEmpty());
  EXPECT_EQ(log_.left(), 0);
}

TEST_F(ScanTrackerTest, SkipsAddedRecordsAndDoesNotMissRemovedOnes) {
  log_.Note(0, 15);
  log_.Note(20, 0);
  log_.Note(0, 20);   // another record, in its block
  log_.Note(20, 25);  // which moves
  log_.Note(30, 35);
  log_.Note(35, 0);
  EXPECT_THAT(Advance({10, 15, 25, 40, 50}, 100), ElementsAre(10, 40, 50));
  log_.FinishPass();
  EXPECT_THAT(OwedHandles(), IsEmpty());
  EXPECT_EQ(log_.left(), 0);
}

TEST_F(ScanTrackerTest, ReusedBlockIsAnotherRecord) {
  log_.Note(10, 60);
  log_.FinishPass();
  const ScanTracker::Owed before = log_.SomeOwed(1).at(0);
  log_.Note(60, 61);
  log_.Note(61, 60);
  EXPECT_FALSE(log_.Pay(before));
  EXPECT_TRUE(log_.Pay(log_.SomeOwed(1).at(0)));
  EXPECT_EQ(log_.left(), 4) << "the pass did not find the others";
  EXPECT_FALSE(log_.PayFirst([](std::uint32_t) { FAIL(); }));
  log_.Note(20, 70);
  EXPECT_THAT(OwedHandles(), IsEmpty()) << "it was missed by the pass";
}

TEST_F(ScanTrackerTest, PaysARecordWhileItCannotMove) {
  log_.Note(10, 60);
  std::uint32_t handle = 0;
  EXPECT_TRUE(log_.PayFirst([&](std::uint32_t first) { handle = first; }));
  EXPECT_EQ(handle, 60u);
  EXPECT_EQ(log_.left(), 4);
}

TEST_F(ScanTrackerTest, KeepsNothingAfterForget) {
  log_.Note(10, 60);
  log_.ForgetAll();
  log_.Note(0, 20);
  log_.Note(20, 70);
  EXPECT_THAT(Advance({20, 30, 70}, 100), IsEmpty());
  EXPECT_THAT(OwedHandles(), IsEmpty());
  EXPECT_EQ(log_.left(), 0);
}

TEST_F(ScanTrackerTest, AllowsOneScanAtATime) {
  EXPECT_FALSE(log_.Claim());
  log_.Note(10, 60);
  log_.Stop();
  log_.Note(20, 70);
  ASSERT_TRUE(log_.Claim());
  log_.Start(1);
  EXPECT_THAT(OwedHandles(), IsEmpty());
  EXPECT_THAT(Advance({70}, 100), ElementsAre(70));
}

}  // namespace
}  // namespace hako::hash
