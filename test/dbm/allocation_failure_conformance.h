// Fails each allocation of each public call of every DBM in turn: the call returns
// ResourceExhausted or succeeds, no exception escapes, nothing is lost, no lock stays locked, and
// the database keeps working.
//
// The suite is instantiated with a Surroundings (see dbm_conformance.h), in a program with
// allocation_hooks_test.cc.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/base/status.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/multi_operations.h"
#include "hako/dbm/ordered_operations.h"
#include "hako/dbm/write_batch.h"
#include "support/allocation_counter.h"
#include "support/crash_states.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"

namespace hako {

template <class Surroundings>
class AllocationFailure : public testing::Test {
 protected:
  using Database = typename Surroundings::Database;
  using Records = std::map<std::string, std::string>;
  using Operation = std::function<Status(Database&)>;
  static constexpr int kRecords = 100;
  static constexpr std::uint64_t kStride = kSlowdown > 1 ? 6 : 1;
  static constexpr std::uint64_t kAllocationsMax = 20'000;  // of one call; more is an endless loop

  void SetUp() override {
    alarm(120);  // for a lock that stayed locked
    Restart();
  }
  void TearDown() override { alarm(0); }

  static std::string Key(int i) { return "key" + std::to_string(i); }
  static std::string Value(int i) { return std::to_string(i) + std::string(static_cast<std::size_t>(i % 50), 'v'); }

  void Restart() {
    db_.reset();
    surroundings_.emplace();
    ASSERT_OK_AND_ASSIGN(db_, surroundings_->Open());
    before_.clear();
    for (int i = 0; i < kRecords; ++i) before_[Key(i)] = Value(i);
    before_["long"] = std::string(30'000, 'l');
    for (const auto& [key, value] : before_) ASSERT_THAT(db_->Set(key, value), IsOk());
  }
  // Restores the records of SetUp.
  void Restore() {
    const Records now = Content();
    for (const auto& [key, value] : now) {
      if (!before_.contains(key)) {
        ASSERT_THAT(db_->Remove(key), IsOk());
      }
    }
    for (const auto& [key, value] : before_) {
      const auto found = now.find(key);
      if (found == now.end() || found->second != value) {
        ASSERT_THAT(db_->Set(key, value), IsOk());
      }
    }
  }
  Records Content() {
    Records records;
    EXPECT_THAT(db_->ProcessEach([&records](std::string_view key, std::string_view value) {
      EXPECT_TRUE(records.emplace(key, value).second) << key << " was shown twice";
    }),
                IsOk());
    return records;
  }

  static Status Run(const Operation& operation, Database& db, std::string_view name) {
    try {
      return operation(db);
    } catch (const std::exception& error) {
      ADD_FAILURE() << name << " threw " << error.what();
    }
    return absl::OkStatus();
  }

  // Checks that each key is as before or as after the operation; if `atomic`, all as before or all
  // as after.
  void ExpectBetween(const Records& now, const Records& after, bool atomic, std::string_view name) {
    if (now == before_ || now == after) return;
    EXPECT_FALSE(atomic) << name << " was done in part";
    Records keys = before_;
    keys.insert(after.begin(), after.end());
    keys.insert(now.begin(), now.end());
    const auto value_in = [](const Records& records, const std::string& key) {
      const auto found = records.find(key);
      return found == records.end() ? std::optional<std::string>() : found->second;
    };
    for (const auto& [key, ignored] : keys) {
      const auto value = value_in(now, key);
      EXPECT_TRUE(value == value_in(before_, key) || value == value_in(after, key)) << name << " lost " << key;
    }
  }

  // Another thread can read and change all records; `clears` them too.
  void ExpectNothingLocked(bool clears) {
    std::thread([&] {
      for (const auto& [key, value] : before_)
        EXPECT_THAT(db_->Get(key).status(), testing::AnyOf(IsOk(), StatusIs(absl::StatusCode::kNotFound)));
      EXPECT_THAT(db_->Set("long", before_["long"]), IsOk());
      if (clears) {
        EXPECT_THAT(db_->Clear(), IsOk());
      }
    }).join();
  }

  void Try(std::string_view name, const Operation& operation, bool atomic = true,
           FailingAllocation::Whose whose = FailingAllocation::Whose::kThisThread, std::uint64_t step = 10) {
    SCOPED_TRACE(name);
    ASSERT_THAT(Run(operation, *db_, name), IsOk()) << "with memory";
    const Records after = Content();
    std::uint64_t failures = 0;
    Restore();
    // Records that changed since the last synchronization are changed again without memory.
    for (const bool is_synchronized : {false, true}) {
      for (const auto which : {FailingAllocation::Which::kOnce, FailingAllocation::Which::kFromThenOn}) {
        bool has_failed = true;
        for (std::uint64_t n = 1 + TestSeed() % kStride; has_failed && !HasFailure(); n += (1 + n / step) * kStride) {
          SCOPED_TRACE(n);
          ASSERT_LT(n, kAllocationsMax);
          if (is_synchronized) {
            ASSERT_THAT(db_->Synchronize(SyncMode::kSoft), IsOk());
          }
          Status status;
          {
            const FailingAllocation failing(n, which, whose);
            status = Run(operation, *db_, name);
            has_failed = failing.HasFailed();
          }
          failures += has_failed ? 1 : 0;
          if (!status.ok()) {
            EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted));
            EXPECT_TRUE(has_failed);
          }
          ExpectBetween(Content(), after, atomic, name);
          ASSERT_THAT(db_->Verify(), IsOk());
          ExpectNothingLocked(!status.ok());
          ASSERT_THAT(db_->GetHealth(), IsOk());
          Restore();
        }
      }
    }
    ReportFailures(failures);
    ASSERT_TRUE(Content() == before_);
  }

