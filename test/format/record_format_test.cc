#include "hako/format/record_format.h"

#include <cstdint>
#include <string_view>

#include "gtest/gtest.h"
#include "support/random.h"

namespace hako::format {
namespace {

TEST(RecordFormatTest, RoundTripsLengths) {
  Random random(TestSeed());
  constexpr std::uint64_t kEdges[] = {0, 1, 127, 128, 16'383, 16'384, kKeySizeMax, kValueSizeMax};
  for (int i = 0; i < 3000; ++i) {
    const std::uint64_t key_size = i < 64 ? kEdges[i % 7] : random.Below(std::uint64_t{1} << random.Below(30));
    const std::uint64_t value_size = i < 64 ? kEdges[i / 8] : random.Below(std::uint64_t{1} << random.Below(33)) & kValueSizeMax;
    char bytes[kLengthsMax];
    const unsigned size = EncodeLengths(bytes, key_size, value_size);
    ASSERT_EQ(size, LengthsSize(key_size, value_size));
    ASSERT_LE(size, kLengthsMax);
    ASSERT_EQ(size == 2, key_size < kShortLength && value_size < kShortLength);
    const Lengths lengths = DecodeLengths(bytes, size);
    ASSERT_EQ(lengths.header, size);
    ASSERT_EQ(lengths.key_size, key_size);
    ASSERT_EQ(lengths.value_size, value_size);
    ASSERT_EQ(DecodeLengths(bytes, size - 1).header, 0u) << "a part of the lengths was accepted";
    ASSERT_LE(RecordHeadSize(size), kRecordHeadMax);
  }
}

TEST(RecordFormatTest, HeadCheckKeepsItsGoldenValueAndDependsOnAll) {
  constexpr std::uint64_t kSecret = 0x0123456789abcdef, kOffset = 0x12340;
  constexpr std::uint32_t kCheck = RecordHeadCheck(0x89abcdef, 300, 70'000, kOffset, kSecret);
  EXPECT_EQ(kCheck, 0xd7e49676u);
  EXPECT_NE(RecordHeadCheck(0x89abcdee, 300, 70'000, kOffset, kSecret), kCheck);
  EXPECT_NE(RecordHeadCheck(0x89abcdef, 301, 70'000, kOffset, kSecret), kCheck);
  EXPECT_NE(RecordHeadCheck(0x89abcdef, 300, 70'001, kOffset, kSecret), kCheck);
  EXPECT_NE(RecordHeadCheck(0x89abcdef, 300, 70'000, kOffset + 8, kSecret), kCheck);
  EXPECT_NE(RecordHeadCheck(0x89abcdef, 300, 70'000, kOffset, kSecret + 1), kCheck);
}

}  // namespace
}  // namespace hako::format
