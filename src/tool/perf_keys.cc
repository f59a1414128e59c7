#include "tool/perf_keys.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace hako::tool {
namespace {

constexpr std::size_t kPatternSize = 2039;  // a prime, so that the slices of values do not repeat soon

}  // namespace

std::uint32_t SeedOf(const PerfOptions& options, std::int64_t seed) {
  return options.random_seed < 0 ? std::random_device()() : static_cast<std::uint32_t>(seed);
}

std::string_view NumberKey::Set(std::int64_t number, bool absent) {
  char digits[11];
  const auto size = static_cast<std::size_t>(std::to_chars(digits, digits + sizeof(digits), number).ptr - digits);
  const std::size_t padding = size < 8 ? 8 - size : 0;
  std::fill_n(text_.data(), padding, '0');
  std::copy_n(digits, size, text_.data() + padding);
  size_ = static_cast<std::uint8_t>(padding + size);
  if (absent) text_[size_ - 1U] = static_cast<char>('a' + number % 10);
  return view();
}

NumberStream::NumberStream(const PerfOptions& options, int thread)
    : is_random_(options.random_key),
      num_threads_(options.num_threads),
      thread_(thread),
      generator_(SeedOf(options, options.random_seed + thread)),
      distribution_(0, static_cast<std::int32_t>(options.num_iterations * options.num_threads - 1)) {}

namespace {

// The integral of t^-s from 1 to x, and its inverse.
double Integral(double x) { return (std::pow(x, 1 - Zipf::kExponent) - 1) / (1 - Zipf::kExponent); }
double InverseIntegral(double y) { return std::pow(1 + y * (1 - Zipf::kExponent), 1 / (1 - Zipf::kExponent)); }
double Density(double x) { return std::pow(x, -Zipf::kExponent); }

}  // namespace

Zipf::Zipf(std::uint64_t n)
    : n_(n),
      begin_(Integral(1.5) - 1),
      end_(Integral(static_cast<double>(n) + 0.5)),
      shortcut_(2 - InverseIntegral(Integral(2.5) - Density(2))) {}

std::uint64_t Zipf::operator()(std::mt19937_64& generator) const {
  while (true) {
    const double u = std::uniform_real_distribution<double>(begin_, end_)(generator);
    const double x = InverseIntegral(u);
    const double k = std::clamp(std::round(x), 1.0, static_cast<double>(n_));
    if (k - x <= shortcut_ || u >= Integral(k + 0.5) - Density(k)) return static_cast<std::uint64_t>(k) - 1;
  }
}

PreparedKeys::PreparedKeys(const PerfOptions& options, std::string_view order, std::int64_t miss_percent)
    : num_iterations_(options.num_iterations) {
  const auto total = static_cast<std::size_t>(options.num_iterations * options.num_threads);
  std::vector<std::int32_t> numbers;  // numbers in the order of the phase Setting
  numbers.reserve(total);
  for (int thread = 0; thread < options.num_threads; ++thread) {
    NumberStream stream(options, thread);
    for (std::int64_t i = 0; i < num_iterations_; ++i) numbers.push_back(static_cast<std::int32_t>(stream.Next(i)));
  }
  // Independent of the generator of the phase Setting.
  std::mt19937_64 generator(SeedOf(options, options.random_seed) ^ 0x9e3779b97f4a7c15);
  if (order != "same") std::shuffle(numbers.begin(), numbers.end(), generator);
  const Zipf zipf(total);
  std::uniform_int_distribution<std::size_t> uniform(0, total - 1);
  std::uniform_int_distribution<int> percent(0, 99);
  keys_.resize(total);
  absent_.resize(total);
  for (std::size_t i = 0; i < total; ++i) {
    const std::size_t which = order == "uniform" ? uniform(generator) : order == "zipf" ? zipf(generator) : i;
    absent_[i] = miss_percent > 0 && percent(generator) < miss_percent;
    keys_[i].Set(numbers[which], absent_[i]);
  }
}

ValueStream::ValueStream(const PerfOptions& options, int thread)
    : is_random_(options.random_value),
      size_(static_cast<std::size_t>(options.value_size)),
      generator_(SeedOf(options, options.random_seed * 2 + thread + 1)),
      distribution_(0, static_cast<std::int32_t>(options.value_size)),
      buffer_(size_ + kPatternSize, '\0') {
  for (std::size_t i = 0; i < buffer_.size(); ++i)
    buffer_[i] = static_cast<char>('a' + (static_cast<std::size_t>(thread) + i) % (i % 2 == 1 ? 26 : 9));
}

std::string_view ValueStream::Next(std::int64_t iteration) {
  const auto i = static_cast<std::uint32_t>(iteration);
  const std::size_t offset = i * (i + 1) % kPatternSize;
  return std::string_view(buffer_).substr(offset, is_random_ ? static_cast<std::size_t>(distribution_(generator_)) : size_);
}

}  // namespace hako::tool
