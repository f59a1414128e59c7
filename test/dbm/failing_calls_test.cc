// Calls that fail: wrong arguments, limits, absent and existing records, conditions that do not hold, a
// database that is read-only or closed. Each leaves the records and their times, the figures, the log and
// the bytes of all files as they were.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/any_dbm.h"
#include "hako/dbm/search.h"
#include "hako/dbm/transfer.h"
#include "hako/dbm/write_batch.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace hako {
namespace {

using Value = std::optional<std::string_view>;
using Code = absl::StatusCode;

constexpr std::string_view kOne = "1", kTwo = "2", kAbsent = "1000";

// All that a caller can see of a database, and all of its files.
struct State {
  std::map<std::string, std::pair<std::string, std::uint64_t>> records;
  std::uint64_t count = 0, applied_index = 0, last_lsn = 0, num_records = 0, evictions = 0, epoch = 0;
  std::string health;
  std::map<std::string, std::string> files;
  bool operator==(const State&) const = default;
};
std::ostream& operator<<(std::ostream& out, const State& state) {
  out << state.records.size() << " records, count " << state.count << ", applied index " << state.applied_index << ", LSN "
      << state.last_lsn << ", " << state.num_records << " records, " << state.evictions << " evictions, epoch " << state.epoch << ", "
      << state.health;
  for (const auto& [name, bytes] : state.files)
    out << ", " << name << " " << bytes.size() << " bytes, hash " << std::hash<std::string>()(bytes);
  return out;
}

class FailingCalls : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string name = GetParam();
    is_in_memory_ = name[0] == '?';
    is_array_ = name.find(".hka") != name.npos;
    Open();
    for (int i = 0; i < 100; ++i) ASSERT_THAT(db_->Set(std::to_string(i), Of(i)), IsOk());
    if (!is_array_) ASSERT_THAT(db_->Set("text", "no number"), IsOk());
    WriteBatch batch;
    batch.SetAppliedIndex(7);
    batch.Set("100", Of(100));
    ASSERT_THAT(db_->Write(batch), IsOk());
    if (!is_in_memory_) ASSERT_THAT(db_->Synchronize(SyncMode::kHard), IsOk());
  }
  static std::string Of(int i) { return std::to_string(10'000'000 + i); }  // 8 bytes
  void Open(const std::string& more = "") {
    const std::string name = GetParam();
    ASSERT_OK_AND_ASSIGN(db_, AnyDBM::Open(is_in_memory_ ? name : directory_.File(name) + more));
  }

  State Now() {
    State state;
    auto it = db_->MakeIterator();
    for (it.First(); it.Valid(); it.Next()) state.records[std::string(it.key())] = {std::string(it.value()), it.expire_at()};
    EXPECT_THAT(it.status(), IsOk());
    state.count = db_->Count();
    state.applied_index = db_->AppliedIndex();
    state.last_lsn = db_->LastLsn();
    const Stats stats = db_->GetStats();
    state.num_records = stats.num_records;
    state.evictions = stats.evictions;
    state.epoch = stats.epoch;
    state.health = db_->GetHealth().ToString();
    state.files = Files();
    return state;
  }
  std::map<std::string, std::string> Files() const {
    std::map<std::string, std::string> files;
    const bool has_clock = std::string_view(GetParam()).find("expiry") != std::string_view::npos;  // which a thread keeps in the file
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory_.path())) {
      std::ifstream in(entry.path(), std::ios::binary);
      files[entry.path().string()] = has_clock ? std::string() : std::string(std::istreambuf_iterator<char>(in), {});
    }
    return files;
  }

  struct Call {
    const char* name;
    std::function<Status(AnyDBM&)> run;
  };
  std::vector<Call> Calls() const;

  TempDir directory_;
  std::unique_ptr<AnyDBM> db_;
  bool is_in_memory_ = false, is_array_ = false;
};

