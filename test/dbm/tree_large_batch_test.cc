// Operations of a TreeDBM on more keys than its cache has pages for: they complete, and other
// threads do not wait for their reads.
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "dbm/shared_databases.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/file/memory_file.h"
#include "support/hooked_file.h"
#include "support/status_matchers.h"

namespace hako {
namespace {

std::string KeyOf(std::uint64_t number) { return std::to_string(100'000 + number); }

constexpr std::uint64_t kCacheBytes = 1 << 20;
constexpr std::uint64_t kRecords = 2000;  // of 1,000 bytes each: twice the cache
constexpr std::size_t kValueSize = 1000;

std::string Numbered(std::uint64_t count) {
  std::string value = std::to_string(count);
  value.resize(kValueSize, '.');
  return value;
}
std::uint64_t NumberIn(std::string_view value) {
  std::uint64_t number = 0;
  for (const char c : value) {
    if (c >= '0' && c <= '9') number = 10 * number + static_cast<std::uint64_t>(c - '0');
  }
  return number;
}

// Keys on every leaf but the first ones.
constexpr std::uint64_t kOthers = 100;
std::vector<std::string> KeysOnEveryLeaf() {
  std::vector<std::string> keys;
  for (std::uint64_t i = kOthers; i < kRecords; i += 5) keys.push_back(KeyOf(i));
  return keys;
}

template <class D>
void Fill(D& db) {
  for (std::uint64_t i = 0; i < kRecords; ++i) ASSERT_THAT(db.Set(KeyOf(i), Numbered(0)), IsOk());
}

// Adds one to each.
template <class D>
Status Increment(D& db, const std::vector<std::string>& keys) {
  const std::vector<std::string_view> views(keys.begin(), keys.end());
  std::vector<std::string> values(keys.size());
  return db.ProcessMulti(views, [&](std::size_t i, std::optional<std::string_view> value) -> std::optional<Action> {
    values[i] = Numbered(NumberIn(*value) + 1);
    return Action::Set(values[i]);
  });
}

std::uint64_t MemoryOf(const Inspection& pairs) {
  for (const auto& [name, value] : pairs) {
    if (name == "memory_bytes") return std::stoull(value);
  }
  return 0;
}

struct Mapped {
  static MemoryFile Make() { return MemoryFile(); }
};
struct Positional {
  static HookedFile Make() {
    return HookedFile(MemoryFile(), [](Access) {});
  }
};
template <class FileKind>
class TreeLargeBatch : public testing::Test {};
using FileKinds = testing::Types<Mapped, Positional>;
TYPED_TEST_SUITE(TreeLargeBatch, FileKinds);

TYPED_TEST(TreeLargeBatch, CompletesInManyThreadsBeyondTheCache) {
  ASSERT_OK_AND_ASSIGN(auto db, TreeDBM<decltype(TypeParam::Make())>::Open(TypeParam::Make(), {.cache_bytes = kCacheBytes}));
  Fill(*db);
  const std::vector<std::string> keys = KeysOnEveryLeaf();
  constexpr int kThreads = 4, kBatches = 2;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kBatches; ++i) {
        if (t % 2 == 0) {
          EXPECT_THAT(Increment(*db, keys), IsOk());
          continue;
        }
        const std::vector<std::string_view> views(keys.begin(), keys.end());
        std::optional<std::uint64_t> first;
        EXPECT_THAT(db->ProcessMulti(views,
                                     [&](std::size_t, std::optional<std::string_view> value) -> void {
                                       if (!first) first = NumberIn(*value);
                                       EXPECT_EQ(NumberIn(*value), *first) << "a part of another batch is seen";
                                     }),
                    IsOk());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& key : keys) {
    ASSERT_OK_AND_ASSIGN(const std::string value, db->Get(key));
    EXPECT_EQ(NumberIn(value), kThreads / 2 * kBatches);
  }
  ASSERT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
  EXPECT_LT(MemoryOf(db->Inspect()), kCacheBytes * 5 / 4) << "the memory is given back";
  EXPECT_THAT(db->Verify(), IsOk());
  EXPECT_THAT(db->Close(), IsOk());
}

thread_local bool is_in_batch = false;

// Each read of the batch waits until other threads have completed a Set, a Get and a checkpoint.
TEST(TreeLargeBatch, OthersContinueWhileItsPagesAreRead) {
  std::atomic<std::uint64_t> rounds{0};
  std::atomic<bool> has_stalled{false}, is_over{false};
  std::atomic<int> num_reads{0};
  const auto wait_for_others = [&](Access access) {
    if (!is_in_batch || access != Access::kRead || has_stalled) return;
    num_reads.fetch_add(1);
    const std::uint64_t until = rounds + 2;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (rounds < until && !has_stalled) {
      if (std::chrono::steady_clock::now() > deadline) has_stalled = true;
      std::this_thread::yield();
    }
  };
  ASSERT_OK_AND_ASSIGN(auto db, TreeDBM<HookedFile>::Open(HookedFile(MemoryFile(), wait_for_others), {.cache_bytes = kCacheBytes}));
  Fill(*db);
  std::thread others([&] {
    for (std::uint64_t i = 0; !is_over; ++i) {
      EXPECT_THAT(db->Set(KeyOf(1), Numbered(i)), IsOk());
      EXPECT_THAT(db->Get(KeyOf(i % (kOthers / 2))).status(), IsOk());
      EXPECT_THAT(db->Synchronize(SyncMode::kHard), IsOk());
      ++rounds;
    }
  });
  is_in_batch = true;
  EXPECT_THAT(Increment(*db, KeysOnEveryLeaf()), IsOk());
  is_in_batch = false;
  is_over = true;
  others.join();
  EXPECT_FALSE(has_stalled);
  EXPECT_GT(num_reads, 10);
  EXPECT_THAT(db->Close(), IsOk());
}

}  // namespace
}  // namespace hako
