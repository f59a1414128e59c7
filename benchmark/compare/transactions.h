// The driver for transactions: each reads two records of 16 + 100 bytes and writes two. transactions.py runs several programs
// in turn; each makes a database of --n records, in --dir, and then obeys commands on its standard input, one a line, and
// answers each with a line of JSON:
//
//   single T     T threads do the same as four single operations, for --seconds
//   transact T   T threads run transactions on keys drawn uniformly, two that they read and two that they write
//   zipf T       T threads run transactions that read two records and write the same two; keys are drawn by Zipf 0.99
//
// The line has: engine, command, threads, committed, per_s, ns (of a transaction or of four operations, by one thread),
// tries (per transaction), longest_run (the most aborts of one transaction in a row), longest_us (the longest time of one).
//
// An aborted transaction is tried again until it is committed. With --durability=power each commit survives a power cut.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <charconv>
#include <concepts>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "cache_traces.h"
#include "meter.h"
#include "workload.h"

namespace hako::compare {

struct TransactionOptions {
  std::uint64_t n = 1'000'000;
  double seconds = 1;
  bool is_durable = false;
  std::string path;
};

using TwoKeys = std::array<std::string_view, 2>;

// Open makes a new, empty database, and Load sets a record. A Worker belongs to a thread. Transact returns the number of
// tries, 0 after an error; Single does the same operations without a transaction.
template <class E>
concept TransactionEngine = std::default_initializable<E> &&
    requires(E& e, typename E::Worker& worker, const TransactionOptions& options, const TwoKeys& keys, std::string_view value) {
  { E::kName } -> std::convertible_to<std::string_view>;
  { e.Open(options) } -> std::same_as<bool>;
  {typename E::Worker(e)};
  { worker.Load(keys, value) } -> std::same_as<bool>;
  { worker.Single(keys, keys, value) } -> std::same_as<bool>;
  { worker.Transact(keys, keys, value) } -> std::same_as<std::uint64_t>;
  { e.Close() } -> std::same_as<bool>;
};

template <TransactionEngine E>
class Transactions {
 public:
  explicit Transactions(TransactionOptions options) : options_(std::move(options)), zipf_(options_.n, 0.99) {
    keys_.Reset(kKeySize, options_.n);
    for (std::uint64_t i = 0; i < options_.n; ++i) {
      const std::uint64_t key[2] = {workload::Mix(i), i};
      std::memcpy(keys_.row(i), key, kKeySize);
    }
  }
  ~Transactions() {
    if (is_open_) (void)engine_.Close();
    RemoveDatabase(options_.path);
  }

  bool Load() {
    RemoveDatabase(options_.path);
    is_open_ = engine_.Open(options_);
    typename E::Worker worker(engine_);
    const std::string value(kValueSize, 'v');
    for (std::uint64_t i = 0; is_open_ && i + 1 < options_.n; i += 2)
      if (!worker.Load({keys_[i], keys_[i + 1]}, value)) return false;
    return is_open_;
  }

  bool Obey(const std::string& command) {
    std::istringstream words(command);
    std::string verb;
    std::size_t num_threads = 0;
    if (!(words >> verb >> num_threads) || num_threads == 0 || (verb != "single" && verb != "transact" && verb != "zipf")) return false;
    std::vector<Thread> results(num_threads);
    std::barrier<> barrier(static_cast<std::ptrdiff_t>(num_threads));
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < num_threads; ++t) threads.emplace_back([&, t] { Work(verb, t, barrier, &results[t]); });
    for (std::thread& thread : threads) thread.join();
    Thread all;
    for (const Thread& one : results) {
      all.count += one.count;
      all.tries += one.tries;
      all.ns += one.ns;
      all.longest_run = std::max(all.longest_run, one.longest_run);
      all.longest_ns = std::max(all.longest_ns, one.longest_ns);
      all.is_good = all.is_good && one.is_good;
    }
    const double count = static_cast<double>(all.count), ns = static_cast<double>(all.ns);
    std::printf(
        "{\"engine\":\"%s\",\"command\":\"%s\",\"threads\":%zu,\"committed\":%.0f,\"per_s\":%.0f,\"ns\":%.1f,\"tries\":%.4f,"
        "\"longest_run\":%llu,\"longest_us\":%.1f}\n",
        std::string(E::kName).c_str(), verb.c_str(), num_threads, count, count * static_cast<double>(num_threads) * 1e9 / ns, ns / count,
        static_cast<double>(all.tries) / count, static_cast<unsigned long long>(all.longest_run),
        static_cast<double>(all.longest_ns) / 1e3);
    std::fflush(stdout);
    return all.is_good;
  }

 private:
  static constexpr std::size_t kKeySize = 16, kValueSize = 100;

  struct Thread {
    std::uint64_t count = 0, tries = 0, ns = 0, longest_run = 0, longest_ns = 0;
    bool is_good = true;
  };

  void Work(const std::string& verb, std::size_t number, std::barrier<>& barrier, Thread* result) {
    typename E::Worker worker(engine_);
    traces::Source random(++seed_ * 100 + number);
    std::string value(kValueSize, static_cast<char>('a' + number));
    barrier.arrive_and_wait();
    const std::uint64_t begin = Nanoseconds(), end = begin + static_cast<std::uint64_t>(options_.seconds * 1e9);
    for (std::uint64_t now = begin; now < end && result->is_good; ++result->count) {
      TwoKeys reads, writes;
      for (std::size_t i = 0; i < 2; ++i) {
        reads[i] = keys_[verb == "zipf" ? workload::Mix(zipf_.Draw(random)) % options_.n : random.Next() % options_.n];
        writes[i] = verb == "zipf" ? reads[i] : keys_[random.Next() % options_.n];
      }
      std::memcpy(value.data(), &result->count, sizeof(result->count));
      const std::uint64_t tries = verb == "single" ? worker.Single(reads, writes, value) : worker.Transact(reads, writes, value);
      result->is_good = tries != 0;
      result->tries += tries;
      result->longest_run = std::max(result->longest_run, tries - 1);
      const std::uint64_t done = Nanoseconds();
      result->longest_ns = std::max(result->longest_ns, done - now);
      now = done;
    }
    result->ns = Nanoseconds() - begin;
  }

  const TransactionOptions options_;
  workload::Rows keys_;
  const traces::Zipf zipf_;
  E engine_;
  bool is_open_ = false;
  std::atomic<std::uint64_t> seed_{1};
};

template <TransactionEngine E>
int TransactionMain(int argc, char** argv) {
  TransactionOptions options;
  const auto take = [&](std::string_view argument, auto number) {
    if (argument == "--durability=power" || argument == "--durability=none") return options.is_durable = argument.ends_with("power"), true;
    return number("--n=", &options.n) || number("--seconds=", &options.seconds);
  };
  if (!ParseArguments(argc, argv, E::kName, "transactions", &options.path, take)) return 2;
  Transactions<E> transactions(options);
  if (!transactions.Load()) return std::fprintf(stderr, "%s: cannot make the database\n", argv[0]), 1;
  return ObeyCommands(argv[0], transactions);
}

}  // namespace hako::compare