auto FailingCalls::Calls() const -> std::vector<Call> {
  static const std::string kLong(5000, 'k'), kNew = "87654321";
  const std::string missing = directory_.File("no such directory") + "/copy";
  std::vector<Call> calls = {
      {"Set without overwrite", [](AnyDBM& d) { return d.Set(kOne, kNew, {.overwrite = false}); }},
      {"Set with two times", [](AnyDBM& d) { return d.Set(kOne, kNew, {.ttl = std::chrono::seconds(1), .expire_at = 5}); }},
      {"Set with a negative ttl", [](AnyDBM& d) { return d.Set(kOne, kNew, {.ttl = std::chrono::milliseconds(-1)}); }},
      {"Set with a time and the old one", [](AnyDBM& d) { return d.Set(kOne, kNew, {.expire_at = 5, .keep_expiry = true}); }},
      {"Set with a time that is too large", [](AnyDBM& d) { return d.Set(kOne, kNew, {.expire_at = Expiry::kTimeMax + 1}); }},
      {"Replace of an absent record", [](AnyDBM& d) { return d.Replace(kAbsent, kNew); }},
      {"Remove of an absent record", [](AnyDBM& d) { return d.Remove(kAbsent); }},
      {"Get of an absent record", [](AnyDBM& d) { return d.Get(kAbsent).status(); }},
      {"Get of an absent record by a visitor", [](AnyDBM& d) { return d.Get(kAbsent, [](std::string_view) {}); }},
      {"GetSize of an absent record", [](AnyDBM& d) { return d.GetSize(kAbsent).status(); }},
      {"GetExpiry of an absent record", [](AnyDBM& d) { return d.GetExpiry(kAbsent).status(); }},
      {"SetExpiry of an absent record", [](AnyDBM& d) { return d.SetExpiry(kAbsent, 1); }},
      {"SetExpiry to a time that is too large", [](AnyDBM& d) { return d.SetExpiry(kOne, Expiry::kTimeMax + 1); }},
      {"Persist of an absent record", [](AnyDBM& d) { return d.Persist(kAbsent); }},
      {"Increment beyond 64 bits", [](AnyDBM& d) { return d.Increment(kAbsent, 1, std::numeric_limits<std::int64_t>::max()).status(); }},
      {"CompareExchange of another value", [](AnyDBM& d) { return d.CompareExchange(kOne, Expect::Value("x"), Action::Set(kNew)); }},
      {"CompareExchange of an absent record", [](AnyDBM& d) { return d.CompareExchange(kAbsent, Expect::Any(), Action::Set(kNew)); }},
      {"CompareExchange of a record that must be absent",
       [](AnyDBM& d) { return d.CompareExchange(kOne, Expect::Absent(), Action::Remove()); }},
      {"CompareExchangeMulti",
       [](AnyDBM& d) {
         const Exchange exchanges[] = {{kOne, Expect::Any(), Action::Set(kNew)}, {kTwo, Expect::Absent(), Action::Set(kNew)}};
         return d.CompareExchangeMulti(exchanges);
       }},
      {"ProcessMulti that aborts",
       [](AnyDBM& d) {
         const std::string_view keys[] = {kOne, kAbsent, kTwo};
         return d.ProcessMulti(keys, [](std::size_t i, Value) { return i < 2 ? std::optional(Action::Set(kNew)) : std::nullopt; });
       }},
      {"Process with a time that is too large",
       [](AnyDBM& d) { return d.Process(kOne, [](Value) { return Action::Set(kNew, Expiry::kTimeMax + 1); }); }},
      {"ProcessMulti with a time that is too large",
       [](AnyDBM& d) {
         const std::string_view keys[] = {kOne, kTwo};
         return d.ProcessMulti(keys, [](std::size_t i, Value) { return Action::Set(kNew, i * (Expiry::kTimeMax + 1)); });
       }},
      {"Rekey of an absent record", [](AnyDBM& d) { return d.Rekey(kAbsent, "1001"); }},
      {"Rekey to an existing record", [](AnyDBM& d) { return d.Rekey(kOne, kTwo, {.overwrite = false}); }},
      {"a batch whose condition does not hold",
       [](AnyDBM& d) {
         WriteBatch batch;
         batch.Set(kOne, kNew);
         batch.SetAppliedIndex(8);
         batch.Expect(kTwo, Expect::Absent());
         return d.Write(batch);
       }},
      {"GetMulti with too few values",
       [](AnyDBM& d) {
         const std::string_view keys[] = {kOne, kTwo};
         std::optional<std::string> value;
         return d.GetMulti(keys, std::span(&value, 1));
       }},
      {"PushLast at a time that is too late", [](AnyDBM& d) { return d.PushLast(kNew, 1e12); }},
      {"Import of a malformed line",
       [](AnyDBM& d) {
         std::istringstream text("no tab\n");
         return Import(d, SourceOf(text)).status();
       }},
      {"Search by a wrong expression", [](AnyDBM& d) { return Search(d, SearchMode::kRegex, "(").status(); }},
      {"CopyTo a directory that does not exist", [missing](AnyDBM& d) { return d.CopyTo(missing); }},
      {"an iterator at the end",
       [end = is_array_ ? "1099511627775" : "zzz"](AnyDBM& d) {
         auto it = d.MakeIterator();
         it.Jump(end);
         std::string key;
         for (Status status : {it.Set(kNew), it.Remove(), it.Process([](Value) { return Action::Remove(); }), it.Step(&key)}) {
           if (!absl::IsNotFound(status)) return status;
         }
         return AbsentError();
       }},
      {"a visitor that calls", [](AnyDBM& d) {
         Status inner;
         const Status status = d.Process(kOne, [&](Value) {
           inner = d.Clear();
           return Action::Keep();
         });
         return status.ok() ? inner : status;
       }}};
  if (!db_->IsOrdered()) {
    calls.push_back({"CountRange without an order", [](AnyDBM& d) { return d.CountRange("1", "2").status(); }});
    calls.push_back({"RemoveRange without an order", [](AnyDBM& d) { return d.RemoveRange("1", "2").status(); }});
    calls.push_back({"a batch with a range without an order", [](AnyDBM& d) {
                       WriteBatch batch;
                       batch.Set(kOne, kNew);
                       batch.RemoveRange("1", "5");
                       return d.Write(batch);
                     }});
  } else {  // whose keys are not so long
    calls.push_back({"Set of a long key", [](AnyDBM& d) { return d.Set(kLong, kNew); }});
    calls.push_back({"Append to a long key", [](AnyDBM& d) { return d.Append(kLong, kNew); }});
    calls.push_back({"Rekey to a long key", [](AnyDBM& d) { return d.Rekey(kOne, kLong); }});
    calls.push_back({"a batch with a long key", [](AnyDBM& d) {
                       WriteBatch batch;
                       batch.Set(kOne, kNew);
                       batch.Set(kLong, kNew);
                       return d.Write(batch);
                     }});
    calls.push_back({"ProcessMulti with a long key", [](AnyDBM& d) {
                       const std::string_view keys[] = {kOne, kLong};
                       return d.ProcessMulti(keys, [](std::size_t, Value) { return Action::Set(kNew); });
                     }});
  }
  if (db_->expiry() == nullptr) {
    calls.push_back({"Set with a time where none is kept", [](AnyDBM& d) { return d.Set(kOne, kNew, {.ttl = std::chrono::hours(1)}); }});
    calls.push_back({"SetExpiry where none is kept", [](AnyDBM& d) { return d.SetExpiry(kOne, 1); }});
    calls.push_back({"a batch with a time where none is kept", [](AnyDBM& d) {
                       WriteBatch batch;
                       batch.Set(kOne, kNew, 1);
                       batch.Remove(kTwo);
                       return d.Write(batch);
                     }});
    calls.push_back(
        {"Process with a time where none is kept", [](AnyDBM& d) { return d.Process(kOne, [](Value) { return Action::Set(kNew, 1); }); }});
  }
  if (is_array_) {
    const std::string wide(9, 'w');
    calls.push_back({"Set of a wide value", [wide](AnyDBM& d) { return d.Set(kOne, wide); }});
    calls.push_back({"Append beyond the width", [](AnyDBM& d) { return d.Append(kOne, "more"); }});
    calls.push_back({"Set of a key that is no number", [](AnyDBM& d) { return d.Set("key", kNew); }});
    calls.push_back({"Set of a number that is too large", [](AnyDBM& d) { return d.Set("1099511627776", kNew); }});
    calls.push_back({"RemoveRange to a key that is no number", [](AnyDBM& d) { return d.RemoveRange("1", "x").status(); }});
    calls.push_back({"a batch with a wide value", [wide](AnyDBM& d) {
                       WriteBatch batch;
                       batch.Set(kOne, kNew);
                       batch.Set(kTwo, wide);
                       return d.Write(batch);
                     }});
  } else {
    calls.push_back({"Increment of a text", [](AnyDBM& d) { return d.Increment("text").status(); }});
  }
  return calls;
}

