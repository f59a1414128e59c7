// Updates of a HashDBM beside its long operations: durable Sets continue even if the operation
// waits for a slow device, and the operation sees one state.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "dbm/shared_databases.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/file/memory_file.h"
#include "support/hooked_file.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

constexpr std::uint64_t kRecords = 2000;
using Database = HashDBM<HookedFile>;

std::string KeyOf(std::uint64_t i) { return std::to_string(10'000 + i); }

// A database of some megabytes, and a thread that makes durable updates of existing and new keys.
class HashMaintenance : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(db_, Database::Open(HookedFile(MemoryFile(), Hook())));
    for (std::uint64_t i = 0; i < kRecords; ++i) ASSERT_THAT(db_->Set(KeyOf(i), std::string(1000, 'v')), IsOk());
    ASSERT_THAT(db_->Synchronize(SyncMode::kHard), IsOk());
    setter_ = std::thread([this] {
      for (std::uint64_t i = 0; !is_over_; ++i, ++num_updates_) {
        const std::string key = KeyOf(i % (kRecords + 10));
        EXPECT_THAT(i % 3 == 2 ? db_->Remove(KeyOf(kRecords + i % 10)) : db_->Set(key, "durable", {.durability = Durability::kPower}),
                    testing::AnyOf(IsOk(), StatusIs(absl::StatusCode::kNotFound)));
      }
    });
  }
  void TearDown() override {
    is_over_ = true;
    setter_.join();
    EXPECT_FALSE(has_stalled_) << "a durable update waited for the operation";
    EXPECT_THAT(db_->Verify(), IsOk());
    EXPECT_THAT(db_->Close(), IsOk());
  }

  // Each of the first reads by the thread that called Begin waits for two more durable updates.
  HookedFile::Hook Hook() {
    return [this](Access access) {
      if (access == Access::kRead && std::this_thread::get_id() == operator_.load()) on_read_();
    };
  }
  void WaitForUpdates() {
    if (num_waits_ == 20 || has_stalled_) return;
    ++num_waits_;
    const std::uint64_t until = num_updates_ + 2;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (num_updates_ < until && !has_stalled_) {
      if (std::chrono::steady_clock::now() > deadline) has_stalled_ = true;
      std::this_thread::yield();
    }
  }
  void Begin() { operator_ = std::this_thread::get_id(); }
  void End() { operator_ = std::thread::id(); }

  std::function<void()> on_read_ = [this] { WaitForUpdates(); };
  std::unique_ptr<Database> db_;
  std::thread setter_;
  std::atomic<std::thread::id> operator_;
  std::atomic<bool> is_over_{false}, has_stalled_{false};
  std::atomic<std::uint64_t> num_updates_{0};
  std::atomic<int> num_waits_{0};
};

TEST_F(HashMaintenance, DurableUpdatesContinueDuringCopyTo) {
  MemoryFile copy;
  EXPECT_THAT(db_->CopyTo(HookedFile(copy.Share(), [this](Access) { WaitForUpdates(); })), IsOk());
  EXPECT_GT(num_waits_, 3);
  ASSERT_OK_AND_ASSIGN(auto copied, Database::Open(HookedFile(std::move(copy), [](Access) {})));
  EXPECT_GE(copied->Count(), kRecords);
  EXPECT_THAT(copied->Verify(), IsOk());
}

TEST_F(HashMaintenance, DurableUpdatesContinueDuringVerify) {
  Begin();
  EXPECT_THAT(db_->Verify(), IsOk());
  End();
  EXPECT_GT(num_waits_, 3);
}

