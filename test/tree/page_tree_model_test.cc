// Random operations on a page tree over the toy space, beside a std::map; some are refused memory,
// or cannot load a page.
#include <algorithm>
#include <cstddef>
#include <cstdint>
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
#include "support/test_types.h"
#include "support/toy_tree.h"

namespace hako {

// The tree compiles with spaces that have no more than the concept asks for.
template class tree::PageTree<ToyPageSpace<true>, BytewiseComparator>;
template class tree::PageTree<ToyPageSpace<false>, BytewiseComparator>;
template class tree::PageTree<ToyPageSpace<true>, CaseInsensitiveComparator>;

namespace {

template <class ToyTreeT>
class PageTreeModelTest : public testing::Test {
 protected:
  using Toy = ToyTreeT;
  using Model = typename Toy::Model;

  // Keys that share prefixes of all lengths; few are long.
  std::string AnyKey() {
    std::string key;
    if (random.OneIn(2)) key = std::string(random.OneIn(2) ? 5 : 60, 'p');
    key += std::to_string(random.Below(num_keys));
    if (random.OneIn(2)) std::ranges::reverse(key);
    if (random.OneIn(40)) key += std::string(400, static_cast<char>('a' + random.Below(2)));
    return key;
  }
  std::string AnyValue() { return random.Bytes(random.OneIn(15) ? 129 + random.Below(600) : random.SkewedSize(7)); }

  // One operation on the tree, and on `model` if it succeeds. Returns whether it did.
  bool Operate(Toy& toy, Model& model) {
    const std::uint64_t before = toy.space.calls;
    const Status status = CatchNoMemory([&] { return OperateOnce(toy, model); });
    if (status.ok()) return true;
    EXPECT_TRUE(absl::IsResourceExhausted(status) || status == Toy::Space::LoadError()) << status;
    EXPECT_GT(toy.space.calls, before);
    return false;
  }
  Status OperateOnce(Toy& toy, Model& model) {
    switch (random.Below(10)) {
      case 0:
      case 1:
      case 2: {
        const std::string key = AnyKey(), value = AnyValue();
        HAKO_RETURN_IF_ERROR(toy.Set(key, value));
        Store(model, key, value);
        return absl::OkStatus();
      }
      case 3:
      case 4:
        return UpdateOne(toy, model);
      case 5: {
        const std::string key = model.empty() ? "" : AnyOf(model);
        HAKO_RETURN_IF_ERROR(toy.Remove(key));
        model.erase(key);
        return absl::OkStatus();
      }
      case 6:
        return ProcessSome(toy, model);
      case 7:
        return random.OneIn(5) ? RemoveRange(toy, model) : CountRange(toy, model);
      case 8:
        return FetchSome(toy, model);
      default:
        return random.OneIn(100) ? RemoveAll(toy, model) : ReadOne(toy, model);
    }
  }

  // A record keeps the spelling of its key that was stored first.
  static void Store(Model& model, const std::string& key, const std::string& value) { model.insert_or_assign(key, value); }
  std::string AnyOf(const Model& model) {
    const auto it = model.lower_bound(AnyKey());
    return it == model.end() ? model.begin()->first : it->first;
  }
  void ExpectValue(const Model& model, std::string_view key, const std::optional<std::string_view>& value) {
    const auto it = model.find(key);
    EXPECT_EQ(value.has_value(), it != model.end()) << key;
    if (value && it != model.end()) {
      EXPECT_EQ(*value, it->second);
    }
  }

  Status UpdateOne(Toy& toy, Model& model) {
    const std::string key = random.OneIn(2) || model.empty() ? AnyKey() : AnyOf(model);
    const std::uint64_t kind = random.Below(4);
    std::string result;
    HAKO_RETURN_IF_ERROR(toy.Process(key, [&](std::optional<std::string_view> value) {
      ExpectValue(model, key, value);
      if (kind == 0) return Action::Keep();
      if (kind == 1) return Action::Remove();
      result = AnyValue();
      return Action::Set(result);
    }));
    if (kind == 1) model.erase(key);
    if (kind > 1) Store(model, key, result);
    return absl::OkStatus();
  }

