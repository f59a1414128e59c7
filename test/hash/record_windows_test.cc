// The choice of the part of an arena that is emptied for a large record.
#include "hako/hash/memory/record_windows.h"

#include <cstdint>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hako::hash {
namespace {

constexpr std::uint64_t kUnit = RecordWindows::kUnit;

// A section of eight units from the second on, full of cold records of a sixteenth of a unit, except `holes`.
RecordWindows Filled(Part holes = {}) {
  RecordWindows windows({kUnit, 9 * kUnit});
  for (std::uint64_t at = kUnit; at < 9 * kUnit; at += kUnit / 16) {
    if (at < holes.begin || at >= holes.end) windows.AddRecord({at, at + kUnit / 16}, RecordWindows::kCold, false);
  }
  return windows;
}

TEST(RecordWindowsTest, PrefersFreeBytes) {
  RecordWindows windows = Filled({5 * kUnit, 6 * kUnit});
  windows.AddFree({5 * kUnit, 6 * kUnit});
  const auto window = windows.Choose(kUnit - 1, 0, 0);
  ASSERT_TRUE(window);
  EXPECT_EQ(window->run.begin, 5 * kUnit);
  EXPECT_EQ(window->run.bytes(), kUnit);
}

TEST(RecordWindowsTest, TakesTheFirstOfEqualOnesFromAPlaceOn) {
  EXPECT_EQ(Filled().Choose(2 * kUnit, 0, 0)->run.begin, kUnit);
  EXPECT_EQ(Filled().Choose(2 * kUnit, 4 * kUnit, 0)->run.begin, 4 * kUnit);
  EXPECT_EQ(Filled().Choose(2 * kUnit, 9 * kUnit, 0)->run.begin, kUnit);
}

TEST(RecordWindowsTest, AvoidsBytesThatAreInUse) {
  EXPECT_FALSE(Filled({5 * kUnit, 5 * kUnit + 1}).Choose(8 * kUnit, 0, 0));
  EXPECT_EQ(Filled({2 * kUnit, 2 * kUnit + 1}).Choose(3 * kUnit, 0, 0)->run.begin, 3 * kUnit);
  EXPECT_FALSE(Filled({2 * kUnit, 2 * kUnit + 1}).WindowAt(2 * kUnit));
}

TEST(RecordWindowsTest, CountsARecordAcrossItsBeginningAsAWhole) {
  RecordWindows windows({kUnit, 5 * kUnit});
  windows.AddRecord({kUnit, 4 * kUnit - 8}, RecordWindows::kCold, false);
  windows.AddRecord({4 * kUnit - 8, 5 * kUnit}, RecordWindows::kCold, false);
  const auto window = windows.Choose(kUnit, 0, 0);
  ASSERT_TRUE(window);
  EXPECT_EQ(window->run.begin, 4 * kUnit);
  EXPECT_EQ(window->records().begin, 4 * kUnit - 8);
}

TEST(RecordWindowsTest, LosesUsedRecordsOnlyIfTheyCannotBeMoved) {
  RecordWindows windows = Filled({kUnit, 3 * kUnit});
  windows.AddRecord({kUnit, kUnit + kUnit / 4}, RecordWindows::kUsed, true);
  windows.AddFree({kUnit + kUnit / 4, 3 * kUnit});
  EXPECT_EQ(windows.Choose(2 * kUnit, 0, kUnit / 4)->run.begin, kUnit);
  EXPECT_EQ(windows.Choose(2 * kUnit, 0, kUnit / 4)->moved, kUnit / 4);
  EXPECT_NE(windows.Choose(2 * kUnit, 0, 0)->run.begin, kUnit);
  windows.SetExcluded({kUnit, 2 * kUnit}, true);
  EXPECT_NE(windows.Choose(2 * kUnit, 0, kUnit / 4)->run.begin, kUnit);
}

}  // namespace
}  // namespace hako::hash
