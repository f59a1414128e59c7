// Salvage and Scrub of arrays: each damaged page costs its own records only, and is reported with their
// numbers; no record comes out with a wrong value.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/array/array_pages.h"
#include "hako/dbm/any_dbm.h"
#include "hako/dbm/array_dbm.h"
#include "hako/file/memory_file.h"
#include "hako/format/tree_file_format.h"
#include "hako/storage/damaged_file.h"
#include "hako/tree/file/image_salvage.h"
#include "support/file_system.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

using Model = std::map<std::uint64_t, std::string>;
using Kind = SalvageReport::Kind;

constexpr unsigned kWidth = 40;

// The images of the last checkpoint in an array's file: where each page is, and what it is.
struct Page {
  std::uint64_t offset, size;
  unsigned level;
  std::uint64_t number;
};
std::vector<Page> PagesIn(std::string_view file) {
  const MemoryFile device = MemoryFile::Of(std::as_bytes(std::span(file)));
  SalvageReport unused;
  storage::DamagedFile source(device, unused);
  const auto super = storage::SalvageSuperBlock<format::TreeSuperBlock>(source, array::kArrayFileKind).value().block;
  const array::ArrayPages kind(kWidth);
  std::vector<Page> pages;
  tree::ImageSalvage<MemoryFile>(source, super).ForEachImage([&](std::uint32_t id, const format::PageEntry& entry) {
    const std::uint64_t offset = entry.place() * format::kTreeUnit, size = entry.units() * format::kTreeUnit;
    const auto page = kind.Parse(id, std::as_bytes(std::span(file.substr(offset, size))), super.id_end).value();
    pages.push_back({offset, size, page.shape.level(), page.number});
  });
  return pages;
}

class ArraySalvageTest : public testing::Test {
 protected:
  // Pages near each other and far away, below several pages of each level of the directory but the highest.
  void Make() {
    ASSERT_OK_AND_ASSIGN(auto db, ArrayDBM<>::Open(from_, {.width = kWidth, .durability = Durability::kNone}));
    for (std::uint64_t i = 0; i < 1500; ++i) {
      const std::uint64_t id = i < 1200 ? i : i < 1300 ? i * 5000 : i < 1400 ? i * 7'000'000 : kRecordIdMax - (1500 - i) * 2'000'000'000;
      std::string value = std::to_string(i * 7919);
      ASSERT_THAT(db->Set(id, value), IsOk());
      value.resize(kWidth);
      records_[id] = value;
    }
    for (std::uint64_t id = 0; id < 1200; id += 3) {
      ASSERT_THAT(db->Remove(id), IsOk());
      records_.erase(id);
    }
    ASSERT_THAT(db->Set(kRecordIdMax, ""), IsOk());
    records_[kRecordIdMax] = std::string(kWidth, '\0');
    ASSERT_THAT(db->SetType(77), IsOk());
    ASSERT_THAT(db->SetMetadata(UserMetadata{std::byte{5}}), IsOk());
    WriteBatch batch;
    batch.SetAppliedIndex(1234);
    ASSERT_THAT(db->Write(batch), IsOk());
    ASSERT_THAT(db->Close(), IsOk());
    image_ = ReadWhole(from_);
  }

