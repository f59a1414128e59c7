// Files of TreeDBM whose checks hold although fields of the superblock, the page map or pages are
// wrong. Every operation ends with an error or with the forged data, stays within its memory, and
// makes no huge allocation.
#include "support/tree_forgery.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dbm/listing.h"
#include "dbm/shared_databases.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/file/memory_file.h"
#include "hako/file/positional_parallel_file.h"
#include "support/allocation_counter.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"
#include "support/test_types.h"

namespace hako {
namespace {

// Not the order of memcmp, so that pages hold whole keys.
struct Backwards {
  [[maybe_unused]] static constexpr std::string_view kName = "backwards";
  static int Compare(std::string_view a, std::string_view b) { return b.compare(a); }
};

constexpr std::uint64_t kRecords = 150;
// Keys of several lengths with long common prefixes; the odd ones are in the file.
std::string KeyOf(std::uint64_t number) {
  const std::string key = "key/" + NumberedKey(number / 2 * 2);
  return number % 2 == 0 ? key : key + (number % 3 == 0 ? "/a longer one" : "/");
}

template <class Compare>
TreeForgery::Image MakeImage() {
  MemoryFile device;
  auto db = TreeDBM<MemoryFile, Compare>::Open(device.Share(), {.page_size = 128}).value();
  for (std::uint64_t i = 0; i < kRecords; ++i) EXPECT_THAT(db->Set(KeyOf(2 * i + 1), std::string(i % 20, 'v')), IsOk());
  EXPECT_THAT(db->Set(KeyOf(81), std::string(1500, 'l')), IsOk());
  EXPECT_THAT(db->Close(), IsOk());
  TreeForgery::Image image(device.Size());
  EXPECT_THAT(device.ReadAt(0, image), IsOk());
  return image;
}

template <class Db>
void UseEverything(Db& db, Random& random) {
  std::string value;
  for (std::uint64_t i = 0; i < 2 * kRecords; i += 5) (void)db.Get(KeyOf(i), &value);
  std::vector<std::string> keys;
  for (std::uint64_t i = 0; i < 16; ++i) keys.push_back(KeyOf(random.Below(2 * kRecords)));
  const std::vector<std::string_view> views(keys.begin(), keys.end());
  std::vector<std::optional<std::string>> values(keys.size());
  (void)db.GetMulti(views, values);
  std::uint64_t listed = 0;
  for (const bool forward : {true, false}) {
    auto it = db.MakeIterator();
    for (forward ? it.First() : it.Last(); it.Valid(); forward ? it.Next() : it.Previous()) ASSERT_LE(++listed, 20'000u) << "no end";
  }
  (void)db.CountRange(KeyOf(3), KeyOf(200));
  (void)db.Verify();
  for (std::uint64_t i = 0; i < 60; ++i) {
    const std::string key = KeyOf(random.Below(2 * kRecords));
    if (random.OneIn(3))
      (void)db.Remove(key);
    else
      (void)db.Set(key, std::string(random.OneIn(20) ? 700 : random.Below(40), 'n'));
  }
  (void)db.RemoveRange(KeyOf(20), KeyOf(60 + random.Below(100)));
  (void)db.Synchronize(SyncMode::kHard);
  (void)db.Rebuild();
  if (random.OneIn(4)) (void)db.Clear();
  (void)db.Close();
}

template <class Compare, class FileT>
void CheckForgedFile(FileT file, Random& random) {
  AllocationCounter::ForgetLargest();
  if (auto opened = TreeDBM<FileT, Compare>::Open(std::move(file), {.cache_bytes = 1 << 20}); opened.ok()) UseEverything(**opened, random);
  ASSERT_LE(AllocationCounter::largest(), std::size_t{16} << 20);
}

template <class Compare>
class TreeForgedFieldsTest : public testing::Test {
 protected:
  // Applies `forge` to a copy of the file, and opens that.
  template <class F>
  void Repeat(int times, F&& forge) {
    SCOPED_TRACE(TestSeed());
    Random random(TestSeed());
    for (int i = 0; i < times / static_cast<int>(kSlowdown) && !this->HasFatalFailure(); ++i) {
      TreeForgery forgery(image_);
      SCOPED_TRACE(forge(forgery, random));
      CheckForgedFile<Compare>(MemoryFile::Of(forgery.Finish()), random);
    }
  }
  static std::uint32_t AnyPage(TreeForgery& forgery, Random& random) {
    std::vector<std::uint32_t> ids = forgery.PagesOf(static_cast<unsigned>(random.Below(3)));
    if (ids.empty()) ids = forgery.PagesOf(0);
    return ids[random.Below(ids.size())];
  }

  const TreeForgery::Image image_ = MakeImage<Compare>();
};
using Orders = TestTypes<testing::Types<BytewiseComparator>, Backwards>;
TYPED_TEST_SUITE(TreeForgedFieldsTest, Orders);

TYPED_TEST(TreeForgedFieldsTest, SurvivesForgedPageLayouts) {
  this->Repeat(500, [&](TreeForgery& forgery, Random& random) {
    const std::uint32_t id = this->AnyPage(forgery, random);
    return absl::StrCat("page ", id, ": ", ForgeFields(forgery.ImageOf(id), forgery.LayoutFieldsOf(id), random));
  });
}

// The prefix grows into the low fence, which lies before it.
TYPED_TEST(TreeForgedFieldsTest, RefusesPrefixesNotSharedByTheFences) {
  for (unsigned moved = 1; moved <= 8; ++moved) {
    Random random(moved);
    TreeForgery forgery(this->image_);
    for (const std::uint32_t id : forgery.PagesOf(0)) {
      const auto fields = forgery.LayoutFieldsOf(id);
      const auto image = forgery.ImageOf(id);
      const ForgedField prefix = fields[2], low = fields[5];
      if (low.Load(image) < moved) continue;
      prefix.Store(image, prefix.Load(image) + moved);
      low.Store(image, low.Load(image) - moved);
    }
    auto db = TreeDBM<MemoryFile, TypeParam>::Open(MemoryFile::Of(forgery.Finish()));
    ASSERT_THAT(db, IsOk());
    EXPECT_THAT((*db)->Verify(), StatusIs(absl::StatusCode::kDataLoss));
    UseEverything(**db, random);
  }
}

TYPED_TEST(TreeForgedFieldsTest, SurvivesForgedPageContents) {
  this->Repeat(500, [&](TreeForgery& forgery, Random& random) {
    const std::uint32_t id = this->AnyPage(forgery, random);
    return absl::StrCat("page ", id, ": ", ForgeFields(forgery.ImageOf(id), forgery.ContentFieldsOf(id), random));
  });
}

// Valid pages in the places of others.
TYPED_TEST(TreeForgedFieldsTest, SurvivesSwappedPages) {
  this->Repeat(500, [&](TreeForgery& forgery, Random& random) {
    const std::uint32_t a = this->AnyPage(forgery, random), b = this->AnyPage(forgery, random);
    std::swap(forgery.EntryOf(a), forgery.EntryOf(b));
    forgery.HeaderOf(a).id = a;
    forgery.HeaderOf(b).id = b;
    return absl::StrCat("pages ", a, " and ", b);
  });
}

TYPED_TEST(TreeForgedFieldsTest, SurvivesForgedMaps) {
  this->Repeat(300, [&](TreeForgery& forgery, Random& random) {
    const std::uint32_t id =
        random.OneIn(4) ? forgery.super.id_end + static_cast<std::uint32_t>(random.Below(20)) : this->AnyPage(forgery, random);
    if (id % format::kMapFanout == 0) return std::string("nothing");  // of another node
    const std::vector<ForgedField> fields = {{0, 5}, {5, 3}, {0, 2}};
    if (random.OneIn(3)) forgery.EntryOf(id) = forgery.EntryOf(this->AnyPage(forgery, random));
    return absl::StrCat("entry ", id, ": ", ForgeFields(forgery.BytesOfEntry(id), fields, random));
  });
}

TYPED_TEST(TreeForgedFieldsTest, SurvivesForgedSuperblocks) {
  using Super = format::TreeSuperBlock;
  const std::vector<ForgedField> fields = {{offsetof(Super, page_size), 4}, {offsetof(Super, end), 8},    {offsetof(Super, num_records), 8},
                                           {offsetof(Super, root), 4},      {offsetof(Super, id_end), 4}, {offsetof(Super, num_long), 8},
                                           {offsetof(Super, sequence), 8},  {offsetof(Super, map), 8},    {offsetof(Super, map) + 16, 8},
                                           {offsetof(Super, end), 2},       {offsetof(Super, id_end), 2}};
  this->Repeat(300, [&](TreeForgery& forgery, Random& random) {
    return ForgeFields(std::as_writable_bytes(std::span(&forgery.super, 1)), fields, random);
  });
}

// The size of a long value is in a leaf, and no more memory is taken than the file has.
TEST(TreeForgedPlacesTest, RefusesALongValueLargerThanTheFile) {
  TreeForgery forgery(MakeImage<BytewiseComparator>());
  bool is_forged = false;
  for (const std::uint32_t id : forgery.PagesOf(0)) {
    const std::span<std::byte> image = forgery.ImageOf(id);
    for (std::size_t at = 0; at + sizeof(format::OverflowValue) <= image.size(); ++at) {
      format::OverflowValue value;
      std::memcpy(&value, &image[at], sizeof(value));
      if (value.size != 1500 || value.place >= forgery.super.id_end) continue;
      value.size = 4'000'000'000;
      std::memcpy(&image[at], &value, sizeof(value));
      is_forged = true;
    }
  }
  ASSERT_TRUE(is_forged);
  auto db = TreeDBM<MemoryFile>::Open(MemoryFile::Of(forgery.Finish()));
  ASSERT_THAT(db.status(), IsOk());
  AllocationCounter::ForgetLargest();
  EXPECT_THAT((*db)->Get(KeyOf(81)), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_LE(AllocationCounter::largest(), std::size_t{16} << 20);
  EXPECT_THAT((*db)->Verify(), StatusIs(absl::StatusCode::kDataLoss));
}

// Batched reads use the places in the map, which may overlap.
TEST(TreeForgedPlacesTest, SurvivesOverlappingImages) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  const TreeForgery::Image image = MakeImage<BytewiseComparator>();
  TempDir directory;
  for (int i = 0; i < 100 && !testing::Test::HasFatalFailure(); ++i) {
    TreeForgery forgery(image);
    for (const std::uint32_t id : forgery.PagesOf(0)) {
      if (!random.OneIn(3)) continue;
      const std::uint64_t units = random.OneIn(2) ? random.Between(1, 64) : 1;
      forgery.EntryOf(id) = format::PageEntry::For(random.Between(16, 18), units, 1);
    }
    const TreeForgery::Image forged = forgery.Finish();
    const std::string path = directory.File("forged");
    std::ofstream(path, std::ios::binary | std::ios::trunc).write(reinterpret_cast<const char*>(forged.data()), std::ssize(forged));
    auto file = PositionalParallelFile::Open(path);
    ASSERT_THAT(file.status(), IsOk());
    CheckForgedFile<BytewiseComparator>(*std::move(file), random);
  }
}

}  // namespace
}  // namespace hako
