// Damages small files of TreeDBM in every place. Opening, reading,
// verifying and updating what is left ends with a clear error or with the right data: never a crash, an endless loop, a huge allocation,
// or a wrong value.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "dbm/damage.h"
#include "dbm/listing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/file/memory_file.h"
#include "support/allocation_counter.h"
#include "support/checked_value.h"
#include "support/random.h"
#include "support/status_matchers.h"

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
  // The newer superblock may be what was damaged, and the older one's pages still there.
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
    ASSERT_LE(listed.size(), 10'000u) << "the walk has no end";
    listed.emplace(key, shown);
  });
  ASSERT_TRUE(status.ok() || IsClearRefusal(status)) << status;
  right = right && status.ok() && listed == records;
  const Status verified = db.Verify();
  ASSERT_TRUE(verified.ok() || IsClearRefusal(verified)) << verified;
  if (verified.ok() && !checks_are_right) {
    ASSERT_TRUE(right || listed == images.earlier_records) << "Verify finds nothing";
  }
  for (std::uint64_t i = 0; i < 12; ++i) {  // what is not refused is done
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

TEST_F(TreeCorruptionTest, UndamagedFileIsRight) {
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

}  // namespace
}  // namespace hako
