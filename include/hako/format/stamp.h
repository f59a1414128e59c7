// The stamp of a record in a file: 16 bits that decide whether the record's block is kept or free
// after a crash.
//
//   live          bit 0 = 1    bits 1..15  epoch of birth (0 = ancient, else epoch % 32767 + 1)
//   other states  bit 0 = 0    bits 1..2   state
//                              bits 3..14  epoch of the change (epoch % 4095 + 1)
//                              bit 15      parity
//
// An epoch lasts from one hard synchronization to the next. `durable` is the last epoch whose end
// is on the device, as the superblock says; `now` is the current one. After a crash of the machine
// the superblock names s: the durable epoch, or the one that was being synchronized. The death of a
// process also ends its epoch, but that epoch never becomes durable.
//
//   state              written when                                     after a machine crash
//   unborn             the record is written, before an entry names it  free
//   live b             an entry names it; b is the epoch of its birth   kept if b <= s
//   free f             it may be written again                          free
// When its entry stops naming the record, in epoch now:
//   free now           it was born in this epoch: no state has it       free
//   retired now        it was born in the durable epoch or before       kept if s < now
//   young-retired now  it was born in between: only the epoch that is   kept if s == now - 1
//                      being synchronized has it, if that gets durable
//
// So a crash restores exactly the records of epoch s. Until the next synchronization a block of a
// synced state is not written, except for the two bytes of the stamp, which a sector write cannot
// tear.
//
// Epochs wrap. A stamp counts as later than s if it is less than kEpochsAhead after s, and
// otherwise as not later. Therefore a process synchronizes before `now` is kEpochsAhead after s,
// and makes stamps ancient or replaces them long before their epoch, modulo the period, would seem
// to lie after s.
#pragma once

#include <bit>
#include <cstdint>

#include "hako/base/assert.h"
#include "hako/base/language.h"

namespace hako::format {

enum class BlockState : std::uint8_t { kUnwritten, kUnborn, kLive, kRetired, kYoungRetired, kFree };

// The epochs that a transition depends on.
struct Epochs {
  std::uint64_t durable = 0;
  std::uint64_t now = 0;
};

// The period of the epochs in live stamps, and in stamps of the other states.
inline constexpr std::uint64_t kLivePeriod = 32767;
inline constexpr std::uint64_t kOtherPeriod = 4095;
// A stamp at least this far after s counts as not later.
inline constexpr std::uint64_t kEpochsAhead = 1024;
// In epochs: the age before which live stamps must be made ancient, and other stamps replaced.
inline constexpr std::uint64_t kLiveAgeMax = kLivePeriod - 2 * kEpochsAhead;
inline constexpr std::uint64_t kOtherAgeMax = kOtherPeriod - 2 * kEpochsAhead;

class Stamp {
 public:
  static constexpr std::uint16_t kLiveMask = 1, kLiveBits = 1;  // bits & kLiveMask == kLiveBits: live

  constexpr Stamp() = default;
  explicit constexpr Stamp(std::uint16_t bits) : bits_(bits) {}
  // REQUIRES: state != kUnwritten
  static constexpr Stamp Of(BlockState state, std::uint64_t epoch) {
    HAKO_DCHECK(state != BlockState::kUnwritten);
    if (state == BlockState::kLive) return Stamp(static_cast<std::uint16_t>((epoch % kLivePeriod + 1) << 1 | kLiveBits));
    return Pack(static_cast<unsigned>(epoch % kOtherPeriod + 1) << 3 | Code(state) << 1);
  }
  static constexpr Stamp Ancient() { return Stamp(kLiveBits); }

  constexpr std::uint16_t bits() const { return bits_; }
  constexpr bool IsLive() const { return (bits_ & kLiveMask) == kLiveBits; }
  constexpr BlockState state() const {
    if (IsLive()) return BlockState::kLive;
    if (field() == 0) return BlockState::kUnwritten;
    constexpr BlockState kStates[] = {BlockState::kUnborn, BlockState::kRetired, BlockState::kYoungRetired, BlockState::kFree};
    return kStates[bits_ >> 1 & 3];
  }
  constexpr bool IsValid() const { return IsLive() || (std::popcount(bits_) % 2 == 0 && state() != BlockState::kUnwritten); }
  constexpr bool IsAncient() const { return IsLive() && field() == 0; }
  // Returns the number of epochs from the stamp's to `epoch`, modulo the period. REQUIRES:
  // !IsAncient()
  constexpr std::uint64_t AgeAt(std::uint64_t epoch) const {
    HAKO_DCHECK(!IsAncient());
    return (epoch % period() + 1 + period() - field()) % period();
  }
  constexpr bool IsNotAfter(std::uint64_t epoch) const { return IsAncient() || AgeAt(epoch) <= period() - kEpochsAhead; }

