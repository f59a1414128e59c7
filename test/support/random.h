// Randomness of the tests: every random choice follows from one seed, which is printed. It is always
// the same, so that a test does not depend on chance; the environment may give another
// (HAKO_TEST_SEED=123) or let one be drawn (HAKO_TEST_SEED=random).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>

namespace hako {

// xoshiro256**, seeded by splitmix64 (Blackman and Vigna). The same sequence on every platform,
// unlike the distributions of <random>.
class Random {
 public:
  explicit Random(std::uint64_t seed) {
    for (std::uint64_t& word : state_) word = Mix(seed += 0x9E3779B97F4A7C15);
  }

  std::uint64_t Next() {
    const std::uint64_t result = RotateLeft(state_[1] * 5, 7) * 9;
    const std::uint64_t shifted = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= shifted;
    state_[3] = RotateLeft(state_[3], 45);
    return result;
  }

  std::uint64_t Below(std::uint64_t bound) { return Next() % bound; }                                   // [0, bound)
  std::uint64_t Between(std::uint64_t low, std::uint64_t high) { return low + Below(high - low + 1); }  // [low, high]
  bool OneIn(std::uint64_t n) { return Below(n) == 0; }

  // A size that is mostly small and sometimes large: uniform in its number of bits.
  std::size_t SkewedSize(int max_bits) {
    return static_cast<std::size_t>(Below(std::uint64_t{1} << Below(static_cast<std::uint64_t>(max_bits) + 1)));
  }

  std::string Bytes(std::size_t size) {
    std::string bytes(size, '\0');
    for (char& byte : bytes) byte = static_cast<char>(Next() >> 56);
    return bytes;
  }

  static constexpr std::uint64_t Mix(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
    return x ^ (x >> 31);
  }

 private:
  static constexpr std::uint64_t RotateLeft(std::uint64_t x, int bits) { return (x << bits) | (x >> (64 - bits)); }
  std::uint64_t state_[4];
};

// The seed of this process; printed once.
inline std::uint64_t TestSeed() {
  static const std::uint64_t seed = [] {
    const char* given = std::getenv("HAKO_TEST_SEED");
    std::uint64_t seed = 20260101;
    if (given != nullptr) seed = given == std::string_view("random") ? std::random_device()() : std::strtoull(given, nullptr, 0);
    std::printf("HAKO_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
    std::fflush(stdout);
    return seed;
  }();
  return seed;
}

}  // namespace hako
