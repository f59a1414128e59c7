// The layout of an array's pages for each width, and their images: encoded, loaded, and forged.
#include "hako/array/array_pages.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/array/presence_bits.h"
#include "hako/array/record_key.h"
#include "hako/format/array_format.h"
#include "support/random.h"
#include "support/status_matchers.h"

namespace hako::array {
namespace {

using format::ArrayShape;
using testing::HasSubstr;

TEST(ArrayShapeTest, FullPagesTakeAtMostTwelvePercentAndABitARecordMoreThanTheRecords) {
  for (unsigned width = 1; width <= kRecordWidthMax; ++width) {
    const ArrayShape shape = ArrayShape::For(width);
    ASSERT_GE(shape.per_leaf, 2u) << width;
    ASSERT_LE(shape.units, format::kPageUnitsMax) << width;
    const std::uint64_t image = sizeof(format::ArrayImageHeader) + shape.bit_bytes() + std::uint64_t{shape.per_leaf} * width;
    ASSERT_LE(image, format::kPageImageMax) << width;
    // Its entry in the page map, and a 256th of that above, and its entry in the directory.
    const double bytes = static_cast<double>(format::TreeUnitsFor(image) * format::kTreeUnit) + sizeof(format::PageEntry) * 257.0 / 256 +
                         sizeof(format::DirectoryEntry);
    ASSERT_LE(bytes / shape.per_leaf, width * 1.12 + .125) << width;
  }
}

TEST(ArrayShapeTest, PagesOfEachLevelCoverAllIds) {
  for (const unsigned width : {1u, 8u, 100u, 4096u}) {
    const ArrayShape shape = ArrayShape::For(width);
    EXPECT_EQ(shape.leaves(), kRecordIdMax / shape.per_leaf + 1);
    EXPECT_EQ(shape.PagesOf(0), shape.leaves());
    EXPECT_EQ(shape.PagesOf(format::kDirectoryLevels), 1u);
  }
}

TEST(PresenceBitsTest, AgreesWithAVector) {
  Random random(TestSeed());
  for (const unsigned count : {2u, 31u, 32u, 33u, 376u, 384u}) {
    std::vector<std::uint32_t> words((count + 31) / 32);
    const PresenceBits bits(words.data(), count);
    std::vector<bool> model(count);
    for (int i = 0; i < 500; ++i) {
      const auto at = static_cast<unsigned>(random.Below(count));
      random.OneIn(2) ? bits.Set(at) : bits.Clear(at);
      model[at] = bits.Has(at);
      unsigned first = at, last = at, in = 0;
      while (first < count && !model[first]) ++first;
      while (last < count && !model[last]) --last;  // wraps around
      ASSERT_EQ(bits.FirstFrom(at), first);
      ASSERT_EQ(bits.LastUpTo(at), last < count ? last : count);
      const auto to = at + static_cast<unsigned>(random.Below(count - at + 1));
      for (unsigned j = at; j < to; ++j) in += model[j] ? 1u : 0u;
      ASSERT_EQ(bits.CountIn(at, to), in);
      ASSERT_EQ(bits.IsEmpty(), std::find(model.begin(), model.end(), true) == model.end());
    }
  }
}

TEST(RecordKeyTest, EachNumberHasOneKey) {
  EXPECT_EQ(RecordKey(0).view(), "0");
  EXPECT_EQ(RecordKey(kRecordIdMax).view(), "1099511627775");
  EXPECT_THAT(RecordKey::Parse("0"), IsOkAndHolds(0u));
  EXPECT_THAT(RecordKey::Parse("1099511627775"), IsOkAndHolds(kRecordIdMax));
  for (const char* const wrong : {"", "-1", "+1", " 1", "1 ", "01", "00", "0x1", "1.0", "ten", "1099511627776", "99999999999999999999"})
    EXPECT_THAT(RecordKey::Parse(wrong), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not the number of a record"))) << wrong;
  EXPECT_LT(RecordKeyComparator::Compare("9", "10"), 0);
  EXPECT_GT(RecordKeyComparator::Compare("11", "10"), 0);
  EXPECT_EQ(RecordKeyComparator::Compare("10", "10"), 0);
}

// A page in memory, with its line.
struct Page {
  explicit Page(const ArrayPages& pages, unsigned level = 0, std::uint64_t number = 0)
      : bytes((level == 0 ? pages.shape().units : format::kDirectoryBytes / format::kPageUnit) * format::kPageUnit / 8) {
    line.shape = format::ArrayPageShape(level, number, static_cast<unsigned>(bytes.size() * 8 / format::kPageUnit));
  }
  char* base() { return reinterpret_cast<char*>(bytes.data()); }
  PresenceBits Bits(const ArrayPages& pages) {
    return {reinterpret_cast<std::uint32_t*>(pages.shape().bits_in_line() ? reinterpret_cast<char*>(line.hints) : base()),
            pages.shape().per_leaf};
  }

  format::PageLine line{};
  std::vector<std::uint64_t> bytes;
};
using Image = std::vector<std::byte>;
Image Encode(const ArrayPages& pages, std::uint32_t id, Page& page) {
  Image image(format::kPageImageMax);
  image.resize(pages.Encode(id, page.line, page.base(), reinterpret_cast<char*>(image.data())));
  return image;
}

TEST(ArrayPagesTest, LeavesKeepTheirRecords) {
  Random random(TestSeed());
  for (const unsigned width : {1u, 7u, 8u, 100u, 4095u, 4096u}) {
    const ArrayPages pages(width);
    const ArrayShape& shape = pages.shape();
    for (const std::uint64_t number : {std::uint64_t{0}, std::uint64_t{70'000}, shape.leaves() - 1}) {
      Page page(pages, 0, number);
      const auto most = static_cast<unsigned>(std::min<std::uint64_t>(shape.per_leaf, kRecordIdMax + 1 - number * shape.per_leaf));
      for (unsigned i = 0; i < most; ++i) {
        if (random.OneIn(3)) continue;
        page.Bits(pages).Set(i);
        random.Bytes(width).copy(page.base() + shape.data_begin + std::size_t{i} * width, width);
      }
      const Image image = Encode(pages, 5, page);
      ASSERT_OK_AND_ASSIGN(const auto parsed, pages.Parse(5, image, 100));
      EXPECT_EQ(parsed.number, number);
      EXPECT_EQ(parsed.num_children, 0u);
      EXPECT_EQ(std::memcmp(&parsed.shape, &page.line.shape, sizeof(parsed.shape)), 0);
      Page loaded(pages, 0, number);
      pages.Store(parsed, loaded.base(), loaded.line.hints);
      EXPECT_EQ(Encode(pages, 5, loaded), image);
      EXPECT_LE(image.size(), format::TreeUnitsFor(image.size()) * format::kTreeUnit);
    }
  }
}

TEST(ArrayPagesTest, DirectoriesKeepTheirChildren) {
  const ArrayPages pages(8);
  Page page(pages, 2, 17);
  const std::uint32_t children[] = {7, 0, 9};
  std::memcpy(page.base() + 1000 * 4, children, sizeof(children));
  const Image image = Encode(pages, 5, page);
  ASSERT_OK_AND_ASSIGN(const auto parsed, pages.Parse(5, image, 100));
  ASSERT_EQ(parsed.num_children, 2u);
  EXPECT_EQ(pages.ChildOf(parsed, 0).id, 7u);
  EXPECT_EQ(pages.ChildOf(parsed, 0).number, 17u * 1024 + 1000);
  EXPECT_EQ(pages.ChildOf(parsed, 1).number, 17u * 1024 + 1002);
  Page loaded(pages, 2, 17);
  pages.Store(parsed, loaded.base(), loaded.line.hints);
  EXPECT_EQ(loaded.bytes, page.bytes);
}

// Images whose checksum would hold, with one thing wrong.
TEST(ArrayPagesTest, RefusesForgedImages) {
  const ArrayPages pages(8);
  Page leaf(pages, 0, pages.shape().leaves() - 1);
  leaf.Bits(pages).Set(0);
  Page directory(pages, 1, 3);
  const std::uint32_t children[] = {7, 9};
  std::memcpy(directory.base(), children, sizeof(children));
  const auto refuses = [&](Page& page, const char* why, const std::function<void(Image&)>& forge) {
    Image image = Encode(pages, 5, page);
    ASSERT_THAT(pages.Parse(5, image, 100).status(), IsOk());
    forge(image);
    EXPECT_THAT(pages.Parse(5, image, 100).status(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr(why)));
  };
  const auto set = [](std::size_t at, int byte) { return [at, byte](Image& image) { image.at(at) = static_cast<std::byte>(byte); }; };
  refuses(leaf, "truncated", [](Image& image) { image.resize(15); });
  refuses(leaf, "truncated", [](Image& image) { image.pop_back(); });
  refuses(leaf, "another page", set(0, 6));
  refuses(leaf, "bad header", set(4, 5));
  refuses(leaf, "bad header", set(9, 1));
  refuses(leaf, "number out of range", set(5, 0xff));
  refuses(leaf, "presence bits", set(16, 0));
  refuses(leaf, "behind the last one", [](Image& image) { image.at(16 + 46) = std::byte{0x80}; });
  refuses(directory, "truncated", set(6, 3));
  refuses(directory, "out of order", set(16 + 6, 0));
  refuses(directory, "out of order", set(16 + 7, 4));
  refuses(directory, "invalid id", set(16 + 2, 0));
  refuses(directory, "invalid id", set(16 + 2, 100));
  Page last(pages, 1, pages.shape().PagesOf(1) - 1);
  std::memcpy(last.base(), children, 4);
  refuses(last, "number of a child out of range", [](Image& image) {
    image.at(16) = std::byte{0xff};
    image.at(17) = std::byte{3};
  });
}

}  // namespace
}  // namespace hako::array
