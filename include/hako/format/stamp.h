// The stamp of a record in a file: 16 bits that tell what becomes of its block in a crash.
//
//   bits 0..2  state    bits 3..14  epoch (0 = ancient, else 1..4095)    bit 15  parity
//
// An epoch runs from one hard synchronization to the next; s is the last durable epoch, named by the superblock. Epochs wrap: they are
// compared within half the range, and a live stamp is made ancient long before it could be taken for a new one.
//
//   state              written                                          after a crash of the machine
//   unborn             before its entry was published                   free
//   live b             born in epoch b                                  kept if b <= s
//   retired r          was part of a synced state, dropped in epoch r   kept if r > s
//   young-retired b    born in b, dropped in b + 1                      kept if b == s
//   free f             became free in f                                 free
//
// So exactly the records of epoch s come back. A block that is part of a synced state is not written before the next synchronization,
// but for these two bytes, which a sector write cannot tear.
#pragma once

#include <bit>
#include <cstdint>

namespace hako::format {

enum class BlockState : std::uint16_t { kUnwritten = 0, kUnborn = 1, kLive = 2, kRetired = 3, kYoungRetired = 4, kFree = 5 };

inline constexpr std::uint64_t kEpochPeriod = 4095;

class Stamp {
 public:
  constexpr Stamp() = default;
  explicit constexpr Stamp(std::uint16_t bits) : bits_(bits) {}
  static constexpr Stamp Of(BlockState state, std::uint64_t epoch) { return Pack(state, static_cast<unsigned>(epoch % kEpochPeriod) + 1); }
  static constexpr Stamp Ancient() { return Pack(BlockState::kLive, 0); }
  // The same epoch in another state.
  constexpr Stamp With(BlockState state) const { return Pack(state, field()); }

  constexpr std::uint16_t bits() const { return bits_; }
  constexpr BlockState state() const { return static_cast<BlockState>(bits_ & 7); }
  constexpr bool IsValid() const {
    return state() <= BlockState::kFree && state() != BlockState::kUnwritten && std::popcount(bits_) % 2 == 0;
  }
  constexpr bool IsAncient() const { return field() == 0; }
  constexpr bool IsOf(std::uint64_t epoch) const { return field() == epoch % kEpochPeriod + 1; }

  // Epochs between the stamp's and `epoch`; less than half the period if the stamp's is not later. REQUIRES: !IsAncient()
  constexpr std::uint64_t AgeAt(std::uint64_t epoch) const { return (epoch % kEpochPeriod + 1 + kEpochPeriod - field()) % kEpochPeriod; }
  constexpr bool IsNotAfter(std::uint64_t epoch) const { return IsAncient() || AgeAt(epoch) <= kEpochPeriod / 2; }

  // Whether the record is part of the state of durable epoch s.
  constexpr bool BelongsTo(std::uint64_t s) const {
    switch (state()) {
      case BlockState::kLive:
        return IsNotAfter(s);
      case BlockState::kRetired:
        return !IsNotAfter(s);
      case BlockState::kYoungRetired:
        return IsOf(s);
      default:
        return false;
    }
  }

 private:
  static constexpr Stamp Pack(BlockState state, unsigned field) {
    const auto bits = static_cast<std::uint16_t>(static_cast<unsigned>(state) | field << 3);
    return Stamp(static_cast<std::uint16_t>(bits | (std::popcount(bits) % 2) << 15));
  }
  constexpr unsigned field() const { return (bits_ >> 3) & 4095; }

  std::uint16_t bits_ = 0;
};

static_assert(Stamp::Of(BlockState::kLive, 7).BelongsTo(7) && !Stamp::Of(BlockState::kLive, 8).BelongsTo(7));
static_assert(Stamp::Of(BlockState::kRetired, 8).BelongsTo(7) && !Stamp::Of(BlockState::kRetired, 7).BelongsTo(7));
static_assert(Stamp::Of(BlockState::kLive, 4094).BelongsTo(4095) && !Stamp::Of(BlockState::kLive, 4095).BelongsTo(4094));
static_assert(Stamp::Ancient().BelongsTo(123) && Stamp::Of(BlockState::kYoungRetired, 5).BelongsTo(5));

}  // namespace hako::format