  // Salvages a file with these bytes. Whatever is damaged: the records that come out are right, and each one
  // that is missing is in a lost range, where no record comes out.
  void SalvageImage(std::string_view image) {
    WriteWhole(from_, image);
    std::filesystem::remove(to_);
    auto result = AnyDBM::Salvage(from_, to_);
    status_ = result.status();
    if (!result.ok()) {
      ASSERT_TRUE(absl::IsDataLoss(status_) || absl::IsInvalidArgument(status_)) << status_;
      ASSERT_FALSE(std::filesystem::exists(to_));
      return;
    }
    report_ = *std::move(result);
    found_ = ReadAll();
    ASSERT_EQ(report_.num_records, found_.size());
    if (!report_.notes.empty() && found_.empty()) return;  // the older superblock is that of the empty array
    ASSERT_EQ(report_.num_lost, std::optional<std::uint64_t>(records_.size() - found_.size()));
    for (const auto& [id, value] : found_) ASSERT_TRUE(records_.contains(id) && records_.at(id) == value) << id;
    for (const auto& [id, value] : records_) ASSERT_EQ(IsLost(id), !found_.contains(id)) << id;
  }
  Model ReadAll() {
    Model found;
    auto db = ArrayDBM<>::Open(to_, {.durability = Durability::kNone});
    EXPECT_THAT(db.status(), IsOk());
    if (!db.ok()) return {};
    EXPECT_THAT((*db)->Verify(), IsOk());
    auto it = (*db)->MakeIterator();
    for (it.First(); it.Valid(); it.Next()) found.emplace(it.id(), it.value());
    EXPECT_THAT(it.status(), IsOk());
    EXPECT_EQ((*db)->width(), kWidth);
    if (!report_.notes.empty()) return found;
    EXPECT_EQ((*db)->GetType(), 77u);
    EXPECT_EQ((*db)->GetMetadata()[0], std::byte{5});
    EXPECT_EQ((*db)->AppliedIndex(), 1234u);
    return found;
  }
  bool IsLost(std::uint64_t id) const {
    return std::ranges::any_of(report_.lost_ranges, [id](const SalvageReport::LostRange& range) {
      return std::stoull(range.from) <= id && (!range.to || id < std::stoull(*range.to));
    });
  }
  std::multiset<std::uint64_t> OffsetsOf(Kind kind) const {
    std::multiset<std::uint64_t> offsets;
    for (const SalvageReport::Place& place : report_.places) {
      if (place.kind == kind) offsets.insert(place.offset);
    }
    return offsets;
  }
  static void Damage(std::string& image, std::uint64_t at) { image.at(at) = static_cast<char>(image[at] ^ 1); }

  TempDir dir_{TempDir::MemoryParent()};  // hundreds of files are synced
  const std::string from_ = dir_.File("damaged"), to_ = dir_.File("new.hka");
  Model records_, found_;
  std::string image_;
  Status status_;
  SalvageReport report_;
  Random random_{TestSeed()};
};

TEST_F(ArraySalvageTest, UndamagedFileGivesAnEqualDatabase) {
  ASSERT_NO_FATAL_FAILURE(Make());
  ASSERT_NO_FATAL_FAILURE(SalvageImage(image_));
  EXPECT_EQ(found_, records_);
  EXPECT_TRUE(report_.IsComplete());
  EXPECT_EQ(report_.num_places, 0u);
  EXPECT_THAT(report_.lost_ranges, testing::IsEmpty());
}

TEST_F(ArraySalvageTest, EachDamagedPageCostsItsRecordsOnly) {
  ASSERT_NO_FATAL_FAILURE(Make());
  const std::uint64_t per_leaf = format::ArrayShape::For(kWidth).per_leaf;
  const std::vector<Page> pages = PagesIn(image_);
  const std::uint64_t leaf_step = 20 * kSlowdown, directory_step = 8 * kSlowdown;  // one page in so many is damaged
  std::uint64_t num_leaves = random_.Below(leaf_step), num_directories = random_.Below(directory_step);
  for (const Page& page : pages) {
    if (page.level == 0 ? num_leaves++ % leaf_step != 0 : num_directories++ % directory_step != 0) continue;
    SCOPED_TRACE(testing::Message() << "page " << page.number << " of level " << page.level);
    std::string image = image_;
    Damage(image, page.offset + random_.Below(page.size));
    ASSERT_NO_FATAL_FAILURE(SalvageImage(image));
    EXPECT_EQ(OffsetsOf(Kind::kPage), std::multiset<std::uint64_t>{page.offset});
    Model expected = records_;
    if (page.level == 0) {
      expected.erase(expected.lower_bound(page.number * per_leaf), expected.lower_bound((page.number + 1) * per_leaf));
      ASSERT_EQ(report_.lost_ranges.size(), 1u);
      EXPECT_EQ(report_.lost_ranges[0].from, std::to_string(page.number * per_leaf));
    }
    EXPECT_EQ(found_, expected);
    EXPECT_EQ(report_.IsComplete(), page.level > 0);
  }
  EXPECT_GT(num_leaves, leaf_step);
  EXPECT_GT(num_directories, directory_step);
}

TEST_F(ArraySalvageTest, ReportsLossesWhereTheDirectoryIsDamagedToo) {
  SCOPED_TRACE(TestSeed());
  ASSERT_NO_FATAL_FAILURE(Make());
  const std::vector<Page> pages = PagesIn(image_);
  std::size_t num_lost = 0;
  for (int round = 0; round < 40 / kSlowdown; ++round) {
    std::string image = image_;
    const std::uint64_t share = random_.Between(2, 30);
    for (const Page& page : pages) {
      if (random_.OneIn(page.level > 1 ? 2 : share)) Damage(image, page.offset + random_.Below(page.size));
    }
    ASSERT_NO_FATAL_FAILURE(SalvageImage(image));
    num_lost += *report_.num_lost;
  }
  EXPECT_GT(num_lost, 0u);
}

