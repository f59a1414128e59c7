// A HashDBM that is not synchronized by its users synchronizes itself when replaced records take
// much of the file.
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "dbm/shared_databases.h"
#include "gtest/gtest.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/file/positional_parallel_file.h"
#include "support/child_process.h"
#include "support/random.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"
#include "support/thread_count.h"

namespace hako {
namespace {

constexpr std::uint64_t kBound = 1 << 20;
constexpr std::uint64_t kKeys = 400, kValue = 20'000;  // 8 MB, so that an eighth is about the bound

std::string KeyOf(std::uint64_t i) { return "key" + std::to_string(i); }

// Waits until fewer bytes wait than start a synchronization.
template <class D>
void AwaitReclaim(D& db) {
  while (db.GetStats().waiting_bytes >= 2 * kBound) std::this_thread::yield();
}

// Sets all keys. The first 8 bytes of the values are numbers that continue from `*n`.
template <class D>
bool SetAll(D& db, std::uint64_t* n, bool awaits) {
  std::string value(kValue, 'v');
  for (std::uint64_t i = 0; i < kKeys; ++i) {
    value.replace(0, 8, std::to_string(10'000'000 + (*n)++));
    if (!db.Set(KeyOf(i), value).ok()) return false;
    if (awaits && i % 10 == 0) AwaitReclaim(db);
  }
  return true;
}

template <class D>
void RewriteWithoutSynchronize(std::uint64_t reclaim_bytes, Stats* stats) {
  TempDir dir;
  ASSERT_OK_AND_ASSIGN(auto db, D::Open(dir.File("a.hkh"), {.reclaim_bytes = reclaim_bytes}));
  std::uint64_t n = 0;
  ASSERT_TRUE(SetAll(*db, &n, false));
  ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
  for (int round = 0; round < 4; ++round) ASSERT_TRUE(SetAll(*db, &n, reclaim_bytes != 0));
  *stats = db->GetStats();
  EXPECT_THAT(db->Verify(), IsOk());
  EXPECT_THAT(db->Close(), IsOk());
}

TEST(ReclaimTest, SpaceOfReplacedRecordsIsReusedWithoutSynchronize) {
  Stats stats;
  RewriteWithoutSynchronize<HashDBM<>>(kBound, &stats);
  EXPECT_GT(stats.own_syncs, 0u);
  EXPECT_LE(stats.total_bytes, kKeys * kValue * 7 / 4);
}

TEST(ReclaimTest, SpaceOfReplacedRecordsOfAPositionalFileIsReusedWithoutSynchronize) {
  Stats stats;
  RewriteWithoutSynchronize<HashDBM<PositionalParallelFile>>(kBound, &stats);
  EXPECT_GT(stats.own_syncs, 0u);
  EXPECT_LE(stats.total_bytes, kKeys * kValue * 7 / 4);
}

TEST(ReclaimTest, ReplacedRecordsWaitForSynchronizeIfDisabled) {
  Stats stats;
  RewriteWithoutSynchronize<HashDBM<>>(0, &stats);
  EXPECT_EQ(stats.own_syncs, 0u);
  EXPECT_GE(stats.waiting_bytes, kKeys * kValue);
  EXPECT_GE(stats.total_bytes, 2 * kKeys * kValue);
}

TEST(ReclaimTest, StartsItsThreadOnlyWhenMuchWaits) {
  std::thread([] {}).join();  // with the first thread, ThreadSanitizer starts one more
  TempDir dir;
  const std::uint64_t num_threads = NumThreads();
  ASSERT_OK_AND_ASSIGN(auto db, HashDBM<>::Open(dir.File("a.hkh"), {.reclaim_bytes = kBound}));
  std::uint64_t n = 0;
  ASSERT_TRUE(SetAll(*db, &n, false));
  ASSERT_TRUE(SetAll(*db, &n, false));  // of a new file nothing waits
  EXPECT_EQ(db->GetStats().waiting_bytes, 0u);
  EXPECT_EQ(NumThreads(), num_threads);
  ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
  EXPECT_EQ(NumThreads(), num_threads);
  ASSERT_TRUE(SetAll(*db, &n, true));
  EXPECT_EQ(NumThreads(), num_threads + 1);
  EXPECT_THAT(db->Close(), IsOk());
  EXPECT_EQ(NumThreads(), num_threads);
}

// A positional file has the same state after a kill as a mapped one after a power cut.
TEST(ReclaimTest, CrashShowsTheStateOfABackgroundSynchronization) {
  TempDir dir;
  const std::string path = dir.File("a.hkh");
  using D = HashDBM<PositionalParallelFile>;
  ChildProcess child([&](ChildProcess&) {
    auto db = D::Open(path, {.reclaim_bytes = kBound});
    std::uint64_t n = 0;
    const bool ok = db.ok() && SetAll(**db, &n, false) && (*db)->Synchronize(SyncMode::kHard).ok() && SetAll(**db, &n, true);
    return !ok ? 1 : (*db)->GetStats().own_syncs == 0 ? 2 : kill(getpid(), SIGKILL);
  });
  ASSERT_EQ(child.Result(), -1 - SIGKILL);
  ASSERT_OK_AND_ASSIGN(auto db, D::Open(path));
  EXPECT_EQ(db->Count(), kKeys);
  // Of the first m keys the second value, of the others the first one.
  std::uint64_t m = 0;
  std::string value;
  for (std::uint64_t i = 0; i < kKeys; ++i) {
    ASSERT_THAT(db->Get(KeyOf(i), &value), IsOk());
    const std::uint64_t number = std::stoull(value.substr(0, 8)) - 10'000'000;
    ASSERT_TRUE(number == i || (number == kKeys + i && m == i)) << number << " at " << i;
    m += number == kKeys + i;
  }
  EXPECT_GT(m, 0u);
}

TEST(ReclaimTest, RunsBesideUpdatesMaintenanceAndClose) {
  TempDir dir;
  for (int round = 0; round < 3; ++round) {
    ASSERT_OK_AND_ASSIGN(auto db, HashDBM<>::Open(dir.File("a.hkh"), {.reclaim_bytes = 1}));
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        Random random(t + 1);
        const std::string bytes(kValue, 'v');
        for (int i = 0; i < 1000; ++i) {
          const std::string key = KeyOf(random.Below(100));
          const Status status = random.OneIn(4) ? db->Remove(key) : db->Set(key, std::string_view(bytes).substr(0, random.Below(kValue)));
          EXPECT_TRUE(status.ok() || absl::IsNotFound(status)) << status;
        }
      });
    }
    EXPECT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
    EXPECT_THAT(db->Rebuild(), IsOk());
    EXPECT_THAT(db->Clear(), IsOk());
    EXPECT_THAT(db->Verify(), IsOk());
    EXPECT_THAT(db->CopyTo(dir.File("b.hkh")), IsOk());
    for (std::thread& thread : threads) thread.join();
    EXPECT_THAT(db->Close(), IsOk());
  }
  ASSERT_OK_AND_ASSIGN(auto db, HashDBM<>::Open(dir.File("a.hkh")));
  EXPECT_THAT(db->Verify(), IsOk());
}

}  // namespace
}  // namespace hako
