// Numbers of rows are given once: beside removals, queries and the scan of an opened table.
#include "hako/table/row_numbers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "hako/dbm/any_model.h"
#include "hako/dbm/baby_dbm.h"
#include "hako/table/index_key.h"
#include "support/status_matchers.h"

namespace hako::table {
namespace {

class RowNumbersTest : public testing::Test {
 protected:
  static constexpr RowNumber kRows = 500;

  void SetUp() override {
    for (RowNumber block = 0; block <= (kRows - 1) / kKeysOfBlock; ++block) Store(block, {});
    ASSERT_THAT(numbers_.Open(), IsOk());
  }
  // Stores a key block of rows 0 to kRows - 1, without those that were removed.
  void Store(RowNumber block, const std::set<RowNumber>& removed) {
    KeyBlock keys;
    for (RowNumber number = block * kKeysOfBlock; number < std::min((block + 1) * kKeysOfBlock, kRows); ++number) {
      if (!removed.contains(number)) keys.Set(number % kKeysOfBlock, "row " + std::to_string(number));
    }
    std::string bytes;
    keys.Encode(&bytes);
    ASSERT_THAT(store_.Process(KeyBlockKey(block), [&](std::optional<std::string_view>) { return Action::Set(bytes); }), IsOk());
  }
  std::vector<RowNumber> Take(int count) {
    std::vector<RowNumber> taken;
    for (int i = 0; i < count; ++i) {
      const StatusOr<RowNumber> number = numbers_.Take("key");
      EXPECT_THAT(number, IsOk());
      taken.push_back(*number);
    }
    const std::set<RowNumber> different(taken.begin(), taken.end());
    EXPECT_EQ(different.size(), taken.size()) << "a number was given twice";
    return taken;
  }
  // Takes numbers and takes them back, in turn.
  std::set<RowNumber> Churn(int count) {
    std::set<RowNumber> taken;
    for (int i = 0; i < count; ++i) {
      const std::vector<RowNumber> one = Take(1);
      taken.insert(one.begin(), one.end());
      numbers_.Announce(one);
      numbers_.Retire(one);
    }
    return taken;
  }
  // Every second one.
  std::set<RowNumber> RemoveMany() {
    std::set<RowNumber> removed;
    for (RowNumber number = 1; number < kRows; number += 2) removed.insert(number);
    for (RowNumber block = 0; block <= (kRows - 1) / kKeysOfBlock; ++block) Store(block, removed);
    return removed;
  }

