// The memory of pages: disjoint runs of units, which are coalesced when freed and returned to the
// system.
#include "hako/tree/memory/page_arena.h"

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
  explicit Runs(PageArena& arena) : arena_(arena) {}

  bool Allocate(unsigned units) {
    const std::uint32_t first = arena_.Allocate(units);
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
    arena_.Free(first, units);
  }
  // Moves the first run for which `wanted` holds to free memory; false if there is none.
  template <class F>
  bool MoveOne(F&& wanted) {
    const auto run = std::ranges::find_if(runs_, [&](const auto& each) { return wanted(each.first, each.second); });
    if (run == runs_.end()) return false;
    const std::uint32_t to = arena_.Allocate(run->second, 0);
    EXPECT_NE(to, 0u);
    EXPECT_FALSE(wanted(to, run->second));
    std::memset(At(to), Filler(to), Bytes(run->second));
    runs_.emplace(to, run->second);
    arena_.Free(run->first, run->second);
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
  char* At(std::uint32_t first) const { return arena_.memory() + std::uint64_t{first} * format::kPageUnit; }

  PageArena& arena_;
  std::map<std::uint32_t, unsigned> runs_;
};

std::uint64_t PageBytes(const PageArena& arena) { return arena.total_bytes() - arena.line_bytes(); }

TEST(PageArena, AllocatesDisjointRuns) {
  ASSERT_OK_AND_ASSIGN(auto arena, PageArena::Create(256 * kMiB));
  Random random(TestSeed());
  Runs runs(*arena);
  for (int round = 0; round < 6; ++round) {
    for (int i = 0; i < 30'000 / kSlowdown; ++i) {
      if (runs.size() > 0 && random.Below(10) < (round % 2 == 0 ? 4u : 6u))
        runs.Free(random);
      else
        ASSERT_TRUE(runs.Allocate(static_cast<unsigned>(random.OneIn(20) ? random.Between(1, 2000) : random.Between(1, 80))));
    }
    EXPECT_EQ(arena->free_bytes() + runs.bytes(), PageBytes(*arena));
  }
  while (runs.size() > 0) runs.Free(random);
  EXPECT_EQ(arena->free_bytes(), PageBytes(*arena));

  // All is one run again: a single allocation takes it without new memory.
  const std::uint64_t all = PageBytes(*arena);
  ASSERT_TRUE(runs.Allocate(static_cast<unsigned>(all / format::kPageUnit)));
  EXPECT_EQ(PageBytes(*arena), all);
  EXPECT_EQ(arena->free_bytes(), 0u);
}

TEST(PageArena, ShrinksWhenTheLastPagesHaveMoved) {
  ASSERT_OK_AND_ASSIGN(auto arena, PageArena::Create(64 * kMiB));
  Random random(TestSeed());
  Runs runs(*arena);
  while (PageBytes(*arena) < 16 * kMiB) ASSERT_TRUE(runs.Allocate(static_cast<unsigned>(random.Between(1, 64))));
  while (runs.bytes() > 8 * kMiB) runs.Free(random);
  const std::uint64_t end = 12 * kMiB;
  arena->Retreat(end);
  const auto behind = [&](std::uint32_t first, unsigned units) { return (first + std::uint64_t{units}) * format::kPageUnit > end; };
  while (runs.MoveOne(behind)) {
  }
  arena->CutEnd();
  EXPECT_LE(PageBytes(*arena), end);
  EXPECT_EQ(arena->free_bytes() + runs.bytes(), PageBytes(*arena));
  // It grows again, with zeros.
  while (PageBytes(*arena) < 16 * kMiB) ASSERT_TRUE(runs.Allocate(64));
  arena->Retreat(kMiB);
  arena->CutEnd();
  EXPECT_GT(PageBytes(*arena), 15 * kMiB) << "it is in use";
  arena->Retreat(kMiB);
  while (arena->free_bytes() > kMiB) ASSERT_TRUE(runs.Allocate(8)) << "what lies behind is better than nothing";
  while (runs.size() > 0) runs.Free(random);
  arena->CutEnd();
  EXPECT_LE(PageBytes(*arena), kMiB) << "all of it was free";
  EXPECT_EQ(arena->free_bytes(), PageBytes(*arena));
}

