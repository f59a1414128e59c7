// Device accesses of a database with direct I/O: one for a record or page that is not cached,
// hardly any for a new one. The file's counters are compared with the system's.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "dbm/listing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/file/positional_parallel_file.h"
#include "support/checked_value.h"
#include "support/status_matchers.h"
#include "support/system_call_counter.h"
#include "support/system_counts.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

using File = PositionalParallelFile;
using Hash = HashDBM<File>;
using Tree = TreeDBM<File>;

class DeviceAccessTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!File::Open(directory_.File("probe"), {.direct = true}).ok()) GTEST_SKIP() << "no direct I/O here";
  }

  // Returns the accesses of `body`, and checks that the system saw at least as many, and few more.
  template <class D, class Body>
  Stats AccessesOf(D& db, Body body) {
    const auto system = SystemCounts::Of(path_);
    const Stats before = db.GetStats();
    body();
    Stats stats = db.GetStats();
    stats.device_reads -= before.device_reads;
    stats.device_writes -= before.device_writes;
    stats.device_read_bytes -= before.device_read_bytes;
    stats.device_written_bytes -= before.device_written_bytes;
    stats.second_reads -= before.second_reads;
    if (const auto now = SystemCounts::Of(path_); system && now) {
      EXPECT_GE(now->read_bytes - system->read_bytes, stats.device_read_bytes);
      if (now->major_faults == system->major_faults) {
        EXPECT_LE(now->read_bytes - system->read_bytes, stats.device_read_bytes + (256 << 10));
      }
    }
    return stats;
  }

  TempDir directory_;
  const std::string path_ = directory_.File("db");
};

// ---- HashDBM ----

constexpr std::uint64_t kRecords = 2000, kValueSize = 4000;

// Eight megabytes of records behind a cache of one megabyte.
FileOptions BehindASmallCache(std::uint64_t block_size) { return {.direct = true, .block_size = block_size, .cache_bytes = 1 << 20}; }

template <class D>
void SetAll(D& db) {
  for (std::uint64_t i = 0; i < kRecords; ++i) ASSERT_THAT(db.Set(NumberedKey(i), CheckedValue(NumberedKey(i), kValueSize)), IsOk());
  ASSERT_THAT(db.Synchronize(SyncMode::kHard), IsOk());
}

// In another order than that of the file.
template <class D>
void GetAll(D& db) {
  std::string value;
  for (std::uint64_t i = 0; i < kRecords; ++i) {
    const std::string key = NumberedKey(i * 773 % kRecords);
    ASSERT_THAT(db.Get(key, &value), IsOk());
    ASSERT_EQ(value.size(), kValueSize);
    ASSERT_TRUE(SaltOf(key, value).has_value());
  }
}

class HashAccessTest : public DeviceAccessTest, public testing::WithParamInterface<std::uint64_t> {};
INSTANTIATE_TEST_SUITE_P(BlockSizes, HashAccessTest, testing::Values(512, 4096), testing::PrintToStringParamName());

TEST_P(HashAccessTest, ReadsARecordInOneAccessAndBatchesWrites) {
  ASSERT_OK_AND_ASSIGN(auto db, Hash::Open(path_, {.seed = 1}, BehindASmallCache(GetParam())));
  const Stats set = AccessesOf(*db, [&] { SetAll(*db); });
  EXPECT_LE(set.device_writes, kRecords / 20);
  EXPECT_GE(set.device_written_bytes, kRecords * kValueSize);
  EXPECT_LE(set.device_reads, kRecords / 100) << "new blocks are not read first";
  for (const bool reopened : {false, true}) {
    SCOPED_TRACE(reopened ? "reopened" : "just written");
    if (reopened) {
      ASSERT_THAT(db->Close(), IsOk());
      ASSERT_OK_AND_ASSIGN(db, Hash::Open(path_, {.seed = 1}, BehindASmallCache(GetParam())));
    }
    const Stats got = AccessesOf(*db, [&] { GetAll(*db); });
    EXPECT_LE(got.device_reads, kRecords * 105 / 100);
    EXPECT_GE(got.device_reads, kRecords * 3 / 4) << "most are not in the cache";
    EXPECT_LE(got.second_reads, kRecords / 100);
    EXPECT_LE(got.device_read_bytes, kRecords * (kValueSize + 2 * std::max<std::uint64_t>(GetParam(), 512)));
  }
  EXPECT_THAT(db->Verify(), IsOk());
}

