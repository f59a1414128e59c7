// Records the results of concurrent operations on few keys, and checks that they are linearizable
// (support/history.h).
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "dbm/listing.h"
#include "dbm/surroundings.h"
#include "gtest/gtest.h"
#include "support/direct_file.h"
#include "support/history.h"
#include "support/model_dbm.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/threads.h"

namespace hako {
namespace {

using Kind = HistoryEvent::Kind;

constexpr int kThreads = 4;
constexpr std::uint64_t kKeys = 5;
constexpr int kOperations = 125;  // of each thread in one history
constexpr int kHistories = 300 / kSlowdown;

// Carries out a random operation; false if it failed.
template <class D>
bool Run(D& db, std::string_view key, Random& random, std::atomic<std::uint64_t>& clock, HistoryEvent& event) {
  event.kind = static_cast<Kind>(random.Below(random.OneIn(2) ? 1 : 7));
  event.argument = EncodeNumber(static_cast<std::int64_t>(random.Below(4)));
  if (random.OneIn(2)) event.expected = EncodeNumber(static_cast<std::int64_t>(random.Below(4)));
  Status status;
  event.call = clock++;
  switch (event.kind) {
    case Kind::kGet:
      status = db.Get(key, &event.result);
      break;
    case Kind::kSet:
      status = db.Set(key, event.argument);
      break;
    case Kind::kInsert:
      status = db.Set(key, event.argument, {.overwrite = false});
      break;
    case Kind::kRemove:
      status = db.Remove(key);
      break;
    case Kind::kCompareExchange:
      status = db.CompareExchange(key, event.expected ? Expect::Value(*event.expected) : Expect::Absent(), Action::Set(event.argument));
      break;
    case Kind::kAppend:
      status = db.Append(key, event.argument);
      break;
    case Kind::kIncrement: {
      const auto sum = db.Increment(key, DecodeNumber(event.argument));
      status = sum.status();
      if (sum.ok()) event.result = EncodeNumber(*sum);
    }
  }
  event.end = clock++;
  event.ok = status.ok();
  if (event.kind == Kind::kIncrement && absl::IsInvalidArgument(status)) return true;  // it has become longer than a number
  return status.ok() || absl::IsNotFound(status) || absl::IsAlreadyExists(status) || absl::IsAborted(status);
}

struct ModelSurroundings {
  using Database = ModelDBM;
  StatusOr<std::unique_ptr<ModelDBM>> Open(std::uint64_t = 0) { return std::make_unique<ModelDBM>(); }
};

// A TreeDBM whose cache is full of other records, so that pages are evicted and loaded, and that
// constantly makes checkpoints.
struct CrowdedTreeSurroundings : TreeSurroundings<MemoryFile, 512, kSmallestCache> {
  Opened Open() {
    auto db = OpenWith({.sync_interval = std::chrono::milliseconds(1)});
    for (std::uint64_t i = 0; i < 10'000 && db.ok(); ++i) {
      if (const Status status = (*db)->Set(std::to_string(i % kHistories) + "/" + NumberedKey(i), std::string(50, 'v')); !status.ok())
        return status;
    }
    return db;
  }
};

template <class Surroundings>
class LinearizabilityTest : public testing::Test {};
using Types = testing::Types<ModelSurroundings, HashSurroundings<MemoryMapParallelFile>, HashSurroundings<PositionalParallelFile>,
                             HashSurroundings<DirectFile<512>>, TinySurroundings<MemoryMapParallelFile>,
                             BabySurroundings<MemoryMapParallelFile>, TreeSurroundings<MemoryMapParallelFile>, CrowdedTreeSurroundings>;
TYPED_TEST_SUITE(LinearizabilityTest, Types);

TYPED_TEST(LinearizabilityTest, ConcurrentHistoriesAreLinearizable) {
  SCOPED_TRACE(TestSeed());
  TypeParam surroundings;
  ASSERT_OK_AND_ASSIGN(auto db, surroundings.Open());
  for (int history = 0; history < kHistories; ++history) {
    std::atomic<std::uint64_t> clock = 0;
    std::array<std::array<std::vector<HistoryEvent>, kKeys>, kThreads> seen;
    std::atomic<int> failures = 0;
    RunThreads(kThreads, [&](int thread) {
      Random random(TestSeed() + static_cast<std::uint64_t>(history * kThreads + thread));
      for (int i = 0; i < kOperations; ++i) {
        const std::uint64_t key = random.Below(kKeys);
        HistoryEvent event;
        failures += !Run(*db, std::to_string(history) + "/" + std::to_string(key), random, clock, event);
        seen[static_cast<std::size_t>(thread)][key].push_back(event);
        if (random.OneIn(8)) std::this_thread::yield();
      }
    });
    ASSERT_EQ(failures, 0);
    for (std::size_t key = 0; key < kKeys; ++key) {
      std::vector<HistoryEvent> events;
      for (const auto& of_thread : seen) events.insert(events.end(), of_thread[key].begin(), of_thread[key].end());
      ASSERT_TRUE(IsLinearizable(std::move(events))) << "history " << history << ", key " << key;
    }
  }
  EXPECT_THAT(db->Verify(), IsOk());
}

// Tests the checker: it must accept linearizable histories and refuse others.
TEST(IsLinearizable, RefusesHistoriesWithoutAnOrder) {
  const std::string one = EncodeNumber(1), two = EncodeNumber(2);
  const HistoryEvent set1{.kind = Kind::kSet, .argument = one, .ok = true, .call = 0, .end = 9};
  const HistoryEvent set2{.kind = Kind::kSet, .argument = two, .ok = true, .call = 1, .end = 8};
  const HistoryEvent get1{.kind = Kind::kGet, .ok = true, .result = one, .call = 10, .end = 11};
  const HistoryEvent get2{.kind = Kind::kGet, .ok = true, .result = two, .call = 12, .end = 13};
  const HistoryEvent early{.kind = Kind::kGet, .ok = true, .result = two, .call = 2, .end = 3};
  EXPECT_TRUE(IsLinearizable({set1, set2, get1}));
  EXPECT_TRUE(IsLinearizable({set1, set2, get2}));
  EXPECT_TRUE(IsLinearizable({set1, set2, early, get1}));
  EXPECT_TRUE(IsLinearizable({set1, set2, early, get2}));
  EXPECT_FALSE(IsLinearizable({set1, set2, get1, get2})) << "the value changes with no writer";
  EXPECT_FALSE(IsLinearizable({set1, get2})) << "a value that was never written";
  const HistoryEvent add{.kind = Kind::kIncrement, .argument = one, .ok = true, .result = one, .call = 0, .end = 3};
  HistoryEvent again = add;
  again.call = 1, again.end = 2;
  EXPECT_FALSE(IsLinearizable({add, again})) << "an update is lost";
  const HistoryEvent append{.kind = Kind::kAppend, .argument = two, .ok = true, .call = 2, .end = 7};
  HistoryEvent both = get1;
  both.result = one + two;
  EXPECT_TRUE(IsLinearizable({set1, append, both}));
  EXPECT_TRUE(IsLinearizable({set1, append, get1})) << "the set may come last";
  EXPECT_FALSE(IsLinearizable({set1, append, get2})) << "what was set is lost, and nothing removed it";
  const HistoryEvent no_number{.kind = Kind::kIncrement, .argument = one, .ok = false, .call = 14, .end = 15};
  EXPECT_TRUE(IsLinearizable({set1, append, both, no_number}));
  EXPECT_FALSE(IsLinearizable({set1, append, get1, no_number}));
}

}  // namespace
}  // namespace hako
