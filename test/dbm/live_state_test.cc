// Damage to the live state that a killed process has left in the file: Open finds all updates or
// refuses, and a salvage finds them or notes that it does not.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "dbm/damage.h"
#include "dbm/salvage_files.h"
#include "dbm/shared_databases.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/file/memory_file.h"
#include "support/booted_memory_file.h"
#include "support/test_file.h"

namespace hako {
namespace {

class LiveStateTest : public testing::Test {
 protected:
  void SetUp() override {
    MemoryFile device;
    ASSERT_OK_AND_ASSIGN(auto db, HashDBM<MappedTestFile>::Open(BootedMemoryFile(device.Share(), 1), {.seed = 7}));
    const auto set = [&](std::size_t i, std::size_t size) {
      records_[NumberedKey(i)] = CheckedValue(NumberedKey(i), size, 1);
      ASSERT_THAT(db->Set(NumberedKey(i), records_[NumberedKey(i)]), IsOk());
    };
    for (std::size_t i = 0; i < 20; ++i) set(i, 20);
    ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
    synced_ = records_;
    for (std::size_t i = 20; i < 60; ++i) set(i, 2000);
    for (std::size_t i = 0; i < 10; ++i) {
      ASSERT_THAT(db->Remove(NumberedKey(i)), IsOk());
      records_.erase(NumberedKey(i));
    }
    image_ = ImageOf(device);
  }
  // Returns what Open has of the image: "all", "synchronized", "refused" or "other".
  std::string Opened(const Image& image, std::uint8_t boot = 1) const {
    auto db = HashDBM<MappedTestFile>::Open(BootedMemoryFile(MemoryFile::Of(image), boot));
    if (absl::IsDataLoss(db.status())) return "refused";
    if (!db.ok()) return db.status().ToString();
    const Records found = ListByProcessEach(**db).records;
    return found == records_ ? "all" : found == synced_ ? "synchronized" : "other";
  }
  // The same of a salvage: "noted" if it has not all, but says so.
  template <class From>
  std::string Rescued(const From& from) const {
    MemoryFile to;
    const auto report = SalvageInto<HashDBM<MemoryFile>>(from, LogPlace<From>(), to.Share());
    if (!report.ok()) return report.status().ToString();
    auto db = HashDBM<MemoryFile>::Open(to.Share());
    if (!db.ok()) return db.status().ToString();
    const Records found = ListByProcessEach(**db).records;
    return found == records_ ? "all" : report->IsComplete() ? "not noted" : found == synced_ ? "noted" : "other";
  }
  std::string Rescued(const Image& image, std::uint8_t boot = 1) const { return Rescued(BootedMemoryFile(MemoryFile::Of(image), boot)); }

  Records synced_, records_;
  Image image_;
};

TEST_F(LiveStateTest, UndamagedOneCountsInItsBootOnly) {
  EXPECT_EQ(Opened(image_), "all");
  EXPECT_EQ(Rescued(image_), "all");
  EXPECT_EQ(Opened(image_, 2), "synchronized");
  EXPECT_EQ(Rescued(image_, 2), "noted");
  EXPECT_EQ(Rescued(MemoryFile::Of(image_)), "noted");
}

TEST_F(LiveStateTest, FlippedBitDropsNoUpdateSilently) {
  for (std::size_t at = 0; at < sizeof(format::LiveState); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      Image damaged = image_;
      damaged[format::kLiveStateOffset + at] ^= std::byte(1 << bit);
      ASSERT_THAT(Opened(damaged), testing::AnyOf("all", "refused")) << "byte " << at << ", bit " << bit;
      if (bit == static_cast<int>(at % 8)) {
        ASSERT_THAT(Rescued(damaged), testing::AnyOf("all", "noted")) << "byte " << at << ", bit " << bit;
      }
    }
  }
}

std::uint64_t FarTime() { return std::uint64_t{1} << 42; }

// The clock in the live state is newer than that of the superblock (dbm/expiry.h).
TEST_F(LiveStateTest, ClockIsCheckedAndSalvaged) {
  MemoryFile device;
  const auto open = [](const MemoryFile& file) {
    return HashDBM<MappedTestFile>::Open(BootedMemoryFile(file.Share(), 1), {.clock = &Expiry::FirstTime});
  };
  {
    auto made = HashDBM<MappedTestFile>::Open(BootedMemoryFile(device.Share(), 1), {.seed = 7, .expiry = true, .clock = &Expiry::FirstTime})
                    .value();
    ASSERT_THAT(made->Set("soon", "1", {.expire_at = FarTime()}), IsOk());
    ASSERT_THAT(made->Set("later", "1", {.expire_at = FarTime() + 1}), IsOk());
    made->NoteClock(FarTime());
    image_ = ImageOf(device);
    ASSERT_THAT(made->Close(), IsOk());
  }
  EXPECT_EQ((*open(MemoryFile::Of(image_)))->expiry()->latest(), FarTime());
  for (std::size_t bit = 0; bit < 64; ++bit) {
    Image damaged = image_;
    damaged[format::kLiveStateOffset + offsetof(format::LiveState, clock) + bit / 8] ^= std::byte(1 << bit % 8);
    EXPECT_THAT(open(MemoryFile::Of(damaged)).status(), StatusIs(absl::StatusCode::kDataLoss)) << bit;
  }
  MemoryFile to;
  ASSERT_THAT(
      SalvageInto<HashDBM<MemoryFile>>(BootedMemoryFile(MemoryFile::Of(image_), 1), LogPlace<BootedMemoryFile>(), to.Share()).status(),
      IsOk());
  auto salvaged = HashDBM<MemoryFile>::Open(to.Share(), {.clock = &Expiry::FirstTime}).value();
  EXPECT_THAT(salvaged->Contains("soon"), IsOkAndHolds(false));
  EXPECT_THAT(salvaged->Contains("later"), IsOkAndHolds(true));
  EXPECT_THAT(salvaged->Verify(), IsOk());
}

TEST_F(LiveStateTest, LostSectorIsRefused) {
  for (const std::byte fill : {std::byte{0}, std::byte{0xff}}) {
    Image damaged = image_;
    std::ranges::fill(std::span(damaged).subspan(format::kLiveStateOffset, 512), fill);
    EXPECT_EQ(Opened(damaged), "refused");
    EXPECT_EQ(Rescued(damaged), "noted");
  }
}

TEST_F(LiveStateTest, FileCutBelowItsTailIsRefused) {
  Image cut = image_;
  cut.resize(cut.size() - 4096);
  EXPECT_EQ(Opened(cut), "refused");
  EXPECT_EQ(Rescued(cut), "noted");
}

}  // namespace
}  // namespace hako
