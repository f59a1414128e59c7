// Unpredictable seeds: for hash tables (against keys chosen to collide) and for record checks.
#pragma once

#include <cstdint>
#include <random>

#include "hako/base/hash.h"

namespace hako {

// Returns a random number that is never 0.
inline std::uint64_t RandomSeed() {
  std::random_device device;
  const std::uint64_t seed = MixBits((std::uint64_t{device()} << 32) | device());
  return seed != 0 ? seed : 1;
}

}  // namespace hako
