// TreeDBM's own tests: its options, values stored out of line, eviction, checkpoints, the file's
// space. The suites that it shares with others are instantiated in tree_conformance_test.cc and
// tree_order_conformance_test.cc.
#include "hako/dbm/tree_dbm.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "dbm/listing.h"
#include "dbm/surroundings.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/base/comparator.h"
#include "hako/file/memory_file.h"
#include "hako/file/memory_map_parallel_file.h"
#include "support/checked_value.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"
#include "support/threads.h"

namespace hako {
namespace {

using InMemory = TreeDBM<MemoryFile>;
constexpr std::uint64_t kMiB = 1 << 20;

MemoryFile LargeFile() { return MemoryFile(std::uint64_t{4} << 30); }

template <class D>
std::uint64_t Property(D& db, std::string_view name) {
  for (const auto& [key, text] : db.Inspect()) {
    if (key == name) return std::stoull(text);
  }
  ADD_FAILURE() << "no property " << name;
  return 0;
}

struct BackwardComparator {
  static constexpr std::string_view kName = "backward";
  static int Compare(std::string_view a, std::string_view b) { return b.compare(a); }
};

TEST(TreeDBM, RefusesAnotherOrder) {
  TempDir directory;
  const std::string path = directory.File("casket.hkt");
  using Backward = TreeDBM<MemoryMapParallelFile, BackwardComparator>;
  ASSERT_OK_AND_ASSIGN(auto db, Backward::Open(path));
  for (const char* key : {"a", "b", "c"}) ASSERT_THAT(db->Set(key, "value"), IsOk());
  EXPECT_THAT(db->Inspect(), testing::Contains(testing::Pair("comparator", "backward")));
  ASSERT_THAT(db->Close(), IsOk());
  EXPECT_THAT(TreeDBM<>::Open(path),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       testing::AllOf(testing::HasSubstr(path), testing::HasSubstr("\"backward\", not \"bytewise\""))));
  ASSERT_OK_AND_ASSIGN(db, Backward::Open(path));
  EXPECT_THAT(ListByIterator(*db).order, testing::ElementsAre("c", "b", "a"));
  EXPECT_THAT(db->Verify(), IsOk());
  EXPECT_THAT(db->Close(), IsOk());
}

TEST(TreeDBM, RefusesInvalidOptions) {
  MemoryFile file;
  const auto refuses = [](const char* option) {
    return StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr(std::string(option) + " must be"));
  };
  for (const unsigned page_size : {0u, 127u, 8193u})
    EXPECT_THAT(InMemory::Open(file.Share(), {.page_size = page_size}), refuses("TreeOptions::page_size")) << page_size;
  for (const std::uint64_t cache_bytes : {std::uint64_t{0}, kMiB - 1})
    EXPECT_THAT(InMemory::Open(file.Share(), {.cache_bytes = cache_bytes}), refuses("cache_bytes")) << cache_bytes;
  EXPECT_EQ(file.Size(), 0u) << "a refused option leaves nothing behind";
}

TEST(TreeDBM, KeepsThePageSizeSetAtCreation) {
  MemoryFile file;
  const auto pages_of = [&](unsigned page_size, std::uint64_t first) {
    auto db = InMemory::Open(file.Share(), {.page_size = page_size});
    EXPECT_THAT(db, IsOk());
    const std::uint64_t before = (*db)->GetStats().num_buckets;
    for (std::uint64_t i = first; i < first + 1000; ++i) EXPECT_THAT((*db)->Set(NumberedKey(i), NumberedKey(i)), IsOk());
    const std::uint64_t after = (*db)->GetStats().num_buckets;
    EXPECT_THAT((*db)->Close(), IsOk());
    return after - before;
  };
  const std::uint64_t pages = pages_of(256, 0);
  EXPECT_GE(pages, 50u);
  EXPECT_GE(pages_of(8192, 1000), 50u);
}

