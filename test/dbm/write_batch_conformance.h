// Every DBM with a WriteBatch (dbm/write_batch.h): the order of operations, conditions, ranges, limits
// and sizes under one thread, a comparison with a model, and that other threads see all of a batch or
// nothing.
//
// The Surroundings are those of dbm_conformance.h. The names of tests with threads contain
// "Concurrent".
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dbm/concurrent_dbm_conformance.h"
#include "dbm/dbm_conformance.h"
#include "dbm/listing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/ordered_operations.h"
#include "hako/dbm/write_batch.h"
#include "support/checked_value.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/threads.h"

namespace hako {

template <class Surroundings>
class WriteBatchConformance : public DBMConformance<Surroundings> {
 protected:
  using Database = typename Surroundings::Database;

  void TearDown() override {
    mishaps_.ExpectNone();
    DBMConformance<Surroundings>::TearDown();
  }
  bool IsOrdered() {
    if constexpr (requires { this->db_->IsOrdered(); })
      return this->db_->IsOrdered();
    else
      return OrderedDBM<Database>;
  }
  void SetIndex(WriteBatch& batch, std::uint64_t index) {
    batch.SetAppliedIndex(index);
    index_ = index;
  }
  void ExpectIndex() { EXPECT_EQ(this->db_->AppliedIndex(), index_); }

  std::uint64_t index_ = 0;  // the last one that a written batch had
  Mishaps mishaps_;
};

TYPED_TEST_SUITE_P(WriteBatchConformance);

TYPED_TEST_P(WriteBatchConformance, LastOperationOnAKeyWins) {
  auto& db = *this->db_;
  this->SetAll({{"kept", "1"}, {"removed", "2"}, {"replaced", "3"}, {"twice", "4"}});
  WriteBatch batch;
  batch.Set("new", "5");
  batch.Remove("removed");
  batch.Set("replaced", "a longer value");
  batch.Remove("absent");
  batch.Set("twice", "6");
  batch.Set("back", "7");
  batch.Set("twice", "8");
  batch.Remove("new");
  batch.Remove("back");
  batch.Set("back", "9");
  EXPECT_EQ(batch.size(), 10u);
  EXPECT_THAT(db.Write(batch), IsOk());
  this->ExpectHolds({{"back", "9"}, {"kept", "1"}, {"replaced", "a longer value"}, {"twice", "8"}});
}

TYPED_TEST_P(WriteBatchConformance, OwnsCopiesOfItsBytes) {
  WriteBatch batch;
  {
    std::string key = "key", value(5000, 'v');
    batch.Set(key, value);
    batch.Expect(key, Expect::Absent());
    key.assign("???");
    value.assign(5000, '?');
  }
  const WriteBatch copy = batch;
  batch.Clear();
  EXPECT_THAT(this->db_->Write(copy), IsOk());
  this->ExpectHolds({{"key", std::string(5000, 'v')}});
}

TYPED_TEST_P(WriteBatchConformance, EmptyBatchChangesNothing) {
  this->SetAll({{"a", "1"}});
  WriteBatch batch;
  EXPECT_TRUE(batch.IsEmpty());
  EXPECT_THAT(this->db_->Write(batch), IsOk());
  EXPECT_THAT(this->db_->Write(batch, {.durability = Durability::kPower}), IsOk());
  this->ExpectHolds({{"a", "1"}});
  this->ExpectIndex();
}

TYPED_TEST_P(WriteBatchConformance, ChecksAllConditionsAgainstTheStateBefore) {
  auto& db = *this->db_;
  this->SetAll({{"a", "1"}, {"b", ""}});
  const auto write = [&](std::string_view key, Expect expected) {
    WriteBatch batch;
    batch.Set("a", "2");
    batch.Remove("b");
    batch.Set("c", "3");
    batch.SetAppliedIndex(77);
    batch.Expect("a", Expect::Value("1"));
    batch.Expect("c", Expect::Absent());
    batch.Expect(key, expected);
    batch.Expect("b", Expect::Any());
    return db.Write(batch);
  };
  const std::pair<std::string_view, Expect> failing[] = {{"a", Expect::Absent()},   {"a", Expect::Value("2")}, {"a", Expect::Value("")},
                                                         {"b", Expect::Absent()},   {"b", Expect::Value("x")}, {"c", Expect::Any()},
                                                         {"c", Expect::Value("3")}, {"d", Expect::Any()},      {"d", Expect::Value("")}};
  for (const auto& [key, expected] : failing) {
    const Status status = write(key, expected);
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted)) << key;
    EXPECT_TRUE(status.message().empty());
  }
  this->ExpectHolds({{"a", "1"}, {"b", ""}});
  this->ExpectIndex();
  EXPECT_THAT(write("d", Expect::Absent()), IsOk());
  this->ExpectHolds({{"a", "2"}, {"c", "3"}});
}