TEST(PageArena, CoalescesRunsInAnyOrder) {
  ASSERT_OK_AND_ASSIGN(auto arena, PageArena::Create(16 * kMiB));
  std::vector<int> order = {0, 1, 2, 3};
  do {
    const std::uint64_t free_before = arena->free_bytes();
    std::uint32_t firsts[4];
    const unsigned units[4] = {1, 2, 7, 1};
    for (int i = 0; i < 4; ++i) ASSERT_NE(firsts[i] = arena->Allocate(units[i]), 0u);
    for (const int i : order) arena->Free(firsts[i], units[i]);
    const std::uint32_t whole = arena->Allocate(11);
    EXPECT_EQ(whole, *std::min_element(firsts, firsts + 4));
    arena->Free(whole, 11);
    EXPECT_EQ(arena->free_bytes(), std::max(free_before, arena->free_bytes()));
  } while (std::next_permutation(order.begin(), order.end()));
  const std::uint64_t all = PageBytes(*arena);
  EXPECT_NE(arena->Allocate(static_cast<unsigned>(all / format::kPageUnit)), 0u);
  EXPECT_EQ(PageBytes(*arena), all);
}

TEST(PageArena, ReturnsMemoryToTheSystem) {
  ASSERT_OK_AND_ASSIGN(auto arena, PageArena::Create(256 * kMiB));
  const auto resident = [&] {
    std::vector<unsigned char> pages((PageBytes(*arena) + kMiB) / 4096);
    EXPECT_EQ(mincore(arena->memory(), pages.size() * 4096, pages.data()), 0);
    return static_cast<std::uint64_t>(std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return page & 1; })) * 4096;
  };
  constexpr std::uint64_t kBytes = 64 * kMiB;
  constexpr unsigned kUnits = 37;
  std::vector<std::uint32_t> runs;
  for (std::uint64_t bytes = 0; bytes < kBytes; bytes += kUnits * format::kPageUnit) {
    runs.push_back(arena->Allocate(kUnits));
    ASSERT_NE(runs.back(), 0u);
    std::memset(arena->memory() + std::uint64_t{runs.back()} * format::kPageUnit, 'x', kUnits * format::kPageUnit);
  }
  EXPECT_GE(resident(), kBytes);
  Random random(TestSeed());
  for (std::size_t i = runs.size(); i > 1; --i) std::swap(runs[i - 1], runs[random.Below(i)]);
  for (const std::uint32_t run : runs) arena->Free(run, kUnits);
  EXPECT_LE(resident(), 6 * kMiB) << "except for the huge pages at both ends";

  Runs again(*arena);  // freed units can be allocated again
  const std::uint64_t before = PageBytes(*arena);
  while (again.bytes() < kBytes) ASSERT_TRUE(again.Allocate(200));
  EXPECT_EQ(PageBytes(*arena), before);
}

TEST(PageArena, RefusesToGrowBeyondItsLimit) {
  ASSERT_OK_AND_ASSIGN(auto arena, PageArena::Create(4 * kMiB));
  Random random(TestSeed());
  Runs runs(*arena);
  while (runs.Allocate(50)) {
  }
  while (runs.Allocate(1)) {
  }
  EXPECT_EQ(arena->free_bytes(), 0u);
  EXPECT_GE(runs.bytes(), 3 * kMiB);
  EXPECT_LE(arena->memory() != nullptr ? PageBytes(*arena) : 0, 4 * kMiB);
  for (int i = 0; i < 10; ++i) runs.Free(random);
  EXPECT_TRUE(runs.Allocate(1)) << "what came back is to be had";
  while (runs.size() > 0) runs.Free(random);
  EXPECT_EQ(arena->free_bytes(), PageBytes(*arena));
}

