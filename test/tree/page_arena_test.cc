// The memory of pages: disjoint runs of units, which are coalesced when freed and returned to the
// system.
#include "hako/tree/page_arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/threads.h"

namespace hako::tree {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

// The allocated runs, each filled with distinct bytes.
class Runs {
 public:
  explicit Runs(PageArena& slab) : slab_(slab) {}

  bool Allocate(unsigned units) {
    const std::uint32_t first = slab_.Allocate(units);
    if (first == 0) return false;
    const auto after = runs_.lower_bound(first);
    EXPECT_TRUE(after == runs_.end() || first + units <= after->first) << "it overlaps the next";
    EXPECT_TRUE(after == runs_.begin() || std::prev(after)->first + std::prev(after)->second <= first) << "it overlaps the one before";
    std::memset(At(first), Filler(first), Bytes(units));
    runs_.emplace_hint(after, first, units);
    return true;
  }
  // One of them, the index-th after any that is drawn.
  void Free(Random& random) {
    auto run = runs_.lower_bound(static_cast<std::uint32_t>(random.Below(std::prev(runs_.end())->first + 1)));
    const std::uint32_t first = run->first;
    const auto units = run->second;
    const char* const bytes = At(first);
    EXPECT_TRUE(std::all_of(bytes, bytes + Bytes(units), [&](char byte) { return byte == Filler(first); })) << "somebody wrote to it";
    runs_.erase(run);
    slab_.Free(first, units);
  }
  // Moves the first run for which `wanted` holds to free memory; false if there is none.
  template <class F>
  bool MoveOne(F&& wanted) {
    const auto run = std::ranges::find_if(runs_, [&](const auto& each) { return wanted(each.first, each.second); });
    if (run == runs_.end()) return false;
    const std::uint32_t to = slab_.Allocate(run->second, 0);
    EXPECT_NE(to, 0u);
    EXPECT_FALSE(wanted(to, run->second));
    std::memset(At(to), Filler(to), Bytes(run->second));
    runs_.emplace(to, run->second);
    slab_.Free(run->first, run->second);
    runs_.erase(run);
    return !testing::Test::HasFailure();
  }
  std::size_t size() const { return runs_.size(); }
  std::uint64_t bytes() const {
    std::uint64_t bytes = 0;
    for (const auto& [first, units] : runs_) bytes += Bytes(units);
    return bytes;
  }

 private:
  static std::size_t Bytes(unsigned units) { return std::size_t{units} * format::kPageUnit; }
  static char Filler(std::uint32_t first) { return static_cast<char>(Random::Mix(first)); }
  char* At(std::uint32_t first) const { return slab_.memory() + std::uint64_t{first} * format::kPageUnit; }

