// Numbers of rows are given once: beside removals, queries and the scan of an opened table.
#include "hako/table/row_numbers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
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
      const StatusOr<RowNumber> number = numbers_.Take();
      EXPECT_THAT(number, IsOk());
      taken.push_back(*number);
    }
    const std::set<RowNumber> different(taken.begin(), taken.end());
    EXPECT_EQ(different.size(), taken.size()) << "a number was given twice";
    return taken;
  }

  internal::AnyModel<BabyDBM<>> store_{*BabyDBM<>::Open(BabyOptions())};
  RowNumbers numbers_{store_};
};

TEST_F(RowNumbersTest, NewOnesAreBehindThoseOfTheTable) { EXPECT_EQ(Take(3), (std::vector<RowNumber>{kRows, kRows + 1, kRows + 2})); }

TEST_F(RowNumbersTest, ScanFindsFreeOnes) {
  const std::set<RowNumber> removed = {3, 40, 41, 333};
  for (const RowNumber number : removed) Store(number / kKeysOfBlock, removed);
  const std::vector<RowNumber> taken = Take(1000);
  for (const RowNumber number : removed) EXPECT_THAT(taken, testing::Contains(number));
  for (const RowNumber number : taken) EXPECT_TRUE(number >= kRows || removed.contains(number)) << number;
}

// The step that removes the row has been made, and the scan reads its block before Retire.
TEST_F(RowNumbersTest, AnnouncedOnesAreNotFoundByTheScan) {
  const RowNumber number[] = {40};
  numbers_.Announce(number);
  Store(1, {40});
  EXPECT_THAT(Take(1000), testing::Not(testing::Contains(40u)));
  numbers_.Retire(number);
  const std::vector<RowNumber> taken = Take(1000);
  EXPECT_EQ(std::count(taken.begin(), taken.end(), 40u), 1);
}

TEST_F(RowNumbersTest, OnesThatAQueryMayKnowAreKeptBack) {
  const RowNumber number[] = {kRows - 1};
  const unsigned query = numbers_.Begin();
  numbers_.Announce(number);
  Store((kRows - 1) / kKeysOfBlock, {kRows - 1});
  numbers_.Retire(number);
  EXPECT_THAT(Take(1000), testing::Not(testing::Contains(kRows - 1)));
  const unsigned later = numbers_.Begin();  // knows nothing of it
  numbers_.End(query);
  EXPECT_THAT(Take(1000), testing::Contains(kRows - 1));
  numbers_.End(later);
}

TEST_F(RowNumbersTest, AllAreGivenAgainAfterClear) {
  const unsigned query = numbers_.Begin();
  numbers_.RetireAll();
  for (RowNumber block = 0; block <= (kRows - 1) / kKeysOfBlock; ++block) {
    ASSERT_THAT(store_.Process(KeyBlockKey(block), [](std::optional<std::string_view>) { return Action::Remove(); }), IsOk());
  }
  for (const RowNumber number : Take(1000)) EXPECT_GE(number, kRows);
  numbers_.End(query);
  const std::vector<RowNumber> taken = Take(1000);
  EXPECT_GE(std::count_if(taken.begin(), taken.end(), [](RowNumber number) { return number < kRows; }), kRows - 1);
}

}  // namespace
}  // namespace hako::table
