// Memory that runs out, and system calls that fail, in arrays on each file and in memory: a call returns an
// error or succeeds, nothing is done in part, no lock stays locked, no acknowledged update is lost.
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <functional>
#include <map>
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
#include "hako/dbm/array_dbm.h"
#include "hako/dbm/memory_array_dbm.h"
#include "hako/dbm/positional_array_dbm.h"
#include "hako/dbm/write_batch.h"
#include "support/allocation_counter.h"
#include "support/crash_states.h"
#include "support/failing_calls.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

using Model = std::map<std::uint64_t, std::string>;
constexpr unsigned kWidth = 100;
constexpr std::uint64_t kFar = 700'000'000'000;
constexpr std::uint64_t kStep = kSlowdown > 1 ? 1 : 3;  // each call or allocation fails up to this one, later ones ever further apart

std::string Completed(std::string value) {
  value.resize(kWidth);
  return value;
}

template <class D>
class ArrayFailureTest : public testing::Test {
 protected:
  static constexpr bool kIsFile = requires(D & db) { db.SetType(1); };

  void SetUp() override { alarm(120); }  // for a lock that stayed locked
  void TearDown() override {
    alarm(0);
    FailingCalls::Instance().Disarm();
  }

  StatusOr<std::unique_ptr<D>> Open() {
    std::conditional_t<kIsFile, ArrayOptions, MemoryArrayOptions> options;
    options.width = kWidth;
    if constexpr (kIsFile) options.cache_bytes = 1 << 20;
    return D::Open(path_, options);
  }
  // Several pages near each other, and far away.
  Model Fill(D& db) {
    Model model;
    for (std::uint64_t i = 0; i < 300; ++i) {
      const std::uint64_t id = i % 3 == 2 ? i * 2'000'000'000 : i * 2;
      EXPECT_THAT(db.Set(id, std::to_string(i)), IsOk());
      model[id] = Completed(std::to_string(i));
    }
    return model;
  }
  static Model Content(D& db) {
    Model found;
    auto it = db.MakeIterator();
    for (it.First(); it.Valid(); it.Next()) found.emplace(it.id(), it.value());
    EXPECT_THAT(it.status(), IsOk());
    EXPECT_EQ(db.Count(), found.size());
    return found;
  }
  static void Restore(D& db, const Model& wanted) {
    const Model now = Content(db);
    for (const auto& [id, value] : now) {
      if (wanted.contains(id)) continue;
      ASSERT_THAT(db.Remove(id), IsOk());
    }
    for (const auto& [id, value] : wanted) {
      if (now.contains(id) && now.at(id) == value) continue;
      ASSERT_THAT(db.Set(id, value), IsOk());
    }
  }