// Rebuild moves a record with the bucket locked, so an update may wait for one read.
TEST_F(HashMaintenance, DurableUpdatesContinueDuringRebuild) {
  for (std::uint64_t i = kRecords; i < 4 * kRecords; ++i) ASSERT_THAT(db_->Set(KeyOf(i), std::string(1000, 'v')), IsOk());
  for (std::uint64_t i = kRecords + 10; i < 3 * kRecords; ++i) ASSERT_THAT(db_->Remove(KeyOf(i)), IsOk());
  std::uint64_t first = 0, last = 0;  // how many updates there were when Rebuild read the first record and the last one
  on_read_ = [&, num_reads = 0]() mutable {
    if (++num_reads % 200 == 0) {
      const std::uint64_t until = num_updates_ + 3;
      for (int i = 0; i < 100 && num_updates_ < until; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    last = num_updates_;
    if (first == 0) first = last;
  };
  Begin();
  EXPECT_THAT(db_->Rebuild(), IsOk());
  End();
  EXPECT_GE(last, first + 10);
}

// Its extents are aligned, so gaps between small ones are no room for them.
TEST(HashRebuildTest, OfASmallFileDoesNotEnlargeIt) {
  const TempDir directory;
  const std::string path = directory.File("db");
  for (const std::uint64_t count : {100u, 1000u, 2000u, 3000u, 10'000u}) {
    for (const std::size_t size : {1u, 8u, 16u}) {
      for (const std::uint64_t kept_of_ten : {10u, 5u, 1u}) {
        SCOPED_TRACE(testing::Message() << count << " records, " << kept_of_ten << " tenths of them kept, values of " << size);
        ASSERT_OK_AND_ASSIGN(auto db, HashDBM<>::Open(path, HashOptions(), {.mode = OpenMode::kTruncate}));
        for (std::uint64_t i = 0; i < count; ++i) ASSERT_THAT(db->Set(std::to_string(i), std::string(size, 'v')), IsOk());
        ASSERT_THAT(db->Close(), IsOk());
        ASSERT_OK_AND_ASSIGN(db, HashDBM<>::Open(path));
        for (std::uint64_t i = 0; i < count; ++i) {
          if (i % 10 >= kept_of_ten) ASSERT_THAT(db->Remove(std::to_string(i)), IsOk());
        }
        ASSERT_THAT(db->Close(), IsOk());
        for (std::uint64_t before = std::filesystem::file_size(path), round = 0; round < 2; ++round) {
          ASSERT_OK_AND_ASSIGN(db, HashDBM<>::Open(path));
          ASSERT_THAT(db->Rebuild(), IsOk());
          ASSERT_THAT(db->Verify(), IsOk());
          EXPECT_EQ(db->Count(), count / 10 * kept_of_ten);
          ASSERT_THAT(db->Close(), IsOk());
          EXPECT_LE(std::filesystem::file_size(path), before);
          before = std::filesystem::file_size(path);
        }
      }
    }
  }
}

// The epochs in the stamps wrap while the copy is being made.
TEST(HashCopyTest, CopyHasTheStateAtTheCallDespiteThousandsOfDurableUpdates) {
  ASSERT_OK_AND_ASSIGN(auto database, Database::Open(HookedFile(MemoryFile(), [](Access) {}), {.durability = Durability::kPower}));
  std::map<std::string, std::string> before;
  for (std::uint64_t i = 0; i < 300; ++i) ASSERT_THAT(database->Set(KeyOf(i), before[KeyOf(i)] = std::string(100 + i, 'a')), IsOk());
  for (std::uint64_t i = 0; i < 100; ++i) {  // some blocks are free, some recently retired
    ASSERT_THAT(database->Remove(KeyOf(i)), IsOk());
    before.erase(KeyOf(i));
  }
  const auto update = [&] {
    for (std::uint64_t i = 0; i < 6'000; ++i) {
      const std::string key = KeyOf(i * 7 % 400);
      const Status status = i % 5 == 0 ? database->Remove(key) : database->Set(key, std::string(100 + i % 301, 'b'));
      ASSERT_THAT(status, testing::AnyOf(IsOk(), StatusIs(absl::StatusCode::kNotFound)));
    }
  };
  MemoryFile file;
  int num_writes = 0;
  const auto hook = [&](Access access) {
    if (access == Access::kWrite && ++num_writes == 5) std::async(std::launch::async, update).wait();
  };
  ASSERT_THAT(database->CopyTo(HookedFile(file.Share(), hook)), IsOk());
  ASSERT_GE(num_writes, 5);
  ASSERT_OK_AND_ASSIGN(auto copy, Database::Open(HookedFile(std::move(file), [](Access) {})));
  std::map<std::string, std::string> copied;
  ASSERT_THAT(copy->ProcessEach([&](std::string_view key, std::string_view value) { copied.emplace(key, value); }), IsOk());
  EXPECT_TRUE(copied == before) << copied.size() << " records instead of " << before.size();
  EXPECT_THAT(database->Verify(), IsOk());

  // The blocks kept for the copy are free again: as many updates take no more space.
  const std::uint64_t bytes = database->GetStats().total_bytes;
  update();
  EXPECT_LE(database->GetStats().total_bytes, bytes);
  EXPECT_THAT(database->Verify(), IsOk());
}

// On a mapped file, with pairs of records that are always changed together.
TEST(HashCopyTest, CopyHasAllOrNothingOfAMultiUpdate) {
  using MemoryDatabase = HashDBM<MemoryFile>;
  ASSERT_OK_AND_ASSIGN(auto database, MemoryDatabase::Open(MemoryFile()));
  constexpr std::uint64_t kPairs = 2000;
  const auto set = [&](std::uint64_t i, const std::string& value) {
    const std::string first = "first" + KeyOf(i), second = "second" + KeyOf(i);
    const std::string_view keys[] = {first, second};
    return database->ProcessMulti(keys, [&](std::size_t, std::optional<std::string_view>) { return Action::Set(value); });
  };
  for (std::uint64_t i = 0; i < kPairs; ++i) ASSERT_THAT(set(i, "0"), IsOk());
  std::atomic<bool> is_over = false;
  std::thread writer([&] {
    for (std::uint64_t i = 0; !is_over; ++i) {
      EXPECT_THAT(set(i * 13 % kPairs, std::string(i % 90, 'x') + std::to_string(i)), IsOk());
      if (i % 3 == 0) EXPECT_THAT(database->Synchronize(SyncMode::kHard), IsOk());
    }
  });
  for (int round = 0; round < 10; ++round) {
    MemoryFile file;
    ASSERT_THAT(database->CopyTo(file.Share()), IsOk());
    ASSERT_OK_AND_ASSIGN(auto copy, MemoryDatabase::Open(std::move(file)));
    ASSERT_EQ(copy->Count(), 2 * kPairs);
    for (std::uint64_t i = 0; i < kPairs; ++i) {
      ASSERT_EQ(copy->Get("first" + KeyOf(i)).value(), copy->Get("second" + KeyOf(i)).value()) << i;
    }
    EXPECT_THAT(database->Verify(), IsOk());
  }
  is_over = true;
  writer.join();
  EXPECT_THAT(database->Verify(), IsOk());
}

}  // namespace
}  // namespace hako