TYPED_TEST_P(WriteBatchConformance, BatchOfConditionsOnlyChecks) {
  this->SetAll({{"a", "1"}});
  WriteBatch batch;
  batch.Expect("a", Expect::Value("1"));
  EXPECT_THAT(this->db_->Write(batch), IsOk());
  batch.Expect("b", Expect::Any());
  EXPECT_THAT(this->db_->Write(batch), StatusIs(absl::StatusCode::kAborted));
  this->ExpectHolds({{"a", "1"}});
}

TYPED_TEST_P(WriteBatchConformance, RemoveRangeRemovesRecordsAndEarlierSets) {
  auto& db = *this->db_;
  this->SetAll({{"a", "1"}, {"b", "2"}, {"c", "3"}, {"d", "4"}, {"x", "5"}});
  WriteBatch batch;
  batch.Set("bb", "earlier");
  batch.Set("c", "earlier");
  batch.Set("d", "at the end");
  batch.RemoveRange("b", "d");
  batch.Set("b", "later");
  batch.Set("bc", "later");
  batch.RemoveRange("z", "y");  // empty
  batch.RemoveRange("z", "z");
  batch.RemoveRange("w");
  batch.Set("y", "last");
  if (!this->IsOrdered()) {
    EXPECT_THAT(db.Write(batch), StatusIs(absl::StatusCode::kInvalidArgument));
    this->ExpectHolds({{"a", "1"}, {"b", "2"}, {"c", "3"}, {"d", "4"}, {"x", "5"}});
    return;
  }
  EXPECT_THAT(db.Write(batch), IsOk());
  this->ExpectHolds({{"a", "1"}, {"b", "later"}, {"bc", "later"}, {"d", "at the end"}, {"y", "last"}});
  batch.Clear();
  batch.RemoveRange("", std::nullopt);
  batch.Set("alone", "1");
  batch.Expect("y", Expect::Value("last"));  // as before the range is removed
  EXPECT_THAT(db.Write(batch), IsOk());
  this->ExpectHolds({{"alone", "1"}});
}

