// The driver for records of one width by number: each engine is a separate program, as those of driver.h.
//
//   array_hako --width=8 --n=1000000 --dir=/tmp --rounds=3 --threads=1
//
// A round makes a new array and measures, in this order: fill (Set of the ids 0 to n - 1, ascending), set
// (Set of ids in random order, each once), get (Get of ids in random order into a buffer), scan (all records
// in order), append (n / 10 records behind the last one), close. Each phase prints a line of JSON, whose
// checksum is compared; `bytes` of close is the size of the file.
#pragma once

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "workload.h"

namespace hako::compare {

struct ArrayBenchmark {
  std::uint64_t n = 1'000'000;
  std::uint64_t width = 8, rounds = 1, threads = 1;
  std::string dir = "/tmp";
};

// Get copies the record to `out` and returns whether it exists; Append returns the id.
template <class E>
concept ArrayEngine = std::default_initializable<E> &&
    requires(E& e, const std::string& path, std::uint64_t id, std::uint64_t width, std::string_view value, char* out) {
  { E::kName } -> std::convertible_to<std::string_view>;
  { e.Open(path, width, id) } -> std::same_as<bool>;
  { e.Set(id, value) } -> std::same_as<bool>;
  { e.Get(id, out) } -> std::same_as<bool>;
  { e.Append(value) } -> std::same_as<std::uint64_t>;
  {
    e.Scan([](std::uint64_t, std::string_view) {})
    } -> std::same_as<bool>;
  { e.Close() } -> std::same_as<bool>;
};

template <ArrayEngine E>
class ArrayDriver {
 public:
  explicit ArrayDriver(const ArrayBenchmark& benchmark) : benchmark_(benchmark), order_(benchmark.n), pool_(kPool + benchmark.width) {
    std::iota(order_.begin(), order_.end(), std::uint64_t{0});
    workload::Random random(1);
    for (std::size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random.Below(static_cast<std::uint32_t>(i))]);
    workload::WriteValue(0, 0, 1, pool_.data(), pool_.size());
  }

  bool Run() {
    const std::uint64_t n = benchmark_.n, more = n / 10;
    const std::string path = (std::filesystem::path(benchmark_.dir) / E::kName).concat(".array");
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
    E engine;
    bool good = engine.Open(path, benchmark_.width, n + more);
    Time(
        "fill", n, [&](std::uint64_t i) -> std::uint64_t { return engine.Set(i, ValueOf(i, 0)) ? 0 : 1; }, 0, &good);
    Time(
        "set", n, [&](std::uint64_t i) -> std::uint64_t { return engine.Set(order_[i], ValueOf(order_[i], 1)) ? 0 : 1; }, 0, &good);
    std::uint64_t expected = 0;
    for (std::uint64_t id = 0; id < n; ++id) expected += Edge(ValueOf(id, 1).data());
    Time(
        "get", n,
        [&](std::uint64_t i) -> std::uint64_t {
          char out[4096];
          return engine.Get(order_[i], out) ? Edge(out) : 1;
        },
        expected, &good);
    const auto scan = [&](std::uint64_t) {
      std::uint64_t sum = 0;
      (void)engine.Scan([&](std::uint64_t, std::string_view value) { sum += Edge(value.data()); });
      return sum;
    };
    Time("scan", 1, scan, expected, &good, n);
    Time(
        "append", more, [&](std::uint64_t i) -> std::uint64_t { return engine.Append(ValueOf(i, 2)) >= n ? 0 : 1; }, 0, &good);
    Time(
        "close", 1, [&](std::uint64_t) -> std::uint64_t { return engine.Close() ? 0 : 1; }, 0, &good);
    std::printf("{\"engine\": \"%s\", \"phase\": \"size\", \"width\": %zu, \"bytes\": %zu}\n", std::string(E::kName).c_str(),
                static_cast<std::size_t>(benchmark_.width), static_cast<std::size_t>(std::filesystem::file_size(path, ignored)));
    std::filesystem::remove(path, ignored);
    return good;
  }

 private:
  static constexpr std::size_t kPool = 1 << 16;  // stays in the second-level cache

  std::string_view ValueOf(std::uint64_t id, std::uint64_t generation) const {
    return {pool_.data() + workload::Mix(id + generation) % kPool, benchmark_.width};
  }
  std::uint64_t Edge(const char* value) const {
    std::uint64_t word = 0;
    std::memcpy(&word, value, std::min<std::size_t>(sizeof(word), benchmark_.width));
    return word;
  }

  // Calls op(i) for i below n, in as many threads as asked for if there are many, and sums up.
  template <class Op>
  void Time(const char* phase, std::uint64_t n, const Op& op, std::uint64_t expected, bool* good, std::uint64_t num_records = 0) {
    const std::uint64_t threads = n > 1 ? benchmark_.threads : 1;
    std::vector<std::uint64_t> sums(threads * 8);
    const auto begin = std::chrono::steady_clock::now();
    const auto part = [&](std::uint64_t t) {
      std::uint64_t sum = 0;
      for (std::uint64_t i = n * t / threads; i < n * (t + 1) / threads; ++i) sum += op(i);
      sums[t * 8] = sum;
    };
    std::vector<std::thread> others;
    for (std::uint64_t t = 1; t < threads; ++t) others.emplace_back(part, t);
    part(0);
    for (std::thread& other : others) other.join();
    const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - begin;
    std::printf("{\"engine\": \"%s\", \"phase\": \"%s\", \"width\": %zu, \"n\": %zu, \"threads\": %zu, \"ns_per_op\": %.2f}\n",
                std::string(E::kName).c_str(), phase, static_cast<std::size_t>(benchmark_.width), static_cast<std::size_t>(n),
                static_cast<std::size_t>(threads), time.count() / static_cast<double>(num_records != 0 ? num_records : n));
    if (std::accumulate(sums.begin(), sums.end(), std::uint64_t{0}) == expected) return;
    std::fprintf(stderr, "%s: wrong checksum of %s\n", std::string(E::kName).c_str(), phase);
    *good = false;
  }

  const ArrayBenchmark benchmark_;
  std::vector<std::uint64_t> order_;
  std::vector<char> pool_;
};

template <ArrayEngine E>
int ArrayMain(int argc, char** argv) {
  ArrayBenchmark benchmark;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    const auto number = [&](std::string_view name, std::uint64_t* to) {
      const bool is_this = arg.substr(0, name.size()) == name;
      if (is_this) *to = std::strtoull(argv[i] + name.size(), nullptr, 10);
      return is_this;
    };
    if (arg.substr(0, 6) == "--dir=") {
      benchmark.dir = arg.substr(6);
    } else if (!number("--n=", &benchmark.n) && !number("--width=", &benchmark.width) && !number("--rounds=", &benchmark.rounds) &&
               !number("--threads=", &benchmark.threads)) {
      return std::fprintf(stderr, "unknown argument %s\n", argv[i]), 2;
    }
  }
  ArrayDriver<E> driver(benchmark);
  for (std::uint64_t round = 0; round < benchmark.rounds; ++round) {
    if (!driver.Run()) return 1;
  }
  return 0;
}

}  // namespace hako::compare
