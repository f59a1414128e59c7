// How much memory reading the whole file takes: not more for a longer value.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "dbm/surroundings.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/file/positional_parallel_file.h"
#include "support/allocation_counter.h"
#include "support/crash_child.h"
#include "support/direct_file.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/test_types.h"

namespace hako {
namespace {

constexpr std::size_t kValueSize = (kSlowdown > 1 ? 24 : 96) << 20;
constexpr std::uint64_t kMost = 16 << 20;  // bytes that a scan may allocate beyond what is in use before

// The bytes that `work` had allocated at most, beyond those in use before.
template <class F>
std::uint64_t PeakOf(F&& work) {
  AllocationCounter::ForgetPeak();
  const std::uint64_t before = AllocationCounter::bytes();
  work();
  return AllocationCounter::peak_bytes() - before;
}

// Some bytes of each piece that it may be copied in differ from those of the others.
std::string LongValue() {
  std::string value(kValueSize, 'a');
  for (std::size_t i = 0; i < value.size(); i += 4099) value[i] = static_cast<char>(i / 4099);
  return value;
}

template <class Place>
class ScanMemoryTest : public testing::Test {
 protected:
  using Database = typename Place::Database;

  // A process sets a long value, replaces it, sets short ones, synchronizes, and is killed.
  void SetUp() override {
    CrashChild child([this](CrashProgress& progress) {
      auto db = place_.Open();
      const auto note = [&](const Status& status) {
        if (!status.ok()) progress.Fail(status.ToString());
      };
      note(db.status());
      std::string value = LongValue();
      value.back() = 'z';
      note((*db)->Set("long", value));
      note((*db)->Synchronize(SyncMode::kHard));
      value.back() = 'a';
      note((*db)->Set("long", value));
      for (int i = 0; i < 1000; ++i) note((*db)->Set(std::to_string(i), std::string(100, 's')));
      note((*db)->Synchronize(SyncMode::kHard));
      progress.ready = true;
      for (;;) CrashChild::Pause(1000);
    });
    child.AwaitReady();
    child.Kill();
    ASSERT_STREQ(child.progress().failure, "");
    // The file of a killed process may be held for a while (FileOptions::lock_timeout).
    ASSERT_THAT(
        PositionalParallelFile::Open(place_.files.Path("db"), {.mode = OpenMode::kReadWrite, .lock_timeout = std::chrono::seconds(10)}),
        IsOk());
  }

  // Opens the database with as much memory as the test allows.
  std::unique_ptr<Database> Open(const std::string& name = "db", const typename Place::Options& options = {}) {
    std::unique_ptr<Database> db;
    EXPECT_LE(PeakOf([&] {
                auto opened = place_.OpenWith(options, OpenMode::kCreate, name);
                EXPECT_THAT(opened, IsOk());
                if (opened.ok()) db = *std::move(opened);
              }),
              kMost);
    return db;
  }

  Place place_;
};

using Places =
    TestTypes<testing::Types<HashSurroundings<MemoryMapParallelFile>, TreeSurroundings<PositionalParallelFile>>,
              HashSurroundings<PositionalParallelFile>, HashSurroundings<DirectFile<4096>>, TreeSurroundings<MemoryMapParallelFile>>;
TYPED_TEST_SUITE(ScanMemoryTest, Places);

TYPED_TEST(ScanMemoryTest, OpenAndVerifyNeedNoMoreForALongValue) {
  auto db = this->Open();
  ASSERT_NE(db, nullptr);
  EXPECT_LE(PeakOf([&] { EXPECT_THAT(db->Verify(), IsOk()); }), kMost);
  EXPECT_EQ(db->Count(), 1001u);
  EXPECT_LE(PeakOf([&] { EXPECT_THAT(db->Remove("long"), IsOk()); }), kMost);
  EXPECT_LE(PeakOf([&] { EXPECT_THAT(db->ProcessEach([](std::string_view, std::string_view) {}), IsOk()); }), kMost);
}

TYPED_TEST(ScanMemoryTest, RecoveryFromAPowerCutNeedsNoMoreForALongValue) {
  std::filesystem::copy_file(this->place_.files.Path("db"), this->place_.files.Path("copy"));
  typename TypeParam::Options options;
  if constexpr (requires { options.unproven_updates; }) options.unproven_updates = UnprovenUpdates::kDrop;
  auto db = this->Open("copy", options);
  ASSERT_NE(db, nullptr);
  ASSERT_OK_AND_ASSIGN(const std::string value, db->Get("long"));
  EXPECT_TRUE(value == LongValue());
}

TYPED_TEST(ScanMemoryTest, RebuildAndCopyToNeedNoMoreForALongValue) {
  auto db = this->Open();
  ASSERT_NE(db, nullptr);
  const std::uint64_t before = db->GetStats().total_bytes;
  EXPECT_LE(PeakOf([&] { EXPECT_THAT(db->Rebuild(), IsOk()); }), kMost);
  EXPECT_LE(db->GetStats().total_bytes - db->GetStats().free_bytes, before - kValueSize);
  EXPECT_LE(PeakOf([&] { EXPECT_THAT(db->CopyTo(this->place_.files.Path("copy")), IsOk()); }), kMost);
  EXPECT_THAT(db->Close(), IsOk());
  for (const std::string name : {"db", "copy"}) {
    db = this->Open(name);
    ASSERT_NE(db, nullptr);
    EXPECT_EQ(db->Count(), 1001u);
    ASSERT_OK_AND_ASSIGN(const std::string value, db->Get("long"));
    EXPECT_TRUE(value == LongValue()) << name;
    EXPECT_THAT(db->Verify(), IsOk());
  }
}

}  // namespace
}  // namespace hako
