// Which units of a file belong to an extent with a damaged header: those from a named or unreadable
// one up to the next header.
#include "hako/hash/file/damaged_extents.h"

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "gtest/gtest.h"

namespace hako::hash {
namespace {

constexpr std::uint64_t kUnit = format::kExtentUnit;
constexpr std::uint64_t kUnits = 12;

// The units that are taken, of those without a header, in ascending order.
std::vector<std::uint64_t> TakenOf(DamagedExtents& damaged, std::initializer_list<std::uint64_t> units, std::uint64_t unreadable = kUnits) {
  std::vector<std::uint64_t> taken;
  for (const std::uint64_t unit : units) {
    if (damaged.Takes(unit * kUnit, unit == unreadable)) taken.push_back(unit);
  }
  return taken;
}
using Units = std::vector<std::uint64_t>;

TEST(DamagedExtentsTest, SpaceThatNoEntryNamesIsFree) {
  DamagedExtents damaged;
  EXPECT_EQ(TakenOf(damaged, {1, 2, 5, 6}), Units{});
  damaged.GetNoter(kUnits * kUnit);
  EXPECT_EQ(TakenOf(damaged, {7, 8}), Units{});
  EXPECT_TRUE(damaged.empty());
  EXPECT_FALSE(damaged.Has(kUnit));
}

TEST(DamagedExtentsTest, TakesFromANamedUnitUpToTheNextHeader) {
  DamagedExtents damaged;
  const auto noter = damaged.GetNoter(kUnits * kUnit);
  noter.Note(3 * kUnit + 48);
  noter.Note(9 * kUnit + kUnit - 8);
  EXPECT_EQ(TakenOf(damaged, {1, 2, 3, 4, 5, 7, 8, 9}), (Units{3, 4, 5, 9})) << "unit 6 has a header";
  EXPECT_FALSE(damaged.empty());
  for (std::uint64_t unit = 0; unit < kUnits; ++unit) {
    const bool is_damaged = (unit >= 3 && unit <= 5) || unit == 9;
    EXPECT_EQ(damaged.Has(unit * kUnit), is_damaged) << unit;
    EXPECT_EQ(damaged.Has((unit + 1) * kUnit - 1), is_damaged) << unit;
  }
}

TEST(DamagedExtentsTest, TakesAUnitThatCannotBeRead) {
  DamagedExtents damaged;
  EXPECT_EQ(TakenOf(damaged, {1, 2, 3, 5}, 2), (Units{2, 3}));
  EXPECT_TRUE(damaged.Has(2 * kUnit));
  EXPECT_FALSE(damaged.Has(4 * kUnit));
}

TEST(DamagedExtentsTest, EntriesBehindTheEndAreLeftOut) {
  DamagedExtents damaged;
  const auto noter = damaged.GetNoter(4 * kUnit);
  noter.Note(5 * kUnit);
  noter.Note(~std::uint64_t{0});
  EXPECT_EQ(TakenOf(damaged, {1, 2, 3, 4}), Units{});
}

TEST(DamagedExtentsTest, StaysAfterTheEndOfNoting) {
  DamagedExtents damaged;
  damaged.GetNoter(kUnits * kUnit).Note(2 * kUnit);
  damaged.GetNoter(kUnits * kUnit).Note(4 * kUnit);  // of another part of the table
  EXPECT_EQ(TakenOf(damaged, {2, 4}), (Units{2, 4}));
  damaged.EndNoting();
  EXPECT_TRUE(damaged.Has(2 * kUnit));
  EXPECT_TRUE(damaged.Has(4 * kUnit));
  EXPECT_FALSE(damaged.Takes(6 * kUnit, false));
}

}  // namespace
}  // namespace hako::hash
