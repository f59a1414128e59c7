// Visitors of every kind that call their own database or throw: such a call works or is refused, and never
// waits for a lock that the visitor holds; an exception leaves the call, and no lock behind.
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
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
using Keys = std::span<const std::string_view>;
using Records = std::map<std::string, std::string>;

constexpr int kRecords = 300;
constexpr std::string_view kVisited = "1", kOther = "2", kAbsent = "1000";
constexpr std::string_view kTwo[] = {kVisited, kOther};

Records RecordsOf(AnyDBM& db) {
  Records records;
  EXPECT_THAT(db.ProcessEach([&](std::string_view key, std::string_view value) { records.emplace(key, value); }), IsOk());
  return records;
}

class VisitorCalls : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    alarm(300);  // for a call that waits for ever
    const std::string name = GetParam();
    auto db = AnyDBM::Open(name[0] == '?' ? name : directory_.File(name));
    if (absl::IsInvalidArgument(db.status())) GTEST_SKIP() << db.status();  // a file system without direct I/O
    ASSERT_THAT(db.status(), IsOk());
    db_ = *std::move(db);
    is_array_ = name.find("array") != name.npos || name.find(".hka") != name.npos;
    for (int i = 0; i < kRecords; ++i) ASSERT_THAT(db_->Set(std::to_string(i), Of(std::to_string(i))), IsOk());
    if (db_->IsWritable() && name[0] != '?') ASSERT_THAT(db_->Synchronize(SyncMode::kHard), IsOk());
  }
  void TearDown() override {
    if (db_ != nullptr) {
      EXPECT_THAT(db_->Verify(), IsOk());
      EXPECT_THAT(db_->Close(), IsOk());
    }
    alarm(0);
  }

  // A value of an array has 8 bytes.
  std::string Of(std::string value) const {
    if (is_array_) value.resize(8, '\0');
    return value;
  }

  TempDir directory_;
  std::unique_ptr<AnyDBM> db_;
  bool is_array_ = false;
};

// A call that a visitor may make, and whether it changes something.
struct Call {
  const char* name;
  bool changes;
  std::function<Status(AnyDBM&)> run;
};

Status ToTheEnd(AnyDBM::Iterator& it) {
  while (it.Valid()) it.Next();
  return it.status();
}
template <class Range>
Status ToTheEnd(Range range) {
  for (const auto& record : range) (void)record;
  return range.status();
}

