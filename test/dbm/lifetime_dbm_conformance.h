// Every DBM after Close, in its own visitor, in late destructors, and in forked children. The suite
// is instantiated with a Surroundings (see dbm_conformance.h).
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/base/status.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/multi_operations.h"
#include "hako/dbm/ordered_operations.h"
#include "hako/file/memory_file.h"
#include "support/child_process.h"
#include "support/status_matchers.h"

namespace hako {

inline auto IsRefused(std::string_view why) {
  return StatusIs(absl::StatusCode::kFailedPrecondition, testing::HasSubstr(std::string(why)));
}

template <class Surroundings>
class LifetimeDBMConformance : public testing::Test {
 protected:
  using Database = typename Surroundings::Database;
  static constexpr int kRecords = 1000;
  static constexpr bool kIsDurable = requires { typename Surroundings::Options; };

  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(db_, surroundings_.Open());
    for (int i = 0; i < kRecords; ++i) ASSERT_THAT(db_->Set(Key(i), Value(i)), IsOk());
    ASSERT_THAT(db_->Set("long", std::string(50'000, 'l')), IsOk());
  }

  static std::string Key(int i) { return "key" + std::to_string(i); }
  static std::string Value(int i) { return std::to_string(i) + std::string(static_cast<std::size_t>(i % 50), 'v'); }

  // Checks that the file has exactly the records of SetUp after a Close. Not for databases in
  // memory.
  void ExpectUnchangedWhenReopened() {
    if constexpr (kIsDurable) {
      db_.reset();
      ASSERT_OK_AND_ASSIGN(db_, surroundings_.Open());
      EXPECT_EQ(db_->Count(), kRecords + 1u);
      for (int i = 0; i < kRecords; ++i) EXPECT_THAT(db_->Get(Key(i)), IsOkAndHolds(Value(i)));
      EXPECT_THAT(db_->Verify(), IsOk());
      EXPECT_THAT(db_->Close(), IsOk());
    }
  }

  static WriteBatch SomeBatch(bool is_single) {
    WriteBatch batch;
    batch.Set(Key(1), "new");
    if (!is_single) batch.Remove(Key(2));
    return batch;
  }

  // Every call that returns a status fails with this message; the others return nothing.
  void ExpectEveryCallRefused(Database& db, std::string_view why) {
    const std::string key = Key(1), absent = "absent", too_long(100'000, 'k');
    const std::string_view keys[] = {key, absent};
    const KeyValue records[] = {{key, "new"}, {absent, "new"}};
    std::string text;
    const auto refused = IsRefused(why);
    EXPECT_THAT(db.Get(key, &text), refused);
    EXPECT_THAT(db.Get(absent, &text), refused);
    EXPECT_THAT(db.Get("long", &text), refused);
    EXPECT_THAT(db.Get(too_long, &text), refused);
    EXPECT_THAT(db.Set(too_long, "new"), refused);
    EXPECT_THAT(db.Append(too_long, "new"), refused);
    EXPECT_THAT(db.SetMulti(std::vector<KeyValue>{{too_long, "new"}}), refused);
    EXPECT_THAT(db.Rekey(key, too_long), refused);
    EXPECT_THAT(db.Get(key, [](std::string_view) {}), refused);
    EXPECT_THAT(db.GetSize(key).status(), refused);
    EXPECT_THAT(db.Contains(key).status(), refused);
    EXPECT_THAT(db.Set(key, "new"), refused);
    EXPECT_THAT(db.Set(absent, "new"), refused);
    EXPECT_THAT(db.Set(absent, std::string(50'000, 'n')), refused);
    EXPECT_THAT(db.Set(absent, "new", {.overwrite = false}), refused);
    EXPECT_THAT(db.Replace(key, "new"), refused);
    EXPECT_THAT(db.Remove(key), refused);
    EXPECT_THAT(db.Append(key, "new"), refused);
    EXPECT_THAT(db.Increment(key).status(), refused);
    EXPECT_THAT(db.CompareExchange(key, Expect::Any(), Action::Remove()), refused);
    EXPECT_THAT(db.Process(key, [](std::optional<std::string_view>) -> void { ADD_FAILURE() << "the visitor was called"; }), refused);
    EXPECT_THAT(db.ProcessMulti(keys, [](std::size_t, std::optional<std::string_view>) -> void { ADD_FAILURE(); }), refused);
    EXPECT_THAT(db.ProcessMulti(keys, [](std::size_t, std::optional<std::string_view>) { return std::optional(Action::Remove()); }),
                refused);
    EXPECT_THAT(db.GetMulti(keys, [](std::size_t, std::optional<std::string_view>) {}), refused);
    EXPECT_THAT(db.SetMulti(records), refused);
    EXPECT_THAT(db.RemoveMulti(keys), refused);
    EXPECT_THAT(db.Rekey(key, absent), refused);
    for (const bool is_single : {true, false}) EXPECT_THAT(db.Write(SomeBatch(is_single)), refused);
    EXPECT_THAT(db.Write(WriteBatch()), refused);
    EXPECT_EQ(db.AppliedIndex(), 0u);
    EXPECT_THAT(db.PopFirst(), refused);
    EXPECT_THAT(db.PushLast("new"), refused);
    EXPECT_THAT(db.ProcessEach([](std::string_view, std::string_view) {}), refused);
    EXPECT_THAT(db.ProcessEachParallel(2, [](std::string_view, std::string_view) {}), refused);
    EXPECT_THAT(db.Clear(), refused);
    EXPECT_THAT(db.Synchronize(SyncMode::kSoft), refused);
    EXPECT_THAT(db.Synchronize(SyncMode::kHard), refused);
    EXPECT_THAT(db.Verify(), refused);
    EXPECT_THAT(db.GetHealth(), refused);
    EXPECT_EQ(db.Count(), 0u);
    EXPECT_EQ(db.GetStats().num_records, 0u);
    (void)db.Inspect();
    db.Prefetch(keys);
    if constexpr (requires {
                    db.SetType(1);
                    db.Rebuild();
                  }) {
      EXPECT_THAT(db.Rebuild(), refused);
      EXPECT_FALSE(db.ShouldBeRebuilt());
    }
    if constexpr (requires { db.SetType(1); }) {
      EXPECT_THAT(db.SetType(1), refused);
      EXPECT_THAT(db.SetMetadata(db.GetMetadata()), refused);
    }
    if constexpr (requires { surroundings_.files; }) {
      ASSERT_OK_AND_ASSIGN(auto file, surroundings_.files.Open("copy"));
      if constexpr (requires { db.CopyTo(std::move(file)); }) {
        EXPECT_THAT(db.CopyTo(std::move(file)), refused);
      }
      if constexpr (requires { db.Save(file); }) {
        EXPECT_THAT(db.Save(file), refused);
        EXPECT_THAT(db.Load(file), refused);
      }
    }
    auto it = db.MakeIterator();
    it.First();
    EXPECT_FALSE(it.Valid());
    EXPECT_THAT(it.status(), refused);
    it.Jump(key);
    EXPECT_FALSE(it.Valid());
    EXPECT_THAT(it.status(), refused);
    if constexpr (OrderedDBM<Database>) {
      if constexpr (requires { db.IsOrdered(); }) {
        if (!db.IsOrdered()) return;
      }
      it.Last();
      EXPECT_THAT(it.status(), refused);
      it.JumpLower(key);
      EXPECT_THAT(it.status(), refused);
      if constexpr (requires(bool (*next)(std::string_view*, std::string_view*)) { db.BulkLoad(next); }) {
        EXPECT_THAT(db.BulkLoad([i = 0](std::string_view* k, std::string_view* v) mutable { return *k = *v = "bulk", i++ == 0; }), refused);
      }
      EXPECT_THAT(db.CountRange("a", "z").status(), refused);
      EXPECT_THAT(db.RemoveRange("a", "z").status(), refused);
      auto range = db.Range("a", "z");
      for (const auto& record : range) ADD_FAILURE() << record.first;
      EXPECT_THAT(range.status(), refused);
    }
  }

  Surroundings surroundings_;  // outlives the database
  std::unique_ptr<Database> db_;
};

TYPED_TEST_SUITE_P(LifetimeDBMConformance);

TYPED_TEST_P(LifetimeDBMConformance, RefusesEveryCallAfterClose) {
  ASSERT_THAT(this->db_->Close(), IsOk());
  this->ExpectEveryCallRefused(*this->db_, "closed");
  EXPECT_THAT(this->db_->Close(), IsOk()) << "closing again changes nothing";
  this->ExpectUnchangedWhenReopened();
}

TYPED_TEST_P(LifetimeDBMConformance, RefusesOtherThreadsAfterClose) {
  ASSERT_THAT(this->db_->Close(), IsOk());
  std::thread([this] {
    EXPECT_THAT(this->db_->Set("absent", "new"), IsRefused("closed"));
    EXPECT_THAT(this->db_->Get("key1").status(), IsRefused("closed"));
  }).join();
  this->ExpectUnchangedWhenReopened();
}

TYPED_TEST_P(LifetimeDBMConformance, IteratorEndsWithErrorAfterClose) {
  auto it = this->db_->MakeIterator();
  it.First();
  ASSERT_TRUE(it.Valid());
  ASSERT_THAT(this->db_->Close(), IsOk());
  EXPECT_THAT(it.Set("new"), IsRefused("closed"));
  int shown = 0;
  for (; it.Valid() && shown <= this->kRecords; ++shown) it.Next();
  EXPECT_LT(shown, this->kRecords) << "only what had been copied is shown";
  EXPECT_THAT(it.status(), IsRefused("closed"));
  this->ExpectUnchangedWhenReopened();
}

TYPED_TEST_P(LifetimeDBMConformance, RefusesCallsFromItsOwnVisitor) {
  auto& db = *this->db_;
  const std::string key = this->Key(1), other = this->Key(2);
  const std::string_view keys[] = {key, other};
  const auto refused = IsRefused("visitor");
  bool visited = false;
  EXPECT_THAT(db.Process(key,
                         [&](std::optional<std::string_view> value) {
                           visited = true;
                           std::string text;
                           EXPECT_THAT(db.Get(key, &text), refused) << "it would wait for the lock that it holds";
                           EXPECT_THAT(db.Set(key, "new"), refused);
                           EXPECT_THAT(db.Set(other, "new"), refused);
                           EXPECT_THAT(db.Remove(other), refused);
                           EXPECT_THAT(db.Append(other, "new"), refused);
                           EXPECT_THAT(db.ProcessMulti(keys, [](std::size_t, std::optional<std::string_view>) {}), refused);
                           for (const bool is_single : {true, false}) EXPECT_THAT(db.Write(this->SomeBatch(is_single)), refused);
                           EXPECT_THAT(db.Clear(), refused);
                           EXPECT_THAT(db.Verify(), refused);
                           (void)db.GetStats();
                           if (this->kIsDurable) {
                             EXPECT_THAT(db.Synchronize(SyncMode::kHard), refused);
                           }
                           EXPECT_EQ(value, this->Value(1)) << "the view is as it was";
                           return Action::Set("from the visitor");
                         }),
              IsOk());
  EXPECT_TRUE(visited);
  EXPECT_THAT(db.Get(key), IsOkAndHolds("from the visitor"));
  EXPECT_THAT(db.Get(other), IsOkAndHolds(this->Value(2)));
  EXPECT_THAT(db.Set(other, "afterwards"), IsOk());
  EXPECT_THAT(db.Verify(), IsOk());
}

// Sets and gets records of one prefix when its thread ends.
template <class Database>
struct WritesAtTheEnd {
  Database* db = nullptr;
  std::string prefix;
  std::atomic<int>* wrong = nullptr;
  ~WritesAtTheEnd() {
    if (db != nullptr) Write();
  }
  void Write() {
    std::string found;
    for (int i = 0; i < 2000; ++i) {
      const std::string key = prefix + std::to_string(i % 50), value = key + ":" + std::to_string(i);
      if (!db->Set(key, value).ok() || !db->Get(key, &found).ok() || found != value) ++*wrong;
    }
  }
};
// That of the calling thread. A function: g++ 12 may not construct a thread_local variable template.
template <class Database>
WritesAtTheEnd<Database>& AtTheEnd() {
  static thread_local WritesAtTheEnd<Database> writes;
  return writes;
}

TYPED_TEST_P(LifetimeDBMConformance, ThreadLocalDestructorsUseItBesideOtherThreads) {
  using D = typename TestFixture::Database;
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      auto& writes = AtTheEnd<D>();  // constructed before hako's thread-local objects
      writes.prefix = std::to_string(t) + "/";
      writes.wrong = &wrong;
      writes.db = this->db_.get();
      if (!this->db_->Set("first", "use").ok()) ++wrong;
      if (t == 2) writes.Write();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(this->db_->Count(), this->kRecords + 2u + 150u);
  EXPECT_THAT(this->db_->Verify(), IsOk());
}

// Closed by the destructor of a static object, when those of the main thread's thread_local objects
// have run.
TYPED_TEST_P(LifetimeDBMConformance, StaticObjectClosesAtExit) {
  if constexpr (TestFixture::kIsDurable) {
    ASSERT_THAT(this->db_->Close(), IsOk());
    this->db_.reset();
    ChildProcess child([this](ChildProcess&) -> int {
      alarm(60);
      static std::unique_ptr<typename TestFixture::Database> in_static_storage;
      auto opened = this->surroundings_.Open();
      if (!opened.ok()) _exit(1);
      in_static_storage = *std::move(opened);
      std::string value;
      for (int i = 0; i < this->kRecords; ++i) {
        if (!in_static_storage->Set(this->Key(i), "at exit").ok() || !in_static_storage->Get(this->Key(i), &value).ok()) _exit(2);
      }
      std::exit(0);
    });
    ASSERT_EQ(child.Result(), 0);
    if constexpr (!std::is_same_v<typename TypeParam::FileType, MemoryFile>) {
      ASSERT_OK_AND_ASSIGN(this->db_, this->surroundings_.Open());
      for (int i = 0; i < this->kRecords; ++i) ASSERT_THAT(this->db_->Get(this->Key(i)), IsOkAndHolds("at exit"));
      EXPECT_THAT(this->db_->Verify(), IsOk());
    }
  }
}

TYPED_TEST_P(LifetimeDBMConformance, ForkedChildDoesNotTouchTheDatabase) {
  auto& db = *this->db_;
  ASSERT_THAT(db.Synchronize(SyncMode::kHard), IsOk());
  for (int round = 0; round < 2; ++round) {
    ChildProcess child([this, round](ChildProcess&) -> int {
      alarm(60);  // for a child that waits for a thread that it does not have
      if (round == 0) {
        if (this->db_->Close().code() != absl::StatusCode::kFailedPrecondition) return 1;
        if (this->db_->Set("absent", "from the child").code() != absl::StatusCode::kFailedPrecondition) return 2;
      } else {
        this->ExpectEveryCallRefused(*this->db_, "forked");
        if (testing::Test::HasFailure()) return 3;
      }
      this->db_.reset();
      return 0;
    });
    ASSERT_EQ(child.Result(), 0);
    for (int i = 0; i < this->kRecords; ++i) ASSERT_THAT(db.Set("after" + std::to_string(i), this->Value(i)), IsOk());
    ASSERT_THAT(db.Synchronize(SyncMode::kHard), IsOk());
    ASSERT_THAT(db.Verify(), IsOk());
  }
  EXPECT_THAT(db.Get("absent").status(), StatusIs(absl::StatusCode::kNotFound));
  ASSERT_THAT(db.Close(), IsOk());
  if constexpr (TestFixture::kIsDurable) {
    this->db_.reset();
    ASSERT_OK_AND_ASSIGN(this->db_, this->surroundings_.Open());
    EXPECT_EQ(this->db_->Count(), 2 * this->kRecords + 1u);
    EXPECT_THAT(this->db_->Verify(), IsOk());
  }
}

REGISTER_TYPED_TEST_SUITE_P(LifetimeDBMConformance, RefusesEveryCallAfterClose, RefusesOtherThreadsAfterClose,
                            IteratorEndsWithErrorAfterClose, RefusesCallsFromItsOwnVisitor, ThreadLocalDestructorsUseItBesideOtherThreads,
                            StaticObjectClosesAtExit, ForkedChildDoesNotTouchTheDatabase);

}  // namespace hako