  PageArena& slab_;
  std::map<std::uint32_t, unsigned> runs_;
};

std::uint64_t PageBytes(const PageArena& slab) { return slab.total_bytes() - slab.line_bytes(); }

TEST(PageArena, AllocatesDisjointRuns) {
  ASSERT_OK_AND_ASSIGN(auto slab, PageArena::Create(256 * kMiB));
  Random random(TestSeed());
  Runs runs(*slab);
  for (int round = 0; round < 6; ++round) {
    for (int i = 0; i < 30'000 / kSlowdown; ++i) {
      if (runs.size() > 0 && random.Below(10) < (round % 2 == 0 ? 4u : 6u))
        runs.Free(random);
      else
        ASSERT_TRUE(runs.Allocate(static_cast<unsigned>(random.OneIn(20) ? random.Between(1, 2000) : random.Between(1, 80))));
    }
    EXPECT_EQ(slab->free_bytes() + runs.bytes(), PageBytes(*slab));
  }
  while (runs.size() > 0) runs.Free(random);
  EXPECT_EQ(slab->free_bytes(), PageBytes(*slab));

  // All is one run again: a single allocation takes it without new memory.
  const std::uint64_t all = PageBytes(*slab);
  ASSERT_TRUE(runs.Allocate(static_cast<unsigned>(all / format::kPageUnit)));
  EXPECT_EQ(PageBytes(*slab), all);
  EXPECT_EQ(slab->free_bytes(), 0u);
}

TEST(PageArena, ShrinksWhenTheLastPagesHaveMoved) {
  ASSERT_OK_AND_ASSIGN(auto slab, PageArena::Create(64 * kMiB));
  Random random(TestSeed());
  Runs runs(*slab);
  while (PageBytes(*slab) < 16 * kMiB) ASSERT_TRUE(runs.Allocate(static_cast<unsigned>(random.Between(1, 64))));
  while (runs.bytes() > 8 * kMiB) runs.Free(random);
  const std::uint64_t end = 12 * kMiB;
  slab->Retreat(end);
  const auto behind = [&](std::uint32_t first, unsigned units) { return (first + std::uint64_t{units}) * format::kPageUnit > end; };
  while (runs.MoveOne(behind)) {
  }
  slab->CutEnd();
  EXPECT_LE(PageBytes(*slab), end);
  EXPECT_EQ(slab->free_bytes() + runs.bytes(), PageBytes(*slab));
  // It grows again, with zeros.
  while (PageBytes(*slab) < 16 * kMiB) ASSERT_TRUE(runs.Allocate(64));
  slab->Retreat(kMiB);
  slab->CutEnd();
  EXPECT_GT(PageBytes(*slab), 15 * kMiB) << "it is in use";
  slab->Retreat(kMiB);
  while (slab->free_bytes() > kMiB) ASSERT_TRUE(runs.Allocate(8)) << "what lies behind is better than nothing";
  while (runs.size() > 0) runs.Free(random);
  slab->CutEnd();
  EXPECT_LE(PageBytes(*slab), kMiB) << "all of it was free";
  EXPECT_EQ(slab->free_bytes(), PageBytes(*slab));
}

TEST(PageArena, CoalescesRunsInAnyOrder) {
  ASSERT_OK_AND_ASSIGN(auto slab, PageArena::Create(16 * kMiB));
  std::vector<int> order = {0, 1, 2, 3};
  do {
    const std::uint64_t free_before = slab->free_bytes();
    std::uint32_t firsts[4];
    const unsigned units[4] = {1, 2, 7, 1};
    for (int i = 0; i < 4; ++i) ASSERT_NE(firsts[i] = slab->Allocate(units[i]), 0u);
    for (const int i : order) slab->Free(firsts[i], units[i]);
    const std::uint32_t whole = slab->Allocate(11);
    EXPECT_EQ(whole, *std::min_element(firsts, firsts + 4));
    slab->Free(whole, 11);
    EXPECT_EQ(slab->free_bytes(), std::max(free_before, slab->free_bytes()));
  } while (std::next_permutation(order.begin(), order.end()));
  const std::uint64_t all = PageBytes(*slab);
  EXPECT_NE(slab->Allocate(static_cast<unsigned>(all / format::kPageUnit)), 0u);
  EXPECT_EQ(PageBytes(*slab), all);
}

TEST(PageArena, ReturnsMemoryToTheSystem) {
  ASSERT_OK_AND_ASSIGN(auto slab, PageArena::Create(256 * kMiB));
  const auto resident = [&] {
    std::vector<unsigned char> pages((PageBytes(*slab) + kMiB) / 4096);
    EXPECT_EQ(mincore(slab->memory(), pages.size() * 4096, pages.data()), 0);
    return static_cast<std::uint64_t>(std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return page & 1; })) * 4096;
  };
  constexpr std::uint64_t kBytes = 64 * kMiB;
  constexpr unsigned kUnits = 37;
  std::vector<std::uint32_t> runs;
  for (std::uint64_t bytes = 0; bytes < kBytes; bytes += kUnits * format::kPageUnit) {
    runs.push_back(slab->Allocate(kUnits));
    ASSERT_NE(runs.back(), 0u);
    std::memset(slab->memory() + std::uint64_t{runs.back()} * format::kPageUnit, 'x', kUnits * format::kPageUnit);
  }
  EXPECT_GE(resident(), kBytes);
  Random random(TestSeed());
  for (std::size_t i = runs.size(); i > 1; --i) std::swap(runs[i - 1], runs[random.Below(i)]);
  for (const std::uint32_t run : runs) slab->Free(run, kUnits);
  EXPECT_LE(resident(), 6 * kMiB) << "except for the huge pages at both ends";

  Runs again(*slab);  // freed units can be allocated again
  const std::uint64_t before = PageBytes(*slab);
  while (again.bytes() < kBytes) ASSERT_TRUE(again.Allocate(200));
  EXPECT_EQ(PageBytes(*slab), before);
}

