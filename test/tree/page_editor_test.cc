// One page in the toy space, changed by the editor and built again by the builder, beside a std::map.
#include "hako/tree/page_editor.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "gtest/gtest.h"
#include "hako/tree/memory/id_pool.h"
#include "hako/tree/page_builder.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/toy_page_space.h"

namespace hako {
namespace {

using Space = ToyPageSpace<true>;
using Editor = tree::PageEditor<Space, BytewiseComparator>;
using Builder = tree::PageBuilder<Space, BytewiseComparator>;
using View = Editor::View;
using Model = std::map<std::string, std::string>;
constexpr unsigned kWholeTree = format::PageTail::kNoLow | format::PageTail::kNoHigh;

class PageEditorTest : public testing::Test {
 protected:
  format::PageLine& NewLine() { return space_.lines()[space_.NewPage()]; }
  View ViewOf(format::PageLine& line) { return View(space_.memory(), line); }
  std::string AnyKey() {
    std::string key = "p" + std::to_string(random_.Below(300));
    if (random_.OneIn(20)) key += std::string(300, 'k');  // its size takes more than a byte
    return key;
  }
  std::string AnyValue() { return random_.Bytes(random_.OneIn(20) ? 250 + random_.Below(20) : random_.SkewedSize(6)); }

  static std::string ValueAt(const View& page, unsigned i) {
    const char* const cell = page.cell(i);
    const format::Cell sizes = View::Decode(cell);
    return std::string(cell + sizes.header + sizes.Rest(View::kInlined), sizes.value);
  }
  void ExpectHolds(format::PageLine& line, Model::const_iterator from, Model::const_iterator to) {
    const View page = ViewOf(line);
    ASSERT_EQ(page.count(), std::distance(from, to));
    unsigned i = 0, cells = 0;
    for (auto it = from; it != to; ++it, ++i) {
      std::string key;
      Builder::CopyKeyOf(page, i, &key);
      ASSERT_EQ(key, it->first);
      ASSERT_EQ(ValueAt(page, i), it->second);
      const auto place = page.Find(key);
      ASSERT_TRUE(place.found);
      ASSERT_EQ(place.index, i);
      cells += View::Decode(page.cell(i)).Size(View::kInlined);
    }
    for (unsigned hint = 0; hint < format::kPageHints; ++hint) {
      const unsigned slot = (hint + 1) * format::kSlotGroup;
      ASSERT_EQ(line.hints[hint], slot < page.count() ? page.head(slot) : format::kNoHead) << hint;
    }
    const format::PageTail tail = page.tail();
    const unsigned fixed = static_cast<unsigned>(sizeof(tail)) + tail.fences() + page.shape().prefix;
    ASSERT_EQ(Editor(space_, line).LiveBytes(), page.count() * page.shape().slot_size() + cells + fixed);
    ASSERT_LE(page.count() * page.shape().slot_size() + page.shape().heap, page.shape().size());
  }

