// Damages small files of TreeDBM in every place, and makes files that are wrong though all their checks are right. Opening, reading,
// verifying and updating what is left ends with a clear error or with the right data: never a crash, an endless loop, a huge allocation,
// or, where a check can tell, a wrong value.
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

// ---- files whose checks are right ----

// A file taken apart, to be changed in places and put together with right checks. Of the three levels of the map it has one node each.
class Forgery {
 public:
  explicit Forgery(const Image& image) : image_(image) {
    format::TreeSuperBlock slots[2];
    for (int i : {0, 1}) std::memcpy(&slots[i], image_.data() + i * storage::kSlotDistance, sizeof(slots[i]));
    super = slots[0].sequence > slots[1].sequence ? slots[0] : slots[1];
    const format::PageEntry* entry = &super.map[0];
    for (int level = 2; level >= 0; --level) {
      for (unsigned i = 0; i < format::kMapFanout; ++i) {
        if (!entry[i].IsNone() || level == 0) break;
      }
      Node& node = nodes_[level];
      node.number = level == 2 ? 0 : FirstNode(level);
      std::memcpy(node.entries.data(), image_.data() + Parent(level).place() * format::kTreeUnit, sizeof(node.entries));
    }
  }

  // The entry of an id. REQUIRES: it is of the first node that is in use, as all are in a small file
  format::PageEntry& EntryOf(std::uint32_t id) { return nodes_[0].entries[id - nodes_[0].number * format::kMapFanout]; }
  std::span<std::byte> ImageOf(std::uint32_t id) {
    const format::PageEntry& entry = EntryOf(id);
    return std::span(image_).subspan(entry.place() * format::kTreeUnit, entry.units() * format::kTreeUnit);
  }
  format::PageImageHeader& HeaderOf(std::uint32_t id) { return *reinterpret_cast<format::PageImageHeader*>(ImageOf(id).data()); }
  Le<std::uint32_t>* ChildrenOf(std::uint32_t id) {
    return reinterpret_cast<Le<std::uint32_t>*>(ImageOf(id).data() + sizeof(format::PageImageHeader) + HeaderOf(id).count * 4u);
  }
  std::byte* OffsetsOf(std::uint32_t id) {
    const bool inner = (HeaderOf(id).kind & format::PageShape::kLevel) != 0;
    return ImageOf(id).data() + sizeof(format::PageImageHeader) + HeaderOf(id).count * (inner ? 8u : 4u);
  }
  // Ids of pages of a level.
  std::vector<std::uint32_t> PagesOf(unsigned level) {
    std::vector<std::uint32_t> found;
    for (unsigned i = 0; i < format::kMapFanout; ++i) {
      const auto id = static_cast<std::uint32_t>(nodes_[0].number * format::kMapFanout + i);
      if (id >= super.id_end || EntryOf(id).IsNone() || HeaderOf(id).id != id) continue;
      if ((HeaderOf(id).kind & format::PageShape::kLevel) == level) found.push_back(id);
    }
    return found;
  }

  // With right checks, from below.
  Image Finish() {
    for (unsigned i = 0; i < format::kMapFanout; ++i) {
      format::PageEntry& entry = nodes_[0].entries[i];
      const std::uint64_t id = nodes_[0].number * format::kMapFanout + i, size = entry.units() * format::kTreeUnit;
      const std::uint64_t begin = entry.place() * format::kTreeUnit;
      if (entry.IsNone() || size == 0 || size > image_.size() || begin > image_.size() - size) continue;
      const auto header = reinterpret_cast<const format::PageImageHeader*>(image_.data() + entry.place() * format::kTreeUnit);
      if (header->id == id) entry.check = Hash64(header, size, MixBits(super.secret ^ id));  // else a long value: as it was
    }
    for (unsigned level = 0; level < format::kMapLevels; ++level) {
      Node& node = nodes_[level];
      std::memcpy(image_.data() + Parent(static_cast<int>(level)).place() * format::kTreeUnit, node.entries.data(), sizeof(node.entries));
      Parent(static_cast<int>(level)).check =
          Hash64(node.entries.data(), sizeof(node.entries), MixBits(super.secret ^ ((level + 1ull) << 32 | node.number)));
    }
    super.check = format::CheckOf(super);
    for (const std::uint64_t offset : {std::uint64_t{0}, storage::kSlotDistance})
      std::memcpy(image_.data() + offset, &super, sizeof(super));
    return image_;
  }

  format::TreeSuperBlock super;

 private:
  struct Node {
    std::uint64_t number = 0;
    std::array<format::PageEntry, format::kMapFanout> entries;
  };
  std::uint64_t FirstNode(int level) const {
    const Node& above = nodes_[level + 1];
    for (unsigned i = 0; i < format::kMapFanout; ++i) {
      if (!above.entries[i].IsNone()) return above.number * format::kMapFanout + i;
    }
    return 0;
  }
  format::PageEntry& Parent(int level) {
    if (level == 2) return super.map[nodes_[2].number];
    return nodes_[level + 1].entries[nodes_[level].number % format::kMapFanout];
  }

