// Decisions on the keys of a batch.
#include "hako/update/decisions.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/dbm.h"
#include "support/random.h"
#include "support/status_matchers.h"

namespace hako::update {
namespace {

using testing::ElementsAre;

struct Noted : Decision<Action> {
  std::vector<std::size_t> calls;  // whose decisions it has taken

  void Replace(std::size_t i, const Action& by) {
    calls.push_back(i);
    action = by;
  }
};
using Value = std::optional<std::string_view>;

std::vector<std::uint32_t> FirstsOf(std::span<const Decision<Action>> decisions) {
  std::vector<std::uint32_t> firsts;
  for (const Decision<Action>& decision : decisions) firsts.push_back(decision.first);
  return firsts;
}

TEST(Decisions, FindTheFirstOfEqualKeysByOrderAndByHash) {
  Random random(TestSeed());
  for (std::size_t size = 0; size < 80; ++size) {
    std::vector<std::uint64_t> keys(size);
    for (std::uint64_t& key : keys) key = random.Below(size + 1);
    std::vector<std::uint32_t> expected;
    for (const std::uint64_t key : keys) expected.push_back(static_cast<std::uint32_t>(std::ranges::find(keys, key) - keys.begin()));

    std::vector<std::uint32_t> order(size);
    std::iota(order.begin(), order.end(), 0u);
    std::ranges::stable_sort(order, {}, [&](std::uint32_t i) { return keys[i]; });
    std::vector<Decision<Action>> sorted(size);
    JoinSorted(
        std::span(sorted), [&](std::size_t n) { return order[n]; }, [&](std::size_t n) { return keys[order[n - 1]] == keys[order[n]]; });
    EXPECT_EQ(FirstsOf(sorted), expected);

    for (const std::uint64_t num_hashes : {1, 3, 1000}) {
      std::vector<Decision<Action>> hashed(size);
      JoinHashed(
          std::span(hashed), [&](std::size_t i) { return keys[i] % num_hashes; },
          [&](std::size_t a, std::size_t b) {
            EXPECT_EQ(keys[a] % num_hashes, keys[b] % num_hashes);
            return keys[a] == keys[b];
          });
      EXPECT_EQ(FirstsOf(hashed), expected) << num_hashes << " hashes";
    }
  }
}

class DecideTest : public testing::Test {
 protected:
  // Decides on keys whose first equal ones are these; each visible record has the value "old".
  template <class V>
  Status Run(std::vector<std::uint32_t> firsts, V&& visit) {
    decisions.resize(firsts.size());
    for (std::size_t i = 0; i < firsts.size(); ++i) decisions[i].first = firsts[i];
    return Decide(std::span(decisions), visit, [this](std::size_t i, const Noted& decision, Value* value, Status* status) {
      shown.push_back(i);
      EXPECT_EQ(&decision, &decisions[decisions[i].first]);
      if (i == fails_at) *status = absl::DataLossError("damaged");
      *value = "old";
      return status->ok();
    });
  }

  std::vector<Noted> decisions;
  std::vector<std::size_t> shown;
  std::size_t fails_at = ~std::size_t{0};
};

TEST_F(DecideTest, EachCallSeesWhatEarlierOnesOfItsKeyDecided) {
  std::vector<std::string> seen;
  const Action actions[] = {Action::Keep(),   Action::Set("a"), Action::Set("b"), Action::Keep(),
                            Action::Remove(), Action::Keep(),   Action::Set("c")};
  EXPECT_THAT(Run({0, 1, 0, 0, 0, 0, 1},
                  [&](std::size_t i, Value value) -> std::optional<Action> {
                    seen.push_back(value ? std::string(*value) : "absent");
                    return actions[i];
                  }),
              IsOk());
  EXPECT_THAT(seen, ElementsAre("old", "old", "old", "b", "b", "absent", "a"));
  EXPECT_THAT(shown, ElementsAre(0, 1, 2)) << "records on which something is decided are not read";
  EXPECT_TRUE(decisions[0].Removes());
  EXPECT_THAT(decisions[0].calls, ElementsAre(2, 4)) << "a call that keeps the record decides nothing";
  EXPECT_TRUE(decisions[1].Sets());
  EXPECT_EQ(decisions[1].action.value(), "c");
  for (std::size_t i = 2; i < 7; ++i) EXPECT_TRUE(decisions[i].Keeps()) << i;
}

TEST_F(DecideTest, EndsWithAVisitorThatDecidesNothing) {
  std::size_t calls = 0;
  EXPECT_THAT(Run({0, 1, 2}, [&](std::size_t i, Value) { return ++calls, i == 1 ? std::nullopt : std::optional(Action::Remove()); }),
              StatusIs(absl::StatusCode::kAborted));
  EXPECT_EQ(calls, 2u);
}

TEST_F(DecideTest, EndsWithARecordThatCannotBeShown) {
  fails_at = 1;
  std::size_t calls = 0;
  EXPECT_THAT(Run({0, 1, 2}, [&](std::size_t, Value) { return ++calls, std::optional(Action::Keep()); }),
              StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_EQ(calls, 1u);
}

}  // namespace
}  // namespace hako::update
