// The tests of DurableDBMConformance of Rebuild, CopyTo, and synchronizations that reuse space, also beside
// writers. Of durable_dbm_conformance.h.
#pragma once

#include "dbm/durable_dbm_conformance_fixture.h"

namespace hako {

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

}  // namespace hako
