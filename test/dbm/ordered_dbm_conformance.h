// Every ordered DBM, beyond the others: an iterator that moves both ways and to the neighbours of
// any key, for keys of every shape and while others change the records; ranges, to be shown,
// counted or removed; loads of sorted records.
//
// The Surroundings are those of dbm_conformance.h; the order must be bytewise. The names of tests
// with threads contain "Concurrent".
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <iterator>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "dbm/concurrent_dbm_conformance.h"
#include "dbm/dbm_conformance.h"
#include "dbm/listing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/checked_value.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/threads.h"

namespace hako {

template <class Surroundings>
class OrderedDBMConformance : public DBMConformance<Surroundings> {
 protected:
  void TearDown() override {
    mishaps_.ExpectNone();
    DBMConformance<Surroundings>::TearDown();
  }

  void Set(std::string_view key, std::size_t value_size) {
    std::string& value = records_.insert_or_assign(std::string(key), CheckedValue(key, value_size)).first->second;
    ASSERT_THAT(this->db_->Set(key, value), IsOk());
  }
  void Remove(std::string_view key) {
    const auto it = records_.find(key);
    ASSERT_NE(it, records_.end());
    ASSERT_THAT(this->db_->Remove(key), IsOk());
    records_.erase(it);
  }

  // Checks that the iterator is at the model's record; end() = not Valid.
  template <class Iterator>
  void ExpectAt(const Iterator& it, Records::const_iterator expected, std::string_view move) {
    ASSERT_THAT(it.status(), IsOk());
    ASSERT_EQ(it.Valid(), expected != records_.end()) << move << (it.Valid() ? ": at " + testing::PrintToString(it.key()) : "");
    if (!it.Valid()) return;
    ASSERT_TRUE(it.key() == expected->first) << move << ": at " << testing::PrintToString(it.key().substr(0, 100)) << ", not at "
                                             << testing::PrintToString(expected->first.substr(0, 100));
    ASSERT_TRUE(it.value() == expected->second) << move << ": another value of " << testing::PrintToString(it.key().substr(0, 100));
  }
  Records::const_iterator Before(Records::const_iterator place) const {
    return place == records_.begin() ? records_.end() : std::prev(place);
  }

  // A full scan in both directions.
  void ExpectScans() {
    auto it = this->db_->MakeIterator();
    it.First();
    for (auto expected = records_.cbegin(); expected != records_.cend(); ++expected, it.Next())
      ASSERT_NO_FATAL_FAILURE(ExpectAt(it, expected, "forward"));
    ASSERT_NO_FATAL_FAILURE(ExpectAt(it, records_.end(), "forward beyond the last"));
    it.Last();
    for (auto expected = records_.crbegin(); expected != records_.crend(); ++expected, it.Previous())
      ASSERT_NO_FATAL_FAILURE(ExpectAt(it, std::prev(expected.base()), "backward"));
    ASSERT_NO_FATAL_FAILURE(ExpectAt(it, records_.end(), "backward beyond the first"));
  }

  // From `key`, which may be absent, to its neighbours, and one step further to either side.
  void ExpectNeighboursOf(std::string_view key) {
    const auto at_or_above = records_.lower_bound(key), above = records_.upper_bound(key);
    auto it = this->db_->MakeIterator();
    const auto expect = [&](Records::const_iterator expected, const char* move, auto jump) {
      SCOPED_TRACE(move);
      SCOPED_TRACE("key " + testing::PrintToString(key.substr(0, 100)));
      jump();
      ASSERT_NO_FATAL_FAILURE(ExpectAt(it, expected, "jump"));
      if (!it.Valid()) return;
      it.Next();
      ASSERT_NO_FATAL_FAILURE(ExpectAt(it, std::next(expected), "the next one"));
      jump();
      it.Previous();
      ASSERT_NO_FATAL_FAILURE(ExpectAt(it, Before(expected), "the one before"));
    };
    expect(at_or_above, "Jump", [&] { it.Jump(key); });
    expect(at_or_above, "JumpUpper, inclusive", [&] { it.JumpUpper(key, true); });
    expect(above, "JumpUpper", [&] { it.JumpUpper(key, false); });
    expect(Before(above), "JumpLower, inclusive", [&] { it.JumpLower(key, true); });
    expect(Before(at_or_above), "JumpLower", [&] { it.JumpLower(key, false); });
  }

