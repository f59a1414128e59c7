// Durable updates of a TreeDBM beside its long operations continue even if the operation waits for
// a slow device.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "dbm/shared_databases.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/file/memory_file.h"
#include "support/hooked_file.h"
#include "support/status_matchers.h"

namespace hako {
namespace {

constexpr std::uint64_t kRecords = 2000;
using Database = TreeDBM<HookedFile>;

std::string KeyOf(std::uint64_t i) { return std::to_string(10'000 + i); }

// A database of some megabytes, and a thread that makes durable Sets.
class TreeMaintenance : public testing::Test {
 protected:
  void SetUp() override {
    auto db = Database::Open(HookedFile(MemoryFile(), Hook()));
    ASSERT_THAT(db, IsOk());
    db_ = *std::move(db);
    for (std::uint64_t i = 0; i < kRecords; ++i) ASSERT_THAT(db_->Set(KeyOf(i), std::string(1000, 'v')), IsOk());
    ASSERT_THAT(db_->Synchronize(SyncMode::kHard), IsOk());
    setter_ = std::thread([this] {
      for (std::uint64_t i = 0; !is_over_; ++i, ++num_sets_) {
        EXPECT_THAT(db_->Set(KeyOf(i % kRecords), "durable", {.durability = Durability::kPower}), IsOk());
      }
    });
  }
  void TearDown() override {
    is_over_ = true;
    setter_.join();
    EXPECT_FALSE(has_stalled_) << "a durable Set waited for the operation";
    EXPECT_THAT(db_->Close(), IsOk());
  }

  // Each of the first reads by the thread that called Begin waits for two more durable Sets. (Its
  // writes are those of checkpoints.)
  HookedFile::Hook Hook() {
    return [this](Access access) {
      if (access == Access::kRead && std::this_thread::get_id() == operator_.load()) on_read_();
    };
  }
  void WaitForSets() {
    if (num_waits_ == 20) return;
    ++num_waits_;
    const std::uint64_t until = num_sets_ + 2;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (num_sets_ < until && !has_stalled_) {
      if (std::chrono::steady_clock::now() > deadline) has_stalled_ = true;
      std::this_thread::yield();
    }
  }
  void Begin() { operator_ = std::this_thread::get_id(); }
  void End() { operator_ = std::thread::id(); }

  std::function<void()> on_read_ = [this] { WaitForSets(); };
  std::unique_ptr<Database> db_;
  std::thread setter_;
  std::atomic<std::thread::id> operator_;
  std::atomic<bool> is_over_{false}, has_stalled_{false};
  std::atomic<std::uint64_t> num_sets_{0};
  std::atomic<int> num_waits_{0};
};

TEST_F(TreeMaintenance, DurableSetsContinueDuringCopyTo) {
  MemoryFile copy;
  HookedFile target(copy.Share(), [this](Access) { WaitForSets(); });
  EXPECT_THAT(db_->CopyTo(std::move(target)), IsOk());
  EXPECT_GT(num_waits_, 3);
  auto copied = Database::Open(HookedFile(std::move(copy), [](Access) {}));
  ASSERT_THAT(copied, IsOk());
  EXPECT_EQ((*copied)->Count(), kRecords);
  EXPECT_THAT((*copied)->Verify(), IsOk());
}

TEST_F(TreeMaintenance, DurableSetsContinueDuringVerify) {
  Begin();
  EXPECT_THAT(db_->Verify(), IsOk());
  EXPECT_GT(num_waits_, 3);
}

TEST_F(TreeMaintenance, DurableSetsContinueWhileAVisitorReadsALongValue) {
  ASSERT_THAT(db_->Set("long", std::string(100'000, 'v')), IsOk());
  ASSERT_THAT(db_->Synchronize(SyncMode::kHard), IsOk());
  std::size_t size = 0;
  Begin();
  EXPECT_THAT(db_->Get("long", [&size](std::string_view value) { size = value.size(); }), IsOk());
  EXPECT_EQ(size, 100'000u);
  EXPECT_GT(num_waits_, 0);
}

// Rebuild moves pages in steps, and lets waiting checkpoints run between steps.
TEST_F(TreeMaintenance, DurableSetsContinueDuringRebuild) {
  std::uint64_t first = 0, last = 0;  // how many durable Sets there were when Rebuild read the first page and the last one
  on_read_ = [&, num_reads = 0]() mutable {
    if (++num_reads % 30 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));  // then the next Set waits for a checkpoint
    last = num_sets_;
    if (first == 0) first = last;
  };
  // On a busy machine the next Set may come too late.
  for (int attempt = 0; attempt < 10 && last < first + 3; ++attempt) {
    for (std::uint64_t i = kRecords; i < 4 * kRecords; ++i) ASSERT_THAT(db_->Set(KeyOf(i), std::string(1000, 'v')), IsOk());
    ASSERT_THAT(db_->RemoveRange(KeyOf(kRecords), KeyOf(2 * kRecords)), IsOk());
    ASSERT_THAT(db_->Synchronize(SyncMode::kHard), IsOk());
    first = last = 0;
    Begin();
    EXPECT_THAT(db_->Rebuild(), IsOk());
    End();
  }
  EXPECT_GE(last, first + 3);
}

}  // namespace
}  // namespace hako