TEST(PageArena, GivesPagesSeparateIds) {
  ASSERT_OK_AND_ASSIGN(auto arena, PageArena::Create(kMiB));
  std::set<std::uint32_t> ids;
  for (int i = 0; i < 5000; ++i) {
    const std::uint32_t id = arena->NewPage();
    ASSERT_NE(id, 0u);
    ASSERT_TRUE(ids.insert(id).second);
    ASSERT_LE(id, arena->id_mask());
    ASSERT_EQ(arena->lines()[id].version, sync::VersionLock::kLocked);
    ASSERT_EQ(arena->lines()[id].unit, 0u);
  }
  EXPECT_EQ(arena->num_pages(), 5000u);
  EXPECT_GE(arena->line_bytes(), 5000 * sizeof(PageArena::Line));
  const std::uint64_t line_bytes = arena->line_bytes();
  for (const std::uint32_t id : ids) arena->FreePage(id);
  EXPECT_EQ(arena->num_pages(), 0u);
  for (int i = 0; i < 5000; ++i) EXPECT_EQ(ids.erase(arena->NewPage()), 1u) << "the free ones come first";
  EXPECT_EQ(arena->line_bytes(), line_bytes);
}

TEST(PageArena, FreesTheIdOfALongValueWithoutItsLine) {
  ASSERT_OK_AND_ASSIGN(auto arena, PageArena::Create(kMiB));
  const std::uint32_t id = arena->NewPage();
  sync::VersionLock line(arena->lines()[id].version);
  line.Unlock(false);
  const std::uint32_t version = line.ReadVersion();
  arena->FreeId(id);
  EXPECT_TRUE(arena->IsFree(id));
  EXPECT_EQ(line.ReadVersion(), version);
  EXPECT_EQ(arena->NewPage(), id);
}

// Of a damaged file, in which a page names an id that the page map lacks: its line stays locked.
TEST(PageArena, SkipsFreeIdsOfLockedLinesBehindTheLastPage) {
  ASSERT_OK_AND_ASSIGN(auto arena, PageArena::Create(kMiB));
  const std::uint32_t first = arena->NewPage(), locked = arena->NewPage();
  arena->FreeIds(locked, locked + 1);
  arena->CutIds();
  ASSERT_EQ(arena->page_end(), locked);
  const std::uint32_t next = arena->NewPage();
  EXPECT_NE(next, 0u);
  EXPECT_NE(next, first);
  EXPECT_NE(next, locked);
}

TEST(PageArena, StoresLongValues) {
  ASSERT_OK_AND_ASSIGN(auto arena, PageArena::Create(kMiB));
  const std::string value(100'000, 'v');
  format::OverflowValue stored{0, value.size()};
  PageArena::LongRead read(*arena);
  {
    PageArena::Deferred deferred(*arena);
    stored.place = arena->StoreLong(value, deferred);
    EXPECT_FALSE(read.Has(stored)) << "it is copied when the update ends";
  }
  EXPECT_TRUE(read.Has(stored));
  EXPECT_EQ(arena->long_bytes(), value.size());
  {
    PageArena::Deferred deferred(*arena);
    arena->FreeLong(stored, deferred);
  }
  EXPECT_EQ(arena->long_bytes(), 0u);
  EXPECT_TRUE(read.bytes() == value) << "it stays until it has been read";
}

TEST(PageArena, KeepsALimitInBytes) {
  constexpr std::uint64_t kCapacity = 2 * kMiB;
  ASSERT_OK_AND_ASSIGN(auto arena, PageArena::Create(64 * kMiB, storage::Arena::kSmallUsual, 0, Capacity{.bytes = kCapacity}));
  const auto resident = [&] {
    std::vector<unsigned char> pages(4 * kCapacity / 4096);
    EXPECT_EQ(mincore(arena->memory(), pages.size() * 4096, pages.data()), 0);
    return static_cast<std::uint64_t>(std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return page & 1; })) * 4096;
  };
  Random random(TestSeed());
  Runs runs(*arena);
  int refused = 0;
  for (int i = 0; i < 20'000 / kSlowdown; ++i) {
    if (!runs.Allocate(static_cast<unsigned>(random.OneIn(50) ? random.Between(1, 3000) : random.Between(1, 80)))) {
      ++refused;
      for (std::uint64_t n = std::min<std::uint64_t>(random.Between(1, 50), runs.size()); n > 0; --n) runs.Free(random);
    }
    ASSERT_LE(arena->total_bytes(), kCapacity);
    if (i % 256 == 0) {
      ASSERT_LE(resident(), kCapacity);
    }
  }
  EXPECT_GT(refused, 0);
  // Free memory is for runs of any size.
  while (runs.size() > 0) runs.Free(random);
  for (const unsigned units : {14'000u, 60u, 9000u, 14'000u}) {
    ASSERT_TRUE(runs.Allocate(units));
    runs.Free(random);
  }
  EXPECT_LE(resident(), kCapacity);
}