  Image image_;
  Node nodes_[format::kMapLevels];
};

class TreeForgeryTest : public testing::Test {
 protected:
  // What is read from a forged file has no right value; but every operation ends, with memory in bounds.
  void Check(const std::string& what, const std::function<void(Forgery&)>& forge) {
    SCOPED_TRACE(what);
    Forgery forgery(images.image);
    forge(forgery);
    CheckTreeFile(forgery.Finish(), images, true);
  }
  const TreeImages images = MakeTreeImages();
};

TEST_F(TreeForgeryTest, TakesAFileApartAndPutsItTogether) {
  Forgery forgery(images.image);
  ASSERT_GE(forgery.PagesOf(0).size(), 10u);
  ASSERT_GE(forgery.PagesOf(1).size(), 1u);
  CheckTreeFile(forgery.Finish(), images);
}

TEST_F(TreeForgeryTest, SurvivesWrongChildren) {
  Forgery whole(images.image);
  const std::uint32_t root = whole.super.root, leaf = whole.PagesOf(0)[3];
  const auto inner_pages = whole.PagesOf(1);
  for (const std::uint32_t id : inner_pages) {
    const unsigned count = whole.HeaderOf(id).count;
    for (const unsigned slot : {0u, 1u, count / 2, count - 1}) {
      for (const std::uint32_t child : {root, id, inner_pages.back(), leaf, 1u, 1024u, std::uint32_t{whole.super.id_end} - 1,
                                        std::uint32_t{whole.super.id_end}, 0u, 0xffff'ffffu}) {
        Check(absl::StrCat("child ", slot, " of page ", id, " is page ", child), [&](Forgery& f) { f.ChildrenOf(id)[slot] = child; });
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(TreeForgeryTest, SurvivesWrongHeaders) {
  Forgery whole(images.image);
  for (const std::uint32_t id : {std::uint32_t{whole.super.root}, whole.PagesOf(1)[0], whole.PagesOf(0)[2]}) {
    for (std::size_t at = offsetof(format::PageImageHeader, count); at < sizeof(format::PageImageHeader); ++at) {
      for (unsigned number = 0; number < 256; number += 7) {
        Check(absl::StrCat("byte ", at, " of page ", id, " is ", number), [&](Forgery& f) { f.ImageOf(id)[at] = std::byte(number); });
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Any byte of a page: heads, children, offsets, cells, fences, tail.
TEST_F(TreeForgeryTest, SurvivesWrongBytesOfPages) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  Forgery whole(images.image);
  for (const std::uint32_t id : {std::uint32_t{whole.super.root}, whole.PagesOf(1)[0], whole.PagesOf(0)[2], whole.PagesOf(0)[7]}) {
    for (std::size_t at = sizeof(format::PageImageHeader); at < whole.ImageOf(id).size(); ++at) {
      if (!random.OneIn(4 * kSlowdown)) continue;
      for (const unsigned number : {0u, 1u, 127u, 255u, static_cast<unsigned>(random.Below(256))}) {
        Check(absl::StrCat("byte ", at, " of page ", id, " is ", number), [&](Forgery& f) { f.ImageOf(id)[at] = std::byte(number); });
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(TreeForgeryTest, SurvivesWrongPlacesInTheMap) {
  Forgery whole(images.image);
  const std::uint32_t leaf = whole.PagesOf(0)[2], other = whole.PagesOf(0)[3];
  const std::uint64_t end = whole.super.end;
  using Entry = format::PageEntry;
  Check("two ids share a place", [&](Forgery& f) { f.EntryOf(leaf) = f.EntryOf(other); });
  for (const std::uint64_t place : {std::uint64_t{0}, std::uint64_t{1}, end - 1, end, (std::uint64_t{1} << Entry::kPlaceBits) - 1}) {
    for (const std::uint64_t units :
         {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{66}, std::uint64_t{67}, std::uint64_t{(1 << 24) - 1}}) {
      Check(absl::StrCat(units, " units at ", place), [&](Forgery& f) { f.EntryOf(leaf) = Entry::For(place, units, 1); });
    }
  }
}

TEST_F(TreeForgeryTest, SurvivesWrongSuperblocks) {
  for (std::size_t at = 16; at < offsetof(format::TreeSuperBlock, check); ++at) {
    if (at >= offsetof(format::TreeSuperBlock, comparator) && at < offsetof(format::TreeSuperBlock, sequence)) continue;  // other files
    for (const unsigned number : {0u, 1u, 128u, 255u}) {
      SCOPED_TRACE(absl::StrCat("byte ", at, " of the superblock is ", number));
      Forgery f(images.image);
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
