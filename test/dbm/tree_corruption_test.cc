// Damages small files of TreeDBM everywhere, and forges files that are wrong although all their
// checks hold. Opening, reading, verifying and updating them ends with a clear error or with the
// right data, never with a crash, an endless loop, a huge allocation or, if a check can detect it,
// a wrong value.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dbm/damage.h"
#include "dbm/listing.h"
#include "dbm/shared_databases.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/base/hash.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/file/memory_file.h"
#include "hako/format/tree_file_format.h"
#include "hako/storage/superblock_slots.h"
#include "support/allocation_counter.h"
#include "support/checked_value.h"
#include "support/random.h"
#include "support/status_matchers.h"
#include "support/tree_forgery.h"

namespace hako {
namespace {

// A small database of three levels, with long values, and an earlier version of its file.
struct TreeImages {
  Records records, earlier_records;
  Image image, earlier;
};

TreeImages MakeTreeImages() {
  TreeImages images;
  MemoryFile device;
  const auto open = [&] { return TreeDBM<MemoryFile>::Open(device.Share(), {.page_size = 128}).value(); };
  const auto set = [&](auto& db, std::uint64_t number, std::size_t size, std::uint64_t salt) {
    const std::string key = NumberedKey(number);
    images.records[key] = CheckedValue(key, size, salt);
    EXPECT_THAT(db.Set(key, images.records[key]), IsOk());
  };
  auto db = open();
  for (std::uint64_t i = 0; i < 100; ++i) set(*db, i, i % 30, 1);
  set(*db, 40, 700, 1);
  EXPECT_THAT(db->Close(), IsOk());
  images.earlier = ImageOf(device);
  images.earlier_records = images.records;
  db = open();
  for (std::uint64_t i = 0; i < 100; i += 17) set(*db, i, 20, 2);
  set(*db, 1000, 1500, 1);
  EXPECT_THAT(db->Close(), IsOk());
  images.image = ImageOf(device);
  return images;
}

void CheckTreeFile(const Image& image, const TreeImages& images, bool checks_are_right = false) {
  AllocationCounter::ForgetLargest();
  auto opened = TreeDBM<MemoryFile>::Open(MemoryFile::Of(image), {.cache_bytes = 1 << 20});
  ASSERT_LE(AllocationCounter::largest(), std::size_t{16} << 20);
  if (!opened.ok()) {
    ASSERT_TRUE(IsClearRefusal(opened.status())) << opened.status();
    return;
  }
  auto& db = **opened;
  // The damage may have hit the newer superblock, while the older one's pages still exist.
  std::string value;
  const bool is_earlier = db.Count() == images.earlier_records.size() && !checks_are_right;
  const Records& records = is_earlier ? images.earlier_records : images.records;
  bool right = db.Count() == records.size();
  for (const auto& [key, expected] : records) {
    const Status status = db.Get(key, &value);
    ASSERT_TRUE(status.ok() || absl::IsNotFound(status) || absl::IsDataLoss(status)) << status;
    right = right && status.ok() && value == expected;
    if (checks_are_right) continue;
    ASSERT_FALSE(absl::IsNotFound(status)) << key << ": each page on the way to it has a check";
    if (status.ok()) {
      ASSERT_TRUE(value == expected || (images.earlier_records.count(key) != 0 && value == images.earlier_records.at(key))) << key;
    }
  }
  Records listed;
  const Status status = db.ProcessEach([&](std::string_view key, std::string_view shown) {
    ASSERT_LE(listed.size(), 10'000u) << "the scan has no end";
    listed.emplace(key, shown);
  });
  ASSERT_TRUE(status.ok() || IsClearRefusal(status)) << status;
  right = right && status.ok() && listed == records;
  const Status verified = db.Verify();
  ASSERT_TRUE(verified.ok() || IsClearRefusal(verified)) << verified;
  if (verified.ok() && !checks_are_right) {
    ASSERT_TRUE(right || listed == images.earlier_records) << "Verify finds nothing";
  }
  for (std::uint64_t i = 0; i < 12; ++i) {  // accepted updates take effect
    const std::string key = NumberedKey(i * 9);
    if (i % 4 == 3) {
      (void)db.Remove(key);
      continue;
    }
    const std::string fresh = CheckedValue(key, i * 9, 77);
    if (!db.Set(key, fresh).ok() || checks_are_right) continue;
    ASSERT_THAT(db.Get(key), IsOkAndHolds(fresh));
  }
  (void)db.Synchronize(SyncMode::kHard);
  if (verified.ok()) {
    ASSERT_THAT(db.Verify(), IsOk());
  }
  (void)db.Rebuild();
  (void)db.Clear();
  (void)db.Close();
  ASSERT_LE(AllocationCounter::largest(), std::size_t{16} << 20);
}

class TreeCorruptionTest : public testing::Test {
 protected:
  Check MakeCheck() {
    return [this](const Image& damaged, const std::string& what, Damage) {
      SCOPED_TRACE(what);
      CheckTreeFile(damaged, images);
    };
  }
  const TreeImages images = MakeTreeImages();
};

TEST_F(TreeCorruptionTest, UndamagedFilePasses) {
  auto opened = TreeDBM<MemoryFile>::Open(MemoryFile::Of(images.image));
  ASSERT_THAT(opened, IsOk());
  EXPECT_THAT((*opened)->Verify(), IsOk());
  EXPECT_EQ(Difference(images.records, ListByIterator(**opened).records), "none");
}

TEST_F(TreeCorruptionTest, SurvivesABitFlippedInEveryByte) {
  SCOPED_TRACE(TestSeed());
  FlipBits(images.image, false, MakeCheck(), 4);
}
TEST_F(TreeCorruptionTest, DISABLED_SurvivesEveryBitFlipped) { FlipBits(images.image, true, MakeCheck()); }

TEST_F(TreeCorruptionTest, SurvivesTruncationAtEveryLength) {
  SCOPED_TRACE(TestSeed());
  Truncate(images.image, MakeCheck());
}

TEST_F(TreeCorruptionTest, SurvivesDamagedSectors) {
  SCOPED_TRACE(TestSeed());
  DamageSectors(images.image, images.earlier, MakeCheck());
}

// ---- files whose checks are right ----

class TreeForgeryTest : public testing::Test {
 protected:
  // Values of a forged file cannot be checked, but every operation ends within its memory.
  void Check(const std::string& what, const std::function<void(TreeForgery&)>& forge) {
    SCOPED_TRACE(what);
    TreeForgery forgery(images.image);
    forge(forgery);
    CheckTreeFile(forgery.Finish(), images, true);
  }
  const TreeImages images = MakeTreeImages();
};

TEST_F(TreeForgeryTest, RoundTripsAFile) {
  TreeForgery forgery(images.image);
  ASSERT_GE(forgery.PagesOf(0).size(), 10u);
  ASSERT_GE(forgery.PagesOf(1).size(), 1u);
  CheckTreeFile(forgery.Finish(), images);
}

TEST_F(TreeForgeryTest, SurvivesWrongChildren) {
  TreeForgery whole(images.image);
  const std::uint32_t root = whole.super.root, leaf = whole.PagesOf(0)[3];
  const auto inner_pages = whole.PagesOf(1);
  for (const std::uint32_t id : inner_pages) {
    const unsigned count = whole.HeaderOf(id).count;
    for (const unsigned slot : {0u, 1u, count / 2, count - 1}) {
      for (const std::uint32_t child : {root, id, inner_pages.back(), leaf, 1u, 1024u, std::uint32_t{whole.super.id_end} - 1,
                                        std::uint32_t{whole.super.id_end}, 0u, 0xffff'ffffu}) {
        Check(absl::StrCat("child ", slot, " of page ", id, " is page ", child), [&](TreeForgery& f) { f.ChildrenOf(id)[slot] = child; });
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(TreeForgeryTest, SurvivesWrongHeaders) {
  TreeForgery whole(images.image);
  for (const std::uint32_t id : {std::uint32_t{whole.super.root}, whole.PagesOf(1)[0], whole.PagesOf(0)[2]}) {
    for (std::size_t at = offsetof(format::PageImageHeader, count); at < sizeof(format::PageImageHeader); ++at) {
      for (unsigned number = 0; number<256; number += kSlowdown> 1 ? 19 : 7) {
        Check(absl::StrCat("byte ", at, " of page ", id, " is ", number), [&](TreeForgery& f) { f.ImageOf(id)[at] = std::byte(number); });
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Any byte of a page: heads, children, offsets, cells, fences, tail.
TEST_F(TreeForgeryTest, SurvivesWrongBytesOfPages) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  TreeForgery whole(images.image);
  for (const std::uint32_t id : {std::uint32_t{whole.super.root}, whole.PagesOf(1)[0], whole.PagesOf(0)[2], whole.PagesOf(0)[7]}) {
    for (std::size_t at = sizeof(format::PageImageHeader); at < whole.ImageOf(id).size(); ++at) {
      if (!random.OneIn(8 * kSlowdown)) continue;
      for (const unsigned number : {0u, 1u, 127u, 255u, static_cast<unsigned>(random.Below(256))}) {
        Check(absl::StrCat("byte ", at, " of page ", id, " is ", number), [&](TreeForgery& f) { f.ImageOf(id)[at] = std::byte(number); });
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(TreeForgeryTest, SurvivesWrongPlacesInTheMap) {
  TreeForgery whole(images.image);
  const std::uint32_t leaf = whole.PagesOf(0)[2], other = whole.PagesOf(0)[3];
  const std::uint64_t end = whole.super.end;
  using Entry = format::PageEntry;
  Check("two ids share a place", [&](TreeForgery& f) { f.EntryOf(leaf) = f.EntryOf(other); });
  for (const std::uint64_t place : {std::uint64_t{0}, std::uint64_t{1}, end - 1, end, (std::uint64_t{1} << Entry::kPlaceBits) - 1}) {
    for (const std::uint64_t units :
         {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{66}, std::uint64_t{67}, std::uint64_t{(1 << 24) - 1}}) {
      Check(absl::StrCat(units, " units at ", place), [&](TreeForgery& f) { f.EntryOf(leaf) = Entry::For(place, units, 1); });
    }
  }
}

TEST(TreeCorruption, ParallelScanReportsDamagedInnerPage) {
  MemoryFile device;
  ASSERT_OK_AND_ASSIGN(auto db, TreeDBM<MemoryFile>::Open(device.Share(), {.page_size = 128}));
  for (std::uint64_t i = 0; i < 1500; ++i) ASSERT_THAT(db->Set(NumberedKey(i), ""), IsOk());
  ASSERT_THAT(db->Close(), IsOk());
  const Image image = ImageOf(device);
  TreeForgery whole(image);
  ASSERT_THAT(whole.PagesOf(2), testing::SizeIs(1)) << "the root, which Open loads";
  for (const std::uint32_t id : whole.PagesOf(1)) {
    Image damaged = image;
    damaged[whole.EntryOf(id).place() * format::kTreeUnit + sizeof(format::PageImageHeader)] ^= std::byte{1};
    ASSERT_OK_AND_ASSIGN(db, TreeDBM<MemoryFile>::Open(MemoryFile::Of(damaged)));
    EXPECT_THAT(db->ProcessEachParallel(64, [](std::string_view, std::string_view) {}), StatusIs(absl::StatusCode::kDataLoss)) << id;
  }
}

TEST_F(TreeForgeryTest, SurvivesWrongSuperblocks) {
  constexpr std::size_t kStride = kSlowdown > 1 ? 7 : 1;
  for (std::size_t at = 16 + TestSeed() % kStride; at < offsetof(format::TreeSuperBlock, check); at += kStride) {
    if (at >= offsetof(format::TreeSuperBlock, comparator) && at < offsetof(format::TreeSuperBlock, sequence)) continue;  // other files
    for (const unsigned number : {0u, 1u, 128u, 255u}) {
      SCOPED_TRACE(absl::StrCat("byte ", at, " of the superblock is ", number));
      TreeForgery f(images.image);
      reinterpret_cast<std::byte*>(&f.super)[at] = std::byte(number);
      Image image = images.image;
      f.super.check = format::CheckOf(f.super);
      for (const std::uint64_t offset : {std::uint64_t{0}, storage::kSlotDistance}) std::memcpy(image.data() + offset, &f.super, 512);
      CheckTreeFile(image, images, true);
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace hako
