// The truth table of the stamps: each state, at each distance of its epoch from the one that it is compared with.
#include <cstdint>
#include <string>

#include "gtest/gtest.h"
#include "hako/format/stamp.h"

namespace hako::format {
namespace {

using enum BlockState;
constexpr BlockState kStates[] = {kUnborn, kLive, kRetired, kYoungRetired, kFree};
// Epochs in which both periods wrap, and some in which none does.
constexpr std::uint64_t kNear[] = {100'000, 8 * kLivePeriod - 1, 8 * kLivePeriod, 33 * kOtherPeriod, 33 * kOtherPeriod + 1};

// Calls visit(stamp, age) for epochs before `epoch` (age > 0), equal, and after it, as far as they can be told apart.
template <class F>
void ForEachAge(BlockState state, std::uint64_t epoch, F&& visit) {
  const auto oldest = static_cast<std::int64_t>(state == kLive ? kLiveAgeMax : kOtherAgeMax);
  constexpr auto kNewest = 1 - static_cast<std::int64_t>(kEpochsAhead);
  for (const std::int64_t age : {oldest, oldest - 1, std::int64_t{1000}, std::int64_t{2}, std::int64_t{1}, std::int64_t{0},
                                 std::int64_t{-1}, std::int64_t{-2}, std::int64_t{-500}, kNewest}) {
    const Stamp stamp = Stamp::Of(state, epoch - static_cast<std::uint64_t>(age));
    SCOPED_TRACE("state " + std::to_string(static_cast<int>(state)) + ", epoch " + std::to_string(epoch) + ", age " + std::to_string(age));
    visit(stamp, age);
  }
}

TEST(StampTableTest, BelongsToTheSyncedState) {
  for (const std::uint64_t s : kNear) {
    for (const BlockState state : kStates) {
      ForEachAge(state, s, [&](Stamp stamp, std::int64_t age) {
        const bool expected = state == kLive           ? age >= 0   // born in s or before
                              : state == kRetired      ? age < 0    // retired after s
                              : state == kYoungRetired ? age == -1  // retired in the epoch after s
                                                       : false;
        EXPECT_EQ(stamp.BelongsTo(s), expected);
        EXPECT_EQ(stamp.IsNotAfter(s), age >= 0);
      });
    }
    EXPECT_TRUE(Stamp::Ancient().BelongsTo(s));
  }
}

// If its bytes hold then: a torn record of a lost epoch that is written again.
TEST(StampTableTest, BelongsToAStateThatFollows) {
  for (const std::uint64_t s : kNear) {
    for (const BlockState state : kStates) {
      ForEachAge(state, s, [&](Stamp stamp, std::int64_t age) {
        for (const std::uint64_t ahead : {1, 2, 3, 499, 500, 1022, 1023}) {
          bool expected = false;
          if (!stamp.BelongsTo(s)) {
            for (std::uint64_t later = s + 1; later <= s + ahead; ++later) {
              const bool is_of_it = state == kLive || state == kYoungRetired;  // a retired record was whole in s
              expected = expected || (is_of_it && age < 0 && -age <= static_cast<std::int64_t>(ahead) && stamp.BelongsTo(later));
            }
          }
          EXPECT_EQ(stamp.BelongsLater(s, s + ahead), expected) << ahead;
        }
      });
    }
    EXPECT_FALSE(Stamp::Ancient().BelongsLater(s, s + 2));
  }
}

TEST(StampTableTest, LeftoverOfADeadProcess) {
  for (const std::uint64_t first : kNear) {
    for (const BlockState state : kStates) {
      ForEachAge(state, first - 1, [&](Stamp stamp, std::int64_t age) {  // the last epoch of the dead process
        const bool is_retired = state == kRetired || state == kYoungRetired;
        const Leftover expected = state == kUnborn || state == kFree ? Leftover::kFree
                                  : is_retired && age >= 0           ? Leftover::kWaiting
                                                                     : Leftover::kNone;
        EXPECT_EQ(LeftoverOf(stamp, first), expected);
        EXPECT_EQ(WasLiveBefore(stamp, first), state == kLive || age < 0);
      });
    }
    EXPECT_EQ(LeftoverOf(Stamp::Ancient(), first), Leftover::kNone);
    EXPECT_TRUE(WasLiveBefore(Stamp::Ancient(), first));
  }
}

TEST(StampTableTest, RetiresByBirth) {
  for (const std::uint64_t now : kNear) {
    for (const std::uint64_t behind : {1u, 2u, 5u}) {
      const Epochs epochs{now - behind, now};
      const auto expected = [now](BlockState state) { return Stamp::Of(state, now).bits(); };
      EXPECT_EQ(Retire(Stamp::Ancient(), epochs).bits(), expected(kRetired));
      EXPECT_EQ(Retire(Stamp::Of(kLive, now), epochs).bits(), expected(kFree)) << "no state has it";
      for (std::uint64_t birth = now - 8; birth < now; ++birth) {
        EXPECT_EQ(Retire(Stamp::Of(kLive, birth), epochs).bits(), expected(birth <= epochs.durable ? kRetired : kYoungRetired))
            << now - birth << " epochs old, durable " << behind;
      }
    }
  }
}

TEST(StampTableTest, RevivesByTheDurableState) {
  for (const std::uint64_t durable : kNear) {
    const Epochs epochs{durable, durable + 3};
    for (const BlockState state : kStates) {
      ForEachAge(state, durable, [&](Stamp stamp, std::int64_t) {
        const Stamp revived = Revive(stamp, epochs);
        if (state == kLive) {
          EXPECT_EQ(revived.bits(), stamp.bits());
        } else if (stamp.BelongsTo(durable)) {
          EXPECT_TRUE(revived.IsAncient());
        } else {
          EXPECT_EQ(revived.bits(), Stamp::Of(kLive, epochs.now).bits());
        }
      });
    }
  }
}

TEST(StampTableTest, RefreshesOldLiveStampsAlone) {
  for (const std::uint64_t durable : kNear) {
    const Epochs epochs{durable, durable + 1};
    for (const BlockState state : kStates) {
      ForEachAge(state, durable, [&](Stamp stamp, std::int64_t age) {
        const bool is_old = state == kLive && age + 1 > static_cast<std::int64_t>(kRefreshAge);
        EXPECT_EQ(Refresh(stamp, epochs).bits(), is_old ? Stamp::Ancient().bits() : stamp.bits());
      });
    }
  }
}

// Whatever a damaged block holds, each word is one state, or invalid.
TEST(StampTableTest, DecodesEveryWord) {
  std::uint32_t counts[6] = {}, invalid = 0;
  for (std::uint32_t word = 0; word < 1 << 16; ++word) {
    const Stamp stamp(static_cast<std::uint16_t>(word));
    ++counts[static_cast<int>(stamp.state())];
    invalid += stamp.IsValid() ? 0u : 1u;
    EXPECT_EQ(stamp.IsLive(), stamp.state() == kLive);
  }
  EXPECT_EQ(counts[static_cast<int>(kLive)], 1u << 15);
  for (const BlockState state : {kUnborn, kRetired, kYoungRetired, kFree}) EXPECT_EQ(counts[static_cast<int>(state)], 2 * kOtherPeriod);
  EXPECT_EQ(invalid, (1u << 15) - 4 * kOtherPeriod) << "of each pair of words that differ in parity, one is valid";
}

}  // namespace
}  // namespace hako::format
