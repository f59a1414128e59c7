#include "hako/base/random_seed.h"

#include <random>

#include "hako/base/hash.h"

namespace hako {

std::uint64_t RandomSeed() {
  std::random_device device;
  const std::uint64_t seed = MixBits((std::uint64_t{device()} << 32) | device());
  return seed != 0 ? seed : 1;
}

}  // namespace hako
