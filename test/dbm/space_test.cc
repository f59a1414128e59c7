// The size of a hash table's file or memory relative to its data: freed space is reused, regardless
// of the sizes.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "dbm/shared_databases.h"
#include "gtest/gtest.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/dbm/tiny_dbm.h"
#include "hako/file/positional_parallel_file.h"
#include "support/random.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

template <class D>
double Ratio(D& db, std::uint64_t payload) {
  return static_cast<double>(db.GetStats().total_bytes) / static_cast<double>(payload);
}

// Appends 8 bytes to each of 1,000 keys, again and again.
template <class D>
void AppendInLockStep(D& db) {
  constexpr std::uint64_t kKeys = 1000, kRounds = 80;
  for (std::uint64_t round = 1; round <= kRounds; ++round) {
    for (std::uint64_t i = 0; i < kKeys; ++i) ASSERT_THAT(db.Append("key" + std::to_string(i), "12345678"), IsOk());
    if (round >= 48 && round % 16 == 0) {
      EXPECT_LE(Ratio(db, kKeys * (8 * round + 6)), 2.0) << "after " << round << " rounds";
    }
  }
  EXPECT_THAT(db.Verify(), IsOk());
}

TEST(SpaceTest, GrowingRecordsReuseTheirSpace) {
  TempDir dir;
  ASSERT_OK_AND_ASSIGN(auto db, HashDBM<>::Open(dir.File("a.hkh")));
  AppendInLockStep(*db);
}

TEST(SpaceTest, GrowingRecordsOfAPositionalFileReuseTheirSpace) {
  TempDir dir;
  ASSERT_OK_AND_ASSIGN(auto db, HashDBM<PositionalParallelFile>::Open(dir.File("a.hkh")));
  AppendInLockStep(*db);
}

TEST(SpaceTest, GrowingRecordsInMemoryReuseTheirSpace) {
  ASSERT_OK_AND_ASSIGN(auto db, TinyDBM<>::Open());
  AppendInLockStep(*db);
}

TEST(SpaceTest, OverwritingLargeValuesKeepsTheFileSmall) {
  TempDir dir;
  ASSERT_OK_AND_ASSIGN(auto db, HashDBM<>::Open(dir.File("a.hkh")));
  const std::string value(1'000'000, 'v');
  for (int i = 0; i < 80; ++i) {
    ASSERT_THAT(db->Set("key" + std::to_string(i % 4), value), IsOk());
    if (i % 2 != 0) {
      ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
    }
  }
  EXPECT_LE(Ratio(*db, 4 * value.size()), 2.0);  // two of them wait for the next synchronization
}

// A large index lies before the records. Close builds a smaller one, and the records move down.
TEST(SpaceTest, CloseAfterRebuildLeavesNoHoleOfTheOldIndex) {
  TempDir dir;
  ASSERT_OK_AND_ASSIGN(auto db, HashDBM<>::Open(dir.File("a.hkh"), {.num_records = 3'000'000}));  // 24 MB of lines
  const std::string value(1000, 'v');
  for (int i = 0; i < 10'000; ++i) ASSERT_THAT(db->Set("key" + std::to_string(i), value), IsOk());
  ASSERT_THAT(db->Rebuild(), IsOk());
  ASSERT_THAT(db->Close(), IsOk());
  EXPECT_LE(std::filesystem::file_size(dir.File("a.hkh")), 14u << 20);
  ASSERT_OK_AND_ASSIGN(db, HashDBM<>::Open(dir.File("a.hkh")));
  EXPECT_EQ(db->Count(), 10'000u);
  EXPECT_THAT(db->Verify(), IsOk());
}

TEST(SpaceTest, MemoryFreedByAThreadIsUsedByAnother) {
  ASSERT_OK_AND_ASSIGN(auto db, TinyDBM<>::Open());
  const std::string value(1'000'000, 'v');
  for (int i = 0; i < 50; ++i) {
    ASSERT_THAT(db->Set("key", value), IsOk());
    std::thread([&] { EXPECT_THAT(db->Remove("key"), IsOk()); }).join();
  }
  EXPECT_LE(Ratio(*db, value.size()), 2.0);
}

TEST(SpaceTest, ShortLivedThreadsLeaveLittleUnusedSpace) {
  TempDir dir;
  std::uint64_t payload = 0;
  for (int run = 0; run < 20; ++run) {
    ASSERT_OK_AND_ASSIGN(auto db, HashDBM<>::Open(dir.File("a.hkh")));
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 50; ++i) {
          const std::string key = std::to_string(run) + "/" + std::to_string(t) + "/" + std::to_string(i);
          EXPECT_THAT(db->Set(key, std::string(100, 'v')), IsOk());
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    payload += 8 * 50 * 107;
    if (run == 19) {
      EXPECT_LE(Ratio(*db, payload), 2.0);
    }
    ASSERT_THAT(db->Close(), IsOk());
  }
}

// Values of 1 byte to 1 MiB are set and removed, and the database is reopened repeatedly.
TEST(SpaceTest, ValuesOfManySizesStayNearTheirFirstSpace) {
  constexpr std::uint64_t kTarget = 16'000'000;
  TempDir dir;
  Random random(1);
  const std::string bytes(1 << 20, 'v');
  std::vector<std::uint64_t> sizes(200, 0);
  std::uint64_t live = 0, most = 0;
  for (int round = 0; round < 40; ++round) {
    ASSERT_OK_AND_ASSIGN(auto db, HashDBM<>::Open(dir.File("a.hkh")));
    for (int i = 0; i < (round == 0 ? 800 : 10); ++i) {
      const std::uint64_t id = random.Below(sizes.size());
      const std::uint64_t size = 1 + random.Below(std::uint64_t{1} << (1 + random.Below(20)));
      const std::string key = "key" + std::to_string(id);
      live -= sizes[id];
      if (live + size <= kTarget) {
        ASSERT_THAT(db->Set(key, std::string_view(bytes).substr(0, size)), IsOk());
        sizes[id] = size;
      } else {
        if (sizes[id] != 0) {
          ASSERT_THAT(db->Remove(key), IsOk());
        }
        sizes[id] = 0;
      }
      live += sizes[id];
      most = std::max(most, live);
    }
    if (round >= 5) {
      EXPECT_LE(Ratio(*db, most), 1.75) << "round " << round;
    }
    ASSERT_THAT(db->Close(), IsOk());
  }
  EXPECT_GT(most, kTarget / 2) << "the test never filled the database";
}

}  // namespace
}  // namespace hako