TEST_F(ArraySalvageTest, DamageAnywhereGivesNoWrongRecord) {
  SCOPED_TRACE(TestSeed());
  ASSERT_NO_FATAL_FAILURE(Make());
  for (int round = 0; round < 40 / kSlowdown; ++round) {
    std::string image = image_;
    switch (round % 3) {
      case 0:  // nodes of the page map are among them
        for (int i = 0; i < 1 << round % 10; ++i) Damage(image, random_.Between(8192, image.size() - 1));
        break;
      case 1: {
        const std::uint64_t at = random_.Below(image.size()), size = std::min<std::uint64_t>(4096, image.size() - at);
        image.replace(at, size, size, '\0');
        break;
      }
      default:
        image.resize(random_.Below(image.size()));
    }
    ASSERT_NO_FATAL_FAILURE(SalvageImage(image));
  }
  std::string headless = image_;
  headless.replace(0, 8192, 8192, '\0');
  ASSERT_NO_FATAL_FAILURE(SalvageImage(headless));
  EXPECT_THAT(status_, StatusIs(absl::StatusCode::kInvalidArgument));
  headless.replace(0, 16, image_, 0, 16);
  ASSERT_NO_FATAL_FAILURE(SalvageImage(headless));
  EXPECT_THAT(status_, StatusIs(absl::StatusCode::kDataLoss, testing::HasSubstr("both superblocks")));
}

// The log of a killed process: batches with ranges of numbers, too.
TEST_F(ArraySalvageTest, MakesTheUpdatesOfTheLog) {
  ASSERT_NO_FATAL_FAILURE(Make());
  ASSERT_OK_AND_ASSIGN(auto db, ArrayDBM<>::Open(from_));
  ASSERT_THAT(db->Set(5, "five"), IsOk());
  ASSERT_THAT(db->Remove(kRecordIdMax), IsOk());
  ASSERT_THAT(db->RemoveRange(100, 200), IsOk());
  WriteBatch batch;
  batch.RemoveRange("300", "400");
  batch.RemoveRange("1099511000000");
  batch.Set("350", "kept");
  batch.SetAppliedIndex(1234);
  ASSERT_THAT(db->Write(batch), IsOk());
  ASSERT_THAT(db->Set(1, "after it"), IsOk());
  Model expected;
  auto it = db->MakeIterator();
  for (it.First(); it.Valid(); it.Next()) expected.emplace(it.id(), it.value());
  const std::string killed = dir_.File("killed");
  std::string image = ReadWhole(from_);
  const Page page = PagesIn(image).back();
  ASSERT_EQ(page.level, 0u);
  Damage(image, page.offset + 100);
  WriteWhole(killed, image);
  WriteWhole(killed + "-log", ReadWhole(from_ + "-log"));
  ASSERT_OK_AND_ASSIGN(report_, AnyDBM::Salvage(killed, to_));
  EXPECT_GE(report_.num_updates, 8u);
  EXPECT_EQ(report_.num_lost, std::optional<std::uint64_t>(1)) << "one far record a page";
  std::erase_if(expected, [this](const auto& record) { return IsLost(record.first); });
  EXPECT_EQ(ReadAll(), expected);
}

TEST_F(ArraySalvageTest, ScrubListsEachDamagedPage) {
  ASSERT_NO_FATAL_FAILURE(Make());
  std::multiset<std::uint64_t> damaged, found;
  std::string image = image_;
  for (const Page& page : PagesIn(image_)) {
    if (page.level == 4 || !random_.OneIn(20)) continue;
    Damage(image, page.offset + random_.Below(page.size));
    damaged.insert(page.offset);
  }
  ASSERT_FALSE(damaged.empty());
  WriteWhole(from_, image);
  ASSERT_OK_AND_ASSIGN(auto db, ArrayDBM<>::Open(from_));
  for (bool is_complete = false; !is_complete;) {
    ASSERT_OK_AND_ASSIGN(const ScrubProgress progress, db->Scrub({.max_bytes = 4096}));
    for (const auto& place : progress.damage) found.insert(place.offset);
    is_complete = progress.is_complete;
  }
  EXPECT_EQ(found, damaged);
}

}  // namespace
}  // namespace hako