// Batches of any operations, compared with the same ones on a map.
TYPED_TEST_P(WriteBatchConformance, MatchesAModel) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  auto& db = *this->db_;
  Records model;
  WriteBatch batch;
  const auto key = [&random] { return NumberedKey(random.Below(2000)) + std::string(random.OneIn(50) ? 300 : 0, 'k'); };
  for (int round = 0; round < 150 / kSlowdown; ++round) {
    SCOPED_TRACE(round);
    batch.Clear();
    Records after = model;
    bool holds = true;
    for (std::uint64_t n = random.OneIn(10) ? random.Below(3000) : random.Below(40); n > 0; --n) {
      if (this->IsOrdered() && random.OneIn(25)) {
        const std::string from = random.OneIn(20) ? "" : key();
        const std::string to = NumberedKey(std::strtoull(from.c_str(), nullptr, 10) + random.SkewedSize(11));
        const bool is_bounded = !random.OneIn(30);
        batch.RemoveRange(from, is_bounded ? std::optional<std::string_view>(to) : std::nullopt);
        if (!is_bounded || from < to) after.erase(after.lower_bound(from), is_bounded ? after.lower_bound(to) : after.end());
      } else if (random.OneIn(10)) {
        const std::string of = key();
        const auto it = model.find(of);
        const bool fails = random.OneIn(150);
        holds = holds && !fails;
        batch.Expect(of, (it == model.end()) != fails ? Expect::Absent() : fails ? Expect::Any() : Expect::Value(it->second));
      } else if (random.OneIn(4)) {
        const std::string removed = key();
        batch.Remove(removed);
        after.erase(removed);
      } else {
        const std::string set = key();
        const std::string value = CheckedValue(set, random.OneIn(100) ? random.Below(20'000) : random.SkewedSize(9), random.Next());
        batch.Set(set, value);
        after[set] = value;
      }
    }
    if (random.OneIn(2)) this->SetIndex(batch, holds ? static_cast<std::uint64_t>(round) : this->index_);
    if (holds) {
      ASSERT_THAT(db.Write(batch), IsOk());
      model = std::move(after);
    } else {
      ASSERT_THAT(db.Write(batch), StatusIs(absl::StatusCode::kAborted));
    }
    const Records found = ListByIterator(db).records;
    ASSERT_TRUE(found == model) << Difference(model, found);
    ASSERT_EQ(db.Count(), model.size());
    this->ExpectIndex();
    if (round % 20 == 0) {
      ASSERT_THAT(db.Verify(), IsOk());
    }
  }
}

TYPED_TEST_P(WriteBatchConformance, KeepsTheAppliedIndexOfTheLastBatch) {
  auto& db = *this->db_;
  EXPECT_EQ(db.AppliedIndex(), 0u);
  WriteBatch batch;
  batch.Set("a", "1");
  batch.SetAppliedIndex(~std::uint64_t{0} - 1);
  batch.SetAppliedIndex(~std::uint64_t{0});
  EXPECT_THAT(db.Write(batch), IsOk());
  EXPECT_EQ(db.AppliedIndex(), ~std::uint64_t{0});
  batch.Clear();
  batch.Set("b", "2");
  EXPECT_THAT(db.Write(batch), IsOk()) << "without an index";
  EXPECT_EQ(db.AppliedIndex(), ~std::uint64_t{0});
  batch.SetAppliedIndex(5);
  batch.Expect("c", Expect::Any());
  EXPECT_THAT(db.Write(batch), StatusIs(absl::StatusCode::kAborted));
  EXPECT_EQ(db.AppliedIndex(), ~std::uint64_t{0});
  batch.Clear();
  batch.SetAppliedIndex(3);  // alone
  EXPECT_FALSE(batch.IsEmpty());
  EXPECT_THAT(db.Write(batch), IsOk());
  EXPECT_EQ(db.AppliedIndex(), 3u);
  EXPECT_THAT(db.Clear(), IsOk());
  EXPECT_EQ(db.AppliedIndex(), 3u) << "Clear removes records";
  this->ExpectHolds({});
}

// A batch to which an operation could not be added is not written, not even in part.
TYPED_TEST_P(WriteBatchConformance, RefusesWhatExceedsALimit) {
  auto& db = *this->db_;
  const std::size_t size = WriteBatch::kBytesMax + 1;  // pages of the kernel's one page of zeros: no memory is used
  void* const zeros = mmap(nullptr, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(zeros, MAP_FAILED);
  const std::string_view longest(static_cast<const char*>(zeros), size);
  WriteBatch batch;
  batch.Set("a", "1");
  batch.Set("b", longest.substr(0, WriteBatch::kBytesMax - 2));  // one byte more than there is room for
  EXPECT_THAT(batch.status(), StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_EQ(batch.bytes(), 2u);
  batch.Set("c", "3");
  EXPECT_EQ(batch.size(), 1u);
  EXPECT_THAT(db.Write(batch), StatusIs(absl::StatusCode::kOutOfRange));
  batch.Clear();
  batch.Set(longest, "");
  EXPECT_THAT(db.Write(batch), StatusIs(absl::StatusCode::kOutOfRange));
  batch.Clear();
  batch.Expect(longest.substr(1), Expect::Value("x"));
  EXPECT_THAT(db.Write(batch), StatusIs(absl::StatusCode::kOutOfRange));
  batch.Clear();
  batch.Set("a", "1");
  if (const std::size_t key_size = LongestKeyOf<typename TypeParam::Database>() + 1; key_size < WriteBatch::kBytesMax - 2) {
    batch.Set(longest.substr(0, key_size), "");
    EXPECT_THAT(batch.status(), IsOk()) << "it may be meant for another kind of database";
    EXPECT_THAT(db.Write(batch), StatusIs(absl::StatusCode::kOutOfRange));
    batch.Clear();
    batch.Set("a", "1");
    batch.Expect(longest.substr(0, key_size), Expect::Absent());
    EXPECT_THAT(db.Write(batch), StatusIs(absl::StatusCode::kOutOfRange));
  }
  EXPECT_EQ(munmap(zeros, size), 0);
  batch.Clear();
  for (std::size_t i = 0; i < WriteBatch::kSizeMax; ++i) batch.Set("a", "");
  EXPECT_THAT(batch.status(), IsOk());
  batch.Remove("b");
  EXPECT_THAT(batch.status(), StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(db.Write(batch), StatusIs(absl::StatusCode::kOutOfRange));
  this->ExpectHolds({});
}

TYPED_TEST_P(WriteBatchConformance, IsReusableAfterClear) {
  auto& db = *this->db_;
  WriteBatch batch;
  Records records;
  for (int round = 0; round < 20; ++round) {
    batch.Clear();
    EXPECT_EQ(batch.size(), 0u);
    EXPECT_EQ(batch.bytes(), 0u);
    for (int i = 0; i < 50; ++i) {
      const std::string key = NumberedKey(static_cast<std::uint64_t>(round * 7 + i));
      batch.Set(key, std::to_string(round));
      records[key] = std::to_string(round);
    }
    ASSERT_THAT(db.Write(batch), IsOk());
    ASSERT_THAT(db.Write(batch), IsOk()) << "again";
  }
  this->ExpectHolds(records);
}

TYPED_TEST_P(WriteBatchConformance, WritesAHundredThousandOperations) {
  auto& db = *this->db_;
  constexpr std::uint64_t kOperations = 100'000 / kSlowdown;
  Records records;
  for (std::uint64_t i = 0; i < kOperations; i += 50) {
    records[NumberedKey(i) + "b"] = "before";
    ASSERT_THAT(db.Set(NumberedKey(i) + "b", "before"), IsOk());
  }
  WriteBatch batch;
  for (const bool replaces : {false, true}) {
    batch.Clear();
    for (std::uint64_t n = 0; n < kOperations; ++n) {
      const std::uint64_t i = n * 7919 % kOperations;
      const std::string key = NumberedKey(i);
      if (replaces && i % 3 == 0) {
        batch.Remove(key);
        records.erase(key);
      } else {
        std::string& value = records[key];
        value = CheckedValue(key, i % 40 + (replaces ? 10 : 0));
        batch.Set(key, value);
      }
      if (this->IsOrdered() && replaces && n % 10'000 == 0) {
        batch.RemoveRange(NumberedKey(n), NumberedKey(n + 300));
        records.erase(records.lower_bound(NumberedKey(n)), records.lower_bound(NumberedKey(n + 300)));
      }
    }
    this->SetIndex(batch, kOperations);
    ASSERT_THAT(db.Write(batch), IsOk());
    ASSERT_THAT(db.Verify(), IsOk());
    this->ExpectHolds(records);
    this->ExpectIndex();
  }
}

TYPED_TEST_P(WriteBatchConformance, StoresReplacesAndRemovesLongValues) {
  auto& db = *this->db_;
  Records records;
  WriteBatch batch;
  for (std::uint64_t i = 0; i < 60; ++i) {
    const std::string key = NumberedKey(i);
    records[key] = CheckedValue(key, i % 5 == 0 ? 10 : 30'000 + 1000 * i);
    batch.Set(key, records[key]);
  }
  ASSERT_THAT(db.Write(batch), IsOk());
  this->ExpectHolds(records);
  batch.Clear();
  for (std::uint64_t i = 0; i < 60; ++i) {
    const std::string key = NumberedKey(i);
    batch.Expect(key, Expect::Value(records[key]));
    if (i % 3 == 0) {
      batch.Remove(key);
      records.erase(key);
    } else if (i % 3 == 1) {
      records[key] = CheckedValue(key, 50'000 + i, 7);
      batch.Set(key, CheckedValue(key, 100'000));  // superseded
      batch.Set(key, records[key]);
    }
  }
  if (this->IsOrdered()) {
    batch.RemoveRange(NumberedKey(20), NumberedKey(40));
    records.erase(records.lower_bound(NumberedKey(20)), records.lower_bound(NumberedKey(40)));
    batch.Set(NumberedKey(30), records[NumberedKey(30)] = CheckedValue(NumberedKey(30), 70'000));
  }
  ASSERT_THAT(db.Write(batch), IsOk());
  this->ExpectHolds(records);
  ASSERT_THAT(db.Write(batch), StatusIs(absl::StatusCode::kAborted)) << "the values are others now";
  this->ExpectHolds(records);
}

// Each batch replaces all records by those of a higher number. A Get that follows another one never
// sees an older batch.
TYPED_TEST_P(WriteBatchConformance, ConcurrentReadersSeeAllOfABatchOrNothing) {
  auto& db = *this->db_;
  constexpr std::uint64_t kKeys = 200;
  std::vector<std::string> names;
  for (std::uint64_t i = 0; i < kKeys; ++i) names.push_back(NumberedKey(i * 7919 % 100'000));
  const auto fill = [&](WriteBatch& batch, std::uint64_t number) {
    batch.Clear();
    if (this->IsOrdered() && number % 2 == 0) batch.RemoveRange("");
    for (const std::string& name : names) batch.Set(name, CheckedValue(name, 8 + number % 100, number));
    if (number % 3 == 0) {
      for (const std::string& name : names) batch.Remove(name + "b");
    } else {
      for (const std::string& name : names) batch.Set(name + "b", CheckedValue(name, 8, number));
    }
  };
  WriteBatch batch;
  fill(batch, 1);
  ASSERT_THAT(db.Write(batch), IsOk());
  std::atomic<bool> is_over{false};
  RunThreads(4, [&](int thread) {
    if (thread == 0) {
      for (std::uint64_t number = 2; number < 400 / kSlowdown; ++number) {
        fill(batch, number);
        this->mishaps_.Check(db.Write(batch));
      }
      is_over = true;
      return;
    }
    Random random(TestSeed() + static_cast<std::uint64_t>(thread));
    std::uint64_t last = 0;
    std::string found;
    while (!is_over) {
      const std::string& name = names[random.Below(kKeys)];
      if (thread == 1) {
        const std::string other = names[random.Below(kKeys)] + "b";
        const std::string_view keys[] = {name, other};
        std::uint64_t number = 0;
        this->mishaps_.Check(db.ProcessMulti(keys, [&](std::size_t i, std::optional<std::string_view> value) -> void {
          if (i == 0) number = SaltOf(keys[0], value.value_or("")).value_or(0);
          if (i == 0 ? number == 0 : value.has_value() != (number % 3 != 0)) this->mishaps_.Note("a part of a batch is seen");
        }));
        continue;
      }
      this->mishaps_.Check(db.Get(name, &found));
      const std::optional<std::uint64_t> number = SaltOf(name, found);
      if (!number || *number < last) this->mishaps_.Note("a Get sees an older batch, or a torn value");
      last = number.value_or(last);
    }
  });
}

// Batches on the same keys in different orders: all keys have the value of the last one, whose applied
// index it is.
TYPED_TEST_P(WriteBatchConformance, ConcurrentBatchesTakeEffectOneAfterTheOther) {
  auto& db = *this->db_;
  constexpr int kThreads = 4, kBatches = 300 / kSlowdown;
  RunThreads(kThreads, [&](int thread) {
    Random random(TestSeed() + static_cast<std::uint64_t>(thread));
    WriteBatch batch;
    for (int n = 0; n < kBatches; ++n) {
      const std::uint64_t number = static_cast<std::uint64_t>(n * kThreads + thread) + 1;
      batch.Clear();
      const std::uint64_t first = random.Below(50);
      for (std::uint64_t i = 0; i < 50; ++i) batch.Set(NumberedKey((first + i * 7) % 50), std::to_string(number));
      batch.SetAppliedIndex(number);
      this->mishaps_.Check(db.Write(batch));
    }
  });
  ASSERT_OK_AND_ASSIGN(const std::string last, db.Get(NumberedKey(0)));
  Records records;
  for (std::uint64_t i = 0; i < 50; ++i) records[NumberedKey(i)] = last;
  this->ExpectHolds(records);
  EXPECT_EQ(std::to_string(db.AppliedIndex()), last);
}

REGISTER_TYPED_TEST_SUITE_P(WriteBatchConformance, LastOperationOnAKeyWins, OwnsCopiesOfItsBytes, EmptyBatchChangesNothing,
                            ChecksAllConditionsAgainstTheStateBefore, BatchOfConditionsOnlyChecks, RemoveRangeRemovesRecordsAndEarlierSets,
                            MatchesAModel, KeepsTheAppliedIndexOfTheLastBatch, RefusesWhatExceedsALimit, IsReusableAfterClear,
                            WritesAHundredThousandOperations, StoresReplacesAndRemovesLongValues, ConcurrentReadersSeeAllOfABatchOrNothing,
                            ConcurrentBatchesTakeEffectOneAfterTheOther);

}  // namespace hako