std::vector<Call> Calls(const std::string& copy) {
  static const KeyValue kRecordsToSet[] = {{kVisited, "n"}, {kAbsent, "n"}};
  static const Exchange kExchanges[] = {{kVisited, Expect::Any(), Action::Set("n")}, {kOther, Expect::Any(), Action::Set("n")}};
  std::vector<Call> calls = {
      {"Process", true, [](AnyDBM& d) { return d.Process(kOther, [](Value) { return Action::Set("n"); }); }},
      {"Process blindly", true, [](AnyDBM& d) { return d.Process(kVisited, [](bool) { return Action::Remove(); }); }},
      {"Process to read", false, [](AnyDBM& d) { return d.Process(kOther, [](Value) {}); }},
      {"ProcessMulti", true, [](AnyDBM& d) { return d.ProcessMulti(kTwo, [](std::size_t, Value) { return Action::Remove(); }); }},
      {"ProcessMulti to read", false, [](AnyDBM& d) { return d.ProcessMulti(kTwo, [](std::size_t, Value) {}); }},
      {"ProcessFirst", true, [](AnyDBM& d) { return d.ProcessFirst([](std::string_view, std::string_view) { return Action::Remove(); }); }},
      {"ProcessEach", false, [](AnyDBM& d) { return d.ProcessEach([](std::string_view, std::string_view) {}); }},
      {"ProcessEachParallel", false, [](AnyDBM& d) { return d.ProcessEachParallel(2, [](std::string_view, std::string_view) {}); }},
      {"Get of the visited", false, [](AnyDBM& d) { return d.Get(kVisited).status(); }},
      {"Get of another", false, [](AnyDBM& d) { return d.Get(kOther).status(); }},
      {"Get by a visitor", false, [](AnyDBM& d) { return d.Get(kVisited, [](std::string_view) {}); }},
      {"GetOr", false, [](AnyDBM& d) { return d.GetOr(kVisited, "").status(); }},
      {"GetSize", false, [](AnyDBM& d) { return d.GetSize(kVisited).status(); }},
      {"Contains", false, [](AnyDBM& d) { return d.Contains(kAbsent).status(); }},
      {"GetMulti", false, [](AnyDBM& d) { return d.GetMulti(kTwo, [](std::size_t, Value) {}); }},
      {"GetExpiry", false, [](AnyDBM& d) { return d.GetExpiry(kVisited).status(); }},
      {"Set of the visited", true, [](AnyDBM& d) { return d.Set(kVisited, "n"); }},
      {"Set of another", true, [](AnyDBM& d) { return d.Set(kOther, "n"); }},
      {"Set of an absent", true, [](AnyDBM& d) { return d.Set(kAbsent, "n", {.overwrite = false}); }},
      {"Replace", true, [](AnyDBM& d) { return d.Replace(kOther, "n"); }},
      {"Remove", true, [](AnyDBM& d) { return d.Remove(kOther); }},
      {"Append", true, [](AnyDBM& d) { return d.Append(kOther, "n"); }},
      {"CompareExchange", true, [](AnyDBM& d) { return d.CompareExchange(kOther, Expect::Any(), Action::Remove()); }},
      {"CompareExchangeMulti", true, [](AnyDBM& d) { return d.CompareExchangeMulti(kExchanges); }},
      {"Increment", true, [](AnyDBM& d) { return d.Increment(kAbsent).status(); }},
      {"SetMulti", true, [](AnyDBM& d) { return d.SetMulti(kRecordsToSet); }},
      {"RemoveMulti", true, [](AnyDBM& d) { return d.RemoveMulti(kTwo); }},
      {"AppendMulti", true, [](AnyDBM& d) { return d.AppendMulti(kRecordsToSet); }},
      {"Rekey", true, [](AnyDBM& d) { return d.Rekey(kVisited, kAbsent); }},
      {"PopFirst", true, [](AnyDBM& d) { return d.PopFirst(); }},
      {"PushLast", true, [](AnyDBM& d) { return d.PushLast("n"); }},
      {"Write", true,
       [](AnyDBM& d) {
         WriteBatch batch;
         batch.Set(kVisited, "n");
         batch.Set(kAbsent, "n");
         return d.Write(batch);
       }},
      {"Write of one", true,
       [](AnyDBM& d) {
         WriteBatch batch;
         batch.Remove(kOther);
         return d.Write(batch);
       }},
      {"SetExpiry", true, [](AnyDBM& d) { return d.SetExpiry(kOther, 1); }},
      {"RemoveExpired", false, [](AnyDBM& d) { return d.RemoveExpired().status(); }},
      {"First", false,
       [](AnyDBM& d) {
         auto it = d.MakeIterator();
         it.First();
         return ToTheEnd(it);
       }},
      {"Jump to the visited", false,
       [](AnyDBM& d) {
         auto it = d.MakeIterator();
         it.Jump(kVisited);
         return ToTheEnd(it);
       }},
      {"Range", false, [](AnyDBM& d) { return ToTheEnd(d.Range()); }},
      {"Range of some", false, [](AnyDBM& d) { return ToTheEnd(d.Range("1", "3")); }},
      {"ReverseRange", false, [](AnyDBM& d) { return ToTheEnd(d.ReverseRange()); }},
      {"CountRange", false, [](AnyDBM& d) { return d.CountRange("0", "5").status(); }},
      {"RemoveRange", true, [](AnyDBM& d) { return d.RemoveRange("2", "5").status(); }},
      {"Export", false,
       [](AnyDBM& d) {
         const auto target = AnyDBM::Open("?dbm=tiny").value();
         return d.Export(*target);
       }},
      {"Export of text", false, [](AnyDBM& d) { return Export(d, [](std::string_view) { return absl::OkStatus(); }).status(); }},
      {"Import", true,
       [](AnyDBM& d) {
         std::istringstream text("2\tn\n");
         return Import(d, SourceOf(text)).status();
       }},
      {"Search", false, [](AnyDBM& d) { return Search(d, SearchMode::kContain, "1").status(); }},
      {"Clear", true, [](AnyDBM& d) { return d.Clear(); }},
      {"Synchronize", false, [](AnyDBM& d) { return d.Synchronize(SyncMode::kHard); }},
      {"Synchronize softly", false, [](AnyDBM& d) { return d.Synchronize(SyncMode::kSoft); }},
      {"WaitDurable", false, [](AnyDBM& d) { return d.WaitDurable(d.LastLsn()); }},
      {"Verify", false, [](AnyDBM& d) { return d.Verify(); }},
      {"Scrub", false, [](AnyDBM& d) { return d.Scrub().status(); }},
      {"Rebuild", false, [](AnyDBM& d) { return d.Rebuild(); }},
      {"CopyTo", false, [copy](AnyDBM& d) { return d.CopyTo(copy); }},
      {"GetHealth", false, [](AnyDBM& d) { return d.GetHealth(); }},
      {"figures", false,
       [](AnyDBM& d) {
         (void)d.Count(), (void)d.GetStats(), (void)d.Inspect(), (void)d.ShouldBeRebuilt(), (void)d.AppliedIndex(), (void)d.IsWritable();
         d.Prefetch(kTwo);
         return absl::OkStatus();
       }},
  };
  return calls;
}

