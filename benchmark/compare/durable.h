// The driver for commits that survive a power cut: transactions of B records of 16 + 100 bytes by T
// threads, each of them durable before the next of its thread. durable.py runs several programs in
// turn; each makes a database of --n records, in --dir, and then obeys commands on its standard
// input, one a line, and answers each with a line of JSON:
//
//   commit T B   T threads commit transactions of B records for --seconds, after a tenth of that
//                which does not count; keys are drawn uniformly from those of the database, each
//                thread's from its own part
//
// The line has: engine, threads, batch, commits, commits_per_s, p50_us, p99_us, max_us (of a commit),
// written and device_written (bytes a commit: written_bytes.h), cpu_us (processor time a commit).
//
// Keys and values are made before the clock starts. After each command every record that it has
// written is read, and the program ends if one has not the last value that was committed.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <charconv>
#include <concepts>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "meter.h"
#include "workload.h"
#include "written_bytes.h"

namespace hako::compare {

struct Record {
  std::string_view key, value;
};

struct DurableOptions {
  std::uint64_t n = 100'000;
  double seconds = 1;
  std::string path;
};

// Open makes a new, empty database. A Writer belongs to a thread; Commit makes a transaction durable.
// Get is called while no thread commits; engines without it, which only write, are not checked.
template <class E>
concept DurableEngine = std::default_initializable<E> &&
    requires(E& e, typename E::Writer& writer, const DurableOptions& options, std::span<const Record> records) {
  { E::kName } -> std::convertible_to<std::string_view>;
  { e.Open(options) } -> std::same_as<bool>;
  {typename E::Writer(e)};
  { writer.Commit(records) } -> std::same_as<bool>;
  { e.Close() } -> std::same_as<bool>;
};

inline constexpr std::size_t kDurableKeySize = 16, kDurableValueSize = 100;

// Records in the order in which a thread commits them, again and again.
class CommitRows {
 public:
  // `count` records of the ids below n that are `part` modulo `parts`, drawn at random or in order.
  CommitRows(std::uint64_t n, std::uint64_t part, std::uint64_t parts, std::size_t count, bool in_order, std::uint64_t seed) {
    keys_.Reset(kDurableKeySize, count);
    values_.Reset(kDurableValueSize, count);
    workload::Random random(seed);
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t id = (in_order ? i : random.Next() % (n / parts)) * parts + part;
      const std::uint64_t key[2] = {workload::Mix(id), id};
      std::memcpy(keys_.row(i), key, kDurableKeySize);
      workload::WriteValue(static_cast<std::uint32_t>(i), 0, random.Next(), values_.row(i), kDurableValueSize);
      rows_.push_back({keys_[i], values_[i]});
    }
  }
  std::span<const Record> rows() const { return rows_; }

 private:
  workload::Rows keys_, values_;
  std::vector<Record> rows_;
};

template <DurableEngine E>
class DurableCommits {
 public:
  explicit DurableCommits(DurableOptions options) : options_(std::move(options)) {}
  ~DurableCommits() {
    if (is_open_) (void)engine_.Close();
    RemoveDatabase(options_.path);
  }

  bool Load() {
    RemoveDatabase(options_.path);
    is_open_ = engine_.Open(options_);
    typename E::Writer writer(engine_);
    const CommitRows all(options_.n, 0, 1, options_.n, true, 1);
    for (std::size_t i = 0; is_open_ && i < options_.n; i += kLoadBatch)
      if (!writer.Commit(all.rows().subspan(i, std::min(kLoadBatch, options_.n - i)))) return false;
    return is_open_;
  }

  bool Obey(const std::string& command) {
    std::istringstream words(command);
    std::string verb;
    std::size_t threads = 0, batch = 0;
    if (!(words >> verb >> threads >> batch) || verb != "commit" || threads == 0 || batch == 0) return false;
    std::vector<CommitRows> rows;
    for (std::size_t t = 0; t < threads; ++t)
      rows.emplace_back(options_.n, t, threads, std::max<std::size_t>(2, kRowsMin / batch) * batch, false, ++seed_);
    return Measure(threads, batch, rows) && Check(rows, batch);
  }

 private:
  static constexpr std::size_t kLoadBatch = 1000, kRowsMin = 1 << 15;

  struct Thread {
    std::vector<std::uint32_t> ns;  // of each commit that counts
    std::uint64_t num_commits = 0;  // also of those that do not
    bool is_good = true;
  };

