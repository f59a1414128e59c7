#include "hako/format/size_class.h"

#include <cstdint>

#include "gtest/gtest.h"
#include "support/random.h"

namespace hako::format {
namespace {

void ExpectSmallestClass(std::uint64_t units) {
  const unsigned size_class = SizeClassOf(units);
  ASSERT_LT(size_class, kSizeClasses) << units;
  ASSERT_GE(UnitsOf(size_class), units);
  ASSERT_TRUE(size_class == 0 || UnitsOf(size_class - 1) < units) << units;
  ASSERT_LE((UnitsOf(size_class) - units) * 8, units) << "more than an eighth of " << units << " is lost";
}

TEST(SizeClassTest, HoldsEachSizeInTheSmallestClass) {
  for (std::uint64_t units = 1; units <= 1 << 14; ++units) ASSERT_NO_FATAL_FAILURE(ExpectSmallestClass(units));
  Random random(TestSeed());
  for (unsigned bits = 14; bits < 32; ++bits) {
    const std::uint64_t power = std::uint64_t{1} << bits;
    for (const std::uint64_t units : {power - 1, power, power + 1, power + random.Below(power)}) {
      ASSERT_NO_FATAL_FAILURE(ExpectSmallestClass(units));
    }
  }
  ASSERT_NO_FATAL_FAILURE(ExpectSmallestClass(0xffffffff));
}

TEST(SizeClassTest, RoundTripsEachClass) {
  for (unsigned size_class = 0; size_class <= SizeClassOf(0xffffffff); ++size_class) {
    ASSERT_EQ(SizeClassOf(UnitsOf(size_class)), size_class);
    ASSERT_TRUE(size_class == 0 || UnitsOf(size_class - 1) < UnitsOf(size_class));
  }
}

// Blocks of existing files have these sizes.
TEST(SizeClassTest, KeepsItsGoldenValues) {
  constexpr std::uint64_t kUnits[] = {1, 2, 32, 36, 40, 64, 72, 128, 144, 1024, 1152, 1u << 20, 0xffffffff};
  constexpr unsigned kClasses[] = {0, 1, 31, 32, 33, 39, 40, 47, 48, 71, 72, 151, 247};
  for (std::size_t i = 0; i < std::size(kUnits); ++i) EXPECT_EQ(SizeClassOf(kUnits[i]), kClasses[i]) << kUnits[i];
}

}  // namespace
}  // namespace hako::format
