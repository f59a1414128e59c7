// Every DBM in a file, beyond dbm_conformance.h: it reopens with all records, keeps metadata and
// the options set at creation, refuses a second opener and foreign files, is compacted and copied
// beside writers, and opens read-only without changing a byte. For crashes see crash_test.cc and
// os_crash_test.cc.
//
// The Surroundings are those of surroundings.h: files by name, opened in a mode, with the
// database's Options, of which the suite uses durability and sync_interval.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "dbm/dbm_conformance.h"
#include "dbm/listing.h"
#include "dbm/surroundings.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/base/wall_clock.h"
#include "hako/dbm/options.h"
#include "hako/file/file.h"
#include "support/checked_value.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/threads.h"

namespace hako {

template <class Surroundings>
class DurableDBMConformance : public DBMConformance<Surroundings> {
 protected:
  using FileType = typename Surroundings::FileType;

  void Reopen() {
    ASSERT_THAT(this->db_->Verify(), IsOk());
    auto opened = this->surroundings_.Reopen(std::move(this->db_));
    ASSERT_THAT(opened, IsOk());
    this->db_ = *std::move(opened);
  }

  void CloseDatabase() {
    ASSERT_THAT(this->db_->Close(), IsOk());
    this->db_.reset();
  }

  // `count` records of about `size` bytes.
  Records Load(int count, std::size_t size) {
    Records records;
    for (int i = 0; i < count; ++i) {
      const std::string key = NumberedKey(static_cast<std::uint64_t>(i));
      records[key] = CheckedValue(key, size + static_cast<std::size_t>(i % 16), 1);
      EXPECT_THAT(this->db_->Set(key, records[key]), IsOk());
    }
    return records;
  }

  void Remove(Records* records, std::uint64_t number) {
    ASSERT_THAT(this->db_->Remove(NumberedKey(number)), IsOk());
    records->erase(NumberedKey(number));
  }

  void WriteFile(const std::string& name, std::string_view bytes) {
    ASSERT_OK_AND_ASSIGN(FileType file, this->surroundings_.files.Open(name));
    ASSERT_THAT(file.Resize(bytes.size()), IsOk());
    ASSERT_THAT(file.WriteAt(0, std::as_bytes(std::span(bytes))), IsOk());
    ASSERT_THAT(file.Close(), IsOk());
  }

