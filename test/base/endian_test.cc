#include "hako/base/endian.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

namespace hako {
namespace {

// Properties that on-disk structs rely on.
static_assert(sizeof(Le<std::uint64_t>) == 8 && alignof(Le<std::uint64_t>) == 1);
static_assert(std::is_trivially_copyable_v<Le<std::uint32_t>> && std::is_standard_layout_v<Le<std::uint32_t>>);
static_assert(std::has_unique_object_representations_v<Le<std::uint16_t>>);
static_assert(!LeValue<bool> && !LeValue<long double>);

TEST(Endian, StoresLittleEndian) {
  const Le<std::uint32_t> value = 0x01020304;
  const unsigned char expected[] = {4, 3, 2, 1};
  EXPECT_EQ(std::memcmp(&value, expected, 4), 0);
  EXPECT_EQ(value, 0x01020304u);
}

TEST(Endian, ConvertsToItsNumber) {
  struct Header {
    Le<std::uint8_t> byte;
    Le<std::uint64_t> number = 7;
    Le<std::int16_t> negative;
    Le<double> real;
  };
  static_assert(sizeof(Header) == 19);
  Header header;
  EXPECT_EQ(header.byte, 0);  // zero by default
  EXPECT_EQ(header.number, 7u);
  header.number = header.number + 1;
  header.negative = -2;
  header.real = 0.5;
  EXPECT_EQ(header.number.get(), 8u);
  EXPECT_EQ(header.negative, -2);
  EXPECT_EQ(header.real, 0.5);
  EXPECT_TRUE(header.number == Le<std::uint64_t>(8));
  EXPECT_TRUE(header.number < std::numeric_limits<std::uint64_t>::max());
}

TEST(Endian, StoresEnums) {
  enum class Kind : std::uint16_t { kNone, kSome = 0x1234 };
  const Le<Kind> kind = Kind::kSome;
  EXPECT_EQ(kind.get(), Kind::kSome);
  EXPECT_TRUE(kind == Kind::kSome);
  EXPECT_EQ(*reinterpret_cast<const unsigned char*>(&kind), 0x34);
}

TEST(Endian, WorksAtCompileTime) {
  constexpr Le<std::uint64_t> kValue = 0x0123456789abcdef;
  static_assert(kValue == 0x0123456789abcdef);
}

TEST(Endian, LoadsAndStoresUnaligned) {
  std::byte bytes[11] = {};
  StoreLe<std::uint64_t>(bytes + 1, 0x0807060504030201);
  for (int i = 1; i <= 8; ++i) EXPECT_EQ(std::to_integer<int>(bytes[i]), i);
  EXPECT_EQ(std::to_integer<int>(bytes[0]), 0);
  EXPECT_EQ(std::to_integer<int>(bytes[9]), 0);
  EXPECT_EQ(LoadLe<std::uint64_t>(bytes + 1), 0x0807060504030201u);
  EXPECT_EQ(LoadLe<std::uint16_t>(bytes + 3), 0x0403);
}

TEST(Endian, StoresBigEndianNumbersThatSortAsStrings) {
  char bytes[9] = "????????";
  StoreBigEndian(0x0102030405060708, bytes);
  EXPECT_STREQ(bytes, "\x01\x02\x03\x04\x05\x06\x07\x08");
  EXPECT_EQ(LoadBigEndian(bytes), 0x0102030405060708u);
  char other[8];
  StoreBigEndian(0x0102030405060800, other);
  EXPECT_LT(std::memcmp(bytes, other, 8), 0);
}

}  // namespace
}  // namespace hako
