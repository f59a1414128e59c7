// The page map beside a std::map, its nodes in a std::map too.
#include "hako/tree/file/page_map.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/random.h"
#include "support/status_matchers.h"

namespace hako::tree {
namespace {

using Entry = format::PageEntry;
constexpr std::uint32_t kIdEnd = 4u << 24;  // of all ids

bool operator==(const Entry& a, const Entry& b) { return std::memcmp(&a, &b, sizeof(a)) == 0; }

// The places of written nodes; a place is never used twice.
class Nodes {
 public:
  auto Reader() {
    return [this](const Entry& entry, unsigned level, std::uint64_t node, std::span<std::byte> out) -> Status {
      ++reads;
      const auto found = nodes_.find(entry.place());
      if (found == nodes_.end() || found->second.level != level || found->second.node != node) return absl::DataLossError("no such node");
      EXPECT_EQ(out.size(), found->second.bytes.size());
      std::memcpy(out.data(), found->second.bytes.data(), out.size());
      return absl::OkStatus();
    };
  }
  auto Loader(PageMap& map) {
    return [this, &map](unsigned level, std::uint64_t node) { return map.Load(level, node, Reader()); };
  }
  auto Writer() {
    return [this](unsigned level, std::uint64_t node, std::span<const std::byte> bytes, const Entry& before) -> StatusOr<Entry> {
      if (++writes == fail_at) return absl::ResourceExhaustedError("no space");
      EXPECT_EQ(nodes_.erase(before.place()), before.IsNone() ? 0u : 1u);
      nodes_[next_] = {level, node, {bytes.begin(), bytes.end()}};
      return Entry::For(next_++, 8, 0);
    };
  }
  Status Write(PageMap& map) {
    HAKO_RETURN_IF_ERROR(map.WriteOut(
        Reader(), [] {}, Writer(), [this](const Entry& entry) { nodes_.erase(entry.place()); }));
    map.MarkWritten();
    return absl::OkStatus();
  }
  // Whether an entry was rolled back, of those written since `next`.
  auto Withdrawer(std::uint64_t next) {
    return [this, next](const Entry& entry) { return entry.place() >= next && nodes_.erase(entry.place()) == 1; };
  }
  std::uint64_t next() const { return next_; }
  std::size_t size() const { return nodes_.size(); }

  int reads = 0, writes = 0, fail_at = 0;

