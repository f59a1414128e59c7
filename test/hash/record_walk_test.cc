// A walk over the blocks of a limited arena finds every record, whatever was stored, evicted and emptied before.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hako/dbm/dbm.h"
#include "hako/hash/bucket_index.h"
#include "hako/hash/memory/record_arena.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"

namespace hako::hash {
namespace {

constexpr std::uint64_t kCapacity = 4 << 20;

class RecordWalkTest : public testing::Test {
 protected:
  void SetUp() override {
    auto made = RecordArena::Create(3, 7, Capacity{kCapacity, 0});
    ASSERT_THAT(made, IsOk());
    arena_ = *std::move(made);
    index_ = std::make_unique<BucketIndex<RecordArena>>(*arena_);
    ASSERT_THAT(index_->Create(0), IsOk());
  }
  RecordArena::WriterState& Mine() { return *writers_.Mine(); }
  void Set(std::string_view key, std::string_view value) {
    const auto visit = [value](std::optional<std::string_view>) { return Action::Set(value); };
    ASSERT_THAT(index_->ProcessLogged<Action>(Mine(), arena_->KeyHash(key), key, visit), IsOk());
  }
  void Remove(std::string_view key) {
    const auto visit = [](std::optional<std::string_view>) { return Action::Remove(); };
    ASSERT_THAT(index_->ProcessLogged<Action>(Mine(), arena_->KeyHash(key), key, visit), IsOk());
  }
  // Updates with other sizes than the last ones, whose blocks are then divided and joined.
  void Churn(Random& random) {
    const unsigned bits = static_cast<unsigned>(random.Between(2, 17));
    for (unsigned i = 0; i < (bits > 12 ? 200u : 3000u); ++i) {
      const std::string key = "key" + std::to_string(random.Below(20'000));
      random.OneIn(4) ? Remove(key) : Set(key, random.Bytes(random.Below(std::uint64_t{1} << bits)));
    }
  }
  // The handles that the index has, in order.
  std::vector<std::uint32_t> Named() {
    std::vector<std::uint32_t> handles;
    EXPECT_THAT(index_->ForEachLocked(Mine(), 0, index_->num_lines(),
                                      [&](std::uint32_t handle, auto&&) {
                                        handles.push_back(handle);
                                        return absl::OkStatus();
                                      }),
                IsOk());
    std::ranges::sort(handles);
    return handles;
  }
  // Those that a walk over a part finds.
  std::vector<std::uint32_t> Walked(Part part = {0, kCapacity}) {
    RecordArena::WriterState& mine = Mine();
    arena_->ReturnChunk(mine);
    std::vector<std::uint32_t> handles;
    mine.Enter();
    const sync::LeaveAtEnd leaves(mine);
    arena_->limit()->Survey(mine, part, [&](std::uint32_t handle, bool) { handles.push_back(handle); });
    return handles;
  }

  std::unique_ptr<RecordArena> arena_;
  std::unique_ptr<BucketIndex<RecordArena>> index_;
  BucketIndex<RecordArena>::Writers writers_;
};

TEST_F(RecordWalkTest, FindsEveryRecordInOrder) {
  Random random(1);
  for (unsigned round = 0; round < (kSlowdown > 1 ? 20 : 60); ++round) {
    Churn(random);
    ASSERT_EQ(Walked(), Named()) << round;
  }
  EXPECT_GT(Mine().evictions.load(), 10'000u / (kSlowdown > 1 ? 4 : 1));
}

TEST_F(RecordWalkTest, FindsRecordsWithLongKeys) {
  Random random(2);
  for (const std::uint64_t size : {127, 128, 512, 513, 4096, 70'000, 300'000}) {
    for (unsigned i = 0; i < 5; ++i) Set(random.Bytes(size), random.Bytes(random.Below(200)));
    ASSERT_EQ(Walked(), Named()) << size;
  }
}

TEST_F(RecordWalkTest, FindsThoseThatBeginInAPart) {
  Random random(3);
  for (unsigned round = 0; round < (kSlowdown > 1 ? 10 : 30); ++round) Churn(random);
  const std::vector<std::uint32_t> all = Named();
  for (unsigned i = 0; i < (kSlowdown > 1 ? 50 : 200); ++i) {
    Part part{random.Below(kCapacity), random.Below(kCapacity)};
    if (part.begin > part.end) std::swap(part.begin, part.end);
    std::vector<std::uint32_t> within;
    std::ranges::copy_if(all, std::back_inserter(within), [&](std::uint32_t handle) {
      return part.begin <= std::uint64_t{handle} << 3 && std::uint64_t{handle} << 3 < part.end;
    });
    ASSERT_EQ(Walked(part), within) << part.begin << " to " << part.end;
  }
}

TEST_F(RecordWalkTest, IsNotMisledByValuesThatLookLikeRecords) {
  std::string records;
  for (unsigned i = 0; records.size() < 50'000; ++i) {
    const std::string key = "key" + std::to_string(i % 900);
    std::string record{static_cast<char>(key.size()), static_cast<char>(30)};
    record += key + std::string(30, 'v');
    record.resize((record.size() + 7) / 8 * 8);
    records += record;
  }
  Random random(4);
  for (unsigned i = 0; i < 900; ++i) Set("key" + std::to_string(i), std::string(30, 'v'));
  for (unsigned i = 0; i < 400; ++i) {
    const std::string key = "copy" + std::to_string(random.Below(60));
    random.OneIn(3) ? Remove(key) : Set(key, std::string_view(records).substr(random.Below(8) * 8, random.Below(40'000)));
    if (i % 10 == 0) {
      ASSERT_EQ(Walked(), Named());
    }
  }
}

}  // namespace
}  // namespace hako::hash
