// Records what concurrent operations on few keys saw, and asks whether one order of them explains it (support/history.h).
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "dbm/listing.h"
#include "dbm/surroundings.h"
#include "gtest/gtest.h"
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

std::string Encode(std::int64_t number) {
  std::string bytes(8, '\0');
  for (int i = 7; i >= 0; --i, number >>= 8) bytes[static_cast<std::size_t>(i)] = static_cast<char>(number);
  return bytes;
}
std::int64_t Decode(std::string_view bytes) {
  std::uint64_t number = 0;
  for (const char byte : bytes) number = number << 8 | static_cast<unsigned char>(byte);
  return static_cast<std::int64_t>(number);
}

// Carries out a random operation; false if it failed.
template <class D>
bool Run(D& db, std::string_view key, Random& random, std::atomic<std::uint64_t>& clock, HistoryEvent& event) {
  event.kind = static_cast<Kind>(random.Below(random.OneIn(2) ? 1 : 6));
  event.argument = static_cast<std::int64_t>(random.Below(4));
  if (random.OneIn(2)) event.expected = static_cast<std::int64_t>(random.Below(4));
  std::string value;
  Status status;
  event.call = clock++;
  switch (event.kind) {
    case Kind::kGet:
      status = db.Get(key, &value);
      break;
    case Kind::kSet:
      status = db.Set(key, Encode(event.argument));
      break;
    case Kind::kInsert:
      status = db.Set(key, Encode(event.argument), {.overwrite = false});
      break;
    case Kind::kRemove:
      status = db.Remove(key);
      break;
    case Kind::kCompareExchange: {
      const std::string expected = Encode(event.expected.value_or(0));
      status = db.CompareExchange(key, event.expected ? Expect::Value(expected) : Expect::Absent(), Action::Set(Encode(event.argument)));
      break;
    }
    case Kind::kIncrement: {
      const auto sum = db.Increment(key, event.argument);
      status = sum.status();
      event.result = sum.value_or(0);
    }
  }
  event.end = clock++;
  event.ok = status.ok();
  if (event.kind == Kind::kGet && event.ok) {
    if (value.size() != 8) return false;
    event.result = Decode(value);
  }
  return status.ok() || absl::IsNotFound(status) || absl::IsAlreadyExists(status) || absl::IsAborted(status);
}

struct ModelSurroundings {
  using Database = ModelDBM;
  StatusOr<std::unique_ptr<ModelDBM>> Open(std::uint64_t = 0) { return std::make_unique<ModelDBM>(); }
};

template <class Surroundings>
class LinearizabilityTest : public testing::Test {};
using Types = testing::Types<ModelSurroundings, HashSurroundings<MemoryMapParallelFile>, HashSurroundings<PositionalParallelFile>,
                             TinySurroundings<MemoryMapParallelFile>>;
TYPED_TEST_SUITE(LinearizabilityTest, Types);

TYPED_TEST(LinearizabilityTest, ConcurrentHistoriesHaveAnOrder) {
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

// The judge is judged: it must accept what has an order and refuse what has none.
TEST(IsLinearizable, RefusesHistoriesWithoutAnOrder) {
  const HistoryEvent set1{.kind = Kind::kSet, .argument = 1, .ok = true, .call = 0, .end = 9};
  const HistoryEvent set2{.kind = Kind::kSet, .argument = 2, .ok = true, .call = 1, .end = 8};
  const HistoryEvent get1{.kind = Kind::kGet, .ok = true, .result = 1, .call = 10, .end = 11};
  const HistoryEvent get2{.kind = Kind::kGet, .ok = true, .result = 2, .call = 12, .end = 13};
  const HistoryEvent early{.kind = Kind::kGet, .ok = true, .result = 2, .call = 2, .end = 3};
  EXPECT_TRUE(IsLinearizable({set1, set2, get1}));
  EXPECT_TRUE(IsLinearizable({set1, set2, get2}));
  EXPECT_TRUE(IsLinearizable({set1, set2, early, get1}));
  EXPECT_TRUE(IsLinearizable({set1, set2, early, get2}));
  EXPECT_FALSE(IsLinearizable({set1, set2, get1, get2})) << "the value changes with no writer";
  EXPECT_FALSE(IsLinearizable({set1, get2})) << "a value that nobody wrote";
  EXPECT_FALSE(IsLinearizable({{.kind = Kind::kIncrement, .argument = 1, .ok = true, .result = 1, .call = 0, .end = 3},
                               {.kind = Kind::kIncrement, .argument = 1, .ok = true, .result = 1, .call = 1, .end = 2}}))
      << "an update is lost";
}

}  // namespace
}  // namespace hako
