// FreeSpaceMap beside a model with a bool for each unit.
#include "hako/tree/file/free_space_map.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/random.h"
#include "support/sanitizers.h"

namespace hako::tree {
namespace {

constexpr std::uint64_t kFirst = 16;

class Model {
 public:
  void Reset(std::uint64_t end) { used_.assign(end, false); }
  std::uint64_t end() const { return used_.size(); }
  bool AllFree(std::uint64_t place, std::uint64_t units) const {
    if (place < kFirst || place > end() || units > end() - place) return false;
    return std::find(At(place), At(place + units), true) == At(place + units);
  }
  void Fill(std::uint64_t place, std::uint64_t units, bool used) {
    for (std::uint64_t i = place; i < place + units; ++i) {
      ASSERT_NE(used_[i], used) << i;
      used_[i] = used;
    }
  }
  void SetEnd(std::uint64_t end) { used_.resize(end); }
  std::uint64_t used_units() const { return static_cast<std::uint64_t>(std::count(used_.begin(), used_.end(), true)); }
  std::uint64_t UsedEnd() const {
    for (std::uint64_t i = end(); i > kFirst; --i) {
      if (used_[i - 1]) return i;
    }
    return kFirst;
  }
  std::vector<std::pair<std::uint64_t, std::uint64_t>> Runs(bool used) const {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> runs;
    for (std::uint64_t at = kFirst; at < end();) {
      const auto from = std::find(At(at), used_.end(), used);
      const auto to = std::find(from, used_.end(), !used);
      if (from != to) runs.emplace_back(from - used_.begin(), to - from);
      at = static_cast<std::uint64_t>(to - used_.begin());
    }
    return runs;
  }

