// The parts of perf that are functions: the histogram, Zipf, the order of prepared keys.
#include "tool/perf_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "tool/latency.h"

namespace hako::tool {
namespace {

TEST(LatencyHistogram, PercentilesAreWithinAThirtySecond) {
  LatencyHistogram histogram, other;
  EXPECT_EQ(histogram.Percentile(0.5), 0u);
  for (std::uint64_t i = 1; i <= 100'000; ++i) (i % 2 == 0 ? histogram : other).Add(i * 10);
  histogram.Merge(other);
  EXPECT_EQ(histogram.total(), 100'000u);
  EXPECT_EQ(histogram.max(), 1'000'000u);
  for (const double share : {0.01, 0.5, 0.99, 0.999}) {
    EXPECT_GE(static_cast<double>(histogram.Percentile(share)), share * 1e6);
    EXPECT_LE(static_cast<double>(histogram.Percentile(share)), share * 1e6 * (1 + 1.0 / 32) + 10);
  }
  EXPECT_EQ(histogram.Percentile(1), 1'000'000u);
}

TEST(LatencyHistogram, CountsAnyNumber) {
  for (const std::uint64_t n : {std::uint64_t{0}, std::uint64_t{63}, std::uint64_t{64}, std::uint64_t{1} << 40, ~std::uint64_t{0}}) {
    LatencyHistogram histogram;
    histogram.Add(n);
    EXPECT_EQ(histogram.Percentile(0), n);
    EXPECT_EQ(histogram.max(), n);
  }
}

TEST(Zipf, FollowsTheDistribution) {
  constexpr std::uint64_t kRanks = 1000;
  constexpr int kDraws = 400'000;
  const Zipf zipf(kRanks);
  std::mt19937_64 generator(1);
  std::vector<int> counts(kRanks);
  for (int i = 0; i < kDraws; ++i) ++counts.at(zipf(generator));
  double sum = 0;
  for (std::uint64_t k = 1; k <= kRanks; ++k) sum += std::pow(static_cast<double>(k), -Zipf::kExponent);
  for (const std::size_t rank : {0u, 1u, 2u, 9u, 99u, 999u}) {
    const double expected = kDraws * std::pow(static_cast<double>(rank + 1), -Zipf::kExponent) / sum;
    EXPECT_NEAR(counts[rank], expected, 6 * std::sqrt(expected)) << rank;
  }
  EXPECT_EQ(Zipf(1)(generator), 0u);
}

std::multiset<std::string> AllKeys(const PerfOptions& options, const PreparedKeys& keys) {
  std::multiset<std::string> all;
  for (int thread = 0; thread < options.num_threads; ++thread) {
    for (std::int64_t i = 0; i < options.num_iterations; ++i) all.emplace(keys.Key(thread, i));
  }
  return all;
}

TEST(PreparedKeys, OrdersDrawFromTheSetKeys) {
  for (const bool random_key : {false, true}) {
    PerfOptions options;
    options.num_iterations = 2000;
    options.num_threads = 3;
    options.random_key = random_key;
    const PreparedKeys same(options, "same", 0);
    for (int thread = 0; thread < 3; ++thread) {
      NumberStream numbers(options, thread);
      NumberKey key;
      for (std::int64_t i = 0; i < options.num_iterations; ++i) ASSERT_EQ(same.Key(thread, i), key.Set(numbers.Next(i)));
    }
    const auto set = AllKeys(options, same);
    const PreparedKeys shuffled(options, "shuffle", 0);
    EXPECT_EQ(AllKeys(options, shuffled), set);
    EXPECT_NE(shuffled.Key(0, 0), same.Key(0, 0));
    for (const char* order : {"uniform", "zipf"}) {
      const auto drawn = AllKeys(options, PreparedKeys(options, order, 0));
      std::size_t most = 0;
      for (const std::string& key : drawn) {
        ASSERT_TRUE(set.contains(key));
        most = std::max(most, drawn.count(key));
      }
      EXPECT_EQ(most > 300, order == std::string("zipf")) << most;
    }
  }
}

TEST(PreparedKeys, MissesAreNeverSet) {
  PerfOptions options;
  options.num_iterations = 10'000;
  const auto set = AllKeys(options, PreparedKeys(options, "same", 0));
  const PreparedKeys keys(options, "uniform", 25);
  int num_absent = 0;
  for (std::int64_t i = 0; i < options.num_iterations; ++i) {
    num_absent += keys.IsAbsent(0, i) ? 1 : 0;
    ASSERT_EQ(set.contains(std::string(keys.Key(0, i))), !keys.IsAbsent(0, i));
  }
  EXPECT_NEAR(num_absent, 2500, 300);
}

}  // namespace
}  // namespace hako::tool
