// The search in a page, compared with plain loops and algorithms.
#include "hako/tree/page_view.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/dbm.h"
#include "hako/tree/memory/page_arena.h"
#include "hako/tree/page_tree.h"
#include "support/random.h"
#include "support/status_matchers.h"

namespace hako::tree {
namespace {

template <unsigned kNumbers>
void ExpectCounts(Random& random) {
  constexpr std::int32_t kLowest = std::numeric_limits<std::int32_t>::min(), kHighest = std::numeric_limits<std::int32_t>::max();
  constexpr std::int32_t kExtremes[] = {kLowest, kLowest + 1, -1, 0, 1, kHighest - 1, kHighest};
  const auto draw = [&]() -> std::int32_t {
    if (random.OneIn(3)) return kExtremes[random.Below(std::size(kExtremes))];
    const auto number = static_cast<std::int32_t>(random.Next());
    return random.OneIn(2) ? number % 10 : number;
  };
  for (int round = 0; round < 20'000; ++round) {
    alignas(64) std::array<std::int32_t, 32> numbers;  // sorted, and then more that is none of them
    for (std::int32_t& number : numbers) number = draw();
    const auto begin = numbers.begin() + static_cast<std::ptrdiff_t>(random.Below(5) * 4);
    std::sort(begin, begin + kNumbers);
    std::vector<std::int32_t> bounds(begin, begin + kNumbers);
    bounds.insert(bounds.end(), std::begin(kExtremes), std::end(kExtremes));
    bounds.push_back(draw());
    for (const std::int32_t bound : bounds) {
      unsigned below = 0;
      for (unsigned i = 0; i < kNumbers; ++i) below += begin[i] < bound ? 1 : 0;
      ASSERT_EQ(CountBelow<kNumbers>(&*begin, bound), below) << "below " << bound << " of " << testing::PrintToString(bounds);
    }
  }
}

TEST(CountBelow, CountsSixteen) {
  Random random(TestSeed());
  ExpectCounts<16>(random);
}
TEST(CountBelow, CountsTwelve) {
  Random random(TestSeed());
  ExpectCounts<12>(random);
}

using Tree = PageTree<PageArena, BytewiseComparator>;
using Builder = PageBuilder<PageArena, BytewiseComparator>;

// A tree of `keys`, each its own value.
class PageViewTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(space_, PageArena::Create(64 << 20));
    tree_.emplace(*space_, 8192);
    ASSERT_THAT(tree_->Create(), IsOk());
  }
  void TearDown() override {
    EXPECT_THAT(tree_->Verify(keys_.size()), IsOk());
    PageArena::Deferred deferred(*space_);
    EXPECT_THAT(space_->gate().RunExclusive([](auto&&) {}, [&] { return tree_->RemoveAll(deferred); }), IsOk());
  }

  void Add(const std::string& key) {
    const auto place = std::lower_bound(keys_.begin(), keys_.end(), key);
    if (place != keys_.end() && *place == key) return;
    keys_.insert(place, key);
    const std::string value = key.substr(0, 100);
    ASSERT_THAT(tree_->Process<Action>(writer_, key, Action::Set(value)), IsOk());
  }

  // Every key is where std::lower_bound finds it among those of its page.
  void ExpectFinds(std::string_view key) {
    Tree::Copy copy;
    ASSERT_THAT(tree_->ReadLeaf(Seek::kAt, key, &copy), IsOk());
    const Tree::View page = copy.view();
    ASSERT_EQ(page.level(), 0u);
    std::vector<std::string> in_page(page.count());
    for (unsigned i = 0; i < page.count(); ++i) Builder::CopyKeyOf(page, i, &in_page[i]);
    ASSERT_TRUE(std::is_sorted(in_page.begin(), in_page.end()));
    const auto expected = std::lower_bound(in_page.begin(), in_page.end(), key);
    const auto place = page.Find(key);
    ASSERT_EQ(place.index, static_cast<unsigned>(expected - in_page.begin())) << testing::PrintToString(key);
    ASSERT_EQ(place.found, expected != in_page.end() && *expected == key) << testing::PrintToString(key);
    ASSERT_EQ(place.found, std::binary_search(keys_.begin(), keys_.end(), key)) << "it is in another page";
    if (place.found) {
      ASSERT_EQ(page.head(place.index), Tree::View::HeadOf(key, page.prefix_size()));
    }
  }

  std::unique_ptr<PageArena> space_;
  std::optional<Tree> tree_;
  PageArena::WriterState writer_;
  std::vector<std::string> keys_;
};

// Keys of a few different bytes, so that heads tie, with a common prefix.
TEST_F(PageViewTest, FindsEachKeyAtItsSlot) {
  Random random(TestSeed());
  const auto draw = [&](std::size_t shared) {
    std::string key(shared, 'p');
    for (std::uint64_t n = random.Below(9); n > 0; --n) key += "\0\x01\x7f\x80\xff"[random.Below(5)];
    return key;
  };
  for (const std::size_t shared : {0u, 3u, 50u}) {
    for (int i = 0; i < 2000; ++i) ASSERT_NO_FATAL_FAILURE(Add(draw(shared)));
    for (int i = 0; i < 3000; ++i) ASSERT_NO_FATAL_FAILURE(ExpectFinds(draw(shared)));
    for (std::size_t i = 0; i < keys_.size(); i += 7) ASSERT_NO_FATAL_FAILURE(ExpectFinds(keys_[i]));
  }
}

TEST_F(PageViewTest, FindsKeysInPagesOfEveryCount) {  // each number of groups of slots, and of hints
  for (std::uint64_t i = 0; i < 250; ++i) {
    std::string key(8, '\0');
    for (std::size_t byte = 0; byte < 8; ++byte) key[byte] = static_cast<char>(Random::Mix(i) >> 8 * byte);
    ASSERT_NO_FATAL_FAILURE(Add(key));
    ASSERT_NO_FATAL_FAILURE(ExpectFinds(key));
    ASSERT_NO_FATAL_FAILURE(ExpectFinds(""));
    ASSERT_NO_FATAL_FAILURE(ExpectFinds(std::string(9, '\xff')));
    ASSERT_NO_FATAL_FAILURE(ExpectFinds(keys_[i / 2]));
    key.back() ^= 1;
    ASSERT_NO_FATAL_FAILURE(ExpectFinds(key));
  }
}

TEST_F(PageViewTest, FindsALeafByTheKeysBelow) {
  for (std::uint64_t i = 0; i < 3000; ++i) ASSERT_NO_FATAL_FAILURE(Add("key" + std::to_string(i * 7919 % 3000)));
  for (std::size_t i = 1; i < keys_.size(); ++i) {
    Tree::Copy copy;
    ASSERT_THAT(tree_->ReadLeaf(Seek::kBefore, keys_[i], &copy), IsOk());
    ASSERT_TRUE(copy.view().Find(keys_[i - 1]).found) << keys_[i];
  }
}

}  // namespace
}  // namespace hako::tree