 private:
  struct Node {
    unsigned level;
    std::uint64_t node;
    std::vector<std::byte> bytes;
  };
  std::map<std::uint64_t, Node> nodes_;
  std::uint64_t next_ = 1;
};

PageMap MapOf(const std::array<Entry, format::kMapRoots>& roots) {
  auto map = PageMap::Create(roots);
  EXPECT_THAT(map.status(), IsOk());
  return *std::move(map);
}

TEST(PageMap, AgreesWithAModel) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  Nodes nodes;
  std::map<std::uint32_t, Entry> model;
  std::array<Entry, format::kMapRoots> roots{};
  for (int life = 0; life < 5; ++life) {
    PageMap map = MapOf(roots);
    for (int i = 0; i < 600; ++i) {
      const auto id = static_cast<std::uint32_t>(random.OneIn(4) ? random.Below(kIdEnd) : 70'000 + random.Below(3000));
      const Entry expected = model.contains(id) ? model[id] : Entry{};
      ASSERT_OK_AND_ASSIGN(const Entry* at, map.At(id, nodes.Reader()));
      ASSERT_TRUE(*at == expected) << id;
      const Entry entry = random.OneIn(3) ? Entry{} : Entry::For(random.Between(16, 1u << 30), random.Between(1, 9), random.Next());
      ASSERT_OK_AND_ASSIGN(const Entry before, map.Exchange(id, entry, nodes.Reader()));
      ASSERT_TRUE(before == expected);
      if (entry.IsNone())
        model.erase(id);
      else
        model[id] = entry;
    }
    std::map<std::uint32_t, Entry> found;
    std::set<std::pair<int, std::uint64_t>> visited;
    ASSERT_THAT(nodes.Write(map), IsOk());
    ASSERT_THAT(map.ForEach(nodes.Loader(map),
                            [&](int level, std::uint64_t number, const Entry& entry) {
                              EXPECT_TRUE(visited.emplace(level, number).second);
                              if (level < 0) found[static_cast<std::uint32_t>(number)] = entry;
                              return absl::OkStatus();
                            }),
                IsOk());
    ASSERT_TRUE(std::equal(found.begin(), found.end(), model.begin(), model.end(),
                           [](const auto& a, const auto& b) { return a.first == b.first && a.second == b.second; }));
    const auto num_nodes = std::distance(visited.lower_bound({0, 0}), visited.end());
    EXPECT_EQ(static_cast<std::size_t>(num_nodes), nodes.size()) << "each node is named once";
    nodes.writes = 0;
    ASSERT_THAT(nodes.Write(map), IsOk());
    EXPECT_EQ(nodes.writes, 0) << "nothing has changed since";
    roots = map.roots();
  }
}

TEST(PageMap, ReadsOnlyTheNodesOnTheWay) {
  Nodes nodes;
  PageMap map = MapOf({});
  for (const std::uint32_t id : {5u, 300u, 70'000u, 1u << 24})
    ASSERT_THAT(map.Exchange(id, Entry::For(id, 1, 2), nodes.Reader()).status(), IsOk());
  EXPECT_EQ(nodes.reads, 0) << "of a map without nodes";
  ASSERT_THAT(nodes.Write(map), IsOk());
  EXPECT_EQ(nodes.writes, 4 + 3 + 2);
  PageMap again = MapOf(map.roots());
  ASSERT_OK_AND_ASSIGN(const Entry* at, again.At(300, nodes.Reader()));
  EXPECT_EQ(at->place(), 300u);
  EXPECT_EQ(nodes.reads, 3);
  ASSERT_OK_AND_ASSIGN(at, again.At(5, nodes.Reader()));
  EXPECT_EQ(nodes.reads, 4);
  ASSERT_OK_AND_ASSIGN(at, again.At(6, nodes.Reader()));
  EXPECT_TRUE(at->IsNone());
  EXPECT_EQ(nodes.reads, 4);
  EXPECT_EQ(again.bytes(), 4u * 4096);
}

TEST(PageMap, WritesTheRestAfterAFailedAttempt) {
  for (int fail_at = 1; fail_at <= 5; ++fail_at) {
    Nodes nodes;
    PageMap map = MapOf({});
    for (const std::uint32_t id : {5u, 300u, 700u}) ASSERT_THAT(map.Exchange(id, Entry::For(id, 1, 2), nodes.Reader()).status(), IsOk());
    nodes.fail_at = fail_at;
    EXPECT_THAT(nodes.Write(map), StatusIs(absl::StatusCode::kResourceExhausted));
    map.TakeBack(nodes.Withdrawer(1));
    EXPECT_EQ(nodes.size(), 0u);
    ASSERT_THAT(nodes.Write(map), IsOk());
    EXPECT_EQ(nodes.size(), 5u);
    PageMap again = MapOf(map.roots());
    for (const std::uint32_t id : {5u, 300u, 700u}) {
      ASSERT_OK_AND_ASSIGN(const Entry* at, again.At(id, nodes.Reader()));
      EXPECT_EQ(at->place(), id);
    }
  }
}

// After a failed attempt, only changed nodes are written again.
TEST(PageMap, WritesChangedNodesOnlyAfterAFailedAttempt) {
  Nodes nodes;
  PageMap map = MapOf({});
  for (std::uint32_t id = 0; id < 100'000; id += 100)
    ASSERT_THAT(map.Exchange(id, Entry::For(id + 1, 1, 2), nodes.Reader()).status(), IsOk());
  ASSERT_THAT(nodes.Write(map), IsOk());
  const std::size_t size = nodes.size();
  ASSERT_THAT(map.Exchange(700, Entry::For(1, 1, 2), nodes.Reader()).status(), IsOk());
  for (int fail_at = 1; fail_at <= 3; ++fail_at) {
    const std::uint64_t next = nodes.next();
    nodes.writes = 0;
    nodes.fail_at = fail_at;
    EXPECT_THAT(nodes.Write(map), StatusIs(absl::StatusCode::kResourceExhausted));
    map.TakeBack(nodes.Withdrawer(next));
  }
  nodes.writes = nodes.fail_at = 0;
  ASSERT_THAT(nodes.Write(map), IsOk());
  EXPECT_EQ(nodes.writes, 3);
  EXPECT_EQ(nodes.size(), size);
}

TEST(PageMap, DropsNodesWithoutEntries) {
  Nodes nodes;
  PageMap map = MapOf({});
  for (std::uint32_t id = 0; id < 100'000; ++id) ASSERT_THAT(map.Exchange(id, Entry::For(id + 1, 1, 2), nodes.Reader()).status(), IsOk());
  ASSERT_THAT(nodes.Write(map), IsOk());
  EXPECT_GT(nodes.size(), 390u);
  const std::uint64_t bytes = map.bytes();
  for (std::uint32_t id = 300; id < 100'000; ++id) ASSERT_THAT(map.Exchange(id, Entry{}, nodes.Reader()).status(), IsOk());
  ASSERT_THAT(nodes.Write(map), IsOk());
  EXPECT_EQ(nodes.size(), 4u);
  EXPECT_LT(map.bytes(), bytes / 50);
  ASSERT_OK_AND_ASSIGN(const Entry* at, map.At(99'999, nodes.Reader()));
  EXPECT_TRUE(at->IsNone());
  for (std::uint32_t id = 0; id < 300; ++id) ASSERT_THAT(map.Exchange(id, Entry{}, nodes.Reader()).status(), IsOk());
  ASSERT_THAT(nodes.Write(map), IsOk());
  EXPECT_EQ(nodes.size(), 0u);
}

TEST(PageMap, ReportsANodeThatCannotBeRead) {
  Nodes nodes;
  PageMap map = MapOf({Entry::For(99, 8, 0)});
  EXPECT_THAT(map.At(1, nodes.Reader()).status(), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(map.At(1, nodes.Reader()).status(), StatusIs(absl::StatusCode::kDataLoss)) << "and does not take it for there then";
  EXPECT_THAT(map.At(1u << 24, nodes.Reader()), IsOk());
  EXPECT_THAT(map.ForEach(nodes.Loader(map), [](int, std::uint64_t, const Entry&) { return absl::OkStatus(); }),
              StatusIs(absl::StatusCode::kDataLoss));
}

// A reader that releases the lock may find the node loaded, or moved, by another thread when it has
// locked it again.
TEST(PageMap, UsesANodeThatAnotherThreadHasLoadedOrMoved) {
  Nodes nodes;
  PageMap first = MapOf({});
  for (const std::uint32_t id : {5u, 300u}) ASSERT_THAT(first.Exchange(id, Entry::For(id, 1, 2), nodes.Reader()).status(), IsOk());
  ASSERT_THAT(nodes.Write(first), IsOk());

  PageMap map = MapOf(first.roots());
  int calls = 0;
  const auto read = [&](const Entry& entry, unsigned level, std::uint64_t node, std::span<std::byte> out) -> Status {
    if (level > 0 || ++calls > 1) return nodes.Reader()(entry, level, node, out);
    EXPECT_THAT(map.Exchange(300, Entry::For(301, 1, 2), nodes.Reader()).status(), IsOk());  // as another thread would
    EXPECT_THAT(map.Exchange(5, Entry::For(6, 1, 2), nodes.Reader()).status(), IsOk());
    EXPECT_THAT(nodes.Write(map), IsOk());
    return nodes.Reader()(entry, level, node, out);  // from a place that is no longer the node's: an error
  };
  ASSERT_OK_AND_ASSIGN(const Entry* at, map.At(5, read));
  EXPECT_EQ(at->place(), 6u);
  EXPECT_EQ(calls, 1);
  ASSERT_OK_AND_ASSIGN(at, map.At(300, read));
  EXPECT_EQ(at->place(), 301u);
}

}  // namespace
}  // namespace hako::tree
