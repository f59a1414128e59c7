// Damaged sectors of the index of a closed HashDBM, whose records are undamaged: a salvage finds all
// of them, and no others.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dbm/salvage_files.h"
#include "dbm/shared_databases.h"
#include "gtest/gtest.h"
#include "hako/file/memory_file.h"
#include "support/hash_forgery.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/temp_dir.h"
#include "support/test_types.h"

namespace hako {
namespace {

constexpr std::uint64_t kSector = 512;

template <class D>
class SalvageIndexTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(auto db, D::Open(path_, {.num_records = 2000, .seed = 7}));
    records_ = Fill(*db, 2000, 2000);
    ASSERT_THAT(db->Set("replaced", "the old value"), IsOk());
    ASSERT_THAT(db->Set("removed", "its only value"), IsOk());
    ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
    ASSERT_THAT(db->Set("replaced", records_["replaced"] = "a new value, longer than the old one"), IsOk());
    ASSERT_THAT(db->Remove("removed"), IsOk());
    ASSERT_THAT(db->Close(), IsOk());
    image_ = ReadWhole(path_);
    HashForgery forgery(HashForgery::Image(std::as_bytes(std::span(image_)).begin(), std::as_bytes(std::span(image_)).end()));
    if (forgery.super.index_extents == 0) {
      AddSectors((forgery.super.tail + forgery.super.note_size + 4095) / 4096 * 4096, image_.size());
    } else {
      AddSectors(format::kIndexExtentsOffset, format::kIndexExtentsOffset + kSector);
      for (std::uint64_t i = 0; i < forgery.super.index_extents; ++i) {
        std::uint32_t word;
        std::memcpy(&word, forgery.Table().subspan(i * sizeof(word)).data(), sizeof(word));
        const auto extent = format::IndexExtentEntry::Unpack(word);
        AddSectors(extent.offset, extent.offset + extent.bytes);
      }
    }
    ASSERT_GT(sectors_.size(), 50u);
  }
  void AddSectors(std::uint64_t begin, std::uint64_t end) {
    const std::string zeros(kSector, '\0');
    for (std::uint64_t at = begin; at < end; at += kSector) {
      if (image_.compare(at, kSector, zeros) != 0) sectors_.push_back(at);
    }
  }
  // Calls check(damaged image, description) for each sector of `image` damaged in each way.
  template <class F>
  void DamageEach(const std::string& image, F&& check) {
    Random random(7);
    for (std::size_t i = TestSeed() % kSlowdown; i < sectors_.size(); i += kSlowdown) {
      const std::uint64_t at = sectors_[i];
      std::string damaged = image;
      for (const char fill : {'\0', '\xff'}) {
        damaged.replace(at, kSector, std::string(kSector, fill));
        check(damaged, std::string("filled with ") + (fill == 0 ? "0" : "0xff") + ": the sector at " + std::to_string(at));
      }
      for (const std::size_t j : {(i + 1) % sectors_.size(), static_cast<std::size_t>(random.Below(sectors_.size()))}) {
        damaged = image;
        damaged.replace(at, kSector, image, sectors_[j], kSector);
        damaged.replace(sectors_[j], kSector, image, at, kSector);
        check(damaged, "swapped: the sectors at " + std::to_string(at) + " and " + std::to_string(sectors_[j]));
      }
    }
  }
  std::pair<SalvageReport, Records> SalvageImage(const std::string& image) {
    const MemoryFile from = MemoryFile::Of(std::as_bytes(std::span(image)));
    MemoryFile to;
    auto report = SalvageInto<HashDBM<MemoryFile>>(from, LogPlace<MemoryFile>(), to.Share());
    EXPECT_THAT(report.status(), IsOk());
    auto db = HashDBM<MemoryFile>::Open(to.Share());
    EXPECT_THAT(db.status(), IsOk());
    if (!report.ok() || !db.ok()) return {};
    return {*std::move(report), ListByProcessEach(**db).records};
  }
  // Makes the dead record, of which these are the key and the value, look live.
  static void Revive(std::string* image, const std::string& record) {
    const std::size_t at = image->find(record);
    ASSERT_NE(at, image->npos);
    const std::uint16_t live = format::Stamp::Ancient().bits();
    std::memcpy(image->data() + at - 4, &live, sizeof(live));
  }

