// Scans of a TreeDBM whose pages are not in memory use read-ahead threads.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

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

class TreeReadAhead : public testing::Test {
 protected:
  void SetUp() override {
    auto db = Open({});
    for (std::uint64_t i = 0; i < kRecords; ++i) ASSERT_THAT(db->Set(KeyOf(i), std::string(1000, 'v')), IsOk());
    ASSERT_THAT(db->Close(), IsOk());
    num_own_ = 0;
    num_others_ = 0;
  }

  static std::string KeyOf(std::uint64_t i) { return std::to_string(10'000 + i); }

  // A read of this thread takes until another thread has also read, or a little longer than such a
  // read takes.
  std::unique_ptr<Database> Open(const TreeOptions& options) {
    auto db = Database::Open(HookedFile(device_.Share(),
                                        [this, scanner = std::this_thread::get_id()](Access access) {
                                          if (access != Access::kRead) return;
                                          if (std::this_thread::get_id() != scanner) {
                                            ++num_others_;
                                            return;
                                          }
                                          ++num_own_;
                                          if (!waits_) return;
                                          for (int i = 0, before = num_others_; i < 20 && num_others_ == before; ++i)
                                            std::this_thread::sleep_for(std::chrono::microseconds(500));
                                        }),
                             options);
    EXPECT_THAT(db, IsOk());
    return *std::move(db);
  }
  static std::uint64_t NumLeaves(Database& db) { return db.GetStats().num_buckets; }

  MemoryFile device_;
  std::atomic<int> num_own_{0}, num_others_{0};
  std::atomic<bool> waits_{true};
};

TEST_F(TreeReadAhead, IteratorsReadAhead) {
  auto db = Open({});
  std::uint64_t count = 0;
  auto it = db->MakeIterator();
  for (it.First(); it.Valid(); it.Next()) ++count;
  EXPECT_EQ(count, kRecords);
  EXPECT_LT(num_own_, NumLeaves(*db) / 2);
}

TEST_F(TreeReadAhead, CountRangeReadsAhead) {
  auto db = Open({});
  EXPECT_THAT(db->CountRange(KeyOf(1)), IsOkAndHolds(kRecords - 1));
  EXPECT_LT(num_own_, NumLeaves(*db) / 2);
}

TEST_F(TreeReadAhead, RemoveRangeReadsAhead) {
  auto db = Open({});
  const std::uint64_t num_leaves = NumLeaves(*db);
  EXPECT_THAT(db->RemoveRange(KeyOf(1)), IsOkAndHolds(kRecords - 1));
  EXPECT_LT(num_own_, num_leaves / 2);
  EXPECT_THAT(db->Verify(), IsOk());
}

TEST_F(TreeReadAhead, StartsNoThreadIfAllPagesAreInMemory) {
  waits_ = false;
  const auto num_threads = [] {
    std::uint64_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) count += entry.exists() ? 1 : 0;
    return count;
  };
  auto db = Open({.cache_bytes = 64 << 20});
  for (std::uint64_t i = 0; i < kRecords; ++i) ASSERT_THAT(db->Get(KeyOf(i)), IsOk());  // one by one
  const std::uint64_t before = num_threads();
  auto it = db->MakeIterator();
  for (it.First(); it.Valid(); it.Next()) {
  }
  EXPECT_THAT(db->CountRange(""), IsOkAndHolds(kRecords));
  EXPECT_EQ(num_threads(), before);
}

}  // namespace
}  // namespace hako