TEST_P(FailingCalls, ChangeNothing) {
  const State state = Now();
  for (const Call& call : Calls()) {
    SCOPED_TRACE(call.name);
    EXPECT_FALSE(call.run(*db_).ok());
    ASSERT_EQ(Now(), state);
  }
  const auto& before = state.records;
  EXPECT_THAT(db_->Verify(), IsOk());
  ASSERT_THAT(db_->Close(), IsOk());
  if (is_in_memory_) return;
  Open();
  EXPECT_EQ(Now().records, before) << "after the next Open";
  EXPECT_EQ(db_->AppliedIndex(), 7u);
}

// The calls that fail, and those that would succeed otherwise.
TEST_P(FailingCalls, ChangeNothingWhenReadOnly) {
  if (is_in_memory_) GTEST_SKIP() << "it has no file";
  ASSERT_THAT(db_->Close(), IsOk());
  Open(std::string(GetParam()).find('?') == std::string::npos ? "?mode=read" : ",mode=read");
  std::vector<Call> calls = Calls();
  static const std::string kNew = "87654321";
  calls.push_back({"Set", [](AnyDBM& d) { return d.Set(kOne, kNew); }});
  calls.push_back({"Remove", [](AnyDBM& d) { return d.Remove(kOne); }});
  calls.push_back({"Append", [](AnyDBM& d) { return d.Append(kAbsent, kNew); }});
  calls.push_back({"Increment", [](AnyDBM& d) { return d.Increment(kAbsent).status(); }});
  calls.push_back({"Rekey", [](AnyDBM& d) { return d.Rekey(kOne, kAbsent); }});
  calls.push_back({"PopFirst", [](AnyDBM& d) { return d.PopFirst(); }});
  calls.push_back({"Clear", [](AnyDBM& d) { return d.Clear(); }});
  calls.push_back({"Process", [](AnyDBM& d) { return d.Process(kOne, [](Value) { return Action::Remove(); }); }});
  calls.push_back({"a batch", [](AnyDBM& d) {
                     WriteBatch batch;
                     batch.Set(kOne, kNew);
                     batch.SetAppliedIndex(8);
                     return d.Write(batch);
                   }});
  const State before = Now();
  for (const Call& call : calls) {
    SCOPED_TRACE(call.name);
    EXPECT_FALSE(call.run(*db_).ok());
    ASSERT_EQ(Now(), before);
  }
}

