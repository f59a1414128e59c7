// Golden values of the checks that files hold. A change of one of them, or of the layout of a
// struct, needs a new format version.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "gtest/gtest.h"
#include "hako/format/hash_file_format.h"
#include "hako/format/intent_format.h"
#include "hako/format/record_format.h"
#include "hako/format/snapshot_format.h"
#include "hako/format/tree_file_format.h"

namespace hako::format {
namespace {

constexpr std::uint64_t kSecret = 0x0123456789abcdef, kOffset = 0x12340;

// A struct whose bytes are 1, 2, 3, ...
template <class T>
T Numbered() {
  T block;
  std::array<std::uint8_t, sizeof(T)> bytes;
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i + 1);
  std::memcpy(static_cast<void*>(&block), bytes.data(), bytes.size());
  return block;
}

TEST(RecordCheck, KeepsItsGoldenValues) {
  EXPECT_EQ(RecordCheck("", 0, 0, 0), 0x38d394c2u);
  EXPECT_EQ(RecordCheck("value", 0x1122334455667788, kOffset, kSecret), 0xe15e6309u);
}

TEST(RecordCheck, DependsOnValueKeyPlaceAndFile) {
  const std::uint32_t check = RecordCheck("value", 1, kOffset, kSecret);
  EXPECT_NE(RecordCheck("valuf", 1, kOffset, kSecret), check);
  EXPECT_NE(RecordCheck("value", 2, kOffset, kSecret), check);
  EXPECT_NE(RecordCheck("value", 1, kOffset + 8, kSecret), check);
  EXPECT_NE(RecordCheck("value", 1, kOffset, kSecret + 1), check);
}

TEST(HashFileChecks, KeepTheirGoldenValues) {
  const auto super = Numbered<HashSuperBlock>();
  EXPECT_EQ(CheckOf(super), 0xb5ef801cb1582e15u);
  const auto header = Numbered<HeapExtentHeader>();
  EXPECT_EQ(header.CheckAt(kOffset, kSecret), 0x7d5cd92acf5ef34cu);
  EXPECT_NE(header.CheckAt(kOffset + kExtentUnit, kSecret), header.CheckAt(kOffset, kSecret));
}

TEST(TreeFileChecks, KeepTheirGoldenValues) {
  auto super = Numbered<TreeSuperBlock>();
  const std::uint64_t check = CheckOf(super);
  EXPECT_EQ(check, 0xdcb61a67148eba7au);
  super.touched.fill(std::byte{0});
  EXPECT_EQ(CheckOf(super), check) << "`touched` is not part of the check";
}

TEST(SnapshotChecks, KeepTheirGoldenValues) {
  EXPECT_EQ(SnapshotBlockCheck("payload", 3, kSecret, kOffset), 0x2e6b447459e02eeau);
  EXPECT_NE(SnapshotBlockCheck("payload", 4, kSecret, kOffset), SnapshotBlockCheck("payload", 3, kSecret, kOffset));
}

// The places of the fields that a reader of any version needs.
TEST(FileLayouts, KeepTheirPlaces) {
  EXPECT_EQ(offsetof(HashSuperBlock, version), 16u);
  EXPECT_EQ(offsetof(HashSuperBlock, sequence), 40u);
  EXPECT_EQ(offsetof(HashSuperBlock, clean), 72u);
  EXPECT_EQ(offsetof(HashSuperBlock, metadata), 120u);
  EXPECT_EQ(offsetof(HashSuperBlock, synced_at), 192u);
  EXPECT_EQ(offsetof(LiveState, tail), 48u);
  EXPECT_EQ(offsetof(HashSuperBlock, applied_index), 224u);
  EXPECT_EQ(offsetof(LiveState, oldest_retired_epoch), 88u);
  EXPECT_EQ(offsetof(LiveState, applied_index), 96u);
  EXPECT_EQ(offsetof(IntentEntry, fresh), 12u);
  EXPECT_EQ(offsetof(TreeSuperBlock, version), 16u);
  EXPECT_EQ(offsetof(TreeSuperBlock, sequence), 112u);
  EXPECT_EQ(offsetof(TreeSuperBlock, map), 160u);
  EXPECT_EQ(offsetof(TreeSuperBlock, synced_at), 296u);
  EXPECT_EQ(offsetof(PageImageHeader, packed), 10u);
  EXPECT_EQ(offsetof(SnapshotHeader, id), 24u);
}

TEST(IndexExtentEntry, RoundTripsThroughItsWord) {
  for (const std::uint64_t bytes : {kSmallIndexExtent, kLargeIndexExtent}) {
    for (const bool overflow : {false, true}) {
      const IndexExtentEntry entry{0x3fffffff * kExtentUnit, bytes, overflow};
      const IndexExtentEntry again = IndexExtentEntry::Unpack(entry.Pack());
      EXPECT_EQ(again.offset, entry.offset);
      EXPECT_EQ(again.bytes, bytes);
      EXPECT_EQ(again.overflow, overflow);
    }
  }
  EXPECT_EQ((IndexExtentEntry{5 * kExtentUnit, kSmallIndexExtent, false}).Pack(), 5u);
  EXPECT_EQ((IndexExtentEntry{5 * kExtentUnit, kLargeIndexExtent, true}).Pack(), 5u | 3u << 30);
}

}  // namespace
}  // namespace hako::format
