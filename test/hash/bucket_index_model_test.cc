// Random operations on a bucket index over the toy space, beside a std::map: some are refused
// memory, others are cut short by a kill.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/toy_table.h"

namespace hako {
namespace {

template <class Space>
class BucketIndexModelTest : public testing::Test {
 protected:
  using Table = ToyTable<Space>;
  using Model = typename Table::Model;

  std::string AnyKey() { return "key" + std::to_string(random.Below(num_keys)); }
  std::string AnyValue() {
    if (random.OneIn(30)) return random.Bytes(8192 + random.Below(20));  // long values are written with nothing locked
    return random.Bytes(random.SkewedSize(6));
  }

  // One operation on the table, and on `model` if it succeeds. False if it was refused memory.
  bool Operate(Table& table, Model& model) {
    const std::uint64_t before = table.space.allocations;
    Status status;
    switch (random.Below(8)) {
      case 0:
      case 1:
      case 2:
        status = SetOne(table, model);
        break;
      case 3:
        status = UpdateOne(table, model);
        break;
      case 4: {
        const std::string key = AnyKey();
        status = table.Remove(key);
        model.erase(key);
        break;
      }
      case 5:
        status = ProcessSome(table, model);
        break;
      case 6:
        status = EnterSome(table, model);
        break;
      default:
        ReadSome(table, model);
    }
    if (status.ok()) return true;
    EXPECT_EQ(status, Space::Refusal());
    EXPECT_GE(table.space.allocations, before + 1);
    return false;
  }

  Status SetOne(Table& table, Model& model) {
    const std::string key = AnyKey(), value = AnyValue();
    HAKO_RETURN_IF_ERROR(table.Set(key, value));
    model.insert_or_assign(key, value);
    return absl::OkStatus();
  }

  // Shows the value, which must be the model's, then replaces, removes or keeps it.
  Status UpdateOne(Table& table, Model& model) {
    const std::string key = AnyKey();
    const auto it = model.find(key);
    std::string result;
    const std::uint64_t kind = random.Below(4);
    HAKO_RETURN_IF_ERROR(table.Process(key, [&](std::optional<std::string_view> value) {
      EXPECT_EQ(value.has_value(), it != model.end());
      if (value) {
        EXPECT_EQ(*value, it->second);
      }
      if (kind == 0) return Action::Keep();
      if (kind == 1) return Action::Remove();
      result = AnyValue();
      return Action::Set(result);
    }));
    if (kind == 1) model.erase(key);
    if (kind > 1) model.insert_or_assign(key, result);
    return absl::OkStatus();
  }

  Status ProcessSome(Table& table, Model& model) {
    std::vector<std::string> keys(random.Between(1, 7));
    for (std::string& key : keys) key = AnyKey();
    const std::vector<std::string_view> views(keys.begin(), keys.end());
    std::vector<std::string> values(keys.size());
    Model after = model;
    const bool aborts = random.OneIn(6);
    const auto visit = [&](std::size_t i, std::optional<std::string_view> value) -> std::optional<Action> {
      const auto it = after.find(keys[i]);
      EXPECT_EQ(value.has_value(), it != after.end());
      if (value && it != after.end()) {
        EXPECT_EQ(*value, it->second);
      }
      if (aborts && i + 1 == keys.size()) return std::nullopt;
      if (random.OneIn(4)) return Action::Keep();
      if (random.OneIn(3)) {
        after.erase(keys[i]);
        return Action::Remove();
      }
      values[i] = AnyValue();
      after.insert_or_assign(keys[i], values[i]);
      return Action::Set(values[i]);
    };
    const Status status = table.index.ProcessMulti(*table.writers.Mine(), Batch<Action>{views, visit});
    if (aborts) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted));
      return absl::OkStatus();
    }
    if (status.ok()) model = std::move(after);
    return status;
  }

  // Writes records, then inserts them together.
  Status EnterSome(Table& table, Model& model) {
    Model fresh;
    for (std::uint64_t i = random.Between(1, 5); i > 0; --i) fresh.insert_or_assign(AnyKey(), random.Bytes(random.Below(40)));
    std::vector<std::string_view> keys;
    std::vector<std::uint32_t> handles;
    Status status;
    for (const auto& [key, value] : fresh) {
      const std::uint32_t handle = table.space.Write(*table.writers.Mine(), table.space.KeyHash(key), key, value, &status);
      if (handle == 0) break;
      keys.push_back(key);
      handles.push_back(handle);
    }
    if (status.ok()) status = table.index.template PublishMulti<Action>(*table.writers.Mine(), keys, handles).status();
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (status.ok()) {
        model.insert_or_assign(std::string(keys[i]), fresh.find(keys[i])->second);
      } else {
        table.space.GiveBack(*table.writers.Mine(), handles[i], keys[i].size(), fresh.find(keys[i])->second.size());
      }
    }
    return status;
  }

  void ReadSome(Table& table, const Model& model) {
    std::vector<std::string> keys(random.Between(1, 40)), values(keys.size());
    for (std::string& key : keys) key = AnyKey();
    const std::vector<std::string_view> views(keys.begin(), keys.end());
    const auto sink = [&values](std::size_t i, std::size_t size) {
      values[i].resize(size);
      return values[i].data();
    };
    const auto arrived = [&](std::size_t i, bool found) {
      EXPECT_EQ(found, model.contains(keys[i]));
      if (found) {
        EXPECT_EQ(values[i], model.find(keys[i])->second);
      }
    };
    EXPECT_THAT(table.index.FetchMulti(table.writers, views, sink, arrived), IsOk());
    const StatusOr<std::string> value = table.Get(keys[0]);
    if (model.contains(keys[0])) {
      EXPECT_THAT(value, IsOkAndHolds(model.find(keys[0])->second));
    } else {
      EXPECT_THAT(value, StatusIs(absl::StatusCode::kNotFound));
    }
  }

  void RefuseSoon(Table& table) {
    table.space.refused = random.OneIn(2) ? table.space.allocations + random.Below(6) : ~std::uint64_t{0};
    table.space.refuses_on = random.OneIn(2);
  }

  Random random{TestSeed()};
  std::uint64_t num_keys = 300;
};