TEST_F(DeviceAccessTest, WithoutBatchingEachBlockIsAnAccess) {
  ASSERT_OK_AND_ASSIGN(auto file, PositionalParallelFile::OpenUnbatched(path_, BehindASmallCache(512)));
  ASSERT_OK_AND_ASSIGN(auto db, Hash::Open(std::move(file), {.seed = 1}));
  const Stats set = AccessesOf(*db, [&] { SetAll(*db); });
  EXPECT_GE(set.device_writes, kRecords * kValueSize / 512);
  const Stats got = AccessesOf(*db, [&] { GetAll(*db); });
  EXPECT_GE(got.device_reads, kRecords * 8 * 3 / 4) << "a quarter may be in the cache";
  EXPECT_GE(got.device_reads * 512, got.device_read_bytes);
}

TEST_F(DeviceAccessTest, ShortFirstReadCostsASecondRead) {
  ASSERT_OK_AND_ASSIGN(auto db, Hash::Open(path_, {.seed = 1, .min_read_size = 16}, BehindASmallCache(512)));
  SetAll(*db);
  ASSERT_THAT(db->Close(), IsOk());
  ASSERT_OK_AND_ASSIGN(db, Hash::Open(path_, {.min_read_size = 16}, BehindASmallCache(512)));
  std::string value;
  std::uint64_t missed = 0;
  for (std::uint64_t i = 0; i < kRecords; i += 7) {
    const Stats got = AccessesOf(*db, [&] { ASSERT_THAT(db->Get(NumberedKey(i), &value), IsOk()); });
    EXPECT_EQ(got.second_reads, 1u);
    ASSERT_TRUE(got.device_reads == 0 || got.device_reads == 2) << got.device_reads << " for record " << i;
    missed += got.device_reads / 2;
  }
  EXPECT_GE(missed, kRecords / 7 * 3 / 4);
}

// The last keys are cached, so the first ones are read; their records are not adjacent.
std::vector<std::string> SixtyFourKeys() {
  std::vector<std::string> keys;
  for (std::uint64_t i = 0; i < 64; ++i) keys.push_back(NumberedKey(i * 21));
  return keys;
}

TEST_P(HashAccessTest, GetMultiBatchesReads) {
  ASSERT_OK_AND_ASSIGN(auto db, Hash::Open(path_, {.seed = 1}, BehindASmallCache(GetParam())));
  SetAll(*db);
  ASSERT_THAT(db->Close(), IsOk());
  const std::string copy = path_ + ".copy";
  std::filesystem::copy_file(path_, copy);
  ASSERT_OK_AND_ASSIGN(db, Hash::Open(path_, {.seed = 1}, BehindASmallCache(GetParam())));
  ASSERT_THAT(db->Get(NumberedKey(kRecords - 1)).status(), IsOk());  // now it knows how long records are
  const std::vector<std::string> names = SixtyFourKeys();
  const std::vector<std::string_view> keys(names.begin(), names.end());
  const auto get = [&](Hash& from) {
    std::uint64_t count = 0;
    const Status status = from.GetMulti(keys, [&](std::size_t i, std::optional<std::string_view> value) -> void {
      count += value && value->size() == kValueSize && SaltOf(keys[i], *value).has_value();
    });
    return status.ok() ? count : 0;
  };
  // A child process opens a copy: it can use neither a database of its parent nor its ring.
  const std::string other_names[] = {NumberedKey(1), NumberedKey(22)};
  const std::vector<std::string_view> others(std::begin(other_names), std::end(other_names));
  const auto calls_of = [&](auto body) {
    std::optional<std::uint64_t> calls;
    std::thread([&] {
      calls = CountSystemCalls([&](auto mark) {
        FileOptions options = BehindASmallCache(GetParam());
        options.mode = OpenMode::kReadOnly;
        auto opened = Hash::Open(copy, {.seed = 1}, options);
        if (!opened.ok() || !(*opened)->Get(NumberedKey(kRecords - 1)).ok()) _exit(1);
        Hash& own = **opened;
        (void)own.GetMulti(others, [](std::size_t, std::optional<std::string_view>) -> void {});
        mark();
        const bool fine = body(own);
        mark();
        if (!fine) _exit(1);
      });
    }).join();
    return calls;
  };
  const auto together = calls_of([&](Hash& from) { return get(from) == 64; });
  const auto get_each = [&](Hash& from) {
    std::string value;
    for (const std::string_view key : keys) {
      if (!from.Get(key, &value).ok()) return false;
    }
    return true;
  };
  const auto one_by_one = calls_of(get_each);
  const auto prefetched = calls_of([&](Hash& from) {
    from.Prefetch(keys);
    return get_each(from);
  });
  EXPECT_TRUE(db->PrefetchReads());
  if (together) {
    EXPECT_GE(one_by_one, 62u);
    EXPECT_LE(together, 32u);
    EXPECT_LE(prefetched, 32u);
  }
  const Stats got = AccessesOf(*db, [&] { EXPECT_EQ(get(*db), 64u); });
  EXPECT_LE(got.device_reads, 64u);
  EXPECT_GE(got.device_reads, 60u) << "they were not in the cache";
  EXPECT_EQ(got.second_reads, 0u);
  if (!together) GTEST_SKIP() << "this process may not trace another";
}