  Status ReadOne(Toy& toy, const Model& model) {
    const std::string key = AnyKey();
    const StatusOr<std::string> value = toy.Get(key);
    if (!value.ok() && !absl::IsNotFound(value.status())) return value.status();
    ExpectValue(model, key, value.ok() ? std::optional<std::string_view>(*value) : std::nullopt);
    return toy.tree.template Process<void>(*toy.writers.Mine(), key,
                                           [&](std::optional<std::string_view> seen) -> void { ExpectValue(model, key, seen); });
  }

  Status FetchSome(Toy& toy, const Model& model) {
    std::vector<std::string> keys(random.Between(1, 40)), values(keys.size());
    for (std::string& key : keys) key = AnyKey();
    const std::vector<std::string_view> views(keys.begin(), keys.end());
    const auto sink = [&values](std::size_t i, std::size_t size) {
      values[i].resize(size);
      return values[i].data();
    };
    return toy.tree.FetchMulti(toy.writers, views, sink, [&](std::size_t i, bool found) {
      ExpectValue(model, keys[i], found ? std::optional<std::string_view>(values[i]) : std::nullopt);
    });
  }

  Status ProcessSome(Toy& toy, Model& model) {
    std::vector<std::string> keys(random.Between(1, 12)), values(keys.size());
    for (std::string& key : keys) key = random.OneIn(2) || model.empty() ? AnyKey() : AnyOf(model);
    const std::vector<std::string_view> views(keys.begin(), keys.end());
    // `seen` is as the visitor sees it; ranges are removed before its actions take effect.
    Model seen = model, after = model;
    std::vector<std::pair<std::string, std::optional<std::string>>> removed;
    std::vector<KeyRange> ranges;
    while (random.OneIn(3) && (removed.empty() || removed.back().second)) {
      auto range = AnyRange();
      if (!removed.empty() && typename Toy::Less()(range.first, *removed.back().second)) break;
      removed.push_back(std::move(range));
    }
    for (const auto& [from, to] : removed) ranges.push_back({from, to});
    for (const auto& range : removed) {
      const auto [from, to] = PlacesOf(after, range);
      after.erase(from, to);
    }
    const bool aborts = random.OneIn(6), sets_index = random.OneIn(3);
    const std::uint64_t index = sets_index ? random.Next() : toy.tree.applied_index(), before = toy.tree.applied_index();
    const std::size_t num_shown = random.OneIn(2) ? keys.size() : random.Below(keys.size() + 1);
    const auto decide = [&](std::size_t i, std::optional<std::string_view> value) -> std::optional<Action> {
      if (i < num_shown) ExpectValue(seen, keys[i], value);
      if (aborts && i + 1 == keys.size()) return std::nullopt;
      if (random.OneIn(4)) return Action::Keep();
      if (random.OneIn(3)) {
        seen.erase(keys[i]);
        after.erase(keys[i]);
        return Action::Remove();
      }
      values[i] = AnyValue();
      Store(seen, keys[i], values[i]);
      Store(after, keys[i], values[i]);
      return Action::Set(values[i]);
    };
    const Batch<Action> batch{views, decide, num_shown, ranges, sets_index ? std::optional(index) : std::nullopt};
    const Status status = toy.tree.ProcessMulti(*toy.writers.Mine(), batch);
    EXPECT_EQ(toy.tree.applied_index(), status.ok() ? index : before);
    if (absl::IsAborted(status)) {
      EXPECT_TRUE(aborts);
      return absl::OkStatus();
    }
    if (status.ok()) model = std::move(after);
    return status;
  }

