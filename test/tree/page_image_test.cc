// Round trips of pages of real trees through images, and images that are refused.
#include "hako/tree/file/page_image.h"

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/dbm.h"
#include "hako/tree/file/page_encoding.h"
#include "hako/tree/memory/page_arena.h"
#include "hako/tree/page_tree.h"
#include "support/random.h"
#include "support/status_matchers.h"

namespace hako::tree {
namespace {

using Tree = PageTree<PageArena, BytewiseComparator>;
using View = PageView<BytewiseComparator>;
constexpr std::uint32_t kIdEnd = 1 << 20;

// A tree with pages of every kind: of many levels, with long keys and values, and garbage.
class PageImageTest : public testing::Test {
 protected:
  void TearDown() override { Empty(); }
  void Empty() {
    if (tree_ == nullptr) return;
    Tree::Deferred deferred(*arena_);
    // Long values lie outside of the arena.
    EXPECT_THAT(arena_->gate().RunExclusive([](auto&&) {}, [&] { return tree_->RemoveAll(deferred); }), IsOk());
  }

  void Fill(unsigned page_size) {
    Empty();
    auto created = PageArena::Create(256 << 20);
    ASSERT_THAT(created.status(), IsOk());
    arena_ = *std::move(created);
    tree_ = std::make_unique<Tree>(*arena_, page_size);
    ASSERT_THAT(tree_->Create(), IsOk());
    Random random(TestSeed());
    for (int i = 0; i < 5000; ++i) {
      const std::string key = std::string(random.OneIn(10) ? random.Below(600) : 3, 'k') + std::to_string(random.Below(2000));
      const std::string value(random.OneIn(30) ? random.Below(5000) : random.SkewedSize(6), 'v');
      const Action action = random.OneIn(3) ? Action::Remove() : Action::Set(value);
      ASSERT_THAT((tree_->Process<Action>(writer_, key, action)), IsOk());
    }
  }
  // Visits all pages: visit(id, line).
  void ForEachPage(const std::function<void(std::uint32_t, format::PageLine&)>& visit) { ForEachPageBelow(tree_->root_id(), visit); }
  View ViewOf(std::uint32_t id) { return View(arena_->memory(), arena_->lines()[id]); }

  // The image, and eight bytes that are not part of it.
  std::string Encode(std::uint32_t id) {
    std::string image(format::kPageImageMax, '?');
    const View page = ViewOf(id);
    image.resize(EncodePage(id, page.shape(), page.base(), View::kInlined, image.data()));
    return image + "beyond!!";
  }
  static StatusOr<PageImage> Parse(std::uint32_t id, const std::string& image, std::uint32_t id_end = kIdEnd) {
    return PageImage::Parse(id, std::as_bytes(std::span(image)).first(image.size() - 8), View::kOrder, id_end);
  }
  static std::string_view CellOf(const View& page, unsigned i) { return {page.cell(i), View::Decode(page.cell(i)).Size(View::kInlined)}; }

  std::unique_ptr<PageArena> arena_;
  std::unique_ptr<Tree> tree_;
  PageArena::WriterState writer_;

