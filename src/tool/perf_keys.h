// The keys and values of "perf": as in tkrzw_dbm_perf, made during the phase; and those of the
// honest modes, made before the timing starts.
#pragma once

#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tool/perf.h"

namespace hako::tool {

// A number in decimal, of at least 8 digits. With `absent` the last one is a letter, so that no
// record has the key.
class NumberKey {
 public:
  std::string_view Set(std::int64_t number, bool absent = false);
  std::string_view view() const { return {text_.data(), size_}; }

 private:
  std::array<char, 11> text_;
  std::uint8_t size_ = 0;
};

// The numbers of the keys of one thread in one phase. Every phase starts the same stream again.
class NumberStream {
 public:
  NumberStream(const PerfOptions& options, int thread);
  std::int64_t Next(std::int64_t iteration) { return is_random_ ? distribution_(generator_) : iteration * num_threads_ + thread_; }

 private:
  bool is_random_;
  std::int64_t num_threads_;
  int thread_;
  std::mt19937 generator_;
  std::uniform_int_distribution<std::int32_t> distribution_;
};

// Draws ranks 0 .. n-1, rank k with a probability proportional to (k + 1)^-kExponent:
// rejection-inversion, W. Hörmann and G. Derflinger, 1996.
class Zipf {
 public:
  static constexpr double kExponent = 0.99;
  explicit Zipf(std::uint64_t n);
  std::uint64_t operator()(std::mt19937_64& generator) const;

 private:
  std::uint64_t n_;
  double begin_, end_, shortcut_;
};

// The prepared keys of all threads for one phase: the keys of the phase Setting in `order`, with
// `miss_percent` of them replaced by absent ones. Takes 16 bytes for each key.
class PreparedKeys {
 public:
  PreparedKeys(const PerfOptions& options, std::string_view order, std::int64_t miss_percent);

  std::string_view Key(int thread, std::int64_t iteration) const { return keys_[Index(thread, iteration)].view(); }
  bool IsAbsent(int thread, std::int64_t iteration) const { return absent_[Index(thread, iteration)]; }

 private:
  std::size_t Index(int thread, std::int64_t iteration) const { return static_cast<std::size_t>(thread * num_iterations_ + iteration); }
  std::int64_t num_iterations_;
  std::vector<NumberKey> keys_;
  std::vector<bool> absent_;
};

// The values that one thread sets: slices of one buffer of letters.
class ValueStream {
 public:
  ValueStream(const PerfOptions& options, int thread);
  std::string_view Next(std::int64_t iteration);

 private:
  bool is_random_;
  std::size_t size_;
  std::mt19937 generator_;
  std::uniform_int_distribution<std::int32_t> distribution_;
  std::string buffer_;
};

// Returns the seed of a generator of the run: `seed`, or entropy if the user chose that.
std::uint32_t SeedOf(const PerfOptions& options, std::int64_t seed);

}  // namespace hako::tool