  // All checks, for all keys and for keys between them.
  void ExpectOrder() {
    ASSERT_NO_FATAL_FAILURE(ExpectScans());
    std::vector<std::string> keys = {"", std::string(100, '\xff')};
    for (const auto& [key, value] : records_) {
      keys.push_back(key);
      keys.push_back(key + '\0');
      if (key.empty()) continue;
      keys.push_back(key.substr(0, key.size() - 1));
      keys.push_back(key);
      --keys.back().back();
      keys.push_back(key.substr(0, key.size() / 2) + '\xff');
    }
    const std::size_t limit = LongestKeyOf<typename Surroundings::Database>();
    for (const std::string& key : keys) {
      if (key.size() > limit) continue;
      ASSERT_NO_FATAL_FAILURE(ExpectNeighboursOf(key));
    }
  }

  Records records_;  // what there must be
  Mishaps mishaps_;
};

TYPED_TEST_SUITE_P(OrderedDBMConformance);

TYPED_TEST_P(OrderedDBMConformance, FindsNothingInAnEmptyDatabase) {
  for (int round = 0; round < 2; ++round) {
    this->ExpectOrder();
    for (int i = 0; i < 1000; ++i) this->Set(NumberedKey(static_cast<std::uint64_t>(i)), 20);
    for (int i = 0; i < 1000; ++i) this->Remove(NumberedKey(static_cast<std::uint64_t>(i * 7 % 1000)));
    this->ExpectOrder();
  }
}

TYPED_TEST_P(OrderedDBMConformance, FindsTheOnlyRecord) {
  this->Set("key", 5);
  this->ExpectOrder();
  this->Set("", 7);
  this->ExpectOrder();
  this->Remove("key");
  this->ExpectOrder();
}

TYPED_TEST_P(OrderedDBMConformance, FindsTheNeighboursOfEveryKey) {
  constexpr std::uint64_t kRecords = 3000 / kSlowdown;
  for (std::uint64_t i = 0; i < kRecords; ++i) this->Set(NumberedKey(i * 1009 % kRecords * 2), i % 60);
  this->ExpectOrder();
}

TYPED_TEST_P(OrderedDBMConformance, OrdersRecordsSetInAnyOrder) {
  constexpr std::uint64_t kRecords = 2000;
  for (int way = 0; way < 3; ++way) {
    SCOPED_TRACE(way);
    for (std::uint64_t i = 0; i < kRecords; ++i) this->Set(NumberedKey(way == 0 ? i : way == 1 ? kRecords - i : i * 7919 % kRecords), 8);
    this->ExpectScans();
    ASSERT_THAT(this->db_->Verify(), IsOk());
    for (std::uint64_t i = 0; i + 1 < kRecords; ++i) this->Remove(NumberedKey(way == 0 ? kRecords - i - 1 : i + 1));
    this->ExpectOrder();
    ASSERT_THAT(this->db_->Clear(), IsOk());
    this->records_.clear();
  }
}

TYPED_TEST_P(OrderedDBMConformance, OrdersKeysThatArePrefixesOfEachOther) {
  constexpr std::size_t kStep = kSlowdown;
  for (std::size_t size = 0; size <= 300; size += kStep) this->Set(std::string(size, 'a'), size % 7);
  for (std::size_t size = 0; size <= 300; size += kStep) this->Set(std::string(size, '\0'), size % 5);
  for (std::size_t size = 0; size <= 300; size += kStep) this->Set(std::string(size, '\xff'), size % 3);
  for (std::size_t size = 0; size <= 40; ++size) this->Set("a" + std::string(size, '\0'), 1);
  this->ExpectOrder();
  for (std::size_t size = 0; size <= 300; size += 2 * kStep) this->Remove(std::string(size, 'a'));
  this->ExpectOrder();
}

TYPED_TEST_P(OrderedDBMConformance, OrdersBinaryKeys) {  // as unsigned bytes, a key before those that it begins
  const char bytes[] = {'\x00', '\x01', '\x7f', '\x80', '\xff'};
  std::vector<std::string> keys = {""};
  for (std::size_t i = 0, sizes = 0; sizes < 5; ++sizes) {
    for (const std::size_t end = keys.size(); i < end; ++i)
      for (const char byte : bytes) keys.push_back(keys[i] + byte);
  }
  Random random(TestSeed());
  for (std::size_t i = keys.size(); i > 1; --i) std::swap(keys[i - 1], keys[random.Below(i)]);
  for (const std::string& key : keys) this->Set(key, random.Below(12));
  this->ExpectScans();
  for (std::size_t i = 0; i < keys.size(); i += 3) this->Remove(keys[i]);
  this->ExpectScans();
  for (const std::string& key : keys) this->ExpectNeighboursOf(key);
}

TYPED_TEST_P(OrderedDBMConformance, OrdersKeysOfMaximumSize) {
  const std::size_t size = std::min(LongestKeyOf<typename TypeParam::Database>(), std::size_t{1} << 16);
  for (const std::size_t differ : {std::size_t{0}, std::size_t{3}, size / 2, size - 5, size - 1}) {
    for (const char filler : {'\0', 'k', '\xff'}) {
      std::string key(size, filler);
      for (const char byte : {'\0', 'a', 'k', 'z', '\xff'}) {
        key[differ] = byte;
        this->Set(key, 100);
        this->Set(key.substr(0, size - 1), 10);
      }
    }
  }
  this->ExpectOrder();
  while (this->records_.size() > 3) {
    const std::string middle = std::next(this->records_.begin(), static_cast<std::ptrdiff_t>(this->records_.size() / 2))->first;
    ASSERT_NO_FATAL_FAILURE(this->Remove(middle));
    if (this->records_.size() % kSlowdown == 0) ASSERT_THAT(this->db_->Verify(), IsOk());
  }
  this->ExpectOrder();
}

// Groups of keys with long common prefixes, which are lost when the records between two groups are
// removed.
TYPED_TEST_P(OrderedDBMConformance, OrdersKeysOfLongSharedPrefixes) {
  constexpr int kKeys = 300 / kSlowdown;
  const std::size_t longest = std::min(LongestKeyOf<typename TypeParam::Database>(), std::size_t{4096}) - 10;
  for (const std::size_t shared : {std::size_t{10}, std::size_t{30}, std::size_t{100}, std::size_t{1000}, longest}) {
    SCOPED_TRACE(shared);
    const auto key = [&](char group, int i) { return std::string(shared, group) + NumberedKey(static_cast<std::uint64_t>(i)); };
    for (const char group : {'c', 'a', 'b', 'd'})
      for (int i = 0; i < kKeys; ++i) this->Set(key(group, i * 7 % kKeys), 4);
    ASSERT_THAT(this->db_->Verify(), IsOk());
    this->ExpectScans();
    for (const char group : {'b', 'd', 'a'}) {
      for (int i = 0; i < kKeys; ++i) {
        this->Remove(key(group, i));
        if (i % 16 != 0) continue;
        ASSERT_THAT(this->db_->Verify(), IsOk());
      }
      this->ExpectNeighboursOf(key(group, 0));
    }
    this->ExpectScans();
    for (int i = 0; i < kKeys; ++i) this->ExpectNeighboursOf(key('c', i));
    for (int i = 0; i < kKeys; ++i) this->Remove(key('c', i));
  }
}

TYPED_TEST_P(OrderedDBMConformance, ShowsLongValuesBothWays) {
  Random random(TestSeed());
  for (std::uint64_t i = 0; i < 300; ++i) this->Set(NumberedKey(i * 2), i % 3 == 0 ? random.Below(100'000) : random.SkewedSize(14));
  this->ExpectOrder();
  for (std::uint64_t i = 0; i < 300; i += 2) this->Set(NumberedKey(i * 2), random.SkewedSize(17));
  for (std::uint64_t i = 1; i < 300; i += 4) this->Remove(NumberedKey(i * 2));
  this->ExpectOrder();
}

TYPED_TEST_P(OrderedDBMConformance, IteratorChangesDirectionAnywhere) {
  for (std::uint64_t i = 0; i < 500; ++i) this->Set(NumberedKey(i * 3), i % 80);
  Random random(TestSeed());
  auto it = this->db_->MakeIterator();
  it.First();
  auto expected = this->records_.cbegin();
  for (int i = 0; i < 50'000 / kSlowdown; ++i) {
    if (!it.Valid()) {  // beyond an end, which only a jump can leave
      const std::string key = NumberedKey(random.Below(1500));
      it.Jump(key);
      expected = this->records_.lower_bound(key);
    } else if (random.OneIn(200)) {
      const bool last = random.OneIn(2);
      last ? it.Last() : it.First();
      expected = last ? std::prev(this->records_.cend()) : this->records_.cbegin();
    } else if (random.OneIn(2)) {
      it.Next();
      ++expected;
    } else {
      it.Previous();
      expected = this->Before(expected);
    }
    ASSERT_NO_FATAL_FAILURE(this->ExpectAt(it, expected, "a step"));
  }
}

TYPED_TEST_P(OrderedDBMConformance, IteratorJumpsToItsOwnKey) {  // whose bytes are its own
  auto it = this->db_->MakeIterator();
  for (const std::size_t shared : {0u, 5u, 30u, 200u, 2000u}) {
    SCOPED_TRACE(shared);
    const std::string old_key = std::string(shared, 'm') + "11111111";
    ASSERT_THAT(this->db_->Clear(), IsOk());
    this->records_.clear();
    this->Set(old_key, 8);
    for (const char other : {'a', 'z'}) {
      it.First();
      ASSERT_TRUE(it.Valid());
      const std::string shown(it.key());
      ASSERT_THAT(this->db_->Clear(), IsOk());
      this->records_.clear();
      for (std::uint64_t i = 0; i < 50; ++i) this->Set(std::string(shared, other) + NumberedKey(i), 8);
      const bool inclusive = other == 'a';
      if (inclusive) {
        it.JumpLower(it.key(), true);
        ASSERT_NO_FATAL_FAILURE(this->ExpectAt(it, this->Before(this->records_.upper_bound(shown)), "JumpLower"));
      } else {
        it.JumpUpper(it.key(), false);
        ASSERT_NO_FATAL_FAILURE(this->ExpectAt(it, this->records_.upper_bound(shown), "JumpUpper"));
      }
    }
    it.First();
    for (auto expected = this->records_.cbegin(); it.Valid(); ++expected) {
      it.Jump(it.key());
      ASSERT_NO_FATAL_FAILURE(this->ExpectAt(it, expected, "Jump to where it is"));
      it.JumpUpper(it.key(), false);
    }
  }
}

TYPED_TEST_P(OrderedDBMConformance, IteratorMovesBackWhileRecordsChange) {
  auto& db = *this->db_;
  constexpr std::uint64_t kRecords = 2000;
  for (std::uint64_t i = 0; i < kRecords; ++i) this->Set(NumberedKey(i), 20);
  auto it = db.MakeIterator();
  std::uint64_t shown = 0;
  for (it.Last(); it.Valid(); it.Previous()) {
    const std::string key(it.key());
    ASSERT_TRUE(SaltOf(key, it.value())) << key;
    if (key.size() > 8) continue;  // inserted meanwhile
    const std::uint64_t number = kRecords - ++shown;
    ASSERT_EQ(key, NumberedKey(number));
    const std::string other = NumberedKey(number > 0 ? number - 1 : 0) + "new";
    ASSERT_THAT(db.Set(other, CheckedValue(other, 8, 2)), IsOk());
    ASSERT_THAT(db.Set(key, CheckedValue(key, shown % 300, 3)), IsOk());
    if (shown <= 10) continue;
    ASSERT_THAT(db.Remove(NumberedKey(number + 10)), IsOk());
  }
  EXPECT_EQ(shown, kRecords);
}

// The records that a range view shows.
template <class View>
std::vector<std::pair<std::string, std::string>> RecordsOf(View view) {
  std::vector<std::pair<std::string, std::string>> shown;
  for (const auto [key, value] : view) shown.emplace_back(key, value);
  EXPECT_THAT(view.status(), IsOk());
  return shown;
}

TYPED_TEST_P(OrderedDBMConformance, RangesShowTheirRecordsBothWays) {
  auto& db = *this->db_;
  const auto expect = [&](std::string_view from, std::optional<std::string_view> to) {
    SCOPED_TRACE(testing::Message() << "from " << testing::PrintToString(from) << " to " << (to ? testing::PrintToString(*to) : "the end"));
    const auto begin = this->records_.lower_bound(from), end = to ? this->records_.lower_bound(*to) : this->records_.end();
    std::vector<std::pair<std::string, std::string>> expected;
    if (!to || from < *to) expected.assign(begin, end);
    EXPECT_TRUE(RecordsOf(db.Range(from, to)) == expected);
    EXPECT_EQ(db.CountRange(from, to).value(), expected.size());
    std::reverse(expected.begin(), expected.end());
    EXPECT_TRUE(RecordsOf(db.ReverseRange(from, to)) == expected);
  };
  for (int round = 0; round < 2; ++round) {
    expect("", std::nullopt);
    expect("", "");
    expect("b", "a");
    EXPECT_EQ(RecordsOf(db.Range()).size(), this->records_.size());
    EXPECT_EQ(RecordsOf(db.ReverseRange()).size(), this->records_.size());
    if (round == 0) {
      for (std::uint64_t i = 0; i < 1500; ++i) this->Set(NumberedKey(i * 2), i % 50 == 0 ? 5000 : i % 30);
    }
  }
  Random random(TestSeed());
  for (int i = 0; i < 200; ++i) {
    const std::string from = NumberedKey(random.Below(3010)), to = NumberedKey(random.Below(3010));
    expect(from, to);
    expect(from, std::nullopt);
    expect(from, from);
  }
}

TYPED_TEST_P(OrderedDBMConformance, RangesAreMovableViews) {
  auto& db = *this->db_;
  for (std::uint64_t i = 0; i < 1000; ++i) this->Set(NumberedKey(i), i % 7 == 1 ? 3000 : 8);
  static_assert(std::ranges::input_range<decltype(db.Range())> && std::ranges::view<decltype(db.ReverseRange())>);
  std::vector<decltype(db.Range())> kept;
  for (std::uint64_t i = 0; i < 10; ++i) kept.push_back(db.Range(NumberedKey(i)));  // which moves earlier elements
  for (std::uint64_t i = 0; i < 10; ++i) {
    auto moved = std::move(kept[i]);
    const auto shown = *moved.begin();
    EXPECT_EQ(shown.first, NumberedKey(i));
    EXPECT_EQ(shown.second, this->records_.find(NumberedKey(i))->second);
    EXPECT_EQ(RecordsOf(std::move(moved)).size(), 1000 - i);
  }
}

TYPED_TEST_P(OrderedDBMConformance, PrefixRangeReturnsMatchingKeys) {
  auto& db = *this->db_;
  for (const char* key : {"", "a", "a\xff", "a\xff\xff", "a\xff\xff!", "ab", "b", "\xff", "\xff\xff", "\xff\xff\xff"}) this->Set(key, 5);
  for (std::uint64_t i = 0; i < 500; ++i) this->Set("prefix" + NumberedKey(i), 5);
  for (const std::string_view prefix : {"", "a", "a\xff", "a\xff\xff", "aa", "c", "\xff", "\xff\xff", "prefix", "prefix000001"}) {
    std::vector<std::pair<std::string, std::string>> expected;
    for (const auto& record : this->records_) {
      if (std::string_view(record.first).starts_with(prefix)) expected.push_back(record);
    }
    EXPECT_TRUE(RecordsOf(db.PrefixRange(prefix)) == expected) << testing::PrintToString(prefix);
  }
}

TYPED_TEST_P(OrderedDBMConformance, RemovesRanges) {
  auto& db = *this->db_;
  EXPECT_THAT(db.RemoveRange(""), IsOkAndHolds(0u));
  Random random(TestSeed());
  const auto remove = [&](std::string_view from, std::optional<std::string_view> to) {
    const auto begin = this->records_.lower_bound(from);
    auto end = to ? this->records_.lower_bound(*to) : this->records_.end();
    if (to && *to < from) end = begin;
    const auto count = static_cast<std::uint64_t>(std::distance(begin, end));
    this->records_.erase(begin, end);
    EXPECT_THAT(db.RemoveRange(from, to), IsOkAndHolds(count));
    EXPECT_EQ(db.Count(), this->records_.size());
    EXPECT_THAT(db.Verify(), IsOk());
  };
  for (int round = 0; round < 3; ++round) {
    for (std::uint64_t i = 0; i < 2000; ++i) this->Set(NumberedKey(i), i % 40 == 0 ? 3000 : i % 30);
    for (int i = 0; i < 40; ++i) {
      const std::uint64_t from = random.Below(2000);
      remove(NumberedKey(from), NumberedKey(from + random.SkewedSize(10)));
    }
    remove(NumberedKey(1000), NumberedKey(999));
    remove(NumberedKey(1900), std::nullopt);
    this->ExpectScans();
    remove("", round == 0 ? std::optional<std::string_view>() : "~");
    this->ExpectHolds({});
  }
}

TYPED_TEST_P(OrderedDBMConformance, BulkLoadRequiresAscendingKeys) {
  auto& db = *this->db_;
  const auto load = [&](std::vector<std::string> keys) {
    std::size_t i = 0;
    return db.BulkLoad([&, i](std::string_view* key, std::string_view* value) mutable {
      if (i == keys.size()) return false;
      *key = *value = keys[i++];
      return true;
    });
  };
  EXPECT_THAT(load({}), IsOk());
  std::vector<std::string> keys;
  for (std::uint64_t i = 0; i < 5000; ++i) {
    keys.push_back(NumberedKey(i * 2));
    this->records_[keys.back()] = keys.back();
  }
  this->Set(NumberedKey(7), 9);
  EXPECT_THAT(load(keys), IsOk());
  this->ExpectScans();
  EXPECT_THAT(load({NumberedKey(1), NumberedKey(3), NumberedKey(3), NumberedKey(5)}), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(load({NumberedKey(9), NumberedKey(8)}), StatusIs(absl::StatusCode::kInvalidArgument));
  for (const std::uint64_t i : {1u, 3u, 9u}) this->records_[NumberedKey(i)] = NumberedKey(i);
  this->ExpectScans();
}

// Two threads scan records that stay, one each way, while others insert and remove records between
// them.
TYPED_TEST_P(OrderedDBMConformance, ConcurrentScansBothWaysShowPresentRecordsOnceInOrder) {
  auto& db = *this->db_;
  constexpr std::uint64_t kPresent = 500, kBetween = 40;
  for (std::uint64_t i = 0; i < kPresent; ++i) ASSERT_THAT(db.Set(NumberedKey(i), CheckedValue(NumberedKey(i), 16, 1)), IsOk());
  std::atomic<int> scanning = 2;
  RunThreads(4, [&](int thread) {
    if (thread >= 2) {
      Random random(TestSeed() + static_cast<std::uint64_t>(thread));
      while (scanning > 0) {
        const std::uint64_t first = random.Below(kPresent);
        const bool fill = random.OneIn(2);
        for (std::uint64_t i = first; i < std::min(first + 20, kPresent); ++i) {
          const std::string present = NumberedKey(i);
          if (!fill && i % 2 == 0) {
            this->mishaps_.Check(db.RemoveRange(present + "-", present + "~").status());
            continue;
          }
          for (std::uint64_t k = 0; k < kBetween; ++k) {
            const std::string key = present + "-" + std::to_string(thread) + NumberedKey(k);
            const Status status = fill ? db.Set(key, CheckedValue(key, random.Below(30), 2)) : db.Remove(key);
            if (!absl::IsNotFound(status)) this->mishaps_.Check(status);
          }
          this->mishaps_.Check(db.Set(present, CheckedValue(present, random.SkewedSize(7), 3)));
        }
      }
      return;
    }
    const bool forward = thread == 0;
    auto it = db.MakeIterator();
    for (int round = 0; round < 60 / kSlowdown; ++round) {
      std::uint64_t expected = forward ? 0 : kPresent - 1, shown = 0;
      std::string before;
      for (forward ? it.First() : it.Last(); it.Valid(); forward ? it.Next() : it.Previous()) {
        this->mishaps_.Check(SaltOf(it.key(), it.value()).has_value(), "a scan shows a torn value");
        if (!before.empty()) this->mishaps_.Check(forward ? before < it.key() : before > it.key(), "a scan is not in order");
        before.assign(it.key());
        if (it.key().size() > 8) continue;
        this->mishaps_.Check(it.key() == NumberedKey(expected), "a scan misses " + NumberedKey(expected));
        expected += forward ? 1 : -1;
        ++shown;
      }
      this->mishaps_.Check(it.status());
      this->mishaps_.Check(shown == kPresent, "a scan ends early");
    }
    --scanning;
  });
}

// Even numbers stay, odd ones are inserted and removed: the neighbours of any key are never far.
TYPED_TEST_P(OrderedDBMConformance, ConcurrentJumpsFindTheNeighbours) {
  auto& db = *this->db_;
  constexpr std::uint64_t kNumbers = 4000;
  for (std::uint64_t i = 0; i < kNumbers; i += 2) ASSERT_THAT(db.Set(NumberedKey(i), CheckedValue(NumberedKey(i), 8, 1)), IsOk());
  std::atomic<int> jumping = 2;
  RunThreads(4, [&](int thread) {
    Random random(TestSeed() + static_cast<std::uint64_t>(thread));
    if (thread >= 2) {
      while (jumping > 0) {
        const std::uint64_t first = random.Below(kNumbers);
        const bool fill = random.OneIn(2);
        for (std::uint64_t i = first | 1; i < std::min(first + 300, kNumbers); i += 2) {
          const Status status =
              fill ? db.Set(NumberedKey(i), CheckedValue(NumberedKey(i), random.Below(60), 2)) : db.Remove(NumberedKey(i));
          if (!absl::IsNotFound(status)) this->mishaps_.Check(status);
        }
      }
      return;
    }
    auto it = db.MakeIterator();
    for (int i = 0; i < 20'000 / kSlowdown; ++i) {
      const std::uint64_t number = 2 + random.Below(kNumbers - 4);
      const std::string key = NumberedKey(number);
      const auto expect = [&](std::uint64_t low, std::uint64_t high, const char* move) {
        const bool fine = it.Valid() && it.key() >= NumberedKey(low) && it.key() <= NumberedKey(high);
        this->mishaps_.Check(fine, move + (" from " + key + " to ") + (it.Valid() ? std::string(it.key()) : "nowhere"));
      };
      const std::uint64_t odd = number % 2;
      it.Jump(key);
      expect(number, number + odd, "Jump");
      it.JumpUpper(key, false);
      expect(number + 1, number + 2 - odd, "JumpUpper");
      it.Previous();
      expect(number - odd, number + 1 - odd, "Previous");
      it.JumpLower(key, true);
      expect(number - odd, number, "JumpLower, inclusive");
      it.JumpLower(key, false);
      expect(number - 2 + odd, number - 1, "JumpLower");
      it.Next();
      expect(number - 1 + odd, number + odd, "Next");
    }
    --jumping;
  });
}

REGISTER_TYPED_TEST_SUITE_P(OrderedDBMConformance, FindsNothingInAnEmptyDatabase, FindsTheOnlyRecord, FindsTheNeighboursOfEveryKey,
                            OrdersRecordsSetInAnyOrder, OrdersKeysThatArePrefixesOfEachOther, OrdersBinaryKeys, OrdersKeysOfMaximumSize,
                            OrdersKeysOfLongSharedPrefixes, ShowsLongValuesBothWays, IteratorChangesDirectionAnywhere,
                            IteratorJumpsToItsOwnKey, IteratorMovesBackWhileRecordsChange, RangesShowTheirRecordsBothWays,
                            RangesAreMovableViews, PrefixRangeReturnsMatchingKeys, RemovesRanges, BulkLoadRequiresAscendingKeys,
                            ConcurrentScansBothWaysShowPresentRecordsOnceInOrder, ConcurrentJumpsFindTheNeighbours);

}  // namespace hako
