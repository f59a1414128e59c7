// A salvage of a file with many damaged records of long keys takes bounded memory for its report.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "dbm/salvage_files.h"
#include "dbm/shared_databases.h"
#include "gtest/gtest.h"
#include "hako/file/memory_file.h"
#include "support/allocation_counter.h"
#include "support/sanitizers.h"

namespace hako {
namespace {

TEST(SalvageMemoryTest, ReportKeepsABoundedAmountOfKeys) {
  constexpr int kNumRecords = kSlowdown > 1 ? 36 : 60;
  MemoryFile device;
  std::string images[2];  // closed, and as a power cut leaves it
  const auto copy = [&](std::string* image) {
    image->resize(device.Size());
    ASSERT_THAT(device.ReadAt(0, std::as_writable_bytes(std::span(*image))), IsOk());
  };
  ASSERT_OK_AND_ASSIGN(auto db, HashDBM<MemoryFile>::Open(device.Share()));
  for (std::size_t i = 0; i < kNumRecords; ++i) ASSERT_THAT(db->Set(NumberedKey(i) + std::string(1'000'000, 'k'), "the value"), IsOk());
  ASSERT_THAT(db->Set("short", "the value"), IsOk());
  ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
  ASSERT_NO_FATAL_FAILURE(copy(&images[1]));
  ASSERT_THAT(db->Close(), IsOk());
  ASSERT_NO_FATAL_FAILURE(copy(&images[0]));
  for (std::string& image : images) {
    for (std::size_t at = image.find("the value"); at != image.npos; at = image.find("the value", at + 1)) image[at] ^= 1;
    const MemoryFile from = MemoryFile::Of(std::as_bytes(std::span(image)));
    MemoryFile to;
    const std::uint64_t before = AllocationCounter::bytes();
    AllocationCounter::ForgetPeak();
    ASSERT_OK_AND_ASSIGN(const SalvageReport report, (SalvageInto<HashDBM<MemoryFile>>(from, LogPlace<MemoryFile>(), to.Share())));
    EXPECT_LT(AllocationCounter::peak_bytes() - before, std::uint64_t{32} << 20);
    EXPECT_EQ(report.num_lost, std::optional<std::uint64_t>(kNumRecords + 1));
    std::size_t num_long = 0, num_short = 0, num_empty = 0;
    for (const SalvageReport::Place& place : report.places) {
      if (place.kind != SalvageReport::Kind::kRecord) continue;
      num_long += place.key.size() > 1'000'000;
      num_short += place.key == "short";
      num_empty += place.key.empty();
    }
    EXPECT_GT(num_long, 10u);
    EXPECT_GT(num_empty, 10u);
    EXPECT_EQ(num_short, 1u) << "there is room for it, wherever it lies";
  }
}

}  // namespace
}  // namespace hako
