// Scans of a TreeDBM whose pages are not in memory use read-ahead threads.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "dbm/shared_databases.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/file/memory_file.h"
#include "support/hooked_file.h"
#include "support/status_matchers.h"
#include "support/thread_count.h"

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
  // read takes. Where others read at all, they get much longer, as they may wait for a processor.
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
                                          const int before = num_others_, most = before > 0 ? 1000 : 20;
                                          for (int i = 0; i < most && num_others_ == before; ++i)
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
  auto db = Open({.cache_bytes = 64 << 20});
  for (std::uint64_t i = 0; i < kRecords; ++i) ASSERT_THAT(db->Get(KeyOf(i)), IsOk());  // one by one
  const std::uint64_t before = NumThreads();
  auto it = db->MakeIterator();
  for (it.First(); it.Valid(); it.Next()) {
  }
  EXPECT_THAT(db->CountRange(""), IsOkAndHolds(kRecords));
  EXPECT_EQ(NumThreads(), before);
}

// Most scans are short: a thread that is woken for one costs more than the reads it saves, and
// pages far ahead are read in vain.
TEST_F(TreeReadAhead, ShortScansStartNoThreadAndReadFewPagesBeyondTheirEnd) {
  waits_ = false;
  auto db = Open({});
  const std::uint64_t before = NumThreads(), records_per_leaf = kRecords / NumLeaves(*db);
  std::uint64_t bytes_read = db->GetStats().device_read_bytes;
  const auto scan_leaves = [&](std::uint64_t from, std::uint64_t leaves) {
    auto it = db->MakeIterator();
    it.Jump(KeyOf(from));
    for (std::uint64_t i = 0; i < leaves * records_per_leaf && it.Valid(); ++i) it.Next();
    EXPECT_TRUE(it.Valid());
    return db->GetStats().device_read_bytes - std::exchange(bytes_read, db->GetStats().device_read_bytes);
  };
  const std::uint64_t leaf_bytes = 8192;
  scan_leaves(0, 1);  // inner pages
  for (std::uint64_t leaves = 2, from = 200; leaves <= 10; from += 160, ++leaves) {
    const std::uint64_t read = scan_leaves(from, leaves);
    EXPECT_GT(read, (leaves - 2) * leaf_bytes * 3 / 4) << leaves;
    EXPECT_LE(read, 2 * (leaves + 2) * leaf_bytes) << leaves;  // it may begin and end within leaves
    EXPECT_EQ(scan_leaves(from, leaves), 0) << leaves;         // what was read stays cached
  }
  EXPECT_EQ(num_others_, 0);
  EXPECT_EQ(NumThreads(), before);
}

// Only pages that have to be read count as a reason to read ahead.
TEST_F(TreeReadAhead, CachedPartsOfALongScanWakeNoThread) {
  waits_ = false;
  auto db = Open({.cache_bytes = 64 << 20});
  for (std::uint64_t i = 0; i < kRecords; ++i) {
    if (i % 200 < 20) continue;
    ASSERT_THAT(db->Get(KeyOf(i)), IsOk());
  }
  const std::uint64_t before = NumThreads();
  auto it = db->MakeIterator();
  it.Jump(KeyOf(0));
  for (int i = 0; i < 1000; ++i) it.Next();
  EXPECT_TRUE(it.Valid());
  EXPECT_EQ(num_others_, 0);
  EXPECT_EQ(NumThreads(), before);
}

}  // namespace
}  // namespace hako
