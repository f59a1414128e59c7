// Golden values of the hashes that are stored in files. If one of these tests fails after an
// upgrade of libxxhash, files of the old version can no longer be read: do not change the values.
#include "hako/base/hash.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "gtest/gtest.h"
#include "hako/base/hash_stream.h"

namespace hako {
namespace {

constexpr std::uint64_t kSeed = 0x9e3779b185ebca8d;

// Bytes that do not depend on any hash.
std::string Input(std::size_t size) {
  std::string bytes(size, '\0');
  std::uint32_t word = 2654435761u;
  for (char& byte : bytes) {
    byte = static_cast<char>(word >> 24);
    word = word * 1664525u + 1013904223u;
  }
  return bytes;
}

TEST(Hash64, KeepsItsGoldenValues) {
  struct Golden {
    std::size_t size;
    std::uint64_t unseeded, seeded;
  };
  // The sizes at which XXH3 changes its method, and one to either side.
  constexpr Golden kGolden[] = {
      {0, 0x2d06800538d394c2, 0xa8a6b918b2f0364a},     {1, 0xdd02fbe6d2c66464, 0x5bcdbbf2ad0906b0},
      {3, 0x9ca83814f1492a1e, 0x4e0b38725d675e34},     {4, 0x60d3d884e26757dc, 0x6141efa97cfd77e2},
      {8, 0xdff82c39df3fbe0d, 0x8354832072d4503e},     {9, 0x28e9ae86a24b26d2, 0x78030f4a7e309e5b},
      {16, 0xac1d739d55e21e2b, 0x80dff985c7ac4b59},    {17, 0x2f3499fe7849da47, 0xc47a62c801723511},
      {32, 0x590347d3fdb4f420, 0x728cae2c96bdb329},    {33, 0x0696eec5dd61060e, 0xdb2913fb8b051460},
      {64, 0x2c00d6645aa3c4f7, 0xe63d902f203a3496},    {65, 0xe451dad6ae183eff, 0x482320df82a55795},
      {96, 0x8af04704833d64be, 0xa0930f804909619c},    {97, 0xb6b4d5115a119a31, 0x9ae881d0443dda32},
      {128, 0xcd6950f3c9455880, 0x484511039b3eab49},   {129, 0x8e09268f8ecd8d51, 0x58ccbbeeae0809dd},
      {240, 0xb7b2cf0586e3437b, 0x89d1a6305bdbbb37},   {241, 0xd1d41359603e6e53, 0xb953ffaed3b7ff21},
      {512, 0x3ed7e9fda58a3873, 0xe48206517ca8a66c},   {1024, 0xc91658d706449db0, 0x77a161998170d64d},
      {1025, 0x1d1628fc4e6cba7e, 0x42ca9436c378714c},  {4096, 0x07c9620a883424ec, 0x3834ce1a45cb8739},
      {65536, 0x250d9a167250fc52, 0x88586c5f9daab54d},
  };
  for (const Golden& golden : kGolden) {
    const std::string input = Input(golden.size);
    EXPECT_EQ(Hash64(input, 0), golden.unseeded) << golden.size << " bytes";
    EXPECT_EQ(Hash64(input, kSeed), golden.seeded) << golden.size << " bytes";
  }
}

// One value for all sizes, each hash seeded by the one before.
TEST(Hash64, KeepsItsGoldenValueOverAllSizes) {
  const std::string input = Input(3000);
  std::uint64_t hash = 0;
  for (std::size_t size = 0; size <= input.size(); ++size) hash = Hash64(std::string_view(input).substr(0, size), hash);
  EXPECT_EQ(hash, 0x320811e00407d1bfu);
}

// HashLong uses other instructions than this program where the processor has them.
TEST(Hash64, IsTheXxh3OfTheHeader) {
  const std::string input = Input(10'000);
  for (std::size_t size = 0; size <= 9'000; size += 1 + size / 64) {
    for (std::size_t begin : {0, 1, 31}) {
      ASSERT_EQ(Hash64(input.data() + begin, size, kSeed + size), XXH3_64bits_withSeed(input.data() + begin, size, kSeed + size))
          << size << " bytes from " << begin;
    }
  }
}

TEST(HashStream, IsTheHashOfAllPieces) {
  const std::string input = Input(10'000);
  for (std::size_t size = 0; size <= input.size(); size += 1 + size / 32) {
    for (std::size_t piece : {1, 7, 64, 200, 256, 1000, 4096, 10'000}) {
      HashStream stream(kSeed + size);
      for (std::size_t at = 0; at < size; at += piece) stream.Add(input.data() + at, std::min(piece, size - at));
      ASSERT_EQ(stream.Get(), Hash64(input.data(), size, kSeed + size)) << size << " bytes in pieces of " << piece;
    }
  }
}

TEST(Hash64, IsTheXxh3OfThePublishedVectors) {
  EXPECT_EQ(Hash64("", 0), 0x2d06800538d394c2u);
  EXPECT_EQ(Hash64("a", 0), 0xe6c632b61e964e1fu);
}

TEST(MixBits, KeepsItsGoldenValues) {
  EXPECT_EQ(MixBits(0), 0u);
  EXPECT_EQ(MixBits(1), 0x5692161d100b05e5u);
  EXPECT_EQ(MixBits(kSeed), 0xcd647d1aafc3bee6u);
}

}  // namespace
}  // namespace hako