 private:
  std::vector<bool>::const_iterator At(std::uint64_t i) const { return used_.begin() + static_cast<std::ptrdiff_t>(i); }
  std::vector<bool> used_;
};

void ExpectSame(const FreeSpaceMap& space, const Model& model) {
  ASSERT_EQ(space.end(), model.end());
  ASSERT_EQ(space.used_units(), model.used_units());
  ASSERT_EQ(space.free_units(), model.end() - kFirst - model.used_units());
  ASSERT_EQ(space.UsedEnd(), model.UsedEnd());
  std::vector<std::pair<std::uint64_t, std::uint64_t>> runs;
  space.ForEachUsedRun([&](std::uint64_t place, std::uint64_t units) { runs.emplace_back(place, units); });
  ASSERT_EQ(runs, model.Runs(true));
}

TEST(FreeSpaceMap, AgreesWithAModel) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  for (int life = 0; life < 6; ++life) {
    FreeSpaceMap space;
    Model model;
    const std::uint64_t first_end = kFirst + random.Below(300);
    space.Reset(kFirst, first_end);
    model.Reset(first_end);
    ASSERT_NO_FATAL_FAILURE(ExpectSame(space, model));
    for (int i = 0; i < 1500 / kSlowdown; ++i) {
      const std::uint64_t least = random.Between(1, random.OneIn(8) ? 150 : 10), most = least + random.Below(100);
      switch (random.Below(8)) {
        case 0:
        case 1:
        case 2: {
          if (random.OneIn(10)) space.Rewind();
          const FreeSpaceMap::Run run = space.Take(least, most);
          if (run.units == 0) {
            for (const auto& [place, units] : model.Runs(false)) ASSERT_LT(units, least) << "there is a run at " << place;
          } else {
            ASSERT_TRUE(run.units >= least && run.units <= most);
            ASSERT_TRUE(model.AllFree(run.place, run.units)) << run.place;
            model.Fill(run.place, run.units, true);
          }
          break;
        }
        case 3: {
          const std::uint64_t place = random.Below(model.end() + 20);
          const bool all_free = model.AllFree(place, least);
          ASSERT_EQ(space.MarkUsed(place, least), all_free) << place << " " << least;
          if (all_free) model.Fill(place, least, true);
          break;
        }
        case 4:
        case 5:
        case 6: {
          const auto runs = model.Runs(true);
          if (runs.empty()) break;
          auto [place, units] = runs[random.Below(runs.size())];
          const std::uint64_t skipped = random.Below(units), freed = random.Between(1, units - skipped);
          space.Free(place + skipped, freed);
          model.Fill(place + skipped, freed, false);
          break;
        }
        default: {
          const std::uint64_t end = random.OneIn(2) ? model.end() + random.Below(200) : random.Between(model.UsedEnd(), model.end());
          end < model.end() ? space.Shrink(end) : space.Grow(end);
          model.SetEnd(end);
        }
      }
      ASSERT_NO_FATAL_FAILURE(ExpectSame(space, model)) << "after operation " << i;
    }
  }
}

TEST(FreeSpaceMap, TakesTheFirstSufficientRun) {
  FreeSpaceMap space;
  space.Reset(kFirst, 1000);
  ASSERT_TRUE(space.MarkUsed(20, 10));
  ASSERT_TRUE(space.MarkUsed(40, 100));
  const auto take = [&](std::uint64_t least, std::uint64_t most) {
    const FreeSpaceMap::Run run = space.Take(least, most);
    return std::pair(run.place, run.units);
  };
  EXPECT_EQ(take(5, 100), std::pair(std::uint64_t{30}, std::uint64_t{10}));
  EXPECT_EQ(take(5, 100), std::pair(std::uint64_t{140}, std::uint64_t{100}));
  EXPECT_EQ(take(1, 1), std::pair(std::uint64_t{240}, std::uint64_t{1})) << "it goes on where it was";
  space.Rewind();
  EXPECT_EQ(take(1, 1), std::pair(std::uint64_t{16}, std::uint64_t{1}));
  EXPECT_EQ(take(760, 800).second, 0u) << "759 are left behind";
  EXPECT_EQ(take(759, 800), std::pair(std::uint64_t{241}, std::uint64_t{759}));
  EXPECT_EQ(take(4, 4).second, 0u);
  EXPECT_EQ(take(3, 4), std::pair(std::uint64_t{17}, std::uint64_t{3})) << "what was passed over, once the end is reached";
  EXPECT_EQ(take(1, 1).second, 0u);
  EXPECT_EQ(space.free_units(), 0u);
}

// As Rebuild does: thousands of images of a few sizes move to the front of a file that is nearly
// full there.
TEST(FreeSpaceMap, FindsPlacesForManyImagesInOnePassForEachSize) {
  constexpr std::uint64_t kUnits = 1 << 20, kImages = 4000, kSizes = 8;
  FreeSpaceMap space;
  space.Reset(kFirst, kUnits);
  ASSERT_TRUE(space.MarkUsed(kFirst, kUnits - kFirst));
  Random random(1);
  std::vector<std::uint64_t> holes(kUnits);  // units free at a place
  for (std::uint64_t at = kFirst; at + 20 < kUnits / 2; at += 60 + random.Below(20)) {
    holes[at] = random.Between(1, 10);
    space.Free(at, holes[at]);
  }
  FreeSpaceMap::Front front;
  std::uint64_t placed = 0;
  for (std::uint64_t i = 0; i < kImages; ++i) {
    const std::uint64_t units = 1 + i % kSizes;
    const FreeSpaceMap::Run run = space.TakeFirst(units, kUnits - 10 * i, &front);
    if (run.units == 0) continue;
    ++placed;
    ASSERT_EQ(run.units, units);
    ASSERT_LT(run.place, kUnits / 2);
  }
  EXPECT_GT(placed, kImages / 2);
  EXPECT_LE(space.words_read(), 3 * kSizes * kUnits / 64) << "searches from the front read " << kImages / 2 * kUnits / 64;
}

// The first place is found, regardless of sizes searched for before.
TEST(FreeSpaceMap, TakeFirstAgreesWithASearchFromTheFront) {
  Random random(2);
  for (int round = 0; round < 200; ++round) {
    FreeSpaceMap space, model;
    space.Reset(kFirst, 2000);
    model.Reset(kFirst, 2000);
    for (std::uint64_t at = kFirst; at < 1950; at += random.Between(1, 40)) {
      const std::uint64_t units = random.Between(1, 30);
      EXPECT_EQ(space.MarkUsed(at, units), model.MarkUsed(at, units));
    }
    FreeSpaceMap::Front front;
    for (std::uint64_t to = 2000; to > 1000; to -= 5) {
      const std::uint64_t units = random.Between(1, 12);
      model.Rewind();
      FreeSpaceMap::Run expected = model.Take(units, units);
      if (expected.units != 0 && expected.place >= to) {
        model.Free(expected.place, expected.units);
        expected = {};
      }
      const FreeSpaceMap::Run run = space.TakeFirst(units, to, &front);
      ASSERT_EQ(run.units, expected.units);
      if (run.units != 0) {
        ASSERT_EQ(run.place, expected.place);
      }
    }
  }
}

TEST(FreeSpaceMap, ReadsLittleOfAMapWithSpaceOnlyAtTheEnd) {
  constexpr std::uint64_t kUnits = 1 << 20;
  FreeSpaceMap space;
  space.Reset(16, kUnits);
  ASSERT_TRUE(space.MarkUsed(16, kUnits - 16 - 100));
  const std::uint64_t before = space.words_read();
  EXPECT_EQ(space.Take(8, 8).place, kUnits - 100);
  EXPECT_LE(space.words_read() - before, 200u);
  space.Free(5000, 8);
  space.Rewind();
  EXPECT_EQ(space.Take(8, 8).place, 5000u);
}

TEST(FreeSpaceMap, TakesTheFirstLongEnoughRunOfALargeMap) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  for (int round = 0; round < 300 / kSlowdown; ++round) {
    const std::uint64_t end = 8000 + random.Below(9000), gap_max = random.OneIn(2) ? 30 : 600, hole_max = random.OneIn(2) ? 20 : 200;
    FreeSpaceMap space;
    Model model;
    space.Reset(kFirst, end);
    model.Reset(end);
    for (std::uint64_t at = kFirst; at < end; at += random.Between(1, hole_max)) {
      const std::uint64_t units = std::min(random.Between(1, random.OneIn(50) ? 5000 : gap_max), end - at);
      ASSERT_TRUE(space.MarkUsed(at, units));
      model.Fill(at, units, true);
      at += units;
    }
    for (int i = 0; i < 40; ++i) {
      const std::uint64_t least = random.SkewedSize(9) + 1, most = least + random.Below(100);
      space.Rewind();
      const FreeSpaceMap::Run run = space.Take(least, most);
      const auto runs = model.Runs(false);
      const auto expected = std::ranges::find_if(runs, [&](const auto& one) { return one.second >= least; });
      ASSERT_EQ(run.units, expected == runs.end() ? 0 : std::min(expected->second, most));
      if (run.units == 0) continue;
      ASSERT_EQ(run.place, expected->first);
      model.Fill(run.place, run.units, true);
    }
  }
}