TEST_P(FailingCalls, ChangeNoFileAfterClose) {
  ASSERT_THAT(db_->Close(), IsOk());
  const auto before = Files();
  const auto closed = StatusIs(Code::kFailedPrecondition);
  for (const Call& call : Calls()) {
    SCOPED_TRACE(call.name);
    EXPECT_FALSE(call.run(*db_).ok());
  }
  const std::string copy = directory_.File("copy");
  for (const Status& status :
       {db_->Rebuild(), db_->Scrub().status(), db_->CopyTo(copy), db_->Synchronize(SyncMode::kHard), db_->WaitDurable(db_->LastLsn()),
        db_->Verify(), db_->Clear(), db_->RemoveExpired().status(), db_->GetHealth(), db_->Export(*db_), db_->CountRange("2", "1").status(),
        db_->RemoveRange("2", "1").status(), db_->SetMulti({}), db_->GetOr(kOne, "").status(), db_->Export(*db_),
        db_->ProcessFirst([](std::string_view, std::string_view) {}), db_->Persist(kOne)}) {
    if (!status.ok()) EXPECT_THAT(status, closed);
  }
  EXPECT_THAT(db_->Rebuild(), closed);
  EXPECT_THAT(db_->Scrub().status(), closed);
  EXPECT_THAT(db_->CopyTo(copy), closed);
  EXPECT_THAT(db_->CountRange("2", "1").status(), closed);
  EXPECT_THAT(db_->RemoveRange("2", "1").status(), closed);
  EXPECT_THAT(db_->RemoveExpired().status(), closed);
  EXPECT_FALSE(db_->ShouldBeRebuilt());
  EXPECT_EQ(db_->Count(), 0u);
  auto range = db_->Range();
  for (const auto& record : range) ADD_FAILURE() << record.first;
  EXPECT_THAT(range.status(), closed);
  EXPECT_EQ(Files(), before);
}