TEST(PageArena, RefusesToGrowBeyondItsLimit) {
  ASSERT_OK_AND_ASSIGN(auto slab, PageArena::Create(4 * kMiB));
  Random random(TestSeed());
  Runs runs(*slab);
  while (runs.Allocate(50)) {
  }
  while (runs.Allocate(1)) {
  }
  EXPECT_EQ(slab->free_bytes(), 0u);
  EXPECT_GE(runs.bytes(), 3 * kMiB);
  EXPECT_LE(slab->memory() != nullptr ? PageBytes(*slab) : 0, 4 * kMiB);
  for (int i = 0; i < 10; ++i) runs.Free(random);
  EXPECT_TRUE(runs.Allocate(1)) << "what came back is to be had";
  while (runs.size() > 0) runs.Free(random);
  EXPECT_EQ(slab->free_bytes(), PageBytes(*slab));
}

TEST(PageArena, GivesPagesSeparateIds) {
  ASSERT_OK_AND_ASSIGN(auto slab, PageArena::Create(kMiB));
  std::set<std::uint32_t> ids;
  for (int i = 0; i < 5000; ++i) {
    const std::uint32_t id = slab->NewPage();
    ASSERT_NE(id, 0u);
    ASSERT_TRUE(ids.insert(id).second);
    ASSERT_LT(id, PageArena::kPagesMax);
    ASSERT_EQ(slab->lines()[id].version, sync::VersionLock::kLocked);
    ASSERT_EQ(slab->lines()[id].unit, 0u);
  }
  EXPECT_EQ(slab->num_pages(), 5000u);
  EXPECT_GE(slab->line_bytes(), 5000 * sizeof(PageArena::Line));
  const std::uint64_t line_bytes = slab->line_bytes();
  for (const std::uint32_t id : ids) slab->FreePage(id);
  EXPECT_EQ(slab->num_pages(), 0u);
  for (int i = 0; i < 5000; ++i) EXPECT_EQ(ids.erase(slab->NewPage()), 1u) << "the free ones come first";
  EXPECT_EQ(slab->line_bytes(), line_bytes);
}

TEST(PageArena, StoresLongValues) {
  ASSERT_OK_AND_ASSIGN(auto slab, PageArena::Create(kMiB));
  const std::string value(100'000, 'v');
  format::OverflowValue stored{0, value.size()};
  PageArena::LongRead read(*slab);
  {
    PageArena::Deferred deferred(*slab);
    stored.place = slab->StoreLong(value, deferred);
    EXPECT_FALSE(read.Has(stored)) << "it is copied when the update ends";
  }
  EXPECT_TRUE(read.Has(stored));
  EXPECT_EQ(slab->long_bytes(), value.size());
  {
    PageArena::Deferred deferred(*slab);
    slab->FreeLong(stored, deferred);
  }
  EXPECT_EQ(slab->long_bytes(), 0u);
  EXPECT_TRUE(read.bytes() == value) << "it stays until it has been read";
}

TEST(PageArena, ConcurrentAllocationsDoNotOverlap) {
  ASSERT_OK_AND_ASSIGN(auto slab, PageArena::Create(256 * kMiB));
  std::vector<Runs> runs(4, Runs(*slab));
  RunThreads(4, [&](int thread) {
    Random random(TestSeed() + static_cast<std::uint64_t>(thread));
    Runs& mine = runs[static_cast<std::size_t>(thread)];
    std::vector<std::uint32_t> pages;
    for (int i = 0; i < 20'000 / kSlowdown; ++i) {
      if (mine.size() > 500 || (mine.size() > 0 && random.OneIn(2)))
        mine.Free(random);
      else
        EXPECT_TRUE(mine.Allocate(static_cast<unsigned>(random.Between(1, 70))));
      pages.push_back(slab->NewPage());
      if (random.OneIn(2)) slab->FreePage(pages.back()), pages.pop_back();
    }
    std::set<std::uint32_t> distinct(pages.begin(), pages.end());
    EXPECT_EQ(distinct.size(), pages.size());
    while (mine.size() > 0) mine.Free(random);
  });
  EXPECT_EQ(slab->free_bytes(), PageBytes(*slab));
}

}  // namespace
}  // namespace hako::tree