// A call that runs `inside` while one of its visitors does.
struct Visit {
  const char* name;
  bool locks;  // whether a record is locked then
  std::function<Status(AnyDBM&, const std::function<void()>& inside)> run;
};

const std::vector<Visit>& Visits() {
  static const std::vector<Visit> visits = {
      {"Process", true,
       [](AnyDBM& d, const auto& inside) {
         return d.Process(kVisited, [&](Value) {
           inside();
           return Action::Keep();
         });
       }},
      {"Process of an absent record", true,
       [](AnyDBM& d, const auto& inside) {
         return d.Process("4000", [&](Value) {
           inside();
           return Action::Keep();
         });
       }},
      {"Process blindly", true,
       [](AnyDBM& d, const auto& inside) {
         return d.Process(kVisited, [&](bool) {
           inside();
           return Action::Keep();
         });
       }},
      {"Process to read", true, [](AnyDBM& d, const auto& inside) { return d.Process(kVisited, [&](Value) { inside(); }); }},
      {"ProcessMulti", true,
       [](AnyDBM& d, const auto& inside) {
         return d.ProcessMulti(kTwo, [&](std::size_t i, Value) {
           if (i == 1) inside();
           return Action::Keep();
         });
       }},
      {"ProcessMulti to read", true,
       [](AnyDBM& d, const auto& inside) {
         return d.ProcessMulti(kTwo, [&](std::size_t i, Value) {
           if (i == 1) inside();
         });
       }},
      {"ProcessFirst", true,
       [](AnyDBM& d, const auto& inside) {
         return d.ProcessFirst([&](std::string_view, std::string_view) {
           inside();
           return Action::Keep();
         });
       }},
      {"Get", true, [](AnyDBM& d, const auto& inside) { return d.Get(kVisited, [&](std::string_view) { inside(); }); }},
      {"Process of an iterator", true,
       [](AnyDBM& d, const auto& inside) {
         auto it = d.MakeIterator();
         it.Jump(kVisited);
         return it.Process([&](Value) {
           inside();
           return Action::Keep();
         });
       }},
      {"GetMulti", false,
       [](AnyDBM& d, const auto& inside) {
         return d.GetMulti(kTwo, [&](std::size_t i, Value) {
           if (i == 0) inside();
         });
       }},
      {"ProcessEach", false,
       [](AnyDBM& d, const auto& inside) {
         return d.ProcessEach([&, done = false](std::string_view, std::string_view) mutable {
           if (!std::exchange(done, true)) inside();
         });
       }},
      {"ProcessEachParallel", false,
       [](AnyDBM& d, const auto& inside) {
         return d.ProcessEachParallel(3, [&, done = std::make_shared<std::atomic<bool>>(false)](std::string_view, std::string_view) {
           if (!done->exchange(true)) inside();
         });
       }},
  };
  return visits;
}

TEST_P(VisitorCalls, WorkOrAreRefused) {
  const std::vector<Call> calls = Calls(directory_.File("copy"));
  const Records before = RecordsOf(*db_);
  for (const Visit& visit : Visits()) {
    for (const Call& call : calls) {
      if (!visit.locks && call.changes) continue;
      SCOPED_TRACE(std::string(call.name) + " within " + visit.name);
      Status inner = absl::UnknownError("was not called");
      EXPECT_THAT(visit.run(*db_, [&] { inner = call.run(*db_); }), IsOk());
      if (absl::IsUnimplemented(inner) && !db_->IsOrdered()) continue;
      const auto code = inner.code();
      if (visit.locks && call.changes) {
        EXPECT_EQ(code, absl::StatusCode::kFailedPrecondition) << inner;
      } else if (visit.locks) {
        EXPECT_TRUE(inner.ok() || code == absl::StatusCode::kFailedPrecondition) << inner;
      } else {
        EXPECT_THAT(inner, IsOk());
      }
    }
  }
  EXPECT_EQ(RecordsOf(*db_), before);
}

