// A TreeDBM on a full device: at each step of a checkpoint, with space that returns in small steps,
// and with none that does.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dbm/listing.h"
#include "dbm/shared_databases.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/file/memory_file.h"
#include "support/fault_file.h"
#include "support/status_matchers.h"
#include "support/test_file.h"

namespace hako {
namespace {

// A file whose size limit the test changes.
class LimitedFile : public MemoryFile {
 public:
  LimitedFile(MemoryFile file, std::shared_ptr<std::uint64_t> limit) : MemoryFile(std::move(file)), limit_(std::move(limit)) {}
  Status Resize(std::uint64_t size) {
    if (size > Size() && size > *limit_) return absl::ResourceExhaustedError("no space left on the device");
    return MemoryFile::Resize(size);
  }

 private:
  std::shared_ptr<std::uint64_t> limit_;
};

constexpr std::uint64_t kRecords = 30'000;
const Status kFull = absl::ResourceExhaustedError("no space left on the device");

class TreeSpaceTest : public testing::Test {
 protected:
  // Many small pages, so that changing a few scattered records changes only a part of the page map.
  static MemoryFile MakeFile() {
    MemoryFile device;
    auto db = TreeDBM<MemoryFile>::Open(device.Share(), {.page_size = 128}).value();
    for (std::uint64_t i = 0; i < kRecords; ++i) EXPECT_THAT(db->Set(NumberedKey(i), "0123456789"), IsOk());
    EXPECT_THAT(db->Close(), IsOk());
    return device;
  }
  static MemoryFile CopyOf(const MemoryFile& file) { return MemoryFile::Of(file.View(0, file.Size())); }

  template <class Db>
  static void Change(Db& db, std::string_view value) {
    for (std::uint64_t i = 0; i < 10; ++i) ASSERT_THAT(db.Set(NumberedKey(i * (kRecords / 10)), value), IsOk());
  }
  template <class Db>
  static void ExpectChanged(Db& db, std::string_view value) {
    ASSERT_THAT(db.Verify(), IsOk());
    ASSERT_EQ(db.Count(), kRecords);
    for (std::uint64_t i = 0; i < 10; ++i) ASSERT_THAT(db.Get(NumberedKey(i * (kRecords / 10))), IsOkAndHolds(std::string(value)));
    ASSERT_THAT(db.Get(NumberedKey(1)), IsOkAndHolds("0123456789"));
  }
  template <class Db>
  static std::uint64_t WrittenBytes(Db& db) {
    for (const auto& [name, value] : db.Inspect()) {
      if (name == "file_written_bytes") return std::stoull(value);
    }
    return 0;
  }
};

// Any call lacks space, any number of times: the file does not grow beyond one attempt, an attempt
// writes only changes, and the database recovers when there is space.
TEST_F(TreeSpaceTest, RecoversFromEachStepOfACheckpointThatLacksSpace) {
  const MemoryFile whole = MakeFile();
  for (const FaultKind kind : {FaultKind::kWrite, FaultKind::kResize}) {
    for (std::uint64_t call = 1, fired = 1; fired != 0; ++call) {
      SCOPED_TRACE(testing::Message() << (kind == FaultKind::kWrite ? "write " : "resize ") << call);
      MemoryFile device = CopyOf(whole);
      const auto plan = std::make_shared<FaultPlan>();
      ASSERT_OK_AND_ASSIGN(auto db, TreeDBM<FaultFile<MemoryFile>>::Open({device.Share(), plan}));
      ASSERT_NO_FATAL_FAILURE(Change(*db, "before"));
      std::uint64_t written = WrittenBytes(*db);
      ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
      const std::uint64_t size = device.Size(), once = WrittenBytes(*db) - written;
      ASSERT_NO_FATAL_FAILURE(Change(*db, "after"));
      for (int attempt = 0; attempt < 12; ++attempt) {
        plan->Arm({.kind = kind, .call = call, .status = kFull, .forever = true});
        written = WrittenBytes(*db);
        const Status status = db->Synchronize(SyncMode::kHard);
        if (attempt == 0) fired = plan->fired_count();
        if (fired == 0) break;
        EXPECT_TRUE(status.ok() || absl::IsResourceExhausted(status)) << status;
        EXPECT_LE(WrittenBytes(*db) - written, 2 * once + 4096) << "attempt " << attempt;
      }
      EXPECT_LE(device.Size(), size + (3 << 19));
      plan->Disarm();
      ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
      EXPECT_THAT(db->GetHealth(), IsOk());
      EXPECT_LE(device.Size(), size + (3 << 19));
      ASSERT_NO_FATAL_FAILURE(ExpectChanged(*db, "after"));
      ASSERT_THAT(db->Close(), IsOk());
      ASSERT_OK_AND_ASSIGN(auto again, TreeDBM<MemoryFile>::Open(device.Share()));
      ASSERT_NO_FATAL_FAILURE(ExpectChanged(*again, "after"));
    }
  }
}

class TreeFullDeviceTest : public TreeSpaceTest {
 protected:
  using Dbm = TreeDBM<TestFile>;

