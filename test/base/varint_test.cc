#include "hako/base/varint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>
#include <vector>

namespace hako {
namespace {

std::vector<std::byte> Encoded(std::uint64_t value) {
  std::vector<std::byte> bytes(kVarint64SizeMax);
  bytes.resize(EncodeVarint(value, std::span(bytes)));
  return bytes;
}

std::vector<std::byte> ToBytes(std::initializer_list<int> numbers) {
  std::vector<std::byte> bytes;
  for (const int number : numbers) bytes.push_back(static_cast<std::byte>(number));
  return bytes;
}

// Every number around each power of two.
std::vector<std::uint64_t> Numbers() {
  std::vector<std::uint64_t> numbers = {0};
  for (int bit = 0; bit < 64; ++bit) {
    for (const int delta : {-1, 0, 1}) numbers.push_back((std::uint64_t{1} << bit) + static_cast<std::uint64_t>(delta));
  }
  return numbers;
}

TEST(Varint, EncodesAsLeb128) {
  EXPECT_EQ(Encoded(0), ToBytes({0}));
  EXPECT_EQ(Encoded(127), ToBytes({0x7f}));
  EXPECT_EQ(Encoded(128), ToBytes({0x80, 0x01}));
  EXPECT_EQ(Encoded(624485), ToBytes({0xe5, 0x8e, 0x26}));
  EXPECT_EQ(Encoded(~std::uint64_t{0}), ToBytes({0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}));
}

TEST(Varint, RoundTripsNumbers) {
  for (const std::uint64_t number : Numbers()) {
    std::vector<std::byte> bytes = Encoded(number);
    EXPECT_EQ(bytes.size(), VarintSize(number));
    EXPECT_LE(bytes.size(), kVarint64SizeMax);
    bytes.push_back(std::byte{0xff});  // the rest does not matter
    std::uint64_t decoded = 0;
    EXPECT_EQ(DecodeVarint(std::span<const std::byte>(bytes), decoded), bytes.size() - 1) << number;
    EXPECT_EQ(decoded, number);
    std::array<std::byte, kVarint64SizeMax> place;
    EXPECT_EQ(EncodeVarint(number, place.data()), place.data() + bytes.size() - 1);
  }
}

TEST(Varint, RefusesOverflow) {
  for (const std::uint64_t number : Numbers()) {
    const std::vector<std::byte> bytes = Encoded(number);
    std::uint32_t decoded32 = 99;
    std::uint8_t decoded8 = 99;
    const bool fits32 = number <= std::numeric_limits<std::uint32_t>::max();
    const bool fits8 = number <= std::numeric_limits<std::uint8_t>::max();
    EXPECT_EQ(DecodeVarint(std::span<const std::byte>(bytes), decoded32), fits32 ? bytes.size() : 0) << number;
    EXPECT_EQ(decoded32, fits32 ? number : 99);
    EXPECT_EQ(DecodeVarint(std::span<const std::byte>(bytes), decoded8), fits8 ? bytes.size() : 0) << number;
    EXPECT_EQ(decoded8, fits8 ? number : 99);
    if (fits32) {
      EXPECT_LE(bytes.size(), kVarint32SizeMax);
    }
  }
  std::uint64_t decoded = 99;
  const auto beyond = ToBytes({0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02});  // bit 64
  EXPECT_EQ(DecodeVarint(std::span<const std::byte>(beyond), decoded), 0u);
  const std::vector<std::byte> endless(30, std::byte{0x80});
  EXPECT_EQ(DecodeVarint(std::span<const std::byte>(endless), decoded), 0u);
  EXPECT_EQ(decoded, 99u);
}

TEST(Varint, RefusesTruncatedInput) {
  for (const std::uint64_t number : Numbers()) {
    const std::vector<std::byte> bytes = Encoded(number);
    std::uint64_t decoded = 99;
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      const std::vector<std::byte> part(bytes.begin(),
                                        bytes.begin() + static_cast<std::ptrdiff_t>(size));  // so that a sanitizer detects overreads
      EXPECT_EQ(DecodeVarint(part.data(), part.data() + size, decoded), nullptr);
    }
    EXPECT_EQ(decoded, 99u);
  }
}

TEST(Varint, RefusesNonCanonicalEncodings) {
  std::uint32_t decoded = 99;
  for (const auto& bytes :
       {ToBytes({0x80, 0x00}), ToBytes({0xff, 0x00}), ToBytes({0x81, 0x80, 0x00}), ToBytes({0x80, 0x80, 0x80, 0x80, 0x00})}) {
    EXPECT_EQ(DecodeVarint(std::span<const std::byte>(bytes), decoded), 0u);
  }
  EXPECT_EQ(decoded, 99u);
}

TEST(Varint, NeverWritesBeyondTheBuffer) {
  for (const std::uint64_t number : Numbers()) {
    std::vector<std::byte> room(VarintSize(number) - 1);
    EXPECT_EQ(EncodeVarint(number, std::span(room)), 0u);
    EXPECT_THAT(room, testing::Each(std::byte{0}));
  }
}

TEST(Varint, WorksAtCompileTime) {
  constexpr auto kDecoded = [] {
    std::array<std::byte, 5> bytes{};
    EncodeVarint(300, std::span<std::byte>(bytes));
    std::uint32_t value = 0;
    return DecodeVarint(std::span<const std::byte>(bytes), value) == 2 ? value : 0;
  }();
  static_assert(kDecoded == 300);
}

}  // namespace
}  // namespace hako
