// Unpredictable seeds: for hash tables (against keys chosen to collide) and for record checks.
#pragma once

#include <cstdint>

#include "hako/base/language.h"

namespace hako {

// Returns a random number that is never 0.
std::uint64_t RandomSeed();

}  // namespace hako