  // An operation, and what it makes of the model.
  struct Operation {
    const char* name;
    std::function<Status(D&)> run;
    std::function<void(Model&)> apply = nullptr;  // nullptr: nothing
  };
  static Status Write(D& db, bool has_ranges) {
    WriteBatch batch;
    for (std::uint64_t i = 0; i < 40; ++i) batch.Set(std::to_string(IdInBatch(i)), "batch");
    for (std::uint64_t i = 0; i < 10; ++i) batch.Remove(std::to_string(i * 3));
    if (has_ranges) batch.RemoveRange("50", "300000000000");
    if (has_ranges) batch.RemoveRange("500000000000");
    batch.Set("55", "kept");
    batch.SetAppliedIndex(db.AppliedIndex() + 1);
    return batch.status().ok() ? db.Write(batch) : batch.status();
  }
  static std::uint64_t IdInBatch(std::uint64_t i) { return i * (i % 2 == 0 ? 5 : 1'000'000'007); }
  static void ApplyWrite(Model& model, bool has_ranges) {
    for (std::uint64_t i = 0; i < 40; ++i) model[IdInBatch(i)] = Completed("batch");
    for (std::uint64_t i = 0; i < 10; ++i) model.erase(i * 3);
    if (has_ranges) model.erase(model.lower_bound(50), model.lower_bound(300'000'000'000));
    if (has_ranges) model.erase(model.lower_bound(500'000'000'000), model.end());
    model[55] = Completed("kept");
  }
  static std::vector<Operation> Operations() {
    const auto set = [](std::uint64_t id, const char* name) {
      return Operation{name, [id](D& db) { return db.Set(id, "new"); }, [id](Model& model) { model[id] = Completed("new"); }};
    };
    const auto remove = [](std::uint64_t id, const char* name) {
      return Operation{name, [id](D& db) { return db.Remove(id); }, [id](Model& model) { model.erase(id); }};
    };
    return {set(1, "Set of a new record"),
            set(kFar + 1, "Set on a new page"),
            set(2, "Set of an old record"),
            remove(6, "Remove"),
            remove(4'000'000'000, "Remove of a page"),
            {"Append", [](D& db) { return db.Append("end").status(); },
             [](Model& model) { model[model.rbegin()->first + 1] = Completed("end"); }},
            {"Write", [](D& db) { return Write(db, false); }, [](Model& model) { ApplyWrite(model, false); }},
            {"Write with ranges", [](D& db) { return Write(db, true); }, [](Model& model) { ApplyWrite(model, true); }},
            {"RemoveRange in a page", [](D& db) { return db.RemoveRange(0, 30).status(); },
             [](Model& model) { model.erase(model.begin(), model.lower_bound(30)); }},
            {"Get", [](D& db) { return db.Contains(2).status(); }},
            {"CountRange", [](D& db) { return db.CountRange(0, kFar).status(); }},
            {"Synchronize", [](D& db) { return db.Synchronize(SyncMode::kHard); }},
            {"Verify", [](D& db) { return db.Verify(); }},
            {"Rebuild",
             [](D& db) {
               if constexpr (kIsFile) return db.Rebuild();
               return absl::OkStatus();
             }},
            {"Clear", [](D& db) { return db.Clear(); }, [](Model& model) { model.clear(); }},
            set(9, "Set after Clear")};
  }

  TempDir directory_{TempDir::MemoryParent()};
  const std::string path_ = directory_.File("db");
};
using Databases = testing::Types<ArrayDBM<>, ArrayDBM<PositionalParallelFile>, MemoryArrayDBM<>>;
TYPED_TEST_SUITE(ArrayFailureTest, Databases);

TYPED_TEST(ArrayFailureTest, StaysConsistentWhenMemoryRunsOut) {
  ASSERT_OK_AND_ASSIGN(auto db, this->Open());
  const Model before = this->Fill(*db);
  std::uint64_t failures = 0;
  for (const auto& operation : this->Operations()) {
    SCOPED_TRACE(operation.name);
    Model after = before;
    if (operation.apply) operation.apply(after);
    for (const auto which : {FailingAllocation::Which::kOnce, FailingAllocation::Which::kFromThenOn}) {
      bool has_failed = true;
      for (std::uint64_t n = 1; has_failed && !testing::Test::HasFailure(); n += 1 + n / kStep) {
        SCOPED_TRACE(n);
        ASSERT_LT(n, 20'000u);
        if (n % 3 == 0) {  // its pages are evicted
          ASSERT_THAT(db->Close(), IsOk());
          ASSERT_OK_AND_ASSIGN(db, this->Open());
        }
        Status status;
        {
          const FailingAllocation failing(n, which, FailingAllocation::Whose::kAllThreads);
          status = operation.run(*db);
          has_failed = failing.HasFailed();
        }
        failures += has_failed;
        if (!status.ok()) {
          EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted));
          EXPECT_TRUE(has_failed);
        }
        const Model now = this->Content(*db);
        EXPECT_TRUE(now == after || (!status.ok() && now == before)) << status;
        ASSERT_THAT(db->Verify(), IsOk());
        ASSERT_THAT(db->GetHealth(), IsOk());
        std::thread([&] { this->Restore(*db, before); }).join();  // nothing stays locked
      }
    }
  }
  ReportFailures(failures);
}

// The log has every acknowledged update, and nothing else: also after a device has failed.
TYPED_TEST(ArrayFailureTest, LosesNothingWhenSystemCallsFail) {
  std::uint64_t failures = 0;
  for (const int error : {EIO, ENOSPC}) {
    for (const bool forever : {false, true}) {
      bool has_failed = true;
      for (std::uint64_t call = 1; has_failed && !testing::Test::HasFailure(); call += 1 + call / kStep) {
        SCOPED_TRACE(testing::Message() << "error " << error << (forever ? " from call " : " in call ") << call);
        FailingCalls& calls = FailingCalls::Instance();
        Model model;
        {
          ASSERT_OK_AND_ASSIGN(auto db, this->Open());
          ASSERT_THAT(db->Clear(), IsOk());
          model = this->Fill(*db);
          ASSERT_THAT(db->Close(), IsOk());
          ASSERT_OK_AND_ASSIGN(db, this->Open());
          calls.Arm({.error = error, .call = call, .forever = forever});
          for (const auto& operation : this->Operations()) {
            const Status status = operation.run(*db);
            has_failed = calls.fired() != 0;
            EXPECT_TRUE(status.ok() || has_failed) << operation.name << ": " << status;
            EXPECT_FALSE(absl::IsDataLoss(status)) << operation.name << ": " << status;
            if (status.ok() && operation.apply) operation.apply(model);
          }
          (void)db->Close();
        }
        calls.Disarm();
        ASSERT_OK_AND_ASSIGN(auto db, this->Open());
        EXPECT_EQ(this->Content(*db), model);
        EXPECT_THAT(db->Verify(), IsOk());
        failures += has_failed;
      }
    }
  }
  ReportFailures(failures);
}

}  // namespace
}  // namespace hako
