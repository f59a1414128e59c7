// Every DBM in a file, beyond dbm_conformance.h: it reopens with all records, keeps metadata and
// the options set at creation, refuses a second opener and foreign files, is compacted and copied
// beside writers, and opens read-only without changing a byte. For crashes see crash_test.cc and
// os_crash_test.cc.
//
// The Surroundings are those of surroundings.h: files by name, opened in a mode, with the
// database's Options, of which the suite uses durability and sync_interval.
#pragma once

#include "dbm/durable_dbm_conformance_fixture.h"
#include "dbm/maintenance_conformance.h"

namespace hako {

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