  std::optional<Surroundings> surroundings_;  // outlives the database
  std::unique_ptr<Database> db_;
  Records before_;
};

TYPED_TEST_SUITE_P(AllocationFailure);

TYPED_TEST_P(AllocationFailure, StaysConsistentInOperationsOnOneRecord) {
  using D = typename TestFixture::Database;
  const std::string key = this->Key(7), longer(3000, 'n'), longest(100'000, 'N');
  this->Try("Get", [&](D& db) { return db.Get("long").status(); });
  this->Try("Get, appending to a string", [&](D& db) {
    std::string value;
    return db.Get("long", &value);
  });
  this->Try("Get with a visitor that copies", [&](D& db) {
    std::string copy;
    return db.Get("long", [&copy](std::string_view value) { copy.assign(value); });
  });
  this->Try("GetOr", [&](D& db) { return db.GetOr("absent", longer).status(); });
  this->Try("Contains", [&](D& db) { return db.Contains(key).status(); });
  this->Try("Set of a new key", [&](D& db) { return db.Set("new", "value"); });
  this->Try("Set of a longer value", [&](D& db) { return db.Set(key, longer); });
  this->Try("Set of a very long value", [&](D& db) { return db.Set(key, longest); });
  this->Try("Set of a short value", [&](D& db) { return db.Set("long", "short"); });
  this->Try("Set that keeps", [&](D& db) {
    std::string old;
    const Status status = db.Set("long", "new", {.overwrite = false, .old_value = &old});
    return absl::IsAlreadyExists(status) ? absl::OkStatus() : status;
  });
  this->Try("Replace", [&](D& db) { return db.Replace(key, longer); });
  this->Try("Remove", [&](D& db) { return db.Remove("long"); });
  this->Try("Remove with the old value", [&](D& db) {
    std::string old;
    return db.Remove("long", &old);
  });
  this->Try("Append", [&](D& db) { return db.Append(key, longer, ","); });
  this->Try("CompareExchange", [&](D& db) {
    std::string actual;
    return db.CompareExchange("long", Expect::Any(), Action::Set(longest), &actual);
  });
  this->Try("Increment", [&](D& db) { return db.Increment("number").status(); });
}

TYPED_TEST_P(AllocationFailure, StaysConsistentInOperationsOnSeveralRecords) {
  using D = typename TestFixture::Database;
  std::vector<std::string> owned;
  for (int i = 0; i < 40; ++i) owned.push_back(this->Key(3 * i));  // some are absent
  const std::vector<std::string_view> keys(owned.begin(), owned.end());
  const std::string longer(500, 'm'), longest(20'000, 'M');
  const std::string key = this->Key(7);
  this->Try("ProcessMulti", [&](D& db) {
    return db.ProcessMulti(keys, [&](std::size_t i, std::optional<std::string_view>) {
      return std::optional(i % 3 == 0 ? Action::Remove() : i % 3 == 1 ? Action::Set(longer) : Action::Set(longest));
    });
  });
  std::vector<std::string_view> repeated;  // more keys than fit a small vector, few enough to be held one by one
  for (std::size_t i = 0; i < 40; ++i) repeated.push_back(keys[i % 10]);
  this->Try("ProcessMulti of repeated keys", [&](D& db) {
    return db.ProcessMulti(repeated, [&](std::size_t, std::optional<std::string_view>) { return std::optional(Action::Set(longest)); });
  });
  this->Try("ProcessMulti that looks", [&](D& db) { return db.ProcessMulti(keys, [](std::size_t, std::optional<std::string_view>) {}); });
  std::vector<Exchange> exchanges;
  std::vector<KeyValue> records;
  std::vector<std::optional<std::string>> values(keys.size());
  for (const std::string_view one : keys) records.push_back({one, longer});
  for (int i = 10; i < 30; ++i) exchanges.push_back({keys[static_cast<std::size_t>(i)], Expect::Any(), Action::Set(longer)});
  this->Try("CompareExchangeMulti", [&](D& db) { return db.CompareExchangeMulti(exchanges); });
  this->Try("Rekey", [&](D& db) { return db.Rekey("long", "longer"); });
  const auto write = [&](D& db, bool is_large) {
    WriteBatch batch;
    char name[16];
    for (int i = 0; i < (is_large ? 600 : 20); ++i) {
      const int size = std::snprintf(name, sizeof(name), "key%d", i * 7 % 90 * 1000 + i);
      batch.Set({name, static_cast<std::size_t>(size)}, std::string_view(longer).substr(0, 40 + static_cast<std::size_t>(i % 7) * 30));
    }
    for (const std::string_view one : keys) batch.Remove(one);
    batch.Set(key, longest);
    batch.Expect("long", Expect::Any());
    if constexpr (OrderedDBM<D>) {
      batch.RemoveRange("key5", "key6");
      batch.SetAppliedIndex(db.AppliedIndex() + 1);
    }
    return db.Write(batch);
  };
  this->Try("Write", [&](D& db) { return write(db, false); });
  this->Try("Write of many records", [&](D& db) { return write(db, true); });
  this->Try("GetMulti", [&](D& db) { return db.GetMulti(keys, values); });
  this->Try("GetMulti with a visitor", [&](D& db) { return db.GetMulti(keys, [](std::size_t, std::optional<std::string_view>) {}); });
  this->Try(
      "SetMulti", [&](D& db) { return db.SetMulti(records); }, false);
  this->Try(
      "AppendMulti", [&](D& db) { return db.AppendMulti(records); }, false);
  this->Try("PopFirst", [&](D& db) {
    std::string popped, value;
    return db.PopFirst(&popped, &value);
  });
}

TYPED_TEST_P(AllocationFailure, StaysConsistentInManyUpdates) {
  using D = typename TestFixture::Database;
  std::vector<std::string> keys;
  for (int i = 0; i < 300; ++i) keys.push_back("many" + std::to_string(i * 7919 % 300));
  const std::string value(40, 'v');
  this->Try(
      "Set of new keys",
      [&](D& db) {
        for (const std::string& key : keys) HAKO_RETURN_IF_ERROR(db.Set(key, value));
        return absl::OkStatus();
      },
      false);
  this->Try(
      "Remove of most",
      [&](D& db) {
        for (int i = 0; i < 90; ++i) {
          char key[8];
          const int size = std::snprintf(key, sizeof(key), "key%d", i);
          HAKO_RETURN_IF_ERROR(db.Remove({key, static_cast<std::size_t>(size)}));
        }
        return absl::OkStatus();
      },
      false);
}

TYPED_TEST_P(AllocationFailure, StaysConsistentInOperationsOnTheWholeDatabase) {
  using D = typename TestFixture::Database;
  const auto all_threads = FailingAllocation::Whose::kAllThreads;
  std::atomic<int> shown = 0;
  this->Try("ProcessEach", [&](D& db) { return db.ProcessEach([&](std::string_view, std::string_view) { ++shown; }); });
  this->Try(
      "ProcessEachParallel", [&](D& db) { return db.ProcessEachParallel(3, [&](std::string_view, std::string_view) { ++shown; }); }, true,
      all_threads);
  this->Try("iteration", [&](D& db) -> Status {
    auto it = db.MakeIterator();
    for (it.First(); it.Valid(); it.Next()) ++shown;
    return it.status();
  });
  this->Try("Jump", [&](D& db) -> Status {
    auto it = db.MakeIterator();
    it.Jump("long");
    return it.status();
  });
  this->Try("Clear", [&](D& db) { return db.Clear(); });
  constexpr bool kIsFile = requires(D & db) { db.SetType(1); };
  this->Try(
      "Synchronize", [&](D& db) { return db.Synchronize(SyncMode::kHard); }, true, all_threads);
  this->Try(
      "Verify", [&](D& db) { return db.Verify(); }, true, all_threads);
  this->Try("GetStats, Inspect, Count", [&](D& db) {
    (void)db.GetStats();
    (void)db.Inspect();
    (void)db.Count();
    return absl::OkStatus();
  });
  if constexpr (kIsFile) {
    this->Try("SetType", [&](D& db) { return db.SetType(1); });
    this->Try(
        "Rebuild", [&](D& db) { return db.Rebuild(); }, true, all_threads, 1);
  }
  if constexpr (OrderedDBM<D>) {
    this->Try("ranges", [&](D& db) -> Status {
      auto range = db.Range("key2", "key7");
      for (const auto& record : range) shown += static_cast<int>(record.first.size());
      HAKO_RETURN_IF_ERROR(range.status());
      auto reversed = db.ReverseRange("key2", "key7");
      for (const auto& record : reversed) shown += static_cast<int>(record.first.size());
      HAKO_RETURN_IF_ERROR(reversed.status());
      return db.CountRange("key2", "key7").status();
    });
    this->Try(
        "RemoveRange", [&](D& db) { return db.RemoveRange("key2", "key7").status(); }, false);
  }
}

REGISTER_TYPED_TEST_SUITE_P(AllocationFailure, StaysConsistentInOperationsOnOneRecord, StaysConsistentInOperationsOnSeveralRecords,
                            StaysConsistentInManyUpdates, StaysConsistentInOperationsOnTheWholeDatabase);

}  // namespace hako
