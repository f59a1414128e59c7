// Damage for the images of small files: a bit of each byte, each length, each sector.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "hako/base/status.h"
#include "hako/file/memory_file.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/status_matchers.h"

namespace hako {

using Image = std::vector<std::byte>;

// Offsets to damage: all, except that a sector of zeros, and a line of zeros in another sector, has
// one.
inline std::vector<std::uint64_t> InterestingOffsets(const Image& image, Random& random) {
  constexpr std::size_t kLine = 64, kSector = 512;
  const auto is_zero = [&](std::size_t begin, std::size_t size) {
    const auto run = std::span(image).subspan(begin, std::min(size, image.size() - begin));
    return std::ranges::all_of(run, [](std::byte byte) { return byte == std::byte{0}; });
  };
  std::vector<std::uint64_t> offsets;
  for (std::size_t begin = 0; begin < image.size();) {
    const std::size_t run = begin % kSector == 0 && is_zero(begin, kSector) ? kSector : kLine;
    const std::size_t end = std::min(begin + run, image.size());
    if (run == kSector || is_zero(begin, kLine)) {
      offsets.push_back(random.Between(begin, end - 1));
    } else {
      for (std::size_t at = begin; at < end; ++at) offsets.push_back(at);
    }
    begin = end;
  }
  return offsets;
}

inline bool IsClearRefusal(const Status& status) {
  return (absl::IsDataLoss(status) || absl::IsInvalidArgument(status) || absl::IsUnimplemented(status)) && !status.message().empty();
}

enum class Damage {
  kRandom,     // bytes that were never written
  kLostWrite,  // bytes that stood there before
};

// Calls check(image, what, kind of damage) for damaged copies of `image`.
using Check = std::function<void(Image, const std::string&, Damage)>;

inline void FlipBits(const Image& image, bool all_bits, const Check& check, std::uint64_t one_byte_in = 1) {
  Random random(TestSeed());
  for (const std::uint64_t offset : InterestingOffsets(image, random)) {
    if (!random.OneIn(one_byte_in * kSlowdown)) continue;
    for (unsigned bit = all_bits ? 0 : static_cast<unsigned>(random.Below(8)), last = all_bits ? 7 : bit; bit <= last; ++bit) {
      Image damaged = image;
      damaged[offset] ^= std::byte{1} << bit;
      check(std::move(damaged), "bit " + std::to_string(bit) + " of byte " + std::to_string(offset), Damage::kRandom);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

inline void Truncate(const Image& image, const Check& check) {
  Random random(TestSeed());
  for (const std::uint64_t length : InterestingOffsets(image, random)) {
    if (length == 0 || !random.OneIn(kSlowdown)) continue;  // an empty file is a new one
    check(Image(image.begin(), image.begin() + static_cast<std::ptrdiff_t>(length)), "cut to " + std::to_string(length) + " bytes",
          Damage::kRandom);
    if (testing::Test::HasFatalFailure()) return;
  }
}

// Sectors zeroed, filled with ones, swapped with another, and replaced by their content in
// `earlier`.
inline void DamageSectors(const Image& image, const Image& earlier, const Check& check) {
  constexpr std::size_t kSector = 512;
  Random random(TestSeed());
  for (std::size_t begin = 0; begin + kSector <= image.size(); begin += kSector) {
    if (!random.OneIn(kSlowdown)) continue;
    const std::string where = " sector " + std::to_string(begin / kSector);
    const auto damaged = [&](auto damage) {
      Image copy = image;
      damage(copy, std::span(copy).subspan(begin, kSector));
      return copy;
    };
    check(damaged([](Image&, std::span<std::byte> sector) { std::ranges::fill(sector, std::byte{0}); }), "zeroed" + where, Damage::kRandom);
    check(damaged([](Image&, std::span<std::byte> sector) { std::ranges::fill(sector, std::byte{255}); }), "filled" + where,
          Damage::kRandom);
    const std::size_t other = random.Below(image.size() / kSector) * kSector;
    check(damaged(
              [&](Image& copy, std::span<std::byte> sector) { std::ranges::swap_ranges(sector, std::span(copy).subspan(other, kSector)); }),
          "swapped" + where + " with " + std::to_string(other / kSector), Damage::kRandom);
    if (begin + kSector <= earlier.size()) {
      check(damaged([&](Image&, std::span<std::byte> sector) {
              std::ranges::copy(std::span(earlier).subspan(begin, kSector), sector.begin());
            }),
            "put back" + where, Damage::kLostWrite);
    }
    if (testing::Test::HasFatalFailure()) return;
  }
}

inline Image ImageOf(const MemoryFile& file) {
  Image image(file.Size());
  EXPECT_THAT(file.ReadAt(0, image), IsOk());
  return image;
}

}  // namespace hako