TEST(FreeSpaceMap, ReadsLittleOfAMapWithManyShortHoles) {
  constexpr std::uint64_t kUnits = 1 << 20;
  FreeSpaceMap space;
  space.Reset(16, kUnits);
  ASSERT_TRUE(space.MarkUsed(16, kUnits - 16 - 100));
  for (std::uint64_t at = 1000; at + 1000 < kUnits; at += 1000) space.Free(at, 16);  // the last one crosses no part's end
  space.Free(3 * 4096 - 30, 30);                                                     // two together are long enough
  space.Free(3 * 4096, 70);
  space.Rewind();
  const std::uint64_t before = space.words_read();
  EXPECT_EQ(space.Take(100, 100).place, 3 * 4096 - 30u);
  EXPECT_EQ(space.Take(100, 100).place, kUnits - 100);
  EXPECT_LE(space.words_read() - before, 1000u) << "of " << kUnits / 64;
}

TEST(FreeSpaceMap, SearchesTheEndOfTheMapForARunLongerThanAPart) {
  FreeSpaceMap space;
  space.Reset(kFirst, 4096 + 1000);
  EXPECT_EQ(space.Take(5000, 5000).place, kFirst);
  EXPECT_EQ(space.Take(5000, 5000).units, 0u);
  space.Grow(3 * 4096 + 1000);
  EXPECT_EQ(space.Take(5000, 5000).place, kFirst + 5000);
}

TEST(FreeSpaceMap, RefusesUnitsInUseOrOutside) {
  FreeSpaceMap space;
  space.Reset(kFirst, 200);
  EXPECT_FALSE(space.MarkUsed(15, 2));
  EXPECT_FALSE(space.MarkUsed(199, 2));
  EXPECT_FALSE(space.MarkUsed(200, 1));
  EXPECT_FALSE(space.MarkUsed(~std::uint64_t{0}, 2));
  EXPECT_FALSE(space.MarkUsed(20, ~std::uint64_t{0}));
  EXPECT_EQ(space.used_units(), 0u);
  EXPECT_TRUE(space.MarkUsed(16, 184));
  EXPECT_FALSE(space.MarkUsed(100, 1));
}

}  // namespace
}  // namespace hako::tree
