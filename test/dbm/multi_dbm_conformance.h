// Every DBM with several records in one call (dbm/multi_operations.h): the operations with their
// edge cases under one thread, and that other threads see all of a ProcessMulti or nothing.
//
// The Surroundings are those of dbm_conformance.h. The names of tests with threads contain
// "Concurrent".
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "dbm/concurrent_dbm_conformance.h"
#include "dbm/dbm_conformance.h"
#include "dbm/listing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/base/endian.h"
#include "hako/sync/version_lock.h"
#include "support/checked_value.h"
#include "support/full_size.h"
#include "support/model_dbm.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/threads.h"

namespace hako {

using Keys = std::vector<std::string_view>;
using Value = std::optional<std::string_view>;

template <class Surroundings>
class MultiDBMConformance : public DBMConformance<Surroundings> {
 protected:
  void TearDown() override {
    mishaps_.ExpectNone();
    DBMConformance<Surroundings>::TearDown();
  }
  Mishaps mishaps_;
};

TYPED_TEST_SUITE_P(MultiDBMConformance);

TYPED_TEST_P(MultiDBMConformance, ProcessMultiCarriesOutEachAction) {
  auto& db = *this->db_;
  this->SetAll({{"kept", "1"}, {"removed", "2"}, {"replaced", "3"}, {"other", "4"}});
  std::vector<std::pair<std::size_t, std::optional<std::string>>> shown;
  const Keys keys = {"new", "replaced", "absent", "removed", "kept", "removed and absent"};
  const Action actions[] = {Action::Set("5"), Action::Set("a longer value"), Action::Keep(), Action::Remove(), Action::Keep(),
                            Action::Remove()};
  EXPECT_THAT(db.ProcessMulti(keys,
                              [&](std::size_t i, Value value) {
                                shown.emplace_back(i, value);
                                return actions[i];
                              }),
              IsOk());
  EXPECT_THAT(shown, testing::ElementsAre(testing::Pair(0, std::nullopt), testing::Pair(1, "3"), testing::Pair(2, std::nullopt),
                                          testing::Pair(3, "2"), testing::Pair(4, "1"), testing::Pair(5, std::nullopt)));
  this->ExpectHolds({{"kept", "1"}, {"new", "5"}, {"other", "4"}, {"replaced", "a longer value"}});
}

TYPED_TEST_P(MultiDBMConformance, ProcessMultiOfNoKeysDoesNothing) {
  EXPECT_THAT(this->db_->ProcessMulti({},
                                      [](std::size_t, Value) {
                                        ADD_FAILURE();
                                        return Action::Keep();
                                      }),
              IsOk());
  this->ExpectHolds({});
}

TYPED_TEST_P(MultiDBMConformance, ProcessMultiServesEqualKeysInOrder) {
  auto& db = *this->db_;
  this->SetAll({{"a", "0"}, {"b", "0"}});
  const Keys keys = {"a", "b", "a", "c", "a", "c", "b", "b", "c", "d", "d"};
  const Value expected[] = {"0", "0", "1", {}, {}, "2", "0", {}, "2", {}, "4"};
  const Action actions[] = {Action::Set("1"), Action::Keep(), Action::Remove(), Action::Set("2"), Action::Set("3"), Action::Keep(),
                            Action::Remove(), Action::Keep(), Action::Keep(),   Action::Set("4"), Action::Remove()};
  EXPECT_THAT(db.ProcessMulti(keys,
                              [&](std::size_t i, Value value) {
                                EXPECT_EQ(value, expected[i]) << i;
                                return actions[i];
                              }),
              IsOk());
  this->ExpectHolds({{"a", "3"}, {"c", "2"}});
}

TYPED_TEST_P(MultiDBMConformance, AbortedProcessMultiChangesNothing) {
  auto& db = *this->db_;
  this->SetAll({{"a", "1"}, {"b", "2"}});
  const Keys keys = {"a", "new", "b", "c"};
  int calls = 0;
  const Status status = db.ProcessMulti(keys, [&](std::size_t i, Value) -> std::optional<Action> {
    ++calls;
    if (i == 2) return std::nullopt;
    return i == 0 ? Action::Remove() : Action::Set("changed");
  });
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted));
  EXPECT_TRUE(status.message().empty());
  EXPECT_EQ(calls, 3);
  this->ExpectHolds({{"a", "1"}, {"b", "2"}});
}

