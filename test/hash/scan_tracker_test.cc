#include "hako/hash/file/scan_tracker.h"

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
    ASSERT_TRUE(tracker_.Claim());
    tracker_.Start(5);
  }
  std::vector<std::uint32_t> Advance(std::vector<std::uint32_t> handles, std::uint64_t end) {
    std::vector<std::uint32_t> shown;
    tracker_.Advance(handles, end, [&](std::size_t i) { shown.push_back(handles[i]); });
    return shown;
  }
  std::vector<std::uint32_t> OwedHandles() const {
    std::vector<std::uint32_t> handles;
    for (const ScanTracker::Owed& owed : tracker_.SomeOwed(100)) handles.push_back(owed.handle);
    return handles;
  }
  ScanTracker tracker_;
};

TEST_F(ScanTrackerTest, ShowsAllWithoutWriters) {
  EXPECT_THAT(Advance({10, 20}, 25), ElementsAre(10, 20));
  EXPECT_EQ(tracker_.left(), 3);
  EXPECT_THAT(Advance({30, 40, 50}, 100), ElementsAre(30, 40, 50));
  tracker_.FinishPass();
  EXPECT_THAT(OwedHandles(), IsEmpty());
  EXPECT_EQ(tracker_.left(), 0);
}

TEST_F(ScanTrackerTest, OwesMovedRecordsUnlessShown) {
  EXPECT_THAT(Advance({10, 20}, 25), ElementsAre(10, 20));
  tracker_.Note(20, 60);  // ahead, already shown
  tracker_.Note(30, 5);   // behind, not shown
  tracker_.Note(40, 45);  // twice
  tracker_.Note(45, 30);  // to another's old place
  EXPECT_THAT(Advance({5, 30, 45, 50, 60}, 100), ElementsAre(50));
  tracker_.FinishPass();
  EXPECT_THAT(OwedHandles(), ElementsAre(5, 30));
  tracker_.Note(60, 20);
  tracker_.Note(30, 70);
  EXPECT_THAT(OwedHandles(), ElementsAre(5, 70));
  for (const ScanTracker::Owed& owed : tracker_.SomeOwed(2)) EXPECT_TRUE(tracker_.Pay(owed));
  tracker_.Note(5, 80);
  EXPECT_THAT(OwedHandles(), IsEmpty());
  EXPECT_EQ(tracker_.left(), 0);
}

TEST_F(ScanTrackerTest, SkipsAddedRecordsAndDoesNotMissRemovedOnes) {
  tracker_.Note(0, 15);
  tracker_.Note(20, 0);
  tracker_.Note(0, 20);   // another record, in its block
  tracker_.Note(20, 25);  // which moves
  tracker_.Note(30, 35);
  tracker_.Note(35, 0);
  EXPECT_THAT(Advance({10, 15, 25, 40, 50}, 100), ElementsAre(10, 40, 50));
  tracker_.FinishPass();
  EXPECT_THAT(OwedHandles(), IsEmpty());
  EXPECT_EQ(tracker_.left(), 0);
}

TEST_F(ScanTrackerTest, ReusedBlockIsAnotherRecord) {
  tracker_.Note(10, 60);
  tracker_.FinishPass();
  const ScanTracker::Owed before = tracker_.SomeOwed(1).at(0);
  tracker_.Note(60, 61);
  tracker_.Note(61, 60);
  EXPECT_FALSE(tracker_.Pay(before));
  EXPECT_TRUE(tracker_.Pay(tracker_.SomeOwed(1).at(0)));
  EXPECT_EQ(tracker_.left(), 4) << "the pass did not find the others";
  EXPECT_FALSE(tracker_.PayFirst([](std::uint32_t) { FAIL(); }));
  tracker_.Note(20, 70);
  EXPECT_THAT(OwedHandles(), IsEmpty()) << "it was missed by the pass";
}

TEST_F(ScanTrackerTest, PaysARecordWhileItCannotMove) {
  tracker_.Note(10, 60);
  std::uint32_t handle = 0;
  EXPECT_TRUE(tracker_.PayFirst([&](std::uint32_t first) { handle = first; }));
  EXPECT_EQ(handle, 60u);
  EXPECT_EQ(tracker_.left(), 4);
}

TEST_F(ScanTrackerTest, KeepsNothingAfterForget) {
  tracker_.Note(10, 60);
  tracker_.ForgetAll();
  tracker_.Note(0, 20);
  tracker_.Note(20, 70);
  EXPECT_THAT(Advance({20, 30, 70}, 100), IsEmpty());
  EXPECT_THAT(OwedHandles(), IsEmpty());
  EXPECT_EQ(tracker_.left(), 0);
}

TEST_F(ScanTrackerTest, AllowsOneScanAtATime) {
  EXPECT_FALSE(tracker_.Claim());
  tracker_.Note(10, 60);
  tracker_.Stop();
  tracker_.Note(20, 70);
  ASSERT_TRUE(tracker_.Claim());
  tracker_.Start(1);
  EXPECT_THAT(OwedHandles(), IsEmpty());
  EXPECT_THAT(Advance({70}, 100), ElementsAre(70));
}

}  // namespace
}  // namespace hako::hash
