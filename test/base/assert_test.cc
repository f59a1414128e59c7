#include "hako/base/assert.h"

#include <gtest/gtest.h>

namespace hako {
namespace {

TEST(AssertDeathTest, NamesThePlaceAndTheConditionAndAborts) {
  const int one = 1;
  EXPECT_DEATH(HAKO_ASSERT(one == 2), "assert_test.cc:[0-9]+: hako: check failed: one == 2");
}

TEST(Assert, EvaluatesOnce) {
  int count = 0;
  HAKO_ASSERT(++count == 1);
  EXPECT_EQ(count, 1);
}

#ifdef NDEBUG
TEST(Assert, DebugChecksAreNotEvaluatedInAReleaseBuild) {
  int count = 0;
  HAKO_DCHECK(++count == 2);
  EXPECT_EQ(count, 0);
}
#else
TEST(AssertDeathTest, DebugChecksAbortInADebugBuild) {
  const int one = 1;
  EXPECT_DEATH(HAKO_DCHECK(one == 2), "check failed: one == 2");
}
#endif

}  // namespace
}  // namespace hako