  internal::AnyModel<BabyDBM<>> store_{*BabyDBM<>::Open(BabyOptions())};
  RowNumbers numbers_{store_};
};

TEST_F(RowNumbersTest, NewOnesAreBehindThoseOfTheTable) { EXPECT_EQ(Take(3), (std::vector<RowNumber>{kRows, kRows + 1, kRows + 2})); }

TEST_F(RowNumbersTest, ScanFindsFreeOnes) {
  const std::set<RowNumber> removed = RemoveMany();
  int num_free = 0;
  for (const RowNumber number : Take(1000)) {
    num_free += removed.contains(number) ? 1 : 0;
    EXPECT_TRUE(number >= kRows || removed.contains(number)) << number;
  }
  EXPECT_GE(num_free, 50);
}

TEST_F(RowNumbersTest, FewFreeOnesAreNotGivenAgain) {
  const std::set<RowNumber> removed = {3, 40, 41, 333};
  for (const RowNumber number : removed) Store(number / kKeysOfBlock, removed);
  for (const RowNumber number : Take(1000)) EXPECT_GE(number, kRows);
}

TEST_F(RowNumbersTest, NumbersStayDense) {
  const std::vector<RowNumber> rows = Take(1000);
  EXPECT_LT(*Churn(100'000).rbegin(), 2 * (kRows + rows.size()));
}

// The step that removes the row has been made, and the scan reads its block before Retire.
TEST_F(RowNumbersTest, AnnouncedOnesAreNotFoundByTheScan) {
  const RowNumber number[] = {41};
  numbers_.Announce(number);
  RemoveMany();
  const std::set<RowNumber> before = Churn(10'000);
  EXPECT_THAT(before, testing::Contains(43u));
  EXPECT_THAT(before, testing::Not(testing::Contains(41u)));
  numbers_.Retire(number);
  EXPECT_THAT(Churn(10'000), testing::Contains(41u));
}

TEST_F(RowNumbersTest, OnesThatAQueryMayKnowAreKeptBack) {
  RemoveMany();
  const RowNumber number[] = {kRows - 2};
  (void)Churn(10'000);
  const unsigned query = numbers_.Begin();
  numbers_.Announce(number);
  Store((kRows - 1) / kKeysOfBlock, {kRows - 2});
  numbers_.Retire(number);
  EXPECT_THAT(Churn(10'000), testing::Not(testing::Contains(kRows - 2)));
  const unsigned later = numbers_.Begin();  // knows nothing of it
  numbers_.End(query);
  (void)Churn(10'000);
  numbers_.End(later);
  EXPECT_THAT(Churn(40'000), testing::Contains(kRows - 2));
}

TEST_F(RowNumbersTest, AllAreGivenAgainAfterClear) {
  const unsigned query = numbers_.Begin();
  for (RowNumber block = 0; block <= (kRows - 1) / kKeysOfBlock; ++block) {
    ASSERT_THAT(store_.Process(KeyBlockKey(block), [](std::optional<std::string_view>) { return Action::Remove(); }), IsOk());
  }
  numbers_.RetireAll();
  for (const RowNumber number : Take(1000)) EXPECT_GE(number, kRows);
  numbers_.End(query);
  const std::set<RowNumber> taken = Churn(10'000);
  EXPECT_GE(std::count_if(taken.begin(), taken.end(), [](RowNumber number) { return number < kRows; }), kRows / 2);
}

// The bounds of each zone hold the keys of all its rows, in both orders, beside changes.
TEST_F(RowNumbersTest, EachRowIsInAZoneWithItsKey) {
  static constexpr int kChanges = 3000;
  while (!numbers_.KnowsOrder(false)) {
  }
  std::map<std::string, RowNumber> rows;
  for (RowNumber number = 0; number < kRows; ++number) rows.emplace("row " + std::to_string(number), number);
  std::mt19937_64 random(7);
  for (const bool is_reversed : {false, true}) {
    RowZones::Seen seen(is_reversed);
    const std::map<std::string, RowNumber> before = rows;
    std::set<std::string> changed;
    std::map<std::uint32_t, std::string> bounds;  // of the zones that were seen
    const auto see = [&](std::size_t count) {
      std::vector<RowZones::Zone> zones;
      numbers_.SeeNextZones(seen, count, {}, {}, &zones);
      for (const auto& [zone, bound] : zones) EXPECT_TRUE(bounds.emplace(zone, bound).second) << "a zone was seen twice";
      return zones.size();
    };
    for (int i = 0; i < kChanges; ++i) {
      if (random() % 3 != 0 || rows.empty()) {
        const std::string key = "row " + std::to_string(random() % 1'000'000);
        if (rows.contains(key)) continue;
        rows.emplace(key, *numbers_.Take(key));
        changed.insert(key);
      } else {
        const auto row = std::next(rows.begin(), static_cast<std::ptrdiff_t>(random() % rows.size()));
        const RowNumber number[] = {row->second};
        numbers_.Announce(number);
        numbers_.Retire(number);
        changed.insert(row->first);
        rows.erase(row);
      }
      if (i % 300 != 0) continue;
      (void)see(1);
    }
    while (see(3) != 0) {
    }
    for (const auto& [key, number] : before) {
      if (changed.contains(key)) continue;
      const auto zone = bounds.find(number / RowZones::kNumbersOfZone);
      ASSERT_NE(zone, bounds.end()) << "the zone of a row was not seen: " << key;
      EXPECT_TRUE(is_reversed ? zone->second >= key : zone->second <= key) << key << " is outside of the bounds of its zone";
    }
  }
}

}  // namespace
}  // namespace hako::table
