// Operations on several keys: the order in which they change the table, which decides the state
// that a process killed halfway leaves, and how they lock several buckets while the table grows.
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
#include "hako/hash/record_arena.h"
#include "support/status_matchers.h"

namespace hako {
namespace {

enum class Step { kDrops, kPublishes };

// Records in memory, with a log of the steps that drop and publish records.
class LoggingArena : public hash::RecordArena {
 public:
  static StatusOr<std::unique_ptr<LoggingArena>> Create() {
    HAKO_ASSIGN_OR_RETURN(auto arena, storage::Arena::Create(1 << 24));
    HAKO_ASSIGN_OR_RETURN(auto pool, hash::FreeBlockPool::Create(3));
    return std::unique_ptr<LoggingArena>(new LoggingArena(std::move(arena), std::move(pool), 3, 1));
  }
  using RecordArena::Retire;
  void Retire(WriterState& writer, std::uint32_t handle, const format::Lengths& lengths) {
    steps.push_back(Step::kDrops);
    RecordArena::Retire(writer, handle, lengths);
  }
  void Commit(std::uint32_t) { steps.push_back(Step::kPublishes); }

  std::vector<Step> steps;

 private:
  using RecordArena::RecordArena;
};

constexpr std::uint64_t kLine = 1000;

class BucketMultiTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(arena, LoggingArena::Create());
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

  static constexpr std::uint64_t kMinLines = hash::BucketIndex<LoggingArena>::kMinLines;
  std::uint64_t num_filled = 0;
  std::unique_ptr<LoggingArena> arena;
  std::optional<hash::BucketIndex<LoggingArena>> index;
  LoggingArena::WriterState writer, other_writer;
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

TEST_F(BucketMultiTest, RekeyStoresTheNewRecordBeforeItRemovesTheOldOne) {
  Set("from", "the value");
  Set("to", "overwritten");
  arena->steps.clear();

  const std::array<std::string_view, 2> keys = {"from", "to"};
  ASSERT_THAT(index->ProcessMulti<Action>(writer, keys,
                                          [](std::size_t i, std::optional<std::string_view>) -> std::optional<Action> {
                                            return i == 0 ? Action::Remove() : Action::Set("the value");
                                          }),
              IsOk());

  EXPECT_THAT(arena->steps, testing::ElementsAre(Step::kDrops, Step::kPublishes, Step::kDrops));
}

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

}  // namespace
}  // namespace hako
