// Operations on several keys: what a kill leaves of a batch that is larger than a bucket, and how
// several buckets are locked while the table grows.
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/dbm.h"
#include "hako/hash/bucket_index.h"
#include "hako/hash/memory/record_arena.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"
#include "support/toy_table.h"

namespace hako {
namespace {

constexpr std::uint64_t kLine = 1000;

class BucketMultiTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(arena, hash::RecordArena::Create(3, 1));
    index.emplace(*arena);
    ASSERT_THAT(index->Create(0), IsOk());
  }
  void Set(std::string_view key, std::string_view value) {
    ASSERT_THAT(index->Process<Action>(writer, arena->KeyHash(key), key, Action::Set(value)), IsOk());
  }

  // Inserts records until the next bucket is split.
  void Grow() {
    for (const std::uint64_t lines = index->num_lines(); index->num_lines() == lines; ++num_filled) {
      const std::string key = std::to_string(num_filled);
      if (arena->KeyHash(key) % kMinLines == kLine) continue;
      ASSERT_THAT(index->Process<Action>(other_writer, arena->KeyHash(key), key, Action::Set("")), IsOk());
    }
  }

  static constexpr std::uint64_t kMinLines = hash::BucketIndex<hash::RecordArena>::kMinLines;
  std::uint64_t num_filled = 0;
  std::unique_ptr<hash::RecordArena> arena;
  std::optional<hash::BucketIndex<hash::RecordArena>> index;
  hash::RecordArena::WriterState writer, other_writer;
};

// A hash whose home line changes when the table doubles; reading it calls a function of the test.
struct HookedHash {
  operator std::uint64_t() const {
    (*hook)();
    return kLine;
  }
  const std::function<void()>* hook;
};
struct HookedRecord {
  HookedHash key_hash;
  std::uint32_t handle;
};

TEST_F(BucketMultiTest, LocksABucketOnceWhileOthersAreSplit) {
  int growths = 0;
  const std::function<void()> grow = [&] {
    if (++growths < 20) Grow();
  };
  const HookedRecord records[] = {{{&grow}, 1}};
  bool ran = false;
  index->RunLocked(writer, std::span<const HookedRecord>(records), [&](std::uint64_t mask) {
    ran = true;
    EXPECT_EQ(mask, 0u);
  });
  EXPECT_TRUE(ran);
  EXPECT_LT(growths, 20) << "it starts again each time that any bucket is split";
}

// A batch that is as large as several buckets, on a table whose records all belong to one bucket.
class LargeBatchTest : public testing::Test {
 protected:
  using Space = ToyRecordSpace<false>;
  using Table = ToyTable<Space>;

  void SetUp() override {
    for (int i = 0; i < 120; ++i) keys.push_back("key" + std::to_string(i));
    views.assign(keys.begin(), keys.end());
    for (int i = 0; i < 30; ++i) before[keys[static_cast<std::size_t>(i)]] = "old";
    after = before;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (i % 3 == 0) {
        after.erase(keys[i]);
      } else {
        after[keys[i]] = "new";
      }
    }
  }
  void Fill(Table& table) const {
    table.space.hash_mask = 0;
    for (const auto& [key, value] : before) ASSERT_THAT(table.Set(key, value), IsOk());
  }
  Status Process(Table& table) const {
    const auto visit = [](std::size_t i, auto) -> std::optional<Action> { return i % 3 == 0 ? Action::Remove() : Action::Set("new"); };
    return table.index.ProcessMulti(*table.writers.Mine(), Batch<Action>{views, visit});
  }

  std::vector<std::string> keys;
  std::vector<std::string_view> views;
  Table::Model before, after;
};

TEST_F(LargeBatchTest, IsThereAsAWholeAfterAnyKill) {
  int num_before = 0, num_after = 0;
  for (int kill_at = 0;; kill_at += kSlowdown) {
    SCOPED_TRACE(kill_at);
    Table table(4096);
    Fill(table);
    std::optional<Space::Content> killed;
    table.space.on_change = [&, changes = 0]() mutable {
      if (changes++ == kill_at) killed = table.space.content();
    };
    ASSERT_THAT(Process(table), IsOk());
    table.space.on_change = nullptr;
    table.ExpectEqual(after);
    if (!killed) break;
    Table recovered(std::move(*killed), 0);
    const Table::Model found = recovered.All();
    ASSERT_TRUE(found == before || found == after);
    ASSERT_NO_FATAL_FAILURE(recovered.ExpectEqual(found));
    ++(found == before ? num_before : num_after);
  }
  EXPECT_GT(num_before, 100 / kSlowdown);
  EXPECT_GT(num_after, 100 / kSlowdown);
}

TEST_F(LargeBatchTest, LeavesNoTraceIfRefusedMemory) {
  for (std::uint64_t refused = 0;; ++refused) {
    SCOPED_TRACE(refused);
    Table table(4096);
    Fill(table);
    const std::uint64_t overflow = table.index.lines().num_overflow();
    table.space.refused = table.space.allocations + refused;
    table.space.refuses_on = true;  // a short record is written in two ways
    const Status status = Process(table);
    table.space.refused = ~std::uint64_t{0};
    if (status.ok()) {
      EXPECT_GT(refused, 80u);
      table.ExpectEqual(after);
      break;
    }
    EXPECT_EQ(status, Space::Refusal());
    table.ExpectEqual(before);
    EXPECT_EQ(table.index.lines().num_overflow(), overflow);
    EXPECT_THAT(Process(table), IsOk());
    table.ExpectEqual(after);
  }
}

}  // namespace
}  // namespace hako