  // Whether the record is part of the state of epoch s.
  constexpr bool BelongsTo(std::uint64_t s) const {
    switch (state()) {
      case BlockState::kLive:
        return IsNotAfter(s);
      case BlockState::kRetired:
        return !IsNotAfter(s);
      case BlockState::kYoungRetired:
        return AgeAt(s + 1) == 0;
      default:
        return false;
    }
  }
  // Whether the record is part of the state of one of the epochs s + 1 to `last`, but not of epoch
  // s.
  // REQUIRES: last - s < kEpochsAhead
  constexpr bool BelongsLater(std::uint64_t s, std::uint64_t last) const {
    HAKO_DCHECK(last - s < kEpochsAhead);
    const bool may_belong = (IsLive() && !IsAncient()) || state() == BlockState::kYoungRetired;
    return may_belong && !BelongsTo(s) && (last % period() + 1 + period() - field()) % period() < last - s;
  }

 private:
  static constexpr unsigned Code(BlockState state) {
    switch (state) {
      case BlockState::kRetired:
        return 1;
      case BlockState::kYoungRetired:
        return 2;
      case BlockState::kFree:
        return 3;
      default:
        return 0;
    }
  }
  static constexpr Stamp Pack(unsigned bits) {
    return Stamp(static_cast<std::uint16_t>(bits | static_cast<unsigned>(std::popcount(bits) % 2) << 15));
  }
  constexpr std::uint64_t period() const { return IsLive() ? kLivePeriod : kOtherPeriod; }
  constexpr unsigned field() const { return IsLive() ? bits_ >> 1 : bits_ >> 3 & 0xfff; }

  std::uint16_t bits_ = 0;
};

// The transitions: each returns the stamp that replaces `stamp`.

// For a live record when its entry stops naming it. If the result is free, the block may be reused
// at once; otherwise it waits until the end of the epoch is durable.
constexpr Stamp Retire(Stamp stamp, Epochs epochs) {
  if (stamp.bits() == Stamp::Of(BlockState::kLive, epochs.now).bits()) return Stamp::Of(BlockState::kFree, epochs.now);
  return Stamp::Of(stamp.IsNotAfter(epochs.durable) ? BlockState::kRetired : BlockState::kYoungRetired, epochs.now);
}

// For a block that an entry names, whatever stamp a dead process has left.
constexpr Stamp Revive(Stamp stamp, Epochs epochs) {
  if (stamp.IsLive()) return stamp;
  return stamp.BelongsTo(epochs.durable) ? Stamp::Ancient() : Stamp::Of(BlockState::kLive, epochs.now);
}

// For a record that a dead process left live, when its entry stops naming it before the harvest
// begins. `epochs.now` is the last epoch of the dead process.
constexpr Stamp RetireLate(Stamp stamp, Epochs epochs) {
  if (!stamp.IsLive()) return stamp;
  return Stamp::Of(stamp.BelongsTo(epochs.durable) ? BlockState::kRetired : BlockState::kFree, epochs.now);
}

// Live stamps older than this many epochs are made ancient, long before epochs wrap.
inline constexpr std::uint64_t kRefreshAge = 1024;
constexpr Stamp Refresh(Stamp stamp, Epochs epochs) {
  const bool is_old = stamp.IsLive() && stamp.IsNotAfter(epochs.durable) && !stamp.IsAncient() && stamp.AgeAt(epochs.now) > kRefreshAge;
  return is_old ? Stamp::Ancient() : stamp;
}

// What may be done with a block of a dead process that no entry names. `first_epoch` is the first
// epoch of the next process; it is later than all epochs of the dead one.
enum class Leftover {
  kNone,     // nothing: the block is in use, or this process retired it
  kFree,     // it may be written at once
  kWaiting,  // it may be written once the next synchronization is durable
};
constexpr Leftover LeftoverOf(Stamp stamp, std::uint64_t first_epoch) {
  switch (stamp.state()) {
    case BlockState::kUnborn:
    case BlockState::kFree:
      return Leftover::kFree;
    case BlockState::kRetired:
    case BlockState::kYoungRetired:
      return stamp.IsNotAfter(first_epoch - 1) ? Leftover::kWaiting : Leftover::kNone;
    default:
      return Leftover::kNone;
  }
}

// Whether the block of this stamp held a live record when the process with this first epoch began.
// REQUIRES: the block was not written since (unchecked: its stamp does not tell; see HeapHarvest::IsFrozen)
constexpr bool WasLiveBefore(Stamp stamp, std::uint64_t first_epoch) { return stamp.IsLive() || !stamp.IsNotAfter(first_epoch - 1); }

}  // namespace hako::format