 private:
  void ForEachPageBelow(std::uint32_t id, const std::function<void(std::uint32_t, format::PageLine&)>& visit) {
    const View page = ViewOf(id);
    visit(id, arena_->lines()[id]);
    for (unsigned i = 0; page.level() > 0 && i < page.count(); ++i) ForEachPageBelow(page.child(i), visit);
  }
};

TEST_F(PageImageTest, RoundTripsAPage) {
  for (const unsigned page_size : {128u, 1000u, 8192u}) {
    SCOPED_TRACE(page_size);
    ASSERT_NO_FATAL_FAILURE(Fill(page_size));
    int leaves = 0, inner = 0, with_garbage = 0, long_values = 0, prefixes = 0;
    ForEachPage([&](std::uint32_t id, format::PageLine& line) {
      const View page = ViewOf(id);
      const format::PageTail tail = page.tail();
      const std::string bytes = Encode(id);
      const auto image = Parse(id, bytes);
      ASSERT_THAT(image.status(), IsOk());
      EXPECT_EQ(bytes.size() - 8,
                sizeof(format::PageImageHeader) + page.count() * page.shape().slot_size() + page.shape().heap - tail.garbage);
      format::PageLine restored_line{};
      std::vector<char> memory(image->shape().size() + 8);
      restored_line.shape = image->shape();
      image->Store(memory.data(), restored_line.hints);
      const View restored(restored_line, memory.data());
      ASSERT_EQ(restored.count(), page.count());
      EXPECT_EQ(restored.level(), page.level());
      EXPECT_EQ(restored.guarded(), page.guarded());
      EXPECT_EQ(restored.prefix(), page.prefix());
      EXPECT_EQ(restored.tail().garbage, 0u);
      EXPECT_EQ(restored.tail().edges, tail.edges);
      EXPECT_EQ(restored.low(restored.tail()), page.low(tail));
      EXPECT_EQ(restored.high(restored.tail()), page.high(tail));
      EXPECT_EQ(std::memcmp(restored_line.hints, line.hints, sizeof(line.hints)), 0);
      for (unsigned i = 0; i < page.count(); ++i) {
        EXPECT_EQ(restored.head(i), page.head(i));
        EXPECT_EQ(CellOf(restored, i), CellOf(page, i));
        if (page.level() > 0) {
          EXPECT_EQ(restored.child(i), page.child(i));
          EXPECT_EQ(image->child(i), page.child(i));
        } else {
          long_values += View::Decode(page.cell(i)).is_long;
        }
      }
      for (unsigned i = page.count(); i < restored.shape().slots(); ++i) EXPECT_EQ(restored.head(i), format::kNoHead);
      ++(page.level() > 0 ? inner : leaves);
      with_garbage += tail.garbage > 0;
      prefixes += !page.prefix().empty();
    });
    EXPECT_GT(leaves, 5);
    EXPECT_GT(inner, 0);
    EXPECT_GT(with_garbage, 0);
    EXPECT_GT(long_values, 0);
    EXPECT_GT(prefixes, 0);
  }
}

TEST_F(PageImageTest, RefusesInvalidImages) {
  ASSERT_NO_FATAL_FAILURE(Fill(1000));
  const std::uint32_t root = tree_->root_id();
  ASSERT_GT(ViewOf(root).level(), 0u);
  std::uint32_t leaf = 0;
  ForEachPage([&](std::uint32_t id, format::PageLine& line) {
    if (line.shape.level() == 0 && line.shape.count > 1) leaf = id;
  });
  ASSERT_NE(leaf, 0u);
  const auto refused = [](const char* why) { return StatusIs(absl::StatusCode::kDataLoss, testing::HasSubstr(why)); };
  for (const std::uint32_t id : {root, leaf}) {
    const std::string good = Encode(id);
    ASSERT_THAT(Parse(id, good).status(), IsOk());
    EXPECT_THAT(Parse(id + 1, good).status(), refused("belongs to another page"));
    for (const std::size_t size : {std::size_t{0}, std::size_t{15}, std::size_t{16}, good.size() - 9})
      EXPECT_THAT(Parse(id, good.substr(0, size) + "beyond!!").status(), StatusIs(absl::StatusCode::kDataLoss)) << size;
    const auto with = [&](std::size_t at, auto number) {
      std::string bad = good;
      std::memcpy(bad.data() + at, &number, sizeof(number));
      return bad;
    };
    using Header = format::PageImageHeader;
    const unsigned count = ViewOf(id).count();
    EXPECT_THAT(Parse(id, with(offsetof(Header, count), std::uint8_t{255})).status(), refused("bad header"));
    EXPECT_THAT(Parse(id, with(offsetof(Header, kind), std::uint8_t{0x20})).status(), refused("reserved"));
    EXPECT_THAT(Parse(id, with(offsetof(Header, heap), std::uint16_t{0xffff})).status(), refused("bad size"));
    EXPECT_THAT(Parse(id, with(offsetof(Header, heap), std::uint16_t{7})).status(), StatusIs(absl::StatusCode::kDataLoss));
    EXPECT_THAT(Parse(id, with(offsetof(Header, prefix), std::uint16_t{0x7fff})).status(), refused("bad tail"));
    const std::size_t tail = good.size() - 8 - sizeof(format::PageTail);
    EXPECT_THAT(Parse(id, with(tail + offsetof(format::PageTail, low), std::uint16_t{0xffff})).status(), refused("bad tail"));
    EXPECT_THAT(Parse(id, with(tail + offsetof(format::PageTail, garbage), std::uint16_t{1})).status(), refused("bad tail"));
    const std::size_t children = sizeof(Header) + count * 4, offsets = children + (id == root ? count * 4 : 0);
    EXPECT_THAT(Parse(id, with(offsets + 2, std::uint16_t{0xffff})).status(), refused("outside the heap"));
    EXPECT_THAT(Parse(id, with(offsets + 2, std::uint16_t{0})).status(), refused("overlaps the tail"));
    if (id != root) continue;
    for (const std::uint32_t child : {0u, kIdEnd, ~0u})
      EXPECT_THAT(Parse(id, with(children + 4, child)).status(), refused("invalid id of a child"));
    EXPECT_THAT(Parse(id, good, ViewOf(root).child(0)).status(), refused("invalid id of a child"));
  }
}

// An accepted image never reads outside itself, regardless of the damage.
TEST_F(PageImageTest, DamagedImageNeverReadsOutside) {
  SCOPED_TRACE(TestSeed());
  ASSERT_NO_FATAL_FAILURE(Fill(1000));
  Random random(TestSeed() + 1);
  int taken = 0;
  ForEachPage([&](std::uint32_t id, format::PageLine&) {
    for (int i = 0; i < 40; ++i) {
      std::string bytes = Encode(id);
      const std::size_t size = bytes.size() - 8;
      for (std::uint64_t n = random.Between(1, 3); n > 0; --n) {
        const std::size_t at = 4 + random.Below((random.OneIn(2) ? std::min<std::size_t>(size, 200) : size) - 4);
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.Below(8)));
      }
      const auto image = Parse(id, bytes);
      if (!image.ok()) continue;
      ++taken;
      std::vector<char> memory(image->shape().size() + 8);  // sanitizers see what lies outside
      format::PageLine line{};
      line.shape = image->shape();
      image->Store(memory.data(), line.hints);
      const View page(line, memory.data());
      for (unsigned slot = 0; slot < page.count(); ++slot) {
        ASSERT_GE(page.cell(slot), memory.data());
        ASSERT_LE(page.cell(slot) + CellOf(page, slot).size(), page.end());
      }
      ASSERT_GE(page.end() - sizeof(format::PageTail) - page.prefix_size() - page.tail().fences(), memory.data());
    }
  });
  EXPECT_GT(taken, 100) << "most bytes are those of keys and values";
}

}  // namespace
}  // namespace hako::tree