// Values from the longest that is stored in a page to the longest common ones, in every operation.
class TreeLongValues : public testing::TestWithParam<unsigned> {
 protected:
  TreeOptions Options() const { return {.page_size = GetParam(), .cache_bytes = kSmallestCache}; }
  void Open() {
    db_.reset();
    ASSERT_OK_AND_ASSIGN(db_, InMemory::Open(file_.Share(), Options()));
  }
  void Reopen() {
    ASSERT_THAT(db_->Verify(), IsOk());
    ASSERT_THAT(db_->Close(), IsOk());
    Open();
  }
  void ExpectHolds(const Records& records) {
    EXPECT_EQ(db_->Count(), records.size());
    EXPECT_EQ(Difference(records, ListByIterator(*db_).records), "none");
    std::string value;
    for (const auto& [key, expected] : records) {
      EXPECT_THAT(db_->Get(key, &value), IsOk());
      EXPECT_TRUE(value == expected) << key;
      EXPECT_THAT(db_->GetSize(key), IsOkAndHolds(expected.size()));
    }
  }

  MemoryFile file_ = LargeFile();
  std::unique_ptr<InMemory> db_;
};
INSTANTIATE_TEST_SUITE_P(PageSize, TreeLongValues, testing::Values(128u, 1000u, 8192u));

TEST_P(TreeLongValues, SetOverwrittenAndRemoved) {
  Open();
  const std::size_t longest_in_a_page = GetParam() / 4;
  std::vector<std::size_t> sizes = {
      longest_in_a_page - 1, longest_in_a_page, longest_in_a_page + 1, 2047,   2048, 2049, 511, 512, 513, 16 << 10,
      (1 << 20) - 1,         1 << 20,           (1 << 20) + 1,         3 << 20};
  Records records;
  for (std::uint64_t round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const std::string key = NumberedKey(i);
      records[key] = CheckedValue(key, sizes[(i + round * 5) % sizes.size()], round);
      ASSERT_THAT(db_->Set(key, records[key]), IsOk());
      if (i % 4 == 3) {
        ASSERT_THAT(db_->Synchronize(SyncMode::kHard), IsOk());
      }
    }
    ExpectHolds(records);
    Reopen();
    ExpectHolds(records);
    const std::string victim = NumberedKey(round * 3), grown = NumberedKey(round * 3 + 1);
    ASSERT_THAT(db_->Remove(victim), IsOk());
    records.erase(victim);
    ASSERT_THAT(db_->Append(grown, "tail"), IsOk());
    records[grown] += "tail";
    ExpectHolds(records);
  }
  for (const auto& [key, value] : records) ASSERT_THAT(db_->Remove(key), IsOk());
  Reopen();
  ExpectHolds({});
  ASSERT_THAT(db_->Rebuild(), IsOk());
  EXPECT_LE(file_.Size(), 512u << 10) << "their space is free again";
}