// A free run may be too small for a large value and still have a whole system page.
TEST(PageArena, UsesTheWholePagesOfSmallFreeRuns) {
  constexpr unsigned kUnits = 56;
  ASSERT_OK_AND_ASSIGN(auto arena, PageArena::Create(64 * kMiB, storage::Arena::kSmallUsual, 0, Capacity{.bytes = 2 * kMiB}));
  std::vector<std::uint32_t> runs;
  while (const std::uint32_t run = arena->Allocate(kUnits)) runs.push_back(run);
  for (std::size_t i = 0; i < runs.size(); i += 2) arena->Free(runs[i], kUnits);
  EXPECT_NE(arena->Allocate(2000), 0u);
  EXPECT_LE(arena->total_bytes(), 2 * kMiB);
}

TEST(PageArena, ReservesMemoryForOneThread) {
  constexpr unsigned kUnits = (256 << 10) / format::kPageUnit;
  ASSERT_OK_AND_ASSIGN(auto arena, PageArena::Create(64 * kMiB, storage::Arena::kSmallUsual, 0, Capacity{.bytes = kMiB}));
  PageArena::Reservation reservation(*arena);
  EXPECT_FALSE(reservation.Take(2 * kMiB, true));
  ASSERT_TRUE(reservation.Take(kUnits * format::kPageUnit, true));
  std::vector<std::uint32_t> others;
  RunThreads(1, [&](int) {
    while (const std::uint32_t run = arena->Allocate(64)) others.push_back(run);
  });
  EXPECT_GT(others.size(), 64u);
  EXPECT_NE(arena->Allocate(kUnits), 0u);
  EXPECT_LE(arena->total_bytes(), kMiB);
  EXPECT_FALSE(reservation.HasExceeded());
  EXPECT_NE(arena->Allocate(kUnits), 0u) << "it is never refused";
  EXPECT_TRUE(reservation.HasExceeded());
  EXPECT_FALSE(reservation.End()) << "more is in use than may be";
  EXPECT_EQ(arena->Allocate(1), 0u);
  for (const std::uint32_t run : others) arena->Free(run, 64);
  EXPECT_NE(arena->Allocate(64), 0u);
  ASSERT_TRUE(reservation.Take(0, true));
  EXPECT_TRUE(reservation.End());
  EXPECT_LE(arena->total_bytes(), kMiB);
}

TEST(PageArena, ConcurrentAllocationsDoNotOverlap) {
  ASSERT_OK_AND_ASSIGN(auto arena, PageArena::Create(256 * kMiB));
  std::vector<Runs> runs(4, Runs(*arena));
  RunThreads(4, [&](int thread) {
    Random random(TestSeed() + static_cast<std::uint64_t>(thread));
    Runs& mine = runs[static_cast<std::size_t>(thread)];
    std::vector<std::uint32_t> pages;
    for (int i = 0; i < 20'000 / kSlowdown; ++i) {
      if (mine.size() > 500 || (mine.size() > 0 && random.OneIn(2)))
        mine.Free(random);
      else
        EXPECT_TRUE(mine.Allocate(static_cast<unsigned>(random.Between(1, 70))));
      pages.push_back(arena->NewPage());
      if (random.OneIn(2)) arena->FreePage(pages.back()), pages.pop_back();
    }
    std::set<std::uint32_t> distinct(pages.begin(), pages.end());
    EXPECT_EQ(distinct.size(), pages.size());
    while (mine.size() > 0) mine.Free(random);
  });
  EXPECT_EQ(arena->free_bytes(), PageBytes(*arena));
}

}  // namespace
}  // namespace hako::tree