  void Store(format::PageLine& line, Model& model, const std::string& key, const std::string& value) {
    const auto place = ViewOf(line).Find(key);
    ASSERT_EQ(place.found, model.contains(key));
    ASSERT_EQ(place.index, std::distance(model.begin(), model.lower_bound(key)));
    const tree::Content content{value};
    if (Editor page(space_, line); place.found) {
      if (!page.HasRoomToReplace(place.index, content)) {
        ASSERT_TRUE(page.Resize(page.shape().count + 1u, page.CellSize(key, content)));
        ASSERT_TRUE(Editor(space_, line).HasRoomToReplace(place.index, content));
      }
      Editor(space_, line).Replace(place.index, content);
    } else {
      if (page.shape().count == format::kPageSlotsMax || page.LiveBytes() > 20'000) return;
      if (!page.HasRoomFor(page.CellSize(key, content))) {
        ASSERT_TRUE(page.Resize(page.shape().count + 1u, page.CellSize(key, content)));
      }
      Editor(space_, line).Insert(place.index, key, content);
    }
    model.insert_or_assign(key, value);
  }

  Random random_{TestSeed()};
  Space space_{1};
};

TEST_F(PageEditorTest, AgreesWithAMap) {
  format::PageLine& line = NewLine();
  Model model;
  ASSERT_TRUE(Builder(0, {{}, {}, kWholeTree}).Build(space_, line, format::kSlotGroup, 256));
  for (int i = 0; i < 6000 / kSlowdown; ++i) {
    const std::string key = AnyKey();
    if (random_.OneIn(3)) {
      const auto place = ViewOf(line).Find(key);
      ASSERT_EQ(place.found, model.erase(key) != 0);
      if (place.found) Editor(space_, line).Erase(place.index);
    } else {
      ASSERT_NO_FATAL_FAILURE(Store(line, model, key, AnyValue()));
    }
    if (random_.OneIn(50)) {
      Editor page(space_, line);
      ASSERT_TRUE(page.Resize(page.shape().count, 0));
      ASSERT_EQ(ViewOf(line).tail().garbage, 0u);
    }
    if (i % 10 == 0) {
      ASSERT_NO_FATAL_FAILURE(ExpectHolds(line, model.begin(), model.end()));
    }
  }
  ASSERT_NO_FATAL_FAILURE(ExpectHolds(line, model.begin(), model.end()));
}

// Two halves with different prefixes, and one page of both again.
TEST_F(PageEditorTest, SplitsAndJoinsPages) {
  for (int round = 0; round < 60 / kSlowdown + 5; ++round) {
    format::PageLine &line = NewLine(), &left = NewLine(), &right = NewLine(), &joined = NewLine();
    Model model;
    ASSERT_TRUE(Builder(0, {{}, {}, kWholeTree}).Build(space_, line, format::kSlotGroup, 256));
    for (std::uint64_t n = random_.Between(2, 60); n > 0; --n) ASSERT_NO_FATAL_FAILURE(Store(line, model, AnyKey(), AnyValue()));
    if (model.size() < 2) continue;
    const View old = ViewOf(line);
    const unsigned at = Builder::MiddleOf(old);
    ASSERT_TRUE(at > 0 && at < old.count());
    const auto middle = std::next(model.begin(), at);
    Builder left_page(0, {{}, middle->first, format::PageTail::kNoLow}), right_page(0, {middle->first, {}, format::PageTail::kNoHigh});
    left_page.Add(old, 0, at);
    right_page.Add(old, at, old.count());
    left_page.ChoosePrefix(std::nullopt);
    right_page.ChoosePrefix(std::nullopt);
    ASSERT_TRUE(left_page.Build(space_, left, 0, 0) && right_page.Build(space_, right, 0, 0));
    ASSERT_NO_FATAL_FAILURE(ExpectHolds(left, model.begin(), middle));
    ASSERT_NO_FATAL_FAILURE(ExpectHolds(right, middle, model.end()));
    EXPECT_EQ(ViewOf(left).high(ViewOf(left).tail()), middle->first);
    EXPECT_EQ(ViewOf(right).low(ViewOf(right).tail()), middle->first);
    Builder both(0, {{}, {}, kWholeTree});
    both.Add(ViewOf(left), 0, ViewOf(left).count());
    both.Add(ViewOf(right), 0, ViewOf(right).count());
    both.ChoosePrefix(std::nullopt);
    ASSERT_TRUE(both.Build(space_, joined, 1, 0));
    ASSERT_NO_FATAL_FAILURE(ExpectHolds(joined, model.begin(), model.end()));
    for (format::PageLine* each : {&line, &left, &right, &joined}) space_.Free(each->unit, each->shape.units);
  }
}

TEST(IdPoolTest, AgreesWithASet) {
  Random random(TestSeed());
  constexpr std::uint32_t kFirst = 10;
  tree::IdPool pool(kFirst);
  std::set<std::uint32_t> used;
  std::uint32_t end = kFirst;
  for (int i = 0; i < 20'000 / kSlowdown; ++i) {
    if (random.Below(100) < 55) {
      std::uint32_t lowest = kFirst;
      for (const std::uint32_t id : used) lowest += id == lowest ? 1 : 0;
      std::uint32_t id = pool.Take();
      ASSERT_EQ(id, lowest < end ? lowest : 0);
      if (id == 0) {
        id = pool.Grow();
        ASSERT_EQ(id, end++);
      }
      used.insert(id);
    } else if (!used.empty()) {
      const auto from = used.lower_bound(kFirst + static_cast<std::uint32_t>(random.Below(end)));
      const std::uint32_t first = from == used.end() ? *used.begin() : *from, count = random.OneIn(30) ? 100 : 1;
      const std::uint32_t to = std::min(first + count, end);
      pool.Give(first, to);  // some are free already
      used.erase(used.lower_bound(first), used.lower_bound(to));
    }
    if (random.OneIn(40)) {
      pool.Cut();
      end = used.empty() ? kFirst : *used.rbegin() + 1;
    }
    ASSERT_EQ(pool.end(), end);
    ASSERT_EQ(pool.num_used(), used.size());
    const std::uint32_t any = kFirst + static_cast<std::uint32_t>(random.Below(end - kFirst + 1));
    ASSERT_EQ(pool.IsFree(any), any < end && !used.contains(any));
  }
}

}  // namespace
}  // namespace hako