TEST_P(HashAccessTest, PrefetchReadsRecordsIntoTheCache) {
  ASSERT_OK_AND_ASSIGN(auto db, Hash::Open(path_, {.seed = 1}, BehindASmallCache(GetParam())));
  SetAll(*db);
  ASSERT_THAT(db->Close(), IsOk());
  ASSERT_OK_AND_ASSIGN(db, Hash::Open(path_, {.seed = 1}, BehindASmallCache(GetParam())));
  EXPECT_TRUE(db->PrefetchReads());
  ASSERT_THAT(db->Get(NumberedKey(kRecords - 1)).status(), IsOk());  // now it knows how long records are
  const std::vector<std::string> names = SixtyFourKeys();
  const std::vector<std::string_view> keys(names.begin(), names.end());
  const Stats prefetched = AccessesOf(*db, [&] { db->Prefetch(keys); });
  EXPECT_LE(prefetched.device_reads, 64u);
  EXPECT_GE(prefetched.device_reads, 55u) << "at most a quarter of the cache, or 60 records, and few of them were there";
  const Stats got = AccessesOf(*db, [&] {
    for (const std::string_view key : keys) EXPECT_THAT(db->Get(key).status(), IsOk());
  });
  EXPECT_LE(got.device_reads, 64 - prefetched.device_reads);
  std::vector<std::string> all_names;
  for (std::uint64_t i = 0; i < kRecords; ++i) all_names.push_back(NumberedKey(i));
  const std::vector<std::string_view> all(all_names.begin(), all_names.end());
  EXPECT_LE(AccessesOf(*db, [&] { db->Prefetch(all); }).device_reads, 64u) << "more would replace each other in the cache";
}

// The system may see fewer reads: allocated space that was never written is not read from the
// device.
TEST_P(HashAccessTest, ProcessEachReadsTheFileByLongReads) {
  ASSERT_OK_AND_ASSIGN(auto db, Hash::Open(path_, {.seed = 1}, BehindASmallCache(GetParam())));
  SetAll(*db);
  const std::uint64_t mebibytes = db->GetStats().total_bytes >> 20;
  for (const bool beside_writers : {false, true}) {
    std::uint64_t count = 0, updates = 0;
    const Stats before = db->GetStats();
    ASSERT_THAT(db->ProcessEach([&](std::string_view key, std::string_view) {
      if (++count % 100 != 0 || !beside_writers) return;
      ASSERT_THAT(db->Set(key, "short"), IsOk());
      ++updates;
    }),
                IsOk());
    const Stats after = db->GetStats();
    EXPECT_EQ(count, kRecords);
    EXPECT_GE(after.device_read_bytes - before.device_read_bytes, kRecords * kValueSize);
    EXPECT_LE(after.device_read_bytes - before.device_read_bytes, (mebibytes + 2) << 20);
    EXPECT_LE(after.device_reads - before.device_reads, mebibytes + 4 + 2 * updates);
  }
}

TEST_F(DeviceAccessTest, OpenReadsOnlyTheIndex) {
  constexpr std::uint64_t kMany = 50'000;
  const FileOptions file_options = {.direct = true, .cache_bytes = 1 << 20};
  ASSERT_OK_AND_ASSIGN(auto db, Hash::Open(path_, {}, file_options));
  for (std::uint64_t i = 0; i < kMany; ++i) ASSERT_THAT(db->Set(NumberedKey(i), CheckedValue(NumberedKey(i), 100)), IsOk());
  ASSERT_THAT(db->Close(), IsOk());
  const auto size = static_cast<std::uint64_t>(StatOf(path_).st_size);
  for (const OpenMode mode : {OpenMode::kReadOnly, OpenMode::kReadWrite}) {
    FileOptions again = file_options;
    again.mode = mode;
    ASSERT_OK_AND_ASSIGN(db, Hash::Open(path_, {}, again));
    const Stats stats = db->GetStats();
    EXPECT_EQ(db->Count(), kMany);
    EXPECT_GE(stats.device_read_bytes, stats.index_bytes);
    EXPECT_LE(stats.device_read_bytes, stats.index_bytes + (64 << 10));
    EXPECT_LE(stats.device_read_bytes, size / 4);
    EXPECT_LE(stats.device_reads, 40u);
    RecordProperty("read_bytes", std::to_string(stats.device_read_bytes) + " of " + std::to_string(size));
    ASSERT_THAT(db->Get(NumberedKey(777)), IsOkAndHolds(CheckedValue(NumberedKey(777), 100)));
    ASSERT_THAT(db->Close(), IsOk());
  }
}

