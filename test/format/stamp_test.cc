#include "hako/format/stamp.h"

#include <bit>
#include <cstdint>

#include "gtest/gtest.h"

namespace hako::format {
namespace {

constexpr BlockState kStates[] = {BlockState::kUnborn, BlockState::kLive, BlockState::kRetired, BlockState::kYoungRetired,
                                  BlockState::kFree};

TEST(StampTest, RoundTripsStatesAndEpochs) {
  for (const BlockState state : kStates) {
    const std::uint64_t period = state == BlockState::kLive ? kLivePeriod : kOtherPeriod;
    for (std::uint64_t epoch = 0; epoch < 2 * period; ++epoch) {
      const Stamp stamp = Stamp::Of(state, epoch);
      ASSERT_TRUE(stamp.IsValid() && !stamp.IsAncient());
      ASSERT_EQ(stamp.state(), state);
      ASSERT_EQ(stamp.AgeAt(epoch), 0u);
      ASSERT_EQ(stamp.AgeAt(epoch + 5), 5u);
    }
  }
}

TEST(StampTest, ZeroAndFlippedBitsOfDeadBlocksAreInvalid) {
  EXPECT_FALSE(Stamp().IsValid());
  for (const BlockState state : kStates) {
    if (state == BlockState::kLive) continue;
    const Stamp stamp = Stamp::Of(state, 4711);
    for (int bit = 1; bit < 16; ++bit) EXPECT_FALSE(Stamp(static_cast<std::uint16_t>(stamp.bits() ^ 1u << bit)).IsValid());
  }
}

TEST(StampTest, AncientBelongsToEveryEpoch) {
  EXPECT_TRUE(Stamp::Ancient().IsValid() && Stamp::Ancient().IsLive());
  for (std::uint64_t s = 0; s < 3 * kLivePeriod; s += 100) EXPECT_TRUE(Stamp::Ancient().BelongsTo(s));
}

TEST(StampTest, ComparesEpochsAcrossTheWrap) {
  for (std::uint64_t s = kLivePeriod - 10; s < kLivePeriod + 10; ++s) {
    for (std::uint64_t ahead = 1; ahead < kEpochsAhead; ahead += 50) {
      EXPECT_FALSE(Stamp::Of(BlockState::kLive, s + ahead).BelongsTo(s));
      EXPECT_TRUE(Stamp::Of(BlockState::kRetired, s + ahead).BelongsTo(s));
    }
    for (std::uint64_t age = 0; age <= kLiveAgeMax && age <= s; age += 50) EXPECT_TRUE(Stamp::Of(BlockState::kLive, s - age).BelongsTo(s));
    for (std::uint64_t age = 0; age <= kOtherAgeMax; age += 50) EXPECT_FALSE(Stamp::Of(BlockState::kRetired, s - age).BelongsTo(s));
  }
}

// Every birth, retirement and synced state in a few epochs: given the durable epoch and the current
// one, Retire keeps the record exactly in those states that may still be recovered and that have
// it.
TEST(StampTest, RetiredRecordsBelongToTheirStates) {
  constexpr std::uint64_t kFirst = kOtherPeriod - 3;  // epochs wrap on the way
  for (std::uint64_t durable = kFirst; durable < kFirst + 6; ++durable) {
    for (std::uint64_t now = durable + 1; now < durable + 6; ++now) {
      for (std::uint64_t birth = kFirst - 3; birth <= now; ++birth) {
        const Stamp stamp = Retire(Stamp::Of(BlockState::kLive, birth), {durable, now});
        // A crash finds the durable epoch, the one that is being synchronized, or a later one.
        for (const std::uint64_t s : {durable, now - 1, now, now + 1}) {
          EXPECT_EQ(stamp.BelongsTo(s), birth <= s && s < now)
              << "born " << birth << ", durable " << durable << ", now " << now << ", s " << s;
        }
      }
      EXPECT_TRUE(Retire(Stamp::Ancient(), {durable, now}).BelongsTo(durable));
      EXPECT_FALSE(Retire(Stamp::Ancient(), {durable, now}).BelongsTo(now));
    }
  }
}

// A record that a killed process retired while its entry still names it is live again, and belongs
// to the durable state as before.
TEST(StampTest, RevivedRecordsBelongToTheDurableStateAsBefore) {
  for (std::uint64_t durable = 10; durable < 13; ++durable) {
    for (std::uint64_t death = durable + 1; death < durable + 4; ++death) {  // the epoch in which the process died
      for (std::uint64_t birth = 8; birth <= death; ++birth) {
        for (const std::uint64_t durable_then :
             {durable, std::uint64_t{9}}) {  // its last synchronization may have become durable after all
          if (durable_then != durable && death != durable + 1) continue;
          const Stamp left = Retire(Stamp::Of(BlockState::kLive, birth), {durable_then, death});
          const Stamp revived = Revive(left, {durable, death + 1});
          EXPECT_TRUE(revived.IsLive());
          EXPECT_EQ(revived.BelongsTo(durable), birth <= durable) << "born " << birth << ", died in " << death << ", durable " << durable;
          EXPECT_TRUE(revived.BelongsTo(death + 1));
        }
      }
    }
  }
}

// Retired late, in the name of a process that died, a record belongs to the durable state as before,
// and to no later one.
TEST(StampTest, RecordsRetiredLateBelongToTheDurableStateAsBefore) {
  for (std::uint64_t durable = 10; durable < 13; ++durable) {
    for (std::uint64_t death = durable + 1; death < durable + 4; ++death) {
      for (std::uint64_t birth = 8; birth <= death + 1; ++birth) {  // death + 1: revived by a recovery that was killed
        const Stamp late = RetireLate(Stamp::Of(BlockState::kLive, birth), {durable, death});
        EXPECT_EQ(late.BelongsTo(durable), birth <= durable) << "born " << birth << ", died in " << death << ", durable " << durable;
        EXPECT_FALSE(late.BelongsTo(death + 1));
        EXPECT_EQ(LeftoverOf(late, death + 1), birth <= durable ? Leftover::kWaiting : Leftover::kFree);
        EXPECT_FALSE(WasLiveBefore(late, death + 1));
        EXPECT_EQ(RetireLate(late, {durable, death + 1}).bits(), late.bits()) << "a second recovery changes nothing";
      }
      const Stamp ancient = RetireLate(Stamp::Ancient(), {durable, death});
      EXPECT_TRUE(ancient.BelongsTo(durable));
      EXPECT_FALSE(ancient.BelongsTo(death));
    }
  }
}

TEST(StampTest, RefreshMakesOnlyOldDurableStampsAncient) {
  const Epochs epochs{40'000, 40'001};
  EXPECT_TRUE(Refresh(Stamp::Of(BlockState::kLive, 40'001 - kRefreshAge - 1), epochs).IsAncient());
  EXPECT_FALSE(Refresh(Stamp::Of(BlockState::kLive, 40'001 - kRefreshAge), epochs).IsAncient());
  EXPECT_FALSE(Refresh(Stamp::Of(BlockState::kLive, 40'001), epochs).IsAncient());
  const Stamp retired = Stamp::Of(BlockState::kRetired, 39'000);
  EXPECT_EQ(Refresh(retired, epochs).bits(), retired.bits());
}

}  // namespace
}  // namespace hako::format