TEST_P(TreeLongValues, ClearedWithEvictedPages) {
  Open();
  Records records;
  for (std::uint64_t round = 0; round < 3; ++round) {
    for (std::uint64_t i = 0; i < 5000; ++i) {
      const std::string key = NumberedKey(i);
      records[key] = CheckedValue(key, i % 100 == 7 ? 20'000 : 100 + i % 50, round);
      ASSERT_THAT(db_->Set(key, records[key]), IsOk());
    }
    if (round == 1) {
      ASSERT_NO_FATAL_FAILURE(Reopen());
    }
    ASSERT_THAT(db_->Clear(), IsOk());
    records.clear();
    EXPECT_EQ(db_->Count(), 0u);
    records["after"] = CheckedValue("after", 5000, round);
    ASSERT_THAT(db_->Set("after", records["after"]), IsOk());
    ExpectHolds(records);
    Reopen();
    ExpectHolds(records);
  }
  ASSERT_THAT(db_->Rebuild(), IsOk());
  EXPECT_LE(file_.Size(), 1u << 20) << "the space of what was cleared is free again";
  EXPECT_THAT(db_->Verify(), IsOk());
}

TEST_P(TreeLongValues, ConcurrentReadersSeeThemWhole) {
  Open();
  constexpr std::uint64_t kKeys = 20;
  std::atomic<int> writing = 2, mishaps = 0;
  const auto set = [&](std::uint64_t number, std::uint64_t salt) {
    const std::string key = NumberedKey(number);
    const std::size_t size = salt % 7 == 0 ? 10 : 2000 + salt % 13 * 3001;
    mishaps += !db_->Set(key, CheckedValue(key, size, salt)).ok();
  };
  for (std::uint64_t i = 0; i < kKeys; ++i) set(i, i);
  RunThreads(5, [&](int thread) {
    Random random(TestSeed() + static_cast<std::uint64_t>(thread));
    std::string value;
    if (thread < 2) {
      for (std::uint64_t i = 0; i < 1500 / kSlowdown; ++i) {
        const std::uint64_t number = random.Below(kKeys / 2) * 2 + static_cast<std::uint64_t>(thread);
        if (random.OneIn(8)) mishaps += !db_->Remove(NumberedKey(number)).ok();
        set(number, random.Next());
        if (random.OneIn(50)) mishaps += !db_->Synchronize(SyncMode::kHard).ok();
      }
      --writing;
      return;
    }
    while (writing > 0) {
      if (thread == 2) {
        auto it = db_->MakeIterator();
        for (it.First(); it.Valid(); it.Next()) mishaps += !SaltOf(it.key(), it.value());
        mishaps += !it.status().ok();
        continue;
      }
      const std::string key = NumberedKey(random.Below(kKeys));
      const Status status = db_->Get(key, &value);
      mishaps += status.ok() ? !SaltOf(key, value) : !absl::IsNotFound(status);
    }
  });
  EXPECT_EQ(mishaps, 0);
  Reopen();
  EXPECT_EQ(db_->Count(), kKeys);
  for (std::uint64_t i = 0; i < kKeys; ++i) {
    ASSERT_OK_AND_ASSIGN(const std::string value, db_->Get(NumberedKey(i)));
    EXPECT_TRUE(SaltOf(NumberedKey(i), value));
  }
}

// Twenty times as much data as the cache holds.
TEST(TreeDBM, StaysWithinItsCache) {
  constexpr std::uint64_t kCache = 2 * kMiB, kRecords = 20 * kCache / 100 / kSlowdown;
  const MemoryFile file = LargeFile();
  ASSERT_OK_AND_ASSIGN(auto db, InMemory::Open(file.Share(), {.cache_bytes = kCache}));
  std::uint64_t most = 0;
  const auto look = [&] { most = std::max(most, Property(*db, "memory_bytes")); };
  const auto number_of = [](std::uint64_t i) { return i * 7'368'787 % kRecords; };
  for (std::uint64_t i = 0; i < kRecords + kRecords / 10; ++i) {
    const std::string key = NumberedKey(i < kRecords ? i : number_of(i));
    ASSERT_THAT(db->Set(key, CheckedValue(key, 80 + i % 20)), IsOk());
    if (i % 1000 == 0) look();
  }
  EXPECT_EQ(db->Count(), kRecords);
  EXPECT_LE(most, kCache + kCache / 8);
  ASSERT_THAT(db->Close(), IsOk());
  ASSERT_OK_AND_ASSIGN(db, InMemory::Open(file.Share(), {.cache_bytes = kCache}));
  most = 0;
  Random random(TestSeed());
  std::string value;
  const std::uint64_t reads = Property(*db, "file_reads");
  for (std::uint64_t i = 0; i < kRecords / 10; ++i) {
    const std::uint64_t number = random.Below(kRecords);
    ASSERT_THAT(db->Get(NumberedKey(number), &value), IsOk());
    ASSERT_TRUE(SaltOf(NumberedKey(number), value));
    if (i % 1000 == 0) look();
  }
  EXPECT_GE(Property(*db, "file_reads") - reads, kRecords / 20) << "most pages are away";
  std::uint64_t scanned = 0;
  auto it = db->MakeIterator();
  for (it.First(); it.Valid(); it.Next(), ++scanned) {
    ASSERT_EQ(it.key(), NumberedKey(scanned));
    ASSERT_TRUE(SaltOf(it.key(), it.value()));
    if (scanned % 1000 == 0) look();
  }
  EXPECT_EQ(scanned, kRecords);
  for (it.Last(); it.Valid(); it.Previous()) ASSERT_EQ(it.key(), NumberedKey(--scanned));
  EXPECT_EQ(scanned, 0u);
  EXPECT_THAT(it.status(), IsOk());
  look();
  EXPECT_LE(most, kCache + kCache / 8);
  EXPECT_THAT(db->Verify(), IsOk());
  EXPECT_THAT(db->Close(), IsOk());
}

// A scan of all records does not evict the working set.
TEST(TreeDBM, ScanKeepsTheWorkingSetInMemory) {
  constexpr std::uint64_t kRecords = 200'000 / kSlowdown, kWanted = 2000;
  const MemoryFile file = LargeFile();
  ASSERT_OK_AND_ASSIGN(auto db, InMemory::Open(file.Share(), {.cache_bytes = 4 * kMiB / kSlowdown + kMiB}));
  for (std::uint64_t i = 0; i < kRecords; ++i) ASSERT_THAT(db->Set(NumberedKey(i), CheckedValue(NumberedKey(i), 80)), IsOk());
  ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
  std::string value;
  const auto read_wanted = [&] {
    const std::uint64_t before = Property(*db, "file_reads");
    for (std::uint64_t i = 0; i < kWanted; ++i) EXPECT_THAT(db->Get(NumberedKey(i), &value), IsOk());
    return Property(*db, "file_reads") - before;
  };
  for (int i = 0; i < 3; ++i) read_wanted();
  const std::uint64_t before = Property(*db, "file_reads");
  std::uint64_t scanned = 0;
  auto it = db->MakeIterator();
  for (it.First(); it.Valid(); it.Next()) {
    if (++scanned % 100 == 0) {
      EXPECT_THAT(db->Get(NumberedKey(scanned % kWanted), &value), IsOk());
    }
  }
  EXPECT_EQ(scanned, kRecords);
  EXPECT_GT(Property(*db, "file_reads") - before, 500u / kSlowdown) << "it did not fit";
  EXPECT_LE(read_wanted(), kWanted / 50) << "of about as many pages as this is ten times of";
}

TEST(TreeDBM, CountIsExactAfterReopening) {
  TempDir directory;
  const std::string path = directory.File("casket.hkt");
  ASSERT_OK_AND_ASSIGN(auto db, TreeDBM<>::Open(path, {.cache_bytes = kMiB}));
  RunThreads(4, [&](int thread) {
    for (std::uint64_t i = 0; i < 3000; ++i) {
      const std::string key = NumberedKey(i * 4 + static_cast<std::uint64_t>(thread));
      EXPECT_THAT(db->Set(key, key), IsOk());
      if (i % 3 == 0) {
        EXPECT_THAT(db->Remove(key), IsOk());
      }
    }
  });
  for (int life = 0; life < 3; ++life) {
    EXPECT_EQ(db->Count(), 8000u);
    ASSERT_THAT(db->Close(), IsOk());
    ASSERT_OK_AND_ASSIGN(db, TreeDBM<>::Open(path, {.cache_bytes = kMiB}));
  }
  EXPECT_EQ(db->Count(), 8000u);
  EXPECT_EQ(ListByIterator(*db).records.size(), 8000u);
}

// ---- checkpoints ----

void WaitForEpochBeyond(InMemory& db, std::uint64_t epoch) {
  while (db.GetStats().epoch <= epoch) std::this_thread::yield();
}

TEST(TreeDBM, DirtyBytesStartACheckpoint) {
  const MemoryFile file = LargeFile();
  for (const unsigned page_size : {256u, 8192u}) {
    SCOPED_TRACE(page_size);
    ASSERT_THAT(file.Share().Resize(0), IsOk());
    ASSERT_OK_AND_ASSIGN(auto db, InMemory::Open(file.Share(), {.page_size = page_size, .checkpoint_bytes = 256 << 10}));
    const std::uint64_t first = db->GetStats().epoch;
    for (std::uint64_t i = 0; i < 500; ++i) ASSERT_THAT(db->Set(NumberedKey(i), std::string(50, 'v')), IsOk());
    EXPECT_EQ(db->GetStats().epoch, first) << "that is not enough";
    for (std::uint64_t i = 0; i < 6000; ++i) ASSERT_THAT(db->Set(NumberedKey(i), std::string(50, 'v')), IsOk());
    WaitForEpochBeyond(*db, first);
    ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
    const std::uint64_t second = db->GetStats().epoch;  // the same again, in pages that are there
    for (std::uint64_t i = 0; i < 6000; ++i) ASSERT_THAT(db->Set(NumberedKey(i), std::string(50, 'w')), IsOk());
    WaitForEpochBeyond(*db, second);
    ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
    const std::uint64_t third = db->GetStats().epoch;  // long values count too
    for (std::uint64_t i = 0; i < 3; ++i) ASSERT_THAT(db->Set(NumberedKey(i), std::string(100 << 10, 'v')), IsOk());
    WaitForEpochBeyond(*db, third);
    EXPECT_THAT(db->Close(), IsOk());
  }
}

TEST(TreeDBM, FileHoldsTheLastCheckpoint) {
  const MemoryFile file = LargeFile();
  ASSERT_OK_AND_ASSIGN(auto db, InMemory::Open(file.Share(), {.sync_interval = std::chrono::milliseconds(1)}));
  const std::uint64_t before = db->GetStats().epoch;
  ASSERT_THAT(db->Set("key", "value"), IsOk());
  WaitForEpochBeyond(*db, before);
  ASSERT_OK_AND_ASSIGN(auto other, InMemory::Open(file.Share()));  // as after a crash of the first process
  EXPECT_THAT(other->Get("key"), IsOkAndHolds("value"));
  EXPECT_EQ(other->Count(), 1u);
}

// A checkpoint that has the second of two consecutive Sets also has the first.
TEST(TreeDBM, ConcurrentCheckpointsAreConsistent) {
  const MemoryFile file = LargeFile();
  ASSERT_OK_AND_ASSIGN(auto db, InMemory::Open(file.Share(), {.page_size = 256, .cache_bytes = kMiB}));
  constexpr std::uint64_t kKeys = 1000;
  std::atomic<bool> done = false;
  std::atomic<std::uint64_t> acknowledged = 0;
  std::thread writer([&] {  // operation i sets the key of i % kKeys to i; its neighbours lie in other pages
    for (std::uint64_t i = 1; !done; ++i) {
      const std::string key = NumberedKey(i * 617 % kKeys);
      EXPECT_THAT(db->Set(key, CheckedValue(key, 20 + i % 300, i)), IsOk());
      acknowledged = i;
    }
  });
  for (int round = 0; round < 12; ++round) {
    const std::uint64_t least = acknowledged;
    MemoryFile copied = LargeFile();
    std::thread beside([&] { EXPECT_THAT(db->Synchronize(SyncMode::kHard), IsOk()); });
    EXPECT_THAT(db->CopyTo(copied.Share()), IsOk());
    beside.join();
    ASSERT_OK_AND_ASSIGN(auto copy, InMemory::Open(std::move(copied)));
    std::uint64_t newest = 0;
    const Records records = ListByIterator(*copy).records;
    for (const auto& [key, value] : records) newest = std::max(newest, SaltOf(key, value).value_or(~std::uint64_t{0}));
    EXPECT_GE(newest, least);
    EXPECT_EQ(records.size(), std::min(newest, kKeys));
    EXPECT_EQ(copy->Count(), records.size());
    for (std::uint64_t i = newest; i > 0 && i + kKeys > newest; --i) {
      const auto found = records.find(NumberedKey(i * 617 % kKeys));
      ASSERT_TRUE(found != records.end() && SaltOf(found->first, found->second) == i) << "not the state after operation " << newest;
    }
    EXPECT_THAT(copy->Verify(), IsOk());
  }
  done = true;
  writer.join();
  EXPECT_THAT(db->Verify(), IsOk());
}

// ---- the file's space ----

TEST(TreeDBM, RebuildShrinksTheFileForAnyPageSize) {
  for (const unsigned page_size : {128u, 1000u, 8192u}) {
    SCOPED_TRACE(page_size);
    const MemoryFile file = LargeFile();
    ASSERT_OK_AND_ASSIGN(auto db, InMemory::Open(file.Share(), {.page_size = page_size, .cache_bytes = kMiB}));
    Records records;
    for (std::uint64_t i = 0; i < 20'000; ++i) {
      const std::string key = NumberedKey(i);
      const std::string value = CheckedValue(key, i % 1000 == 0 ? 50'000 : 100);
      ASSERT_THAT(db->Set(key, value), IsOk());
      if (i % 10 == 0) records[key] = value;
    }
    ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
    const std::uint64_t full = file.Size();
    for (std::uint64_t i = 0; i < 20'000; ++i) {
      if (i % 10 != 0) {
        ASSERT_THAT(db->Remove(NumberedKey(i)), IsOk());
      }
    }
    ASSERT_THAT(db->Rebuild(), IsOk());
    const Stats stats = db->GetStats();
    EXPECT_EQ(stats.total_bytes, file.Size());
    EXPECT_LE(file.Size(), full / 2);
    EXPECT_LE(stats.free_bytes, stats.total_bytes / 2);
    EXPECT_EQ(Difference(records, ListByIterator(*db).records), "none");
    EXPECT_THAT(db->Verify(), IsOk());
    ASSERT_THAT(db->Close(), IsOk());
    ASSERT_OK_AND_ASSIGN(db, InMemory::Open(file.Share()));
    EXPECT_EQ(Difference(records, ListByIterator(*db).records), "none");
  }
}

// The file is truncated while others read pages that were at its end a moment ago, through a map
// that ends with the file.
TEST(TreeDBM, ConcurrentReadersSurviveTruncation) {
  TempDir directory;
  ASSERT_OK_AND_ASSIGN(auto db, TreeDBM<>::Open(directory.File("casket.hkt"), {.page_size = 1000, .cache_bytes = kMiB}));
  constexpr std::uint64_t kKeys = 10'000;
  for (std::uint64_t i = 0; i < kKeys; ++i) {
    const std::string key = NumberedKey(i);
    ASSERT_THAT(db->Set(key, CheckedValue(key, i % 100 == 0 ? 3000 : 200)), IsOk());
  }
  std::atomic<bool> done = false;
  std::atomic<int> mishaps = 0;
  RunThreads(4, [&](int thread) {
    Random random(TestSeed() + static_cast<std::uint64_t>(thread));
    std::string value;
    if (thread == 0) {
      for (int round = 0; round < 30 / std::min(kSlowdown, 5); ++round) {
        const std::string filler(1 << 20, 'f');  // what comes behind it is moved when it goes
        mishaps += !db->Set("filler", filler).ok() || !db->Synchronize(SyncMode::kHard).ok();
        for (std::uint64_t i = 0; i < 300; ++i) {
          const std::string key = NumberedKey(random.Below(kKeys) / 2 * 2);
          mishaps += !db->Set(key, CheckedValue(key, random.OneIn(10) ? 3000 : 200, i)).ok();
        }
        mishaps += !db->Synchronize(SyncMode::kHard).ok() || !db->Remove("filler").ok() || !db->Rebuild().ok();
      }
      done = true;
      return;
    }
    while (!done) {
      const std::string key = NumberedKey(random.Below(kKeys));
      const Status status = db->Get(key, &value);
      mishaps += !status.ok() || !SaltOf(key, value);
    }
  });
  EXPECT_EQ(mishaps, 0);
  EXPECT_EQ(db->Count(), kKeys);
  EXPECT_THAT(db->Verify(), IsOk());
}

}  // namespace
}  // namespace hako