// The file of a process that did not close it.
TEST_P(HashAccessTest, RecoveryReadsTheFileOnceByLongReads) {
  const std::string left = directory_.File("left");
  std::uint64_t mebibytes = 0;
  {
    ASSERT_OK_AND_ASSIGN(auto db, Hash::Open(path_, {.seed = 1, .durability = Durability::kNone}, BehindASmallCache(GetParam())));
    SetAll(*db);
    mebibytes = (db->GetStats().total_bytes >> 20) + 1;
    std::filesystem::copy_file(path_, left);
  }
  for (const OpenMode mode : {OpenMode::kReadOnly, OpenMode::kReadWrite}) {
    FileOptions file_options = BehindASmallCache(GetParam());
    file_options.mode = mode;
    ASSERT_OK_AND_ASSIGN(auto db, Hash::Open(left, {}, file_options));
    const Stats stats = db->GetStats();
    EXPECT_EQ(db->Count(), kRecords);
    EXPECT_LE(stats.device_read_bytes, (mebibytes << 20) + (128 << 10));
    EXPECT_LE(stats.device_reads, 2 * mebibytes + 20);
    EXPECT_THAT(db->Verify(), IsOk());
  }
}

// ---- TreeDBM ----

constexpr std::uint64_t kLeafRecords = 20'000, kLeafValue = 400;

std::uint64_t NumberIn(const Inspection& inspection, std::string_view name) {
  for (const auto& [key, value] : inspection) {
    if (key == name) return std::stoull(value);
  }
  ADD_FAILURE() << "no " << name;
  return 0;
}

// Pages of about 4 KiB. The tree's cache holds a small part of them, the file's cache none.
class TreeAccessTest : public DeviceAccessTest {
 protected:
  static constexpr FileOptions kFile = {.direct = true, .block_size = 1024, .cache_bytes = 0};
  const TreeOptions kTree = {.page_size = 4060, .cache_bytes = 2 << 20};

  // The number of device reads, and of images of pages and long values, for a look-up of every key.
  struct Reads {
    std::uint64_t device, images;
  };
  Reads ReadAll() {
    auto opened = Tree::Open(path_, kTree, kFile);
    EXPECT_THAT(opened, IsOk());
    if (!opened.ok()) return {};
    auto& db = **opened;
    const std::uint64_t before = NumberIn(db.Inspect(), "file_reads");
    const Stats got = AccessesOf(db, [&] {
      std::string value;
      for (std::uint64_t i = 0; i < kLeafRecords; i += 3) {
        const std::string key = NumberedKey(i * 7919 % kLeafRecords);
        ASSERT_THAT(db.Get(key, &value), IsOk());
        ASSERT_TRUE(SaltOf(key, value).has_value());
      }
    });
    return {got.device_reads, NumberIn(db.Inspect(), "file_reads") - before};
  }
};

TEST_F(TreeAccessTest, ReadsAPageInOneAccess) {
  {
    ASSERT_OK_AND_ASSIGN(auto db, Tree::Open(path_, kTree, kFile));
    const Stats set = AccessesOf(*db, [&] {
      for (std::uint64_t i = 0; i < kLeafRecords; ++i) {
        const std::string key = NumberedKey(i * 7919 % kLeafRecords);
        ASSERT_THAT(db->Set(key, CheckedValue(key, kLeafValue)), IsOk());
      }
      ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
    });
    EXPECT_GT(set.device_written_bytes, kLeafRecords * kLeafValue);
    ASSERT_THAT(db->Close(), IsOk());
  }
  const Reads whole = ReadAll();
  EXPECT_GE(whole.images, kLeafRecords / 6) << "most pages are not in the cache";
  EXPECT_LE(whole.device, whole.images * 105 / 100);
}

}  // namespace
}  // namespace hako
