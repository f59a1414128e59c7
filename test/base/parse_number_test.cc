#include "hako/base/parse_number.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hako {
namespace {

TEST(ParseNumber, ParsesSuffixes) {
  EXPECT_EQ(ParseNumber("0"), 0);
  EXPECT_EQ(ParseNumber("-12"), -12);
  EXPECT_EQ(ParseNumber("8k"), 8000);
  EXPECT_EQ(ParseNumber("8Ki"), 8192);
  EXPECT_EQ(ParseNumber("3m"), 3000000);
  EXPECT_EQ(ParseNumber("3mi"), 3 << 20);
  EXPECT_EQ(ParseNumber("2G"), 2000000000);
  EXPECT_EQ(ParseNumber("2gi"), std::int64_t{2} << 30);
  EXPECT_EQ(ParseNumber("1t"), 1000000000000);
  EXPECT_EQ(ParseNumber("-1ti"), -(std::int64_t{1} << 40));
  EXPECT_EQ(ParseNumber("9223372036854775807"), INT64_MAX);
  for (const char* wrong :
       {"", "k", "1x", "1kb", "1kib", "1 k", " 1", "1.5k", "0x10", "+1", "9223372036854775808", "9223372036854776k", "8388608ti"})
    EXPECT_EQ(ParseNumber(wrong), std::nullopt) << wrong;
}

}  // namespace
}  // namespace hako