  void SetUp() override {
    auto opened = Dbm::Open(LimitedFile(device_.Share(), limit_));
    ASSERT_THAT(opened, IsOk());
    db_ = *std::move(opened);
  }
  // Until updates are refused: new records, which need pages, while the file can grow a little
  // only.
  void FillUp() {
    *limit_ = device_.Size() + (3 << 19);
    for (std::uint64_t i = 0;; ++i) {
      const Status status = db_->Set(absl::StrCat("new", i), std::string(30, 'n'));
      if (!status.ok()) {
        ASSERT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted));
        return;
      }
      now_new_ = i + 1;
      if (i % 200 == 0) (void)db_->Synchronize(SyncMode::kHard);
      ASSERT_LT(i, 200'000u) << "it never fills up";
    }
  }

  MemoryFile device_ = MakeFile();
  std::shared_ptr<std::uint64_t> limit_ = std::make_shared<std::uint64_t>(~std::uint64_t{0});
  std::unique_ptr<Dbm> db_;
  std::uint64_t now_new_ = 0;
};

TEST_F(TreeFullDeviceTest, SavesUpdatesAcceptedBeforeTheRefusal) {
  ASSERT_NO_FATAL_FAILURE(FillUp());
  EXPECT_THAT(db_->Synchronize(SyncMode::kHard), IsOk()) << "there is a reserve for that";
  EXPECT_THAT(db_->Set("more", "x"), StatusIs(absl::StatusCode::kResourceExhausted));
  ASSERT_OK_AND_ASSIGN(auto copy, TreeDBM<MemoryFile>::Open(CopyOf(device_)));
  EXPECT_THAT(copy->Verify(), IsOk());
  EXPECT_EQ(copy->Count(), kRecords + now_new_);
}

TEST_F(TreeFullDeviceTest, AcceptsRemovalsThatFreeSpace) {
  ASSERT_NO_FATAL_FAILURE(FillUp());
  const std::uint64_t size = device_.Size();
  EXPECT_THAT(db_->Remove(NumberedKey(7)), IsOk());
  EXPECT_THAT(db_->Set("more", "x"), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(db_->RemoveRange(NumberedKey(10), NumberedKey(20'000)), IsOkAndHolds(19'990u));
  for (int attempt = 0; attempt < 3; ++attempt) (void)db_->Synchronize(SyncMode::kHard);
  EXPECT_THAT(db_->GetHealth(), IsOk());
  EXPECT_THAT(db_->Set("more", "x"), IsOk());
  EXPECT_THAT(db_->Synchronize(SyncMode::kHard), IsOk());
  EXPECT_LE(device_.Size(), size);
  EXPECT_THAT(db_->Verify(), IsOk());
  EXPECT_EQ(db_->Count(), kRecords + now_new_ - 1 - 19'990 + 1);
}

TEST_F(TreeFullDeviceTest, RecoversAsSpaceReturnsInSmallSteps) {
  ASSERT_NO_FATAL_FAILURE(FillUp());
  std::uint64_t steps = 0;
  while (!db_->GetHealth().ok() && ++steps < 1000) {
    *limit_ += 16 << 10;
    (void)db_->Synchronize(SyncMode::kHard);
  }
  EXPECT_LE(steps * (16 << 10), std::uint64_t{1} << 20);
  EXPECT_THAT(db_->Set("more", "x"), IsOk());
  EXPECT_THAT(db_->Verify(), IsOk());
  EXPECT_EQ(db_->Count(), kRecords + now_new_ + 1);
}

TEST_F(TreeFullDeviceTest, CloseSavesAcceptedUpdates) {
  ASSERT_NO_FATAL_FAILURE(FillUp());
  EXPECT_THAT(db_->Remove(NumberedKey(7)), IsOk());
  (void)db_->Close();
  ASSERT_OK_AND_ASSIGN(auto again, TreeDBM<MemoryFile>::Open(device_.Share()));
  EXPECT_THAT(again->Verify(), IsOk());
  EXPECT_EQ(again->Count(), kRecords + now_new_ - 1);
}

}  // namespace
}  // namespace hako