// Changes too, where nothing is locked.
TEST_P(VisitorCalls, ChangeRecordsWhereNothingIsLocked) {
  for (const Visit& visit : Visits()) {
    if (visit.locks) continue;
    SCOPED_TRACE(visit.name);
    EXPECT_THAT(visit.run(*db_,
                          [&] {
                            EXPECT_THAT(db_->Set(kVisited, "within"), IsOk());
                            EXPECT_THAT(db_->Set(kAbsent, "within"), IsOk());
                            EXPECT_THAT(db_->Remove(kOther), IsOk());
                          }),
                IsOk());
    EXPECT_THAT(db_->Get(kVisited), IsOkAndHolds(Of("within")));
    EXPECT_THAT(db_->Get(kAbsent), IsOkAndHolds(Of("within")));
    EXPECT_THAT(db_->Get(kOther).status(), StatusIs(absl::StatusCode::kNotFound));
    EXPECT_THAT(db_->Set(kOther, "2"), IsOk());
  }
}

struct Thrown : std::runtime_error {
  Thrown() : std::runtime_error("thrown by a visitor") {}
};

TEST_P(VisitorCalls, LeaveNoLockBehindWhenTheyThrow) {
  std::vector<Visit> visits = Visits();
  visits.push_back({"ProcessMulti after decisions", true, [](AnyDBM& d, const auto& inside) {
                      return d.ProcessMulti(kTwo, [&](std::size_t i, Value) {
                        if (i == 1) inside();
                        return Action::Set("lost");
                      });
                    }});
  visits.push_back({"Fetch", true, [](AnyDBM& d, const auto& inside) {
                      return d.Fetch(kVisited, [&](std::size_t) -> char* {
                        inside();
                        return nullptr;
                      });
                    }});
  visits.push_back({"FetchMulti", true, [](AnyDBM& d, const auto& inside) {
                      return d.FetchMulti(
                          kTwo,
                          [&](std::size_t, std::size_t) -> char* {
                            inside();
                            return nullptr;
                          },
                          [](std::size_t, bool) {});
                    }});
  visits.push_back({"every thread of ProcessEachParallel", false, [](AnyDBM& d, const auto& inside) {
                      return d.ProcessEachParallel(4, [&](std::string_view, std::string_view) { inside(); });
                    }});
  const Records before = RecordsOf(*db_);
  for (const Visit& visit : visits) {
    SCOPED_TRACE(visit.name);
    EXPECT_THROW((void)visit.run(*db_, [] { throw Thrown(); }), Thrown);
    EXPECT_EQ(db_->Count(), static_cast<std::uint64_t>(kRecords));
    std::thread([&] {  // which would wait for the locks
      for (const std::string_view key : {kVisited, kOther, std::string_view("4000")}) {
        EXPECT_THAT(db_->Process(key, [](Value) { return Action::Set("other"); }), IsOk());
      }
      EXPECT_THAT(db_->Remove("4000"), IsOk());
      EXPECT_THAT(db_->SetMulti(std::vector<KeyValue>{{kVisited, "1"}, {kOther, "2"}}), IsOk());
    })
        .join();
    EXPECT_THAT(db_->Set(kVisited, "1"), IsOk()) << "of the thread whose visitor threw";
    EXPECT_THAT(db_->Synchronize(SyncMode::kHard), IsOk());
    EXPECT_THAT(db_->Verify(), IsOk());
    EXPECT_EQ(RecordsOf(*db_), before);
  }
}

constexpr const char* kNames[] = {"db.hkh",
                                  "db.hkh?file=pos",
                                  "db.hkh?file=pos,direct=true",
                                  "db.hkh?durability=power",
                                  "db.hkt",
                                  "db.hkt?file=pos,page_size=128,cache_bytes=2m",
                                  "db.hkt?durability=none",
                                  "db.hka?width=8",
                                  "db.hks",
                                  "db.hks?dbm=baby",
                                  "?dbm=tiny",
                                  "?dbm=baby,page_size=128",
                                  "db.hkh?expiry=true",
                                  "db.hkt?expiry=true",
                                  "?dbm=tiny,expiry=true",
                                  "?dbm=tiny,capacity_bytes=2m",
                                  "?dbm=baby,capacity_bytes=2m"};
INSTANTIATE_TEST_SUITE_P(Each, VisitorCalls, testing::ValuesIn(kNames), [](const auto& info) {
  std::string name;
  for (const char c : std::string(info.param)) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
});

}  // namespace
}  // namespace hako