// An iterator shows its copy until it moves.
TEST_P(FailingCalls, IteratorsMadeBeforeCloseEnd) {
  std::vector<AnyDBM::Iterator> its;
  for (int i = 0; i < 5; ++i) {
    its.push_back(db_->MakeIterator());
    its.back().Jump("50");
    ASSERT_TRUE(its.back().Valid());
  }
  ASSERT_THAT(db_->Close(), IsOk());
  const auto closed = StatusIs(Code::kFailedPrecondition);
  for (auto& it : its) {
    EXPECT_EQ(it.key(), "50");
    EXPECT_EQ(it.value(), Of(50));
  }
  EXPECT_THAT(its[0].Set("new"), closed);
  EXPECT_THAT(its[0].Process([](Value) { return Action::Remove(); }), closed);
  EXPECT_THAT(its[0].Remove(), closed);
  for (int i = 0; i < 200 && its[1].Valid(); ++i) its[1].Next();  // the records that were copied together
  its[2].First();
  its[3].Jump("51");
  for (int i = 1; i <= 3; ++i) {
    EXPECT_FALSE(its[static_cast<std::size_t>(i)].Valid()) << i;
    EXPECT_THAT(its[static_cast<std::size_t>(i)].status(), closed) << i;
  }
  if (db_->IsOrdered()) {
    for (int i = 0; i < 200 && its[4].Valid(); ++i) its[4].Previous();
    EXPECT_THAT(its[4].status(), closed);
    its[4].Last();
    EXPECT_THAT(its[4].status(), closed);
  }
}

constexpr const char* kNames[] = {"db.hkh",
                                  "db.hkh?file=pos",
                                  "db.hkh?durability=power",
                                  "db.hkt?page_size=256",
                                  "db.hkt?file=pos",
                                  "db.hka?width=8",
                                  "db.hks",
                                  "db.hks?dbm=baby",
                                  "?dbm=tiny",
                                  "?dbm=baby",
                                  "db.hkh?expiry=true",
                                  "db.hkt?expiry=true",
                                  "?dbm=tiny,capacity_records=2000"};
INSTANTIATE_TEST_SUITE_P(Each, FailingCalls, testing::ValuesIn(kNames), [](const auto& info) {
  std::string name;
  for (const char c : std::string(info.param)) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
});

}  // namespace
}  // namespace hako