  TempDir dir_;
  const std::string path_ = dir_.File("from.hkh");
  Records records_;
  std::string image_;
  std::vector<std::uint64_t> sectors_;
};

using Databases = TestTypes<testing::Types<HashDBM<>>, HashDBM<PositionalParallelFile>>;
TYPED_TEST_SUITE(SalvageIndexTest, Databases);

TYPED_TEST(SalvageIndexTest, DamagedSectorCostsNoRecord) {
  this->DamageEach(this->image_, [this](const std::string& image, const std::string& what) {
    const auto [report, records] = this->SalvageImage(image);
    ASSERT_EQ(Difference(this->records_, records), "none") << what;
    ASSERT_EQ(report.num_lost, std::optional<std::uint64_t>(0)) << what;
    ASSERT_TRUE(report.IsComplete()) << what;
  });
}

// Where it cannot be known whether a record is dead, the report says that there are too many.
TYPED_TEST(SalvageIndexTest, DeadRecordsWithLiveStampsDoNotComeBackUnnoticed) {
  std::string revived = this->image_;
  ASSERT_NO_FATAL_FAILURE(this->Revive(&revived, "removedits only value"));
  ASSERT_NO_FATAL_FAILURE(this->Revive(&revived, "replacedthe old value"));
  int num_known = 0, num_tried = 0;
  this->DamageEach(revived, [&](const std::string& image, const std::string& what) {
    auto [report, records] = this->SalvageImage(image);
    ++num_tried;
    num_known += Difference(this->records_, records) == "none";
    if (records.erase("removed") != 0) {
      ASSERT_FALSE(report.notes.empty()) << what;
    }
    Records expected = this->records_;
    if (!records.contains("replaced")) {  // neither is taken
      expected.erase("replaced");
      ASSERT_FALSE(report.IsComplete()) << what;
    }
    ASSERT_EQ(Difference(expected, records), "none") << what;
  });
  // Of the tries with all sectors; those with the two buckets are any part of some of them.
  EXPECT_LT(num_tried - num_known, static_cast<int>(4 * this->sectors_.size() / 10));
  EXPECT_GT(num_known, num_tried / 2);
}

// An index that lacks entries of undamaged buckets, and a heap that lacks a record.
TYPED_TEST(SalvageIndexTest, RecordsThatBucketsLackAreTakenAndListed) {
  std::string image = this->image_;
  HashForgery forgery(HashForgery::Image(std::as_bytes(std::span(image)).begin(), std::as_bytes(std::span(image)).end()));
  const std::string key = "replaced", value = this->records_.at(key);
  const std::uint32_t handle = static_cast<std::uint32_t>((image.find(key + value) - 8) >> forgery.super.align_pow);
  std::size_t entry = image.npos;
  for (const std::uint64_t sector : this->sectors_) {
    for (std::uint64_t line = sector; line < sector + kSector; line += sizeof(format::BucketLine)) {
      format::BucketLine bucket;
      std::memcpy(&bucket, &image[line], sizeof(bucket));
      int num_entries = 0;
      for (const std::uint32_t slot : bucket.slots) num_entries += slot != 0;
      for (unsigned i = 0; i < format::kLineEntries; ++i) {
        if (bucket.slots[i] == handle && num_entries > 1) entry = line + offsetof(format::BucketLine, slots) + 4 * i;
      }
    }
  }
  ASSERT_NE(entry, image.npos);
  std::memset(&image[entry], 0, 4);
  {
    const auto [report, records] = this->SalvageImage(image);
    EXPECT_EQ(Difference(this->records_, records), "none");
    EXPECT_TRUE(report.IsComplete());
  }
  const std::string other = NumberedKey(2);
  const std::string lost = this->records_.contains(other) ? other : NumberedKey(3);
  ASSERT_TRUE(this->records_.contains(lost));
  image[image.find(lost + this->records_.at(lost)) + lost.size() + 2] ^= 1;
  const auto [report, records] = this->SalvageImage(image);
  Records expected = this->records_;
  expected.erase(lost);
  EXPECT_EQ(Difference(expected, records), "none");
  EXPECT_EQ(report.num_lost, std::optional<std::uint64_t>(1));
  EXPECT_EQ(report.notes.size(), 1u);
  EXPECT_TRUE(std::ranges::any_of(report.places, [&](const SalvageReport::Place& place) { return place.key == key; }));
}

}  // namespace
}  // namespace hako
