// Epochs wrap. The stamps of records that are never rewritten become ancient before, even if every
// process lives shortly.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dbm/listing.h"
#include "dbm/shared_databases.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/file/any_file.h"
#include "hako/file/memory_file.h"
#include "support/booted_memory_file.h"
#include "support/checked_value.h"
#include "support/hooked_file.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/test_file.h"

namespace hako {
namespace {

template <class FileT>
class EpochWrapTest : public testing::Test {
 protected:
  using DB = HashDBM<Erased<FileT>>;

  StatusOr<std::unique_ptr<DB>> Open(const MemoryFile& memory, std::uint8_t boot = 1) {
    if constexpr (MappedFile<FileT>) {
      return DB::Open(FileT(memory.Share(), boot), {.seed = 11});
    } else {
      return DB::Open(FileT(memory.Share()), {.seed = 11});
    }
  }
  static MemoryFile CopyOf(const MemoryFile& memory) {
    std::vector<std::byte> image(memory.Size());
    EXPECT_THAT(memory.ReadAt(0, image), IsOk());
    return MemoryFile::Of(image);
  }
  void Set(DB& db, const std::string& key, std::size_t size, std::uint64_t salt) {
    now_[key] = CheckedValue(key, size, salt);
    ASSERT_THAT(db.Set(key, now_[key]), IsOk());
  }
  void ExpectSurvivesAPowerCut(const MemoryFile& memory) {
    ASSERT_OK_AND_ASSIGN(auto db, Open(CopyOf(memory), 2));
    ASSERT_EQ(Difference(now_, ListByIterator(*db).records), "none");
    ASSERT_THAT(db->Verify(), IsOk());
  }

  Records now_;
};
using Files = testing::Types<BootedMemoryFile, AnyFile>;
TYPED_TEST_SUITE(EpochWrapTest, Files);

TYPED_TEST(EpochWrapTest, OldRecordsOutliveTheWrapOfLiveStamps) {
  MemoryFile memory;
  ASSERT_OK_AND_ASSIGN(auto db, this->Open(memory));
  for (std::uint64_t i = 0; i < 400; ++i) this->Set(*db, NumberedKey(i), i % 50 == 0 ? 10'000 : i, 0);
  this->Set(*db, "huge", std::size_t{1} << 20, 0);
  for (std::uint64_t i = 0; i < format::kLivePeriod + format::kEpochsAhead; ++i) {
    this->Set(*db, "key", 20, i);
    if (i % 100 == 0) this->Set(*db, NumberedKey(1000 + i / 100), 100, i);  // the file grows during the sweep
    ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
    if (i % 4000 == 0) {
      ASSERT_NO_FATAL_FAILURE(this->ExpectSurvivesAPowerCut(memory));
    }
    if (i % 300 != 0) continue;
    if (MappedFile<TypeParam> && i % 600 == 0) memory = this->CopyOf(memory);  // the process is killed; otherwise it closes the database
    db.reset();
    ASSERT_OK_AND_ASSIGN(db, this->Open(memory));
  }
  ASSERT_NO_FATAL_FAILURE(this->ExpectSurvivesAPowerCut(memory));
}

class SweepTest : public testing::Test {
 protected:
  static constexpr std::uint64_t kRecords = 2000;

  // Opens a database whose next synchronization finds the stamps of the first records old.
  void SetUp() override {
    HookedFile file(memory_.Share(), [this](Access access) { on_access_(access); });
    ASSERT_OK_AND_ASSIGN(db_, HashDBM<HookedFile>::Open(std::move(file), {.seed = 11}));
    for (std::uint64_t i = 0; i < kRecords; ++i) ASSERT_THAT(db_->Set(NumberedKey(i), "value"), IsOk());
    while (db_->GetStats().epoch <= format::kRefreshAge + 2) Synchronize();
  }
  void TearDown() override {
    on_access_ = [](Access) {};
  }
  void Synchronize() {
    ASSERT_THAT(db_->Set("other", "value"), IsOk());
    ASSERT_THAT(db_->Synchronize(SyncMode::kHard), IsOk());
  }

  MemoryFile memory_;
  std::function<void(Access)> on_access_ = [](Access) {};
  std::unique_ptr<HashDBM<HookedFile>> db_;
};

TEST_F(SweepTest, WritesAdjacentStampsInOneTransfer) {
  std::atomic<int> writes = 0;
  on_access_ = [&](Access access) { writes += access == Access::kWrite; };
  for (int i = 0; i < 10; ++i) Synchronize();
  EXPECT_LE(writes, 10 * 10) << "4 KiB of small records each time";
  EXPECT_THAT(db_->Verify(), IsOk());
}

TEST_F(SweepTest, KeepsARecordRetiredThatWasRemovedMeanwhile) {
  constexpr std::uint64_t kFirst = 440, kEnd = 445;  // read by the first synchronization that finds old stamps, and not in its first write
  std::atomic<bool> armed = true, ended = false;
  std::future<void> removal;
  on_access_ = [&](Access access) {
    if (access != Access::kWrite || !armed.exchange(false)) return;
    removal = std::async(std::launch::async, [&] {
      for (std::uint64_t i = kFirst; i < kEnd; ++i) EXPECT_THAT(db_->Remove(NumberedKey(i)), IsOk());
    });
    ended = removal.wait_for(std::chrono::seconds(60)) == std::future_status::ready;
  };
  ASSERT_THAT(db_->Synchronize(SyncMode::kHard), IsOk());
  removal.wait();
  EXPECT_TRUE(ended) << "the removal had to wait";
  std::vector<std::byte> image(memory_.Size());
  ASSERT_THAT(memory_.ReadAt(0, image), IsOk());
  ASSERT_OK_AND_ASSIGN(auto recovered, HashDBM<MemoryFile>::Open(MemoryFile::Of(image)));
  for (std::uint64_t i = 0; i < kRecords; ++i) {
    const bool is_removed = i >= kFirst && i < kEnd;
    ASSERT_EQ(recovered->Get(NumberedKey(i)).ok(), !is_removed) << i;
  }
  EXPECT_THAT(recovered->Verify(), IsOk());
}

}  // namespace
}  // namespace hako