  std::pair<std::string, std::optional<std::string>> AnyRange() {
    std::pair<std::string, std::optional<std::string>> range(random.OneIn(4) ? "" : AnyKey(), std::nullopt);
    if (!random.OneIn(4)) range.second = AnyKey();
    if (range.second && typename Toy::Less()(*range.second, range.first)) std::swap(*range.second, range.first);
    if (range.second && !typename Toy::Less()(range.first, *range.second)) range.second.reset();
    return range;
  }
  static auto PlacesOf(Model& model, const std::pair<std::string, std::optional<std::string>>& range) {
    const auto from = model.lower_bound(range.first);
    return std::pair(from, range.second ? model.lower_bound(*range.second) : model.end());
  }
  Status CountRange(Toy& toy, Model& model) {
    const auto range = AnyRange();
    HAKO_ASSIGN_OR_RETURN(const std::uint64_t count, toy.tree.CountRange({range.first, range.second}));
    const auto [from, to] = PlacesOf(model, range);
    EXPECT_EQ(count, static_cast<std::uint64_t>(std::distance(from, to)));
    return absl::OkStatus();
  }
  // Not atomic: refused in the middle, it has removed some.
  Status RemoveRange(Toy& toy, Model& model) {
    toy.space.refused = ~std::uint64_t{0};
    const auto range = AnyRange();
    HAKO_ASSIGN_OR_RETURN(const std::uint64_t removed, toy.tree.RemoveRange(*toy.writers.Mine(), {range.first, range.second}));
    const auto [from, to] = PlacesOf(model, range);
    EXPECT_EQ(removed, static_cast<std::uint64_t>(std::distance(from, to)));
    model.erase(from, to);
    return absl::OkStatus();
  }
  Status RemoveAll(Toy& toy, Model& model) {
    toy.space.is_alone = true;
    const Status removed = CatchNoMemory([&] {
      typename Toy::Space::Deferred deferred(toy.space);
      const auto each_writer = [&toy](auto&& visit) { toy.writers.ForEach(visit); };
      return toy.space.gate().RunExclusive(each_writer, [&] { return toy.tree.RemoveAll(deferred); });
    });
    toy.space.is_alone = false;
    HAKO_RETURN_IF_ERROR(removed);
    toy.writers.ForEach([](auto& writer) { writer.pending_count.store(0); });
    model.clear();
    return absl::OkStatus();
  }

  Random random{TestSeed()};
  std::uint64_t num_keys = 400;
};

using Trees =
    TestTypes<testing::Types<ToyTree<ToyPageSpace<true>, BytewiseComparator>, ToyTree<ToyPageSpace<false>, CaseInsensitiveComparator>>,
              ToyTree<ToyPageSpace<false>, BytewiseComparator>, ToyTree<ToyPageSpace<true>, CaseInsensitiveComparator>>;
TYPED_TEST_SUITE(PageTreeModelTest, Trees);

TYPED_TEST(PageTreeModelTest, AgreesWithAMap) {
  TypeParam toy(this->random.Next());
  typename TypeParam::Model model;
  for (int i = 0; i < 4000 / kSlowdown && !this->HasFailure(); ++i) {
    SCOPED_TRACE(i);
    ASSERT_TRUE(this->Operate(toy, model));
    toy.space.ExpectConsistent();
    toy.space.EvictSome();
    if (i % 50 == 0) toy.ExpectEqual(model);
  }
  toy.ExpectEqual(model);
}

TYPED_TEST(PageTreeModelTest, StaysConsistentWhereCallsFail) {
  TypeParam toy(this->random.Next());
  typename TypeParam::Model model;
  int failed = 0;
  for (int i = 0; (i < 4000 / kSlowdown || failed <= 10) && i < 40'000 && !this->HasFailure(); ++i) {
    SCOPED_TRACE(i);
    toy.space.refused = this->random.OneIn(2) ? toy.space.calls + this->random.Below(10) : ~std::uint64_t{0};
    toy.space.refuses_on = this->random.OneIn(2);
    failed += this->Operate(toy, model) ? 0 : 1;
    toy.space.refused = ~std::uint64_t{0};
    toy.space.ExpectConsistent();
    toy.space.EvictSome();
    if (i % 50 == 0) toy.ExpectEqual(model);
  }
  toy.ExpectEqual(model);
  EXPECT_GT(failed, 10);
}

}  // namespace
}  // namespace hako
