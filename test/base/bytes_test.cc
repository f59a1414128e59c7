#include "hako/base/bytes.h"

#include <gtest/gtest.h>

#include <string>

namespace hako {
namespace {

TEST(Bytes, ViewTheSameMemoryAsChars) {
  std::string text("a\0\xff", 3);
  const Bytes bytes = AsBytes(text);
  ASSERT_EQ(bytes.size(), 3u);
  EXPECT_EQ(static_cast<const void*>(bytes.data()), text.data());
  EXPECT_EQ(std::to_integer<int>(bytes[2]), 0xff);
  EXPECT_EQ(AsChars(bytes), text);
  AsMutableBytes(text)[1] = std::byte{'b'};
  EXPECT_EQ(text, "ab\xff");
  EXPECT_TRUE(AsBytes("").empty());
  EXPECT_TRUE(AsChars({}).empty());
}

}  // namespace
}  // namespace hako