  std::string ReadFile(const std::string& name) {
    auto file = this->surroundings_.files.Open(name);
    EXPECT_THAT(file, IsOk());
    const std::vector<std::byte> bytes = ReadWholeFile(*file);
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
};

TYPED_TEST_SUITE_P(DurableDBMConformance);

TYPED_TEST_P(DurableDBMConformance, ReopensWithAllRecords) {
  this->Reopen();
  this->ExpectHolds({});
  auto records = this->Load(20'000, 30);
  this->Reopen();
  this->ExpectHolds(records);
  const Stats before = this->db_->GetStats();
  this->Reopen();
  const Stats after = this->db_->GetStats();
  EXPECT_EQ(after.num_records, before.num_records);
  EXPECT_EQ(after.record_bytes + after.index_bytes, before.record_bytes + before.index_bytes);
  EXPECT_EQ(after.num_buckets, before.num_buckets);
  for (std::uint64_t i = 0; i < 20'000; i += 3) this->Remove(&records, i);
  this->Reopen();
  this->ExpectHolds(records);
}

TYPED_TEST_P(DurableDBMConformance, SurvivesManyReopenings) {
  Random random(TestSeed());
  Records records;
  for (int life = 0; life < 30; ++life) {
    for (int i = 0; i < 300; ++i) {
      const std::string key = NumberedKey(random.Below(400));
      records[key] = CheckedValue(key, random.SkewedSize(12), random.Next());
      ASSERT_THAT(this->db_->Set(key, records[key]), IsOk());
      const std::string other = NumberedKey(random.Below(400));
      ASSERT_EQ(this->db_->Remove(other).ok(), records.erase(other) == 1);
    }
    if (life % 4 == 0) {
      ASSERT_THAT(this->db_->Synchronize(SyncMode::kHard), IsOk());
    }
    this->Reopen();
    this->ExpectHolds(records);
  }
  EXPECT_LE(this->db_->GetStats().total_bytes, std::uint64_t{8} << 20) << "the space of an earlier life is reused";
}

TYPED_TEST_P(DurableDBMConformance, DestructorCloses) {
  const auto records = this->Load(1000, 30);
  this->db_.reset();
  this->OpenWith(0);
  this->ExpectHolds(records);
}

TYPED_TEST_P(DurableDBMConformance, KeepsTheUsersMetadata) {
  EXPECT_EQ(this->db_->GetMetadata(), UserMetadata{});
  UserMetadata metadata;
  for (std::size_t i = 0; i < metadata.size(); ++i) metadata[i] = static_cast<std::byte>(i * 37 + 1);
  ASSERT_THAT(this->db_->SetMetadata(metadata), IsOk());
  EXPECT_EQ(this->db_->GetMetadata(), metadata);
  const auto records = this->Load(100, 10);
  this->Reopen();
  EXPECT_EQ(this->db_->GetMetadata(), metadata);
  ASSERT_THAT(this->db_->Synchronize(SyncMode::kHard), IsOk());
  ASSERT_THAT(this->db_->Rebuild(), IsOk());
  EXPECT_EQ(this->db_->GetMetadata(), metadata);
  this->Reopen();
  EXPECT_EQ(this->db_->GetMetadata(), metadata);
  metadata[63] = std::byte{0};
  ASSERT_THAT(this->db_->SetMetadata(metadata), IsOk());
  this->Reopen();
  EXPECT_EQ(this->db_->GetMetadata(), metadata);
  this->ExpectHolds(records);
}

TYPED_TEST_P(DurableDBMConformance, KeepsTheTypeOfTheDatabase) {
  EXPECT_EQ(this->db_->GetType(), 0u);
  ASSERT_THAT(this->db_->SetType(0xfedcba98), IsOk());
  EXPECT_EQ(this->db_->GetType(), 0xfedcba98);
  const auto records = this->Load(100, 10);
  ASSERT_THAT(this->db_->Synchronize(SyncMode::kHard), IsOk());
  this->Reopen();
  EXPECT_EQ(this->db_->GetType(), 0xfedcba98);
  EXPECT_EQ(this->db_->GetMetadata(), UserMetadata{}) << "metadata is another thing";
  EXPECT_THAT(this->db_->Inspect(), testing::Contains(testing::Pair("type", "4275878552")));
  ASSERT_OK_AND_ASSIGN(auto file, this->surroundings_.files.Open("copy"));
  ASSERT_THAT(this->db_->CopyTo(std::move(file)), IsOk());
  ASSERT_OK_AND_ASSIGN(auto copy, this->surroundings_.OpenWith({}, OpenMode::kReadWrite, "copy"));
  EXPECT_EQ(copy->GetType(), 0xfedcba98);
  EXPECT_THAT(copy->Close(), IsOk());
  this->ExpectHolds(records);
}

TYPED_TEST_P(DurableDBMConformance, ReportsTheLastSynchronization) {
  const std::uint64_t start = WallClock(), made = this->db_->GetStats().synced_at;
  EXPECT_NE(made, 0u) << "Open does that makes the file";
  EXPECT_LE(made, start);
  EXPECT_THAT(this->db_->Inspect(), testing::Contains(testing::Key("synced_at")));
  ASSERT_THAT(this->db_->Set("key", "value"), IsOk());
  ASSERT_THAT(this->db_->Synchronize(SyncMode::kHard), IsOk());
  const std::uint64_t first = this->db_->GetStats().synced_at;
  EXPECT_GE(first, start);
  EXPECT_LE(first, WallClock());
  ASSERT_THAT(this->db_->Set("key", "other"), IsOk());
  EXPECT_EQ(this->db_->GetStats().synced_at, first) << "a Set does not synchronize";
  this->CloseDatabase();
  this->OpenWith(0);
  EXPECT_GE(this->db_->GetStats().synced_at, first) << "Close does";
  EXPECT_THAT(this->db_->Inspect(), testing::Contains(testing::Key("synced_at")));
}

TYPED_TEST_P(DurableDBMConformance, SynchronizesInBothModes) {
  const auto records = this->Load(1000, 30);
  const std::uint64_t epoch = this->db_->GetStats().epoch;
  EXPECT_THAT(this->db_->Synchronize(SyncMode::kSoft), IsOk());
  EXPECT_THAT(this->db_->Synchronize(SyncMode::kHard), IsOk());
  EXPECT_GT(this->db_->GetStats().epoch, epoch);
  EXPECT_THAT(this->db_->Synchronize(SyncMode::kHard), IsOk());  // without changes
  this->ExpectHolds(records);
}

TYPED_TEST_P(DurableDBMConformance, ConcurrentDurableSetsSynchronize) {
  const std::uint64_t before = this->db_->GetStats().epoch;
  ASSERT_THAT(this->db_->Set("key", "value", {.durability = Durability::kPower}), IsOk());
  EXPECT_EQ(this->db_->GetStats().epoch, before + 1);
  ASSERT_THAT(this->db_->Set("key", "other", {.overwrite = false, .durability = Durability::kPower}),
              StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_EQ(this->db_->GetStats().epoch, before + 1) << "nothing was set";
  constexpr int kThreads = 8, kEach = 20;
  std::atomic<int> failures = 0;
  RunThreads(kThreads, [&](int thread) {
    for (int i = 0; i < kEach; ++i) {
      failures +=
          !this->db_->Set(NumberedKey(static_cast<std::uint64_t>(thread * kEach + i)), "v", {.durability = Durability::kPower}).ok();
    }
  });
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(this->db_->Count(), 1u + kThreads * kEach);
  const std::uint64_t epochs = this->db_->GetStats().epoch - before - 1;
  EXPECT_GE(epochs, static_cast<std::uint64_t>(kEach)) << "each waits for one that began after it";
  EXPECT_LE(epochs, static_cast<std::uint64_t>(kThreads * kEach));
}

// With Durability::kPower every update is synchronized when it returns, and operations that change
// nothing do not synchronize. os_crash_test.cc shows that the updates survive power cuts.
TYPED_TEST_P(DurableDBMConformance, DurabilityPowerSynchronizesEveryUpdate) {
  ASSERT_OK_AND_ASSIGN(auto db, this->surroundings_.OpenWith({.durability = Durability::kPower}, OpenMode::kCreate, "durable"));
  const auto epochs_of = [&](auto operation) {
    const std::uint64_t before = db->GetStats().epoch;
    EXPECT_THAT(operation(), IsOk());
    return db->GetStats().epoch - before;
  };
  EXPECT_EQ(epochs_of([&] { return db->Set("a", "1"); }), 1u);
  EXPECT_EQ(epochs_of([&] { return db->Set("b", "1", {.overwrite = false}); }), 1u);
  EXPECT_EQ(epochs_of([&] { return db->Append("a", "2"); }), 1u);
  EXPECT_EQ(epochs_of([&] { return db->Increment("n").status(); }), 1u);
  EXPECT_EQ(epochs_of([&] { return db->Replace("a", "3"); }), 1u);
  EXPECT_EQ(epochs_of([&] { return db->CompareExchange("a", Expect::Any(), Action::Set("4")); }), 1u);
  EXPECT_EQ(epochs_of([&] { return db->Rekey("a", "c"); }), 1u);
  WriteBatch batch;
  EXPECT_EQ(epochs_of([&] { return db->Write(batch); }), 0u);
  batch.Set("f", "1");
  EXPECT_EQ(epochs_of([&] { return db->Write(batch); }), 1u);
  batch.Set("g", "1");
  EXPECT_EQ(epochs_of([&] { return db->Write(batch); }), 1u);
  batch.Clear();
  batch.Remove("f");
  batch.Remove("g");
  EXPECT_EQ(epochs_of([&] { return db->Write(batch); }), 1u);
  EXPECT_EQ(epochs_of([&] { return db->SetMulti(std::vector<KeyValue>{{"d", "1"}, {"e", "1"}}); }), 2u);
  EXPECT_EQ(epochs_of([&] { return db->Remove("d"); }), 1u);
  EXPECT_EQ(epochs_of([&] {
              auto it = db->MakeIterator();
              it.First();
              return it.Set("by the iterator");
            }),
            1u);
  EXPECT_EQ(epochs_of([&] { return db->Get("c").status(); }), 0u);
  EXPECT_EQ(epochs_of([&] { return db->CompareExchange("c", Expect::Any(), Action::Keep()); }), 0u);
  const std::vector<std::string_view> keys = {"c", "absent"};
  EXPECT_EQ(epochs_of([&] { return db->Process("c", Action::Keep()); }), 0u);
  EXPECT_EQ(epochs_of([&] { return db->Process("absent", Action::Remove()); }), 0u);
  EXPECT_EQ(epochs_of([&] { return db->ProcessMulti(keys, [](std::size_t, std::optional<std::string_view>) { return Action::Keep(); }); }),
            0u);
  EXPECT_EQ(epochs_of([&] {
              return db->ProcessMulti(
                  keys, [](std::size_t i, std::optional<std::string_view>) { return i == 1 ? Action::Remove() : Action::Keep(); });
            }),
            0u);
  EXPECT_EQ(epochs_of([&] { return absl::IsNotFound(db->Remove("absent")) ? absl::OkStatus() : absl::UnknownError("?"); }), 0u);
  EXPECT_EQ(epochs_of([&] { return db->Clear(); }), 1u);
  EXPECT_THAT(db->Verify(), IsOk());
  EXPECT_THAT(db->Close(), IsOk());
}

TYPED_TEST_P(DurableDBMConformance, ConcurrentSynchronizationInTheBackground) {
  const typename TypeParam::Options options{.sync_interval = std::chrono::milliseconds(1)};
  ASSERT_OK_AND_ASSIGN(auto idle, this->surroundings_.OpenWith(options, OpenMode::kCreate, "idle"));
  ASSERT_OK_AND_ASSIGN(auto db, this->surroundings_.OpenWith(options, OpenMode::kCreate, "busy"));
  const std::uint64_t idle_epoch = idle->GetStats().epoch;
  std::uint64_t epoch = db->GetStats().epoch;
  for (int i = 0; i < 10; ++i) {
    const std::string_view keys[] = {"a", "b"};
    switch (i % 3) {
      case 0:
        ASSERT_THAT(db->Set("key", "value"), IsOk());
        break;
      case 1:
        ASSERT_THAT(db->ProcessMulti(keys, [](std::size_t, std::optional<std::string_view>) { return Action::Set("value"); }), IsOk());
        break;
      default:
        ASSERT_THAT(db->Clear(), IsOk());
    }
    while (db->GetStats().epoch == epoch) std::this_thread::yield();
    epoch = db->GetStats().epoch;
  }
  EXPECT_EQ(idle->GetStats().epoch, idle_epoch) << "where nothing changes, nothing is synchronized";
  ASSERT_THAT(db->Set("key", "other"), IsOk());
  EXPECT_THAT(db->Close(), IsOk());
  EXPECT_THAT(idle->Close(), IsOk());
  ASSERT_OK_AND_ASSIGN(db, this->surroundings_.OpenWith({}, OpenMode::kReadWrite, "busy"));
  EXPECT_THAT(db->Get("key"), IsOkAndHolds("other"));
}

TYPED_TEST_P(DurableDBMConformance, ManySynchronizationsReuseSpaceAndWrapNothing) {
  Records records;
  for (std::uint64_t i = 0; i < 9000; ++i) {  // more than the 4,095 epochs that the stamps of HashDBM's free blocks tell apart
    const std::string key = NumberedKey(i % 50 == 0 ? i : i % 30);
    records[key] = CheckedValue(key, 100, i);
    ASSERT_THAT(this->db_->Set(key, records[key]), IsOk());
    if constexpr (std::is_same_v<typename TypeParam::FileType, MemoryFile>) {  // a device would need half a minute
      ASSERT_THAT(this->db_->Synchronize(SyncMode::kHard), IsOk());
    } else if (i % 100 == 0) {
      ASSERT_THAT(this->db_->Synchronize(SyncMode::kHard), IsOk());
    }
    if (i % 3000 == 2999) this->Reopen();
  }
  this->ExpectHolds(records);
  EXPECT_LE(this->db_->GetStats().total_bytes, std::uint64_t{4} << 20);
}

TYPED_TEST_P(DurableDBMConformance, RebuildShrinksTheFile) {
  auto records = this->Load(20'000, 100);
  ASSERT_THAT(this->db_->Synchronize(SyncMode::kHard), IsOk());
  EXPECT_FALSE(this->db_->ShouldBeRebuilt());
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    if (i % 10 != 0) this->Remove(&records, i);
  }
  ASSERT_THAT(this->db_->Synchronize(SyncMode::kHard), IsOk());
  EXPECT_TRUE(this->db_->ShouldBeRebuilt());
  const std::uint64_t before = this->db_->GetStats().total_bytes;
  ASSERT_THAT(this->db_->Rebuild(), IsOk());
  EXPECT_FALSE(this->db_->ShouldBeRebuilt());
  this->ExpectHolds(records);
  ASSERT_THAT(this->db_->Verify(), IsOk());
  this->Reopen();
  EXPECT_LT(this->db_->GetStats().total_bytes, before / 2);
  this->ExpectHolds(records);
  ASSERT_THAT(this->db_->Set("after", "rebuild"), IsOk());
  records["after"] = "rebuild";
  ASSERT_THAT(this->db_->Rebuild(), IsOk());
  this->ExpectHolds(records);
}

TYPED_TEST_P(DurableDBMConformance, RebuildsAnEmptyDatabase) {
  ASSERT_THAT(this->db_->Rebuild(), IsOk());
  this->ExpectHolds({});
  this->Load(5000, 50);
  ASSERT_THAT(this->db_->Clear(), IsOk());
  ASSERT_THAT(this->db_->Rebuild(), IsOk());
  this->ExpectHolds({});
  this->Reopen();
  this->ExpectHolds({});
}

TYPED_TEST_P(DurableDBMConformance, ConcurrentRebuildDoesNotStopOthers) {
  auto& db = *this->db_;
  std::atomic<int> working = 3;
  constexpr std::uint64_t kKeys = 2000 / kSlowdown;
  std::atomic<int> mishaps = 0;
  std::vector<Records> records(2);
  this->Load(static_cast<int>(kKeys), 60);  // keys that stay unchanged
  RunThreads(4, [&](int thread) {
    std::string value;
    if (thread == 3) {
      while (working > 0) mishaps += !db.Rebuild().ok();
      return;
    }
    Random random(TestSeed() + static_cast<std::uint64_t>(thread));
    for (int i = 0; i < 20'000 / kSlowdown; ++i) {
      if (thread == 2) {
        const std::string key = NumberedKey(random.Below(kKeys));
        mishaps += !(db.Get(key, &value).ok() && SaltOf(key, value));
        continue;
      }
      auto& mine = records[static_cast<std::size_t>(thread)];
      const std::string key = std::to_string(thread) + "/" + std::to_string(random.Below(500));
      if (random.OneIn(3)) {
        mishaps += db.Remove(key).ok() != (mine.erase(key) == 1);
      } else {
        mine[key] = CheckedValue(key, random.Below(200), random.Next());
        mishaps += !db.Set(key, mine[key]).ok();
      }
    }
    --working;
  });
  EXPECT_EQ(mishaps, 0);
  auto all = records[0];
  all.merge(records[1]);
  for (std::uint64_t i = 0; i < kKeys; ++i) all[NumberedKey(i)] = CheckedValue(NumberedKey(i), 60 + i % 16, 1);
  this->ExpectHolds(all);
  this->Reopen();
  this->ExpectHolds(all);
}

// All maintenance operations in several threads, beside a writer, a reader and an iterator.
TYPED_TEST_P(DurableDBMConformance, ConcurrentMaintenanceOperationsCoexist) {
  auto& db = *this->db_;
  auto records = this->Load(2000, 100);
  std::atomic<bool> done{false};
  RunThreads(6, [&](int index) {
    const auto rounds = [&](auto&& body) {
      for (std::uint64_t round = 0; round < 3 || !done; ++round) body(round);
    };
    switch (index) {
      case 0:
        for (std::uint64_t i = 0; i < 6000 / kSlowdown; ++i) {
          const std::string key = NumberedKey(i % 2500);
          if (i % 3 == 0) {
            EXPECT_EQ(db.Remove(key).ok(), records.erase(key) == 1);
          } else {
            records[key] = CheckedValue(key, i % 300, i);
            EXPECT_THAT(db.Set(key, records[key]), IsOk());
          }
        }
        done = true;
        break;
      case 1:
        rounds([&](std::uint64_t) { EXPECT_THAT(db.Synchronize(SyncMode::kHard), IsOk()); });
        break;
      case 2:
        rounds([&](std::uint64_t) { EXPECT_THAT(db.Rebuild(), IsOk()); });
        break;
      case 3:
        rounds([&](std::uint64_t round) {
          UserMetadata metadata;
          metadata.fill(static_cast<std::byte>(round));
          EXPECT_THAT(db.SetMetadata(metadata), IsOk());
          EXPECT_THAT(db.Verify(), IsOk());
        });
        break;
      case 4:
        rounds([&](std::uint64_t) {
          const UserMetadata metadata = db.GetMetadata();
          EXPECT_TRUE(std::count(metadata.begin(), metadata.end(), metadata[0]) == static_cast<long>(metadata.size()))
              << "one metadata or the other, not some of both";
          const Stats stats = db.GetStats();
          EXPECT_LE(stats.num_records, 2500u);
          EXPECT_LE(stats.free_bytes + stats.index_bytes, stats.total_bytes);
          (void)db.ShouldBeRebuilt();
          EXPECT_LE(db.Count(), 2500u);
          EXPECT_FALSE(db.Inspect().empty());
          std::string value;
          (void)db.Get(NumberedKey(1), &value);
        });
        break;
      default:
        rounds([&](std::uint64_t) {
          auto it = db.MakeIterator();
          for (it.First(); it.Valid(); it.Next()) EXPECT_TRUE(SaltOf(it.key(), it.value()));
          EXPECT_THAT(it.status(), IsOk());
        });
    }
  });
  EXPECT_THAT(db.Verify(), IsOk());
  this->ExpectHolds(records);
  this->Reopen();
  this->ExpectHolds(records);
}

TYPED_TEST_P(DurableDBMConformance, ConcurrentCopyHasAPrefixOfEachWritersUpdates) {
  auto& db = *this->db_;
  constexpr std::uint64_t kKeys = 700;
  std::atomic<bool> done = false;
  std::array<std::atomic<std::uint64_t>, 2> acknowledged{};
  std::vector<std::thread> writers;
  for (std::uint64_t writer = 0; writer < 2; ++writer) {
    writers.emplace_back([&, writer] {  // operation i sets the key i % kKeys to i
      for (std::uint64_t i = 1; !done; ++i) {
        const std::string key = std::to_string(writer) + NumberedKey(i % kKeys);
        if (!db.Set(key, CheckedValue(key, 8 + i % 90, i)).ok()) break;
        acknowledged[writer] = i;
      }
    });
  }
  for (int round = 0; round < 5; ++round) {
    SCOPED_TRACE(round);
    const std::string name = "copy" + std::to_string(round);
    const std::array<std::uint64_t, 2> before = {acknowledged[0], acknowledged[1]};
    ASSERT_OK_AND_ASSIGN(auto file, this->surroundings_.files.Open(name));
    ASSERT_THAT(db.CopyTo(std::move(file)), IsOk());
    ASSERT_OK_AND_ASSIGN(auto copy, this->surroundings_.OpenWith({}, OpenMode::kReadWrite, name));
    EXPECT_THAT(copy->Verify(), IsOk());
    const Listing listing = ListByProcessEach(*copy);
    std::array<std::uint64_t, 2> newest = {0, 0};
    for (const auto& [key, value] : listing.records) {
      const auto salt = SaltOf(key, value);
      ASSERT_TRUE(salt);
      std::uint64_t& mine = newest[static_cast<std::size_t>(key[0] - '0')];
      mine = std::max(mine, *salt);
    }
    for (std::uint64_t writer = 0; writer < 2; ++writer) {
      ASSERT_GE(newest[writer], before[writer]);
      for (std::uint64_t i = newest[writer]; i > 0 && i + kKeys > newest[writer]; --i) {
        const std::string key = std::to_string(writer) + NumberedKey(i % kKeys);
        const auto found = listing.records.find(key);
        ASSERT_NE(found, listing.records.end()) << key;
        ASSERT_EQ(SaltOf(key, found->second), i) << "not the state after operation " << newest[writer];
      }
    }
    EXPECT_THAT(copy->Set("the copy", "is a database"), IsOk());
    EXPECT_THAT(copy->Close(), IsOk());
  }
  done = true;
  for (std::thread& writer : writers) writer.join();
}

TYPED_TEST_P(DurableDBMConformance, CopyIsIndependent) {
  UserMetadata metadata{};
  metadata[5] = std::byte{7};
  ASSERT_THAT(this->db_->SetMetadata(metadata), IsOk());
  auto records = this->Load(3000, 40);
  ASSERT_OK_AND_ASSIGN(auto file, this->surroundings_.files.Open("copy"));
  ASSERT_THAT(this->db_->CopyTo(std::move(file)), IsOk());
  ASSERT_THAT(this->db_->Set("only", "in the original"), IsOk());
  ASSERT_OK_AND_ASSIGN(auto copy, this->surroundings_.OpenWith({}, OpenMode::kReadWrite, "copy"));
  EXPECT_EQ(copy->GetMetadata(), metadata);
  EXPECT_TRUE(ListByIterator(*copy).records == records);
  ASSERT_THAT(copy->Set("only", "in the copy"), IsOk());
  ASSERT_THAT(copy->Close(), IsOk());
  EXPECT_THAT(this->db_->Get("only"), IsOkAndHolds("in the original"));
  if constexpr (PathFile<typename TypeParam::FileType>) {
    const std::string path = this->surroundings_.files.Path("copy by path");
    ASSERT_THAT(this->db_->CopyTo(path), IsOk());
    ASSERT_OK_AND_ASSIGN(auto second, this->surroundings_.OpenWith({}, OpenMode::kReadWrite, "copy by path"));
    records["only"] = "in the original";
    EXPECT_TRUE(ListByIterator(*second).records == records);
    EXPECT_THAT(second->Close(), IsOk());
  }
}

TYPED_TEST_P(DurableDBMConformance, RefusesForeignFilesUnchanged) {
  std::string text;
  for (int i = 0; i < 40'000; ++i) text += "this is no database\n";
  for (const std::size_t size : {std::size_t{1}, std::size_t{20}, std::size_t{4096}, std::size_t{65536}, text.size()}) {
    SCOPED_TRACE(size);
    const std::string foreign = text.substr(0, size);
    const std::string name = "foreign" + std::to_string(size);
    this->WriteFile(name, foreign);
    for (const OpenMode mode : {OpenMode::kReadOnly, OpenMode::kReadWrite, OpenMode::kCreate}) {
      EXPECT_THAT(this->surroundings_.OpenWith({}, mode, name), StatusIs(absl::StatusCode::kInvalidArgument));
    }
    EXPECT_TRUE(this->ReadFile(name) == foreign);
  }
}

TYPED_TEST_P(DurableDBMConformance, OpensReadOnlyWithoutChangingAByte) {
  if constexpr (!PathFile<typename TypeParam::FileType>) {
    GTEST_SKIP() << "has no mode of opening";
  } else {
    UserMetadata metadata{};
    metadata[0] = std::byte{1};
    ASSERT_THAT(this->db_->SetMetadata(metadata), IsOk());
    const auto records = this->Load(2000, 20);
    this->CloseDatabase();
    const std::string before = this->ReadFile("db");
    ASSERT_OK_AND_ASSIGN(this->db_, this->surroundings_.OpenWith({}, OpenMode::kReadOnly));
    auto& db = *this->db_;
    EXPECT_FALSE(db.IsWritable());
    this->ExpectHolds(records);
    EXPECT_THAT(db.Verify(), IsOk());
    EXPECT_EQ(db.GetMetadata(), metadata);
    EXPECT_EQ(db.GetStats().num_records, 2000u);
    EXPECT_FALSE(db.Inspect().empty());
    EXPECT_THAT(db.Get(NumberedKey(7), [](std::string_view value) { EXPECT_TRUE(SaltOf(NumberedKey(7), value)); }), IsOk());
    const auto refused = StatusIs(absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(db.Set("key", "value"), refused);
    EXPECT_THAT(db.Set(NumberedKey(7), "value", {.overwrite = false}), refused);
    EXPECT_THAT(db.Remove(NumberedKey(7)), refused);
    EXPECT_THAT(db.Append(NumberedKey(7), "x"), refused);
    EXPECT_THAT(db.Increment("n"), refused);
    const std::string numbered = NumberedKey(7);
    const std::string_view keys[] = {"key", numbered};
    EXPECT_THAT(db.ProcessMulti(keys, [](std::size_t, std::optional<std::string_view>) { return Action::Keep(); }), refused);
    bool found[2];
    EXPECT_THAT(db.ProcessMulti(keys, [&](std::size_t i, std::optional<std::string_view> value) -> void { found[i] = value.has_value(); }),
                IsOk());
    EXPECT_THAT(found, testing::ElementsAre(false, true));
    EXPECT_THAT(db.Rekey(NumberedKey(7), "key"), refused);
    WriteBatch batch;
    batch.Remove(NumberedKey(7));
    EXPECT_THAT(db.Write(batch), refused);
    batch.Set("key", "value");
    EXPECT_THAT(db.Write(batch), refused);
    EXPECT_THAT(db.Clear(), refused);
    EXPECT_THAT(db.Rebuild(), refused);
    EXPECT_THAT(db.SetMetadata(metadata), refused);
    EXPECT_THAT(db.SetType(1), refused);
    // another reader may have it open too, a writer may not
    ASSERT_OK_AND_ASSIGN(auto reader, this->surroundings_.OpenWith({}, OpenMode::kReadOnly));
    EXPECT_EQ(reader->Count(), 2000u);
    EXPECT_THAT(reader->Close(), IsOk());
    EXPECT_THAT(this->surroundings_.OpenWith({}, OpenMode::kReadWrite), StatusIs(absl::StatusCode::kUnavailable));
    this->CloseDatabase();
    EXPECT_TRUE(this->ReadFile("db") == before);
  }
}

TYPED_TEST_P(DurableDBMConformance, ReadOnlyOpenRequiresAnExistingFile) {
  if constexpr (!PathFile<typename TypeParam::FileType>) {
    GTEST_SKIP() << "has no mode of opening";
  } else {
    EXPECT_FALSE(this->surroundings_.OpenWith({}, OpenMode::kReadOnly, "absent").ok());
    EXPECT_FALSE(this->surroundings_.OpenWith({}, OpenMode::kReadWrite, "absent").ok());
    this->WriteFile("empty", "");
    EXPECT_FALSE(this->surroundings_.OpenWith({}, OpenMode::kReadOnly, "empty").ok());
    EXPECT_EQ(this->ReadFile("empty"), "");
    ASSERT_OK_AND_ASSIGN(auto db, this->surroundings_.OpenWith({}, OpenMode::kReadWrite, "empty"));
    EXPECT_EQ(db->Count(), 0u);
    EXPECT_THAT(db->Close(), IsOk());
  }
}

TYPED_TEST_P(DurableDBMConformance, RefusesASecondOpener) {
  if constexpr (!PathFile<typename TypeParam::FileType>) {
    GTEST_SKIP() << "has no lock";
  } else {
    const auto records = this->Load(10, 10);
    const auto busy = StatusIs(absl::StatusCode::kUnavailable);
    EXPECT_THAT(this->surroundings_.OpenWith({}), busy);
    EXPECT_THAT(this->surroundings_.OpenWith({}, OpenMode::kReadOnly), busy);
    EXPECT_THAT(this->surroundings_.OpenWith({}, OpenMode::kTruncate), busy);
    const pid_t child = fork();
    if (child == 0) _exit(absl::IsUnavailable(this->surroundings_.OpenWith({}).status()) ? 42 : 1);
    int result = 0;
    ASSERT_EQ(waitpid(child, &result, 0), child);
    EXPECT_TRUE(WIFEXITED(result) && WEXITSTATUS(result) == 42) << "another process";
    this->ExpectHolds(records);
    this->Reopen();
    this->ExpectHolds(records);
  }
}

REGISTER_TYPED_TEST_SUITE_P(DurableDBMConformance, ReopensWithAllRecords, SurvivesManyReopenings, DestructorCloses, KeepsTheUsersMetadata,
                            KeepsTheTypeOfTheDatabase, ReportsTheLastSynchronization, DurabilityPowerSynchronizesEveryUpdate,
                            ConcurrentSynchronizationInTheBackground, SynchronizesInBothModes, ConcurrentDurableSetsSynchronize,
                            ManySynchronizationsReuseSpaceAndWrapNothing, RebuildShrinksTheFile, RebuildsAnEmptyDatabase,
                            ConcurrentRebuildDoesNotStopOthers, ConcurrentMaintenanceOperationsCoexist,
                            ConcurrentCopyHasAPrefixOfEachWritersUpdates, CopyIsIndependent, RefusesForeignFilesUnchanged,
                            OpensReadOnlyWithoutChangingAByte, ReadOnlyOpenRequiresAnExistingFile, RefusesASecondOpener);

}  // namespace hako
