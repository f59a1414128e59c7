// The page tree over the toy space: how it grows and shrinks, and what Verify finds.
#include "hako/tree/page_tree.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "dbm/listing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/status_matchers.h"
#include "support/toy_tree.h"

namespace hako {
namespace {

using Toy = ToyTree<ToyPageSpace<true>, BytewiseComparator>;

// Whose inner pages hold whole keys: few of these fit, so the tree is high.
using HighToy = ToyTree<ToyPageSpace<true>, CaseInsensitiveComparator>;
std::string LongKey(std::uint64_t i) { return NumberedKey(i) + std::string(90, 'k'); }

template <class AnyToy>
unsigned HeightOf(AnyToy& toy) {
  unsigned height = 0;
  toy.tree.ForEachPage([&height](unsigned level, unsigned, unsigned) { height = std::max(height, level + 1); });
  return height;
}

TEST(PageTreeTest, FillsLeavesByAnAscendingLoad) {
  Toy toy;
  for (std::uint64_t i = 0; i < 2000; ++i) ASSERT_THAT(toy.Set(NumberedKey(i), "0123456789abcdef"), IsOk());
  std::uint64_t leaves = 0, used = 0;
  toy.tree.ForEachPage([&](unsigned level, unsigned, unsigned bytes) {
    leaves += level == 0 ? 1 : 0;
    used += level == 0 ? bytes : 0;
  });
  EXPECT_GE(used, (leaves - 2) * Toy::kPageSize * 9 / 10);
}

template <class AnyToy>
void RemoveAllOneByOne(AnyToy& toy, std::string (*key_of)(std::uint64_t), bool downwards) {
  constexpr std::uint64_t kRecords = 1000;
  for (std::uint64_t i = 0; i < kRecords; ++i) ASSERT_THAT(toy.Set(key_of(i * 7 % kRecords), "value"), IsOk());
  for (std::uint64_t i = 0; i < kRecords; ++i) ASSERT_THAT(toy.Remove(key_of(downwards ? kRecords - 1 - i : i)), IsOk());
  toy.ExpectEqual({});
}

TEST(PageTreeTest, ShrinksToOnePageWhenAllRecordsAreRemoved) {
  for (const bool downwards : {false, true}) {
    Toy toy;
    ASSERT_NO_FATAL_FAILURE(RemoveAllOneByOne(
        toy, [](std::uint64_t i) { return NumberedKey(i); }, downwards));
    EXPECT_EQ(toy.space.num_pages(), 1u);
  }
}

// The fences of a leaf take more than a third of a page: empty leaves are joined all the same.
TEST(PageTreeTest, ShrinksWhereFencesAreLong) {
  for (const bool downwards : {false, true}) {
    HighToy toy;
    ASSERT_NO_FATAL_FAILURE(RemoveAllOneByOne(toy, LongKey, downwards));
    EXPECT_LE(toy.space.num_pages(), 20u);  // of about 500
  }
}

// Each call that can fail in a Set fails once; then the record is set. The load makes pages split
// at the end and in the middle.
TEST(PageTreeTest, StaysConsistentWhereASplitRunsOutOfMemory) {
  for (const std::uint64_t step : {1u, 7u}) {
    HighToy toy;
    HighToy::Model model;
    constexpr std::uint64_t kRecords = 300;
    int failed = 0;
    for (std::uint64_t i = 0; i < kRecords; ++i) {
      const std::string key = LongKey(i * step % kRecords);
      for (std::uint64_t n = 0;; ++n) {
        toy.space.refused = toy.space.calls + n;
        const Status status = toy.Set(key, "value");
        toy.space.refused = ~std::uint64_t{0};
        toy.space.ExpectConsistent();
        if (status.ok()) break;
        ++failed;
        ASSERT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted));
        ASSERT_THAT(toy.tree.Verify(model.size()), IsOk()) << "record " << i << ", call " << n;
      }
      model.emplace(key, "value");
    }
    EXPECT_GT(failed, 300);
    EXPECT_GE(HeightOf(toy), 4u);
    toy.ExpectEqual(model);
  }
}