TYPED_TEST_P(MultiDBMConformance, ProcessMultiOfManyKeysInOneCall) {  // far more than the table has lines; it grows, overflows and shrinks
  auto& db = *this->db_;
  constexpr int kRecords = 20'000 / kSlowdown;
  std::vector<std::string> names;
  for (int i = 0; i < kRecords; ++i) names.push_back(NumberedKey(static_cast<std::uint64_t>(i) * 7919 % kRecords));
  const Keys keys(names.begin(), names.end());
  std::vector<std::string> values;
  for (int round = 0; round < 3; ++round) {
    values.clear();
    for (const std::string& name : names) values.push_back(CheckedValue(name, static_cast<std::size_t>(round) * 20 + name.back() % 5));
    ASSERT_THAT(db.ProcessMulti(keys,
                                [&](std::size_t i, Value value) {
                                  EXPECT_EQ(value.has_value(), round > 0 && (round == 1 || i % 3 != 0));
                                  return round == 1 && i % 3 == 0 ? Action::Remove() : Action::Set(values[i]);
                                }),
                IsOk());
    ASSERT_THAT(db.Verify(), IsOk());
  }
  Records records;
  for (std::size_t i = 0; i < names.size(); ++i) records[names[i]] = values[i];
  this->ExpectHolds(records);
}