  void Work(std::span<const Record> rows, std::size_t batch, std::barrier<>& barrier, Thread* thread) {
    typename E::Writer writer(engine_);
    const auto run = [&](double seconds, bool counts) {
      barrier.arrive_and_wait();
      const std::uint64_t end = Nanoseconds() + static_cast<std::uint64_t>(seconds * 1e9);
      for (std::uint64_t now = Nanoseconds(); now < end;) {
        thread->is_good = writer.Commit(rows.subspan(thread->num_commits++ * batch % rows.size(), batch)) && thread->is_good;
        const std::uint64_t done = Nanoseconds();
        if (counts) thread->ns.push_back(static_cast<std::uint32_t>(done - now));
        now = done;
      }
      barrier.arrive_and_wait();
    };
    run(options_.seconds / 10, false);
    run(options_.seconds, true);
  }

  bool Measure(std::size_t num_threads, std::size_t batch, const std::vector<CommitRows>& rows) {
    std::barrier<> barrier(static_cast<std::ptrdiff_t>(num_threads + 1));
    threads_.assign(num_threads, {});
    std::vector<std::thread> workers;
    for (std::size_t t = 0; t < num_threads; ++t) {
      threads_[t].ns.reserve(static_cast<std::size_t>(options_.seconds * 100'000));
      workers.emplace_back([&, t] { Work(rows[t].rows(), batch, barrier, &threads_[t]); });
    }
    barrier.arrive_and_wait();
    barrier.arrive_and_wait();  // what does not count has ended
    const std::uint64_t cpu = CpuNanoseconds();
    const WrittenBytes before = WrittenBytes::Now(options_.path);
    const std::uint64_t start = Nanoseconds();
    barrier.arrive_and_wait();
    barrier.arrive_and_wait();
    const double ns = static_cast<double>(Nanoseconds() - start);
    const WrittenBytes written = WrittenBytes::Now(options_.path) - before;
    const double cpu_ns = static_cast<double>(CpuNanoseconds() - cpu);
    for (std::thread& worker : workers) worker.join();
    return Report(num_threads, batch, ns, cpu_ns, written);
  }

  bool Report(std::size_t num_threads, std::size_t batch, double ns, double cpu_ns, const WrittenBytes& written) const {
    std::vector<std::uint32_t> all;
    bool is_good = true;
    for (const Thread& thread : threads_) {
      all.insert(all.end(), thread.ns.begin(), thread.ns.end());
      is_good = is_good && thread.is_good;
    }
    std::sort(all.begin(), all.end());
    const double n = static_cast<double>(all.size());
    const auto us = [&all](double q) { return all[static_cast<std::size_t>(q * static_cast<double>(all.size() - 1))] / 1e3; };
    std::printf(
        "{\"engine\":\"%s\",\"threads\":%zu,\"batch\":%zu,\"commits\":%zu,\"commits_per_s\":%.1f,\"p50_us\":%.1f,\"p99_us\":%.1f,"
        "\"max_us\":%.1f,\"written\":%.0f,\"device_written\":%.0f,\"cpu_us\":%.2f}\n",
        std::string(E::kName).c_str(), num_threads, batch, all.size(), n * 1e9 / ns, us(.5), us(.99), us(1),
        static_cast<double>(written.process) / n, static_cast<double>(written.device) / n, cpu_ns / 1e3 / n);
    std::fflush(stdout);
    return is_good;
  }

  // Whether the database has the last committed value of each key.
  bool Check(const std::vector<CommitRows>& rows, std::size_t batch) {
    if constexpr (requires(E & e, std::string_view key, std::string * value) { e.Get(key, value); }) {
      std::unordered_map<std::string_view, std::string_view> last;
      for (std::size_t t = 0; t < rows.size(); ++t) {
        const std::span<const Record> all = rows[t].rows();
        const std::uint64_t end = threads_[t].num_commits * batch;
        for (std::uint64_t i = end - std::min<std::uint64_t>(end, all.size()); i < end; ++i)
          last[all[i % all.size()].key] = all[i % all.size()].value;
      }
      std::string value;
      for (const auto& [key, expected] : last)
        if (!engine_.Get(key, &value) || value != expected) return std::fputs("a record is wrong\n", stderr), false;
    }
    return true;
  }

  const DurableOptions options_;
  E engine_;
  bool is_open_ = false;
  std::vector<Thread> threads_;  // of the last command
  std::uint64_t seed_ = 1;
};

template <DurableEngine E>
int DurableMain(int argc, char** argv) {
  DurableOptions options;
  const auto take = [&]([[maybe_unused]] std::string_view argument, auto number) {
    return number("--n=", &options.n) || number("--seconds=", &options.seconds);
  };
  if (!ParseArguments(argc, argv, E::kName, "durable", &options.path, take)) return 2;
  DurableCommits<E> commits(options);
  if (!commits.Load()) return std::fprintf(stderr, "%s: cannot make the database\n", argv[0]), 1;
  return ObeyCommands(argv[0], commits);
}

}  // namespace hako::compare