class DamagedPageTreeTest : public testing::Test {
 protected:
  void SetUp() override {
    for (std::uint64_t i = 0; i < 300; ++i) ASSERT_THAT(toy_.Set(NumberedKey(i), "0123456789abcdef"), IsOk());
    ASSERT_EQ(HeightOf(toy_), 2u);
    ASSERT_THAT(toy_.tree.Verify(300), IsOk());
  }
  format::PageLine& Root() { return toy_.space.lines()[toy_.tree.root_id()]; }
  Toy::Tree::View ViewOf(format::PageLine& line) { return {toy_.space.memory(), line}; }
  std::uint32_t FirstLeafId() { return ViewOf(Root()).child(0); }
  format::PageLine& FirstLeaf() { return toy_.space.lines()[FirstLeafId()]; }
  void ExpectFound(const std::string& page_and_what) {
    EXPECT_THAT(toy_.tree.Verify(300), StatusIs(absl::StatusCode::kDataLoss, page_and_what));
    EXPECT_THAT(toy_.tree.VerifyBeside(), StatusIs(absl::StatusCode::kDataLoss, page_and_what));
  }
  std::string OfFirstLeaf(const std::string& what) { return "page " + std::to_string(FirstLeafId()) + ": " + what; }
  Toy toy_;
};

TEST_F(DamagedPageTreeTest, VerifyFindsAWrongCount) {
  EXPECT_THAT(toy_.tree.Verify(301), StatusIs(absl::StatusCode::kDataLoss, "the tree has 300 records instead of 301"));
  EXPECT_THAT(toy_.tree.CheckCount(299), StatusIs(absl::StatusCode::kDataLoss, "the tree has 300 records instead of 299"));
  EXPECT_THAT(toy_.tree.CheckCount(300), IsOk());
}

TEST_F(DamagedPageTreeTest, VerifyFindsAWrongLevel) {
  FirstLeaf().shape.kind |= 1;
  ExpectFound(OfFirstLeaf("level does not match the parent"));
}

TEST_F(DamagedPageTreeTest, VerifyFindsChildrenThatAreExchanged) {
  const Toy::Tree::View root = ViewOf(Root());
  std::swap(root.children()[0], root.children()[1]);
  ExpectFound(OfFirstLeaf("fence keys do not match the parent"));
}

TEST_F(DamagedPageTreeTest, VerifyFindsAWrongGuard) {
  FirstLeaf().shape.kind ^= format::PageShape::kGuarded;
  ExpectFound(OfFirstLeaf("guard flag does not match the fences"));
}

TEST_F(DamagedPageTreeTest, VerifyFindsKeysOutOfOrder) {
  const Toy::Tree::View leaf = ViewOf(FirstLeaf());
  std::swap(leaf.heads()[0], leaf.heads()[1]);
  std::swap(leaf.offsets()[0], leaf.offsets()[1]);
  ExpectFound(OfFirstLeaf("keys out of order"));
}

TEST_F(DamagedPageTreeTest, VerifyFindsACellOutsideOfThePage) {
  ViewOf(FirstLeaf()).offsets()[0] = 1;
  ExpectFound(OfFirstLeaf("cell outside the heap"));
}

TEST_F(DamagedPageTreeTest, VerifyFindsAHeadWithoutASlot) {
  const Toy::Tree::View leaf = ViewOf(FirstLeaf());
  ASSERT_LT(leaf.count(), leaf.shape().slots());
  leaf.heads()[leaf.count()] = 0;
  ExpectFound(OfFirstLeaf("unused slot has a head"));
}

TEST_F(DamagedPageTreeTest, VerifyFindsAWrongHint) {
  --FirstLeaf().hints[0];
  ExpectFound(OfFirstLeaf("hint does not match its head"));
}

TEST_F(DamagedPageTreeTest, VerifyFindsBytesThatNothingNames) {
  const Toy::Tree::View leaf = ViewOf(FirstLeaf());
  format::PageTail tail = leaf.tail();
  ++tail.garbage;
  std::memcpy(leaf.end() - sizeof(tail), &tail, sizeof(tail));
  ExpectFound(OfFirstLeaf("cells and garbage do not add up to the heap"));
}

// With a comparator that is not bytewise, a page stores a head beside the whole key.
TEST(PageTreeTest, VerifyFindsAWrongHead) {
  HighToy toy;
  for (std::uint64_t i = 0; i < 3; ++i) ASSERT_THAT(toy.Set(NumberedKey(i), "v"), IsOk());
  format::PageLine& line = toy.space.lines()[toy.tree.root_id()];
  ++HighToy::Tree::View(toy.space.memory(), line).heads()[1];
  EXPECT_THAT(toy.tree.Verify(3), StatusIs(absl::StatusCode::kDataLoss, testing::HasSubstr("head does not match its key")));
}

}  // namespace
}  // namespace hako