TYPED_TEST_P(MultiDBMConformance, FailedProcessMultiChangesNothing) {
  auto& db = *this->db_;
  this->SetAll({{"a", "1"}, {"b", "2"}});
  const std::size_t size = std::size_t{kValueSizeMax} + 1;  // pages of the kernel's one page of zeros: no memory is used
  void* const zeros = mmap(nullptr, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(zeros, MAP_FAILED);
  const std::string_view long_value(static_cast<const char*>(zeros), size);
  const std::string long_other(300, 'x');
  const Keys keys = {"a", "new", "long", "b"};
  const Action actions[] = {Action::Set(long_other), Action::Set("value"), Action::Set(long_value), Action::Remove()};
  EXPECT_THAT(db.ProcessMulti(keys, [&](std::size_t i, Value) { return actions[i]; }), StatusIs(absl::StatusCode::kOutOfRange));
  this->ExpectHolds({{"a", "1"}, {"b", "2"}});
  const Keys long_keys = {"a", long_value.substr(0, LongestKeyOf<typename TypeParam::Database>() + 1)};
  EXPECT_THAT(db.ProcessMulti(long_keys, [&](std::size_t, Value) { return Action::Remove(); }), StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_EQ(munmap(zeros, size), 0);
  this->ExpectHolds({{"a", "1"}, {"b", "2"}});
}

TYPED_TEST_P(MultiDBMConformance, ProcessMultiWithAVoidVisitorOnlyReads) {
  auto& db = *this->db_;
  this->SetAll({{"a", "1"}, {"b", "2"}});
  const Keys keys = {"b", "c", "a", "b"};
  std::vector<std::optional<std::string>> shown;
  EXPECT_THAT(db.ProcessMulti(keys, [&](std::size_t, Value value) -> void { shown.emplace_back(value); }), IsOk());
  EXPECT_THAT(shown, testing::ElementsAre("2", std::nullopt, "1", "2"));
  this->ExpectHolds({{"a", "1"}, {"b", "2"}});
}

TYPED_TEST_P(MultiDBMConformance, GetMultiReturnsEachValueOrNone) {
  auto& db = *this->db_;
  std::vector<std::string> names;
  for (std::uint64_t i = 0; i < 2000; ++i) names.push_back(NumberedKey(i));
  for (std::size_t i = 0; i < names.size(); i += 2) ASSERT_THAT(db.Set(names[i], CheckedValue(names[i], i % 700)), IsOk());
  std::reverse(names.begin(), names.end());
  names.push_back(names[1]);
  Keys keys(names.begin(), names.end());
  std::vector<std::optional<std::string>> values(keys.size() + 1, "before");
  ASSERT_THAT(db.GetMulti(keys, values), IsOk());
  EXPECT_EQ(values.back(), "before");
  std::size_t next = 0;
  ASSERT_THAT(db.GetMulti(keys,
                          [&](std::size_t i, Value value) {
                            EXPECT_EQ(i, next++);
                            EXPECT_EQ(value, values[i]);
                          }),
              IsOk());
  EXPECT_EQ(next, keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const std::uint64_t number = std::stoull(names[i]);
    const auto expected = number % 2 == 0 ? std::optional(CheckedValue(names[i], number % 700)) : std::nullopt;
    ASSERT_EQ(values[i], expected) << i;
  }
  EXPECT_THAT(db.GetMulti({}, values), IsOk());
  EXPECT_THAT(db.GetMulti(keys, std::span(values).first(3)), StatusIs(absl::StatusCode::kInvalidArgument));
}

TYPED_TEST_P(MultiDBMConformance, SetMultiKeepsRecordsItMayNotOverwrite) {
  auto& db = *this->db_;
  this->SetAll({{"a", "1"}});
  const std::vector<KeyValue> records = {{"a", "x"}, {"b", "y"}, {"c", ""}, {"b", "z"}};
  EXPECT_THAT(db.SetMulti(records, /*overwrite=*/false), StatusIs(absl::StatusCode::kAlreadyExists));
  this->ExpectHolds({{"a", "1"}, {"b", "y"}, {"c", ""}});
  EXPECT_THAT(db.SetMulti(records), IsOk());
  this->ExpectHolds({{"a", "x"}, {"b", "z"}, {"c", ""}});
  EXPECT_THAT(db.SetMulti(std::vector<KeyValue>{{"d", "4"}}, /*overwrite=*/false), IsOk());
  EXPECT_THAT(db.SetMulti({}), IsOk());
}

TYPED_TEST_P(MultiDBMConformance, RemoveMultiAndAppendMultiProcessKeysInOrder) {
  auto& db = *this->db_;
  EXPECT_THAT(db.AppendMulti(std::vector<KeyValue>{{"a", "1"}, {"b", "2"}, {"a", "3"}}, ","), IsOk());
  this->ExpectHolds({{"a", "1,3"}, {"b", "2"}});
  EXPECT_THAT(db.RemoveMulti(Keys{"a", "absent", "b"}), StatusIs(absl::StatusCode::kNotFound));
  this->ExpectHolds({});
  std::vector<std::string> names;
  for (std::uint64_t i = 0; i < 1000; ++i) names.push_back(NumberedKey(i));
  std::vector<KeyValue> records;
  for (const std::string& name : names) records.push_back({name, name});
  EXPECT_THAT(db.SetMulti(records), IsOk());
  EXPECT_EQ(db.Count(), 1000u);
  EXPECT_THAT(db.RemoveMulti(Keys(names.begin(), names.end())), IsOk());
  this->ExpectHolds({});
}

TYPED_TEST_P(MultiDBMConformance, CompareExchangeMultiIsAllOrNothing) {
  auto& db = *this->db_;
  this->SetAll({{"a", "1"}, {"b", "2"}});
  using Exchanges = std::vector<Exchange>;
  EXPECT_THAT(db.CompareExchangeMulti(Exchanges{{"a", Expect::Value("1"), Action::Set("10")},
                                                {"c", Expect::Absent(), Action::Set("30")},
                                                {"b", Expect::Value("3"), Action::Remove()}}),
              StatusIs(absl::StatusCode::kAborted));
  this->ExpectHolds({{"a", "1"}, {"b", "2"}});
  EXPECT_THAT(db.CompareExchangeMulti(Exchanges{{"a", Expect::Value("1"), Action::Set("10")},
                                                {"c", Expect::Absent(), Action::Set("30")},
                                                {"b", Expect::Any(), Action::Remove()},
                                                {"d", Expect::Absent(), Action::Keep()},
                                                {"c", Expect::Value("30"), Action::Set("31")}}),
              IsOk());
  this->ExpectHolds({{"a", "10"}, {"c", "31"}});
  EXPECT_THAT(db.CompareExchangeMulti({}), IsOk());
}

TYPED_TEST_P(MultiDBMConformance, RekeyMovesOrCopiesARecord) {
  auto& db = *this->db_;
  const std::string long_value(5000, 'v');
  this->SetAll({{"a", "1"}, {"b", long_value}});
  std::string value;
  EXPECT_THAT(db.Rekey("b", "c", {.value = &value}), IsOk());
  EXPECT_EQ(value, long_value);
  this->ExpectHolds({{"a", "1"}, {"c", long_value}});
  EXPECT_THAT(db.Rekey("b", "d"), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(db.Rekey("a", "c", {.overwrite = false}), StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_THAT(db.Rekey("a", "a", {.overwrite = false, .copying = true}), StatusIs(absl::StatusCode::kAlreadyExists));
  this->ExpectHolds({{"a", "1"}, {"c", long_value}});
  EXPECT_THAT(db.Rekey("a", "d", {.overwrite = false, .copying = true}), IsOk());
  EXPECT_THAT(db.Rekey("a", "c"), IsOk());
  this->ExpectHolds({{"c", "1"}, {"d", "1"}});
  EXPECT_THAT(db.Rekey("c", "c"), IsOk());
  EXPECT_THAT(db.Rekey("c", "c", {.copying = true}), IsOk());
  this->ExpectHolds({{"c", "1"}, {"d", "1"}});
}

TYPED_TEST_P(MultiDBMConformance, ProcessFirstRunsOnAnExistingRecord) {
  auto& db = *this->db_;
  const auto never = [](std::string_view, std::string_view) { ADD_FAILURE(); };
  EXPECT_THAT(db.ProcessFirst(never), StatusIs(absl::StatusCode::kNotFound));
  this->SetAll({{"a", "1"}, {"b", "2"}});
  std::string first;
  EXPECT_THAT(db.ProcessFirst([&](std::string_view key, std::string_view value) -> void {
    first = key;
    EXPECT_EQ(value, key == "a" ? "1" : "2");
  }),
              IsOk());
  EXPECT_EQ(first, ListByIterator(db).order[0]);
  EXPECT_THAT(db.ProcessFirst([&](std::string_view key, std::string_view) {
    EXPECT_EQ(key, first);
    return Action::Set("changed");
  }),
              IsOk());
  EXPECT_THAT(db.Get(first), IsOkAndHolds("changed"));
  EXPECT_EQ(db.Count(), 2u);
}

TYPED_TEST_P(MultiDBMConformance, PopFirstReturnsRecordsOfPushLast) {
  auto& db = *this->db_;
  std::string key, value;
  EXPECT_THAT(db.PopFirst(&key, &value), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(db.PushLast("one", 1.5, &key), IsOk());
  EXPECT_EQ(key, std::string_view("\0\0\0\0\x08\xF0\xD1\x80", 8)) << "150,000,000 units of 10 ns";
  EXPECT_THAT(db.PushLast("two", 1.5, &key), IsOk());
  EXPECT_EQ(LoadBigEndian(key.data()), 150'000'001u) << "the next that is free";
  EXPECT_THAT(db.PushLast("now", -1, &key), IsOk());
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  EXPECT_NEAR(static_cast<double>(LoadBigEndian(key.data())) / 1e8, now, 600);
  EXPECT_THAT(db.PushLast("never", 1e12), StatusIs(absl::StatusCode::kInvalidArgument));
  std::set<std::string> popped;
  for (int i = 0; i < 3; ++i) {
    const std::string expected = ListByIterator(db).order[0];
    ASSERT_THAT(db.PopFirst(&key, &value), IsOk());
    EXPECT_EQ(key, expected);
    popped.insert(value);
  }
  EXPECT_THAT(popped, testing::ElementsAre("now", "one", "two"));
  EXPECT_THAT(db.PopFirst(), StatusIs(absl::StatusCode::kNotFound));
}

TYPED_TEST_P(MultiDBMConformance, ExportSetsEveryRecordInAnother) {
  auto& db = *this->db_;
  Records records;
  for (std::uint64_t i = 0; i < 3000; ++i) {
    records[NumberedKey(i)] = CheckedValue(NumberedKey(i), i % 300);
    ASSERT_THAT(db.Set(NumberedKey(i), records[NumberedKey(i)]), IsOk());
  }
  ModelDBM target;
  ASSERT_THAT(target.Set("there before", "stays"), IsOk());
  ASSERT_THAT(target.Set(NumberedKey(1), "is overwritten"), IsOk());
  EXPECT_THAT(db.Export(target), IsOk());
  this->ExpectHolds(records);
  records["there before"] = "stays";
  EXPECT_EQ(Difference(records, ListByIterator(target).records), "none");
}

TYPED_TEST_P(MultiDBMConformance, IteratorChangesTheRecordItStandsOn) {
  auto& db = *this->db_;
  for (std::uint64_t i = 0; i < 300; ++i) ASSERT_THAT(db.Set(NumberedKey(i), "value"), IsOk());
  Records expected;
  std::string key, value;
  auto it = db.MakeIterator();
  it.First();
  for (int i = 0; it.Valid(); ++i) {
    key = it.key();
    switch (i % 5) {
      case 0:
        EXPECT_THAT(it.Set("another value"), IsOk());
        EXPECT_EQ(it.value(), "value") << "what was shown stays";
        it.Next();
        expected[key] = "another value";
        break;
      case 1:
        EXPECT_THAT(it.Remove(), IsOk());
        EXPECT_TRUE(!it.Valid() || it.key() != key);
        break;
      case 2:
        EXPECT_THAT(it.Process([](std::optional<std::string_view> found) {
          EXPECT_EQ(found, "value");
          return Action::Set("processed");
        }),
                    IsOk());
        it.Next();
        expected[key] = "processed";
        break;
      case 3: {
        std::string stepped;
        EXPECT_THAT(it.Step(&stepped, &value), IsOk());
        EXPECT_EQ(stepped, key);
        EXPECT_EQ(value, "value");
        expected[key] = "value";
        break;
      }
      default:
        EXPECT_THAT(db.Remove(key), IsOk());
        EXPECT_THAT(it.Set("again"), StatusIs(absl::StatusCode::kNotFound));
        EXPECT_THAT(it.Remove(), StatusIs(absl::StatusCode::kNotFound));
    }
  }
  EXPECT_THAT(it.Set("x"), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(it.Remove(), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(it.Step(&key), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(it.Process([](bool) { return Action::Set("x"); }), StatusIs(absl::StatusCode::kNotFound));
  this->ExpectHolds(expected);
}

TYPED_TEST_P(MultiDBMConformance, IsHealthyAtFirst) { EXPECT_THAT(this->db_->GetHealth(), IsOk()); }

// ---- many threads ----

TYPED_TEST_P(MultiDBMConformance, ConcurrentProcessEachParallelShowsEachRecordOnce) {
  auto& db = *this->db_;
  constexpr std::uint64_t kRecords = 20'000 / kSlowdown;
  for (std::uint64_t i = 0; i < kRecords; ++i) ASSERT_THAT(db.Set(NumberedKey(i), "value"), IsOk());
  for (const unsigned threads : {0u, 1u, 3u, 8u}) {
    std::vector<std::atomic<int>> shown(kRecords);
    std::atomic<std::uint64_t> added = 0;
    EXPECT_THAT(db.ProcessEachParallel(threads,
                                       [&](std::string_view key, std::string_view) {
                                         if (key.starts_with("new")) return;
                                         ++shown[std::stoull(std::string(key))];
                                         this->mishaps_.Check(db.Set("new" + std::string(key) + std::to_string(added++ % 4), "v"));
                                       }),
                IsOk());
    for (std::uint64_t i = 0; i < kRecords; ++i) ASSERT_EQ(shown[i], 1) << i << " in " << threads << " threads";
  }
}

// Money moves between shared accounts, in any order of keys, also from an account to itself; now
// and then a transfer aborts. A thread that reads all accounts in one step always sees the same
// sum, also while the table grows.
TYPED_TEST_P(MultiDBMConformance, ConcurrentTransfersPreserveTheSum) {
  auto& db = *this->db_;
  constexpr std::size_t kAccounts = 48;
  constexpr std::uint64_t kStart = 1000;
  constexpr int kThreads = 8;
  const int transfers = FullSize() ? 1'000'000 / kThreads : 1200 / kSlowdown;
  const auto encode = [](std::uint64_t number) {
    std::string bytes(8 + number % 50, '\0');  // of a size that changes
    StoreBigEndian(number, bytes.data());
    return bytes;
  };
  std::vector<std::string> names;
  for (std::size_t i = 0; i < kAccounts; ++i) names.push_back("account" + std::to_string(i));
  for (const std::string& name : names) ASSERT_THAT(db.Set(name, encode(kStart)), IsOk());
  const Keys all(names.begin(), names.end());
  for (int i = 0; i < 8000; ++i) ASSERT_THAT(db.Set("old" + std::to_string(i), "value"), IsOk());  // from here on a hash table grows
  RunThreads(kThreads, [&](int thread) {
    Random random(TestSeed() + static_cast<std::uint64_t>(thread));
    for (int i = 0; i < transfers; ++i) {
      if (i % 50 == 0) {
        std::uint64_t sum = 0;
        this->mishaps_.Check(db.ProcessMulti(all, [&](std::size_t, Value value) -> void {
          if (value) sum += LoadBigEndian(value->data());
        }));
        this->mishaps_.Check(sum == kAccounts * kStart, "a transfer was seen half done");
      }
      for (int k = 0; k < 3; ++k) this->mishaps_.Check(db.Set("new" + std::to_string(thread * 1'000'000 + 3 * i + k), "value"));
      Keys keys;
      for (std::uint64_t n = random.Between(2, 16); n > 0; --n) keys.push_back(names[random.Below(kAccounts)]);
      const bool call_off = random.OneIn(10);
      std::vector<std::string> balances(keys.size());
      std::uint64_t taken = 0;
      const Status status = db.ProcessMulti(keys, [&](std::size_t k, Value value) -> std::optional<Action> {
        if (call_off && k + 1 == keys.size()) return std::nullopt;
        std::uint64_t balance = value ? LoadBigEndian(value->data()) : 0;  // an empty account has no record
        const std::uint64_t amount = k + 1 == keys.size() ? taken : std::min(balance, random.Below(500));
        balance = k + 1 == keys.size() ? balance + amount : balance - amount;
        if (k + 1 != keys.size()) taken += amount;
        if (balance == 0) return Action::Remove();
        balances[k] = encode(balance);
        return Action::Set(balances[k]);
      });
      this->mishaps_.Check(call_off ? absl::IsAborted(status) : status.ok(), status.ToString());
    }
  });
  std::uint64_t sum = 0;
  for (const std::string& name : names) {
    if (const auto value = db.Get(name); value.ok()) sum += LoadBigEndian(value->data());
  }
  EXPECT_EQ(sum, kAccounts * kStart);
}

// Rooms that are "full" or "empty", among many other records: a thread that finds one empty and
// fills it in one step is alone in it, and each thread enters as often as it wants to. The longest
// wait is printed with its number of attempts: a long wait with few attempts is the scheduler's.
template <class D>
void ContendForRooms(D& db, int num_threads, Mishaps& mishaps) {
  constexpr std::size_t kRooms = 3;
  const int visits = FullSize() ? 1'000'000 / num_threads : std::max(4, 4000 / num_threads / kSlowdown);
  const std::uint64_t others = FullSize() ? 1'000'000 : 1000;
  for (std::uint64_t i = 0; i < others; ++i) ASSERT_THAT(db.Set(NumberedKey(i), "value"), IsOk());
  std::vector<std::string> rooms;
  for (std::size_t room = 0; room < kRooms; ++room) rooms.push_back("room" + std::to_string(room));
  for (const std::string& room : rooms) ASSERT_THAT(db.Set(room, "empty"), IsOk());
  std::array<std::atomic<int>, kRooms> inside{};
  struct Wait {
    std::int64_t microseconds = 0;
    int attempts = 0;
  };
  std::vector<Wait> longest(static_cast<std::size_t>(num_threads));
  RunThreads(num_threads, [&](int thread) {
    for (int i = 0; i < visits; ++i) {
      const std::size_t room = static_cast<std::size_t>(thread + i) % kRooms;
      const auto start = std::chrono::steady_clock::now();
      int attempts = 1;
      for (sync::Backoff backoff;; ++attempts) {
        const Status status = db.CompareExchange(rooms[room], Expect::Value("empty"), Action::Set("full"));
        if (status.ok()) break;
        if (!absl::IsAborted(status)) return mishaps.Check(status);
        backoff.Pause();
      }
      const std::int64_t waited = (std::chrono::steady_clock::now() - start) / std::chrono::microseconds(1);
      Wait& mine = longest[static_cast<std::size_t>(thread)];
      if (waited > mine.microseconds) mine = {waited, attempts};
      mishaps.Check(inside[room].fetch_add(1) == 0, "two in one room");
      if (i % 16 == 0) std::this_thread::yield();
      mishaps.Check(inside[room].fetch_sub(1) == 1, "two in one room");
      mishaps.Check(db.Set(rooms[room], "empty"));
    }
  });
  const Wait& all = *std::ranges::max_element(longest, {}, &Wait::microseconds);
  const std::string text = std::to_string(all.microseconds) + " us, " + std::to_string(all.attempts) + " attempts";
  testing::Test::RecordProperty("longest_wait_of_" + std::to_string(num_threads), text);
  if (FullSize()) std::cout << num_threads << " threads, " << visits << " visits each: longest wait " << text << "\n";
}
TYPED_TEST_P(MultiDBMConformance, ConcurrentTwoKeySectionsAreExclusive) { ContendForRooms(*this->db_, 2, this->mishaps_); }
TYPED_TEST_P(MultiDBMConformance, ConcurrentEightKeySectionsAreExclusive) { ContendForRooms(*this->db_, 8, this->mishaps_); }
TYPED_TEST_P(MultiDBMConformance, ConcurrentThirtyTwoKeySectionsAreExclusive) { ContendForRooms(*this->db_, 32, this->mishaps_); }

// Two keys are swapped, so each value is under one of them at any moment.
TYPED_TEST_P(MultiDBMConformance, ConcurrentRekeysLoseNoRecord) {
  auto& db = *this->db_;
  constexpr std::uint64_t kRecords = 8, kPlaces = 24;
  for (std::uint64_t i = 0; i < kRecords; ++i) ASSERT_THAT(db.Set(NumberedKey(i), std::to_string(i)), IsOk());
  RunThreads(kWriters, [&](int thread) {
    Random random(TestSeed() + static_cast<std::uint64_t>(thread));
    for (int i = 0; i < 4000 / kSlowdown; ++i) {
      const Status status = db.Rekey(NumberedKey(random.Below(kPlaces)), NumberedKey(random.Below(kPlaces)), {.overwrite = false});
      if (!absl::IsNotFound(status) && !absl::IsAlreadyExists(status)) this->mishaps_.Check(status);
    }
  });
  std::set<std::string> values;
  for (const auto& [key, value] : ListByIterator(db).records) values.insert(value);
  EXPECT_EQ(values.size(), kRecords);
  EXPECT_EQ(db.Count(), kRecords);
}

TYPED_TEST_P(MultiDBMConformance, ConcurrentPopsTakeEachRecordOnce) {
  auto& db = *this->db_;
  constexpr int kEach = 500 / kSlowdown;
  std::array<std::vector<std::string>, 4> popped;
  RunThreads(4, [&](int thread) {
    std::string value;
    for (int i = 0; i < kEach; ++i) {
      if (thread < 2) {
        this->mishaps_.Check(db.PushLast(std::to_string(thread * kEach + i)));
      } else {
        while (absl::IsNotFound(db.PopFirst(nullptr, &value))) std::this_thread::yield();
        popped[static_cast<std::size_t>(thread)].push_back(value);
      }
    }
  });
  std::set<std::string> values;
  for (const auto& of_thread : popped) values.insert(of_thread.begin(), of_thread.end());
  EXPECT_EQ(values.size(), 2u * kEach);
  EXPECT_EQ(db.Count(), 0u);
}

REGISTER_TYPED_TEST_SUITE_P(MultiDBMConformance, ProcessMultiCarriesOutEachAction, ProcessMultiOfNoKeysDoesNothing,
                            ProcessMultiServesEqualKeysInOrder, AbortedProcessMultiChangesNothing, ProcessMultiOfManyKeysInOneCall,
                            FailedProcessMultiChangesNothing, ProcessMultiWithAVoidVisitorOnlyReads, GetMultiReturnsEachValueOrNone,
                            SetMultiKeepsRecordsItMayNotOverwrite, RemoveMultiAndAppendMultiProcessKeysInOrder,
                            CompareExchangeMultiIsAllOrNothing, RekeyMovesOrCopiesARecord, IteratorChangesTheRecordItStandsOn,
                            IsHealthyAtFirst, ConcurrentProcessEachParallelShowsEachRecordOnce, ProcessFirstRunsOnAnExistingRecord,
                            PopFirstReturnsRecordsOfPushLast, ExportSetsEveryRecordInAnother, ConcurrentTransfersPreserveTheSum,
                            ConcurrentTwoKeySectionsAreExclusive, ConcurrentEightKeySectionsAreExclusive,
                            ConcurrentThirtyTwoKeySectionsAreExclusive, ConcurrentRekeysLoseNoRecord, ConcurrentPopsTakeEachRecordOnce);

}  // namespace hako