using Spaces = testing::Types<ToyRecordSpace<false>, ToyRecordSpace<true>>;
TYPED_TEST_SUITE(BucketIndexModelTest, Spaces);

// With few bits of the hash most buckets have long chains, and tags coincide.
TYPED_TEST(BucketIndexModelTest, AgreesWithAMapWhereMemoryIsRefused) {
  for (const std::uint64_t mask : {~std::uint64_t{0}, std::uint64_t{0x30003}, std::uint64_t{0}}) {
    typename TestFixture::Table table;
    typename TestFixture::Model model;
    table.space.hash_mask = mask;
    int refused = 0;
    for (int i = 0; (i < 3000 / kSlowdown || refused <= 5) && i < 10'000 && !this->HasFailure(); ++i) {
      SCOPED_TRACE(i);
      if (i % 100 == 99) table.PretendMore(8 * table.index.num_lines());
      this->RefuseSoon(table);
      refused += this->Operate(table, model) ? 0 : 1;
      table.space.refused = ~std::uint64_t{0};
      if (i % 50 == 0) table.ExpectEqual(model);
    }
    table.ExpectEqual(model);
    EXPECT_GT(refused, 5);
    EXPECT_GT(table.index.num_lines(), 1024u);
  }
}

// Each kill leaves the state before the operation or after it, and so does a kill of the recovery;
// operations continue on what was recovered. In a space without intents this holds for each key by
// itself.
TYPED_TEST(BucketIndexModelTest, RecoversFromAKillAtAnyCallOfTheSpace) {
  using ThisTable = typename TestFixture::Table;
  using ThisModel = typename TestFixture::Model;
  this->num_keys = 60;
  constexpr int kRedone = hash::IntentSpace<TypeParam> ? 10 / kSlowdown : -1;
  for (const std::uint64_t mask : {std::uint64_t{0xffff0000000000ff}, std::uint64_t{0x10001}}) {
    auto table = std::make_unique<ThisTable>(4096);
    table->space.hash_mask = mask;
    ThisModel model;
    int before_op = 0, after_op = 0, redone = 0;
    const auto lacks_some = [&] { return before_op <= 2 || after_op <= 2 || redone <= kRedone; };
    for (int i = 0; (i < 1200 / kSlowdown || lacks_some()) && i < 10'000 && !this->HasFailure(); ++i) {
      SCOPED_TRACE(i);
      std::optional<typename TypeParam::Content> killed;
      std::uint64_t changes = 0;
      const std::uint64_t kill_at = this->random.Below(this->random.OneIn(2) ? 12 : 60);
      table->space.on_change = [&] {
        if (changes++ == kill_at) killed = table->space.content();
      };
      if (i % 20 == 19) table->PretendMore(8 * table->index.num_lines());
      const ThisModel before = model;
      this->RefuseSoon(*table);
      this->Operate(*table, model);
      table->space.on_change = nullptr;
      table->space.refused = ~std::uint64_t{0};
      if (!killed) continue;
      redone += killed->intents.empty() ? 0 : 1;
      std::optional<typename TypeParam::Content> killed_again;
      std::uint64_t until_killed = this->random.Below(10);
      table = std::make_unique<ThisTable>(std::move(*killed), mask, [&](const auto& content) {
        if (until_killed-- == 0) killed_again = content;
      });
      const ThisModel found = table->All();
      if (hash::IntentSpace<TypeParam>) ASSERT_TRUE(found == before || found == model);
      for (const ThisModel* const state : {&before, static_cast<const ThisModel*>(&model), &found}) {
        for (const auto& [key, value] : *state) {
          const auto in = [&key = key](const auto& map) {
            const auto it = map.find(key);
            return it == map.end() ? std::nullopt : std::optional(it->second);
          };
          ASSERT_TRUE(in(found) == in(before) || in(found) == in(model)) << key;
        }
      }
      if (killed_again) {
        ThisTable again(std::move(*killed_again), mask);
        again.ExpectEqual(found);
      }
      (found == before ? before_op : after_op) += before == model ? 0 : 1;
      model = found;
      table->ExpectEqual(model);
    }
    EXPECT_GT(before_op, 2);
    EXPECT_GT(after_op, 2);
    EXPECT_GT(redone, kRedone);
    if (!hash::IntentSpace<TypeParam>) {
      EXPECT_EQ(redone, 0);
    }
  }
}

}  // namespace
}  // namespace hako
