// The driver for short scans and loads of long records: keys of 16 bytes, values of 1,000 random
// bytes. short_scans.py runs several programs in turn; each obeys commands on its standard input,
// one a line, and answers each with a line of JSON:
//
//   load rnd|asc T   a new database with all records, in random or ascending order, by T threads
//   scan50 T         scans of 50 records, from a key that is drawn uniformly
//   ycsb_e T         19 of 20: a scan of 1 to 100 records, from a key of a Zipfian distribution; the
//                    others: a Set of a new key (YCSB's workload E)
//
//   reopen           closes the database and opens it again
//
// Programs take --n=RECORDS --ops=SCANS --dir=DIR --cache=MIB (0: enough for all; LMDB has none) and
// --stride=BYTES: a scan reads a word of each so many bytes of a value, by default of each cache
// line, and checks that key and value belong together. A line of JSON has: engine, phase, threads,
// ops, ns_per_op (wall clock), cpu_ns_per_op (user and system time of the process), sys_ns_per_op,
// switches (of context, voluntary), minflt.
#pragma once

#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <numeric>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "meter.h"
#include "workload.h"

namespace hako::compare {

struct NoRecord {
  void operator()(std::string_view, std::string_view) const {}
};

struct ScanOptions {
  std::uint64_t n = 1'000'000, ops = 50'000, cache = 0, stride = 64;
  std::string path;

  // Bytes of the cache where all of it would take `all`.
  std::uint64_t CacheBytes(std::uint64_t all) const { return cache != 0 ? cache << 20 : all; }
};

// Open makes a new database or opens an old one; Set commits one record; Load does so too, or several
// together where that is the engine's way. A Scanner belongs to a thread; Scan shows up to `count`
// records from the first at or after `key` on, and returns whether all went well.
template <class E>
concept ScanEngine = std::default_initializable<E> &&
    requires(E& e, typename E::Scanner& scanner, const ScanOptions& options, std::string_view bytes, std::size_t count) {
  { E::kName } -> std::convertible_to<std::string_view>;
  { E::kConcurrentLoad } -> std::convertible_to<bool>;
  { e.Open(options, true) } -> std::same_as<bool>;
  { e.Set(bytes, bytes) } -> std::same_as<bool>;
  { e.Load(bytes, bytes) } -> std::same_as<bool>;
  { e.EndLoad() } -> std::same_as<bool>;
  {typename E::Scanner(e)};
  { scanner.Scan(bytes, count, NoRecord{}) } -> std::same_as<bool>;
  { e.Close() } -> std::same_as<bool>;
};

inline constexpr std::size_t kScanKeySize = 16, kScanValueSize = 1000;

// Keys of record ids, and values that begin with the first half of their key, changed.
class ScanRecords {
 public:
  ScanRecords() : pool_(kPool + kScanValueSize) { workload::WriteValue(0, 0, 1, pool_.data(), pool_.size()); }

  static void WriteKey(std::uint64_t id, bool ascending, char* out) {
    const std::uint64_t words[2] = {__builtin_bswap64(ascending ? id : workload::Mix(id)), id};
    std::memcpy(out, words, sizeof(words));
  }
  void WriteValue(std::string_view key, char* out) const {
    std::uint64_t word;
    std::memcpy(&word, key.data(), sizeof(word));
    std::memcpy(out, pool_.data() + workload::Mix(word) % kPool, kScanValueSize);
    word = ~word;
    std::memcpy(out, &word, sizeof(word));
  }

 private:
  static constexpr std::size_t kPool = 1 << 18;  // stays in the second-level cache
  std::vector<char> pool_;
};

// Ranks below n, the lower the more frequent: P(rank) ~ 1 / (rank + 1)^0.99 (Gray et al. 1994, as in
// YCSB).
class Zipfian {
 public:
  explicit Zipfian(std::uint64_t n) : n_(static_cast<double>(n)) {
    for (std::uint64_t i = 1; i <= n; ++i) zeta_ += std::pow(static_cast<double>(i), -kTheta);
    eta_ = (1 - std::pow(2 / n_, 1 - kTheta)) / (1 - (1 + std::pow(.5, kTheta)) / zeta_);
  }
  std::uint64_t Draw(workload::Random& random) const {
    const double u = static_cast<double>(random.Next() >> 11) * 0x1p-53, uz = u * zeta_;
    if (uz < 1) return 0;
    if (uz < 1 + std::pow(.5, kTheta)) return 1;
    return static_cast<std::uint64_t>(std::min(n_ * std::pow(eta_ * u - eta_ + 1, 1 / (1 - kTheta)), n_ - 1));
  }

 private:
  static constexpr double kTheta = .99;
  double n_, zeta_ = 0, eta_ = 0;
};

template <ScanEngine E>
class ShortScans {
 public:
  explicit ShortScans(ScanOptions options) : options_(std::move(options)), zipfian_(options_.n) {}
  ~ShortScans() {
    if (engine_) (void)engine_->Close();
    RemoveFiles();
  }

  bool Obey(const std::string& command) {
    std::istringstream words(command);
    std::string phase, order;
    std::size_t threads = 1;
    words >> phase;
    if (phase == "load") words >> order;
    words >> threads;
    if (phase == "load" && (order == "rnd" || order == "asc")) return Load(order == "asc", E::kConcurrentLoad ? threads : 1);
    if (engine_ && phase == "reopen") return Reopen();
    if (engine_ && phase == "scan50") return Scans("scan50", threads, false);
    if (engine_ && phase == "ycsb_e") return Scans("ycsb_e", threads, true);
    return false;
  }

 private:
  struct Op {
    std::size_t count;  // 0: a Set
    char key[kScanKeySize];
  };

  void RemoveFiles() const {
    std::error_code ignored;
    for (const char* suffix : {"", "-lock"}) std::filesystem::remove_all(options_.path + suffix, ignored);
  }

  bool Reopen() {
    return Measure("reopen", 1, 1, [&](std::size_t, std::size_t) -> std::uint64_t {
      return engine_->Close() && engine_.emplace().Open(options_, false) ? 0 : 1;
    });
  }

  bool Load(bool ascending, std::size_t threads) {
    if (engine_) (void)engine_->Close();
    engine_.reset();
    RemoveFiles();
    ascending_ = ascending;
    next_id_ = options_.n;
    if (!engine_.emplace().Open(options_, true)) return false;
    return Measure(ascending ? "load_asc" : "load_rnd", threads, options_.n, [&](std::size_t begin, std::size_t end) -> std::uint64_t {
      char key[kScanKeySize], value[kScanValueSize];
      for (std::size_t id = begin; id < end; ++id) {
        ScanRecords::WriteKey(id, ascending, key);
        records_.WriteValue({key, sizeof(key)}, value);
        if (!engine_->Load({key, sizeof(key)}, {value, sizeof(value)})) return 1;
      }
      return engine_->EndLoad() ? 0 : 1;
    });
  }

  bool Scans(const char* phase, std::size_t threads, bool mixed) {
    workload::Random random(++seed_);
    std::vector<Op> ops(options_.ops);
    for (Op& op : ops) {
      const bool is_set = mixed && random.Below(20) == 0;
      op.count = is_set ? 0 : mixed ? 1 + random.Below(100) : 50;
      const std::uint64_t id = is_set ? next_id_++ : mixed ? zipfian_.Draw(random) : random.Next() % options_.n;
      ScanRecords::WriteKey(id, ascending_, op.key);
    }
    return Measure(phase, threads, ops.size(), [&](std::size_t begin, std::size_t end) -> std::uint64_t {
      typename E::Scanner scanner(*engine_);
      char value[kScanValueSize];
      std::uint64_t wrong = 0;
      const auto check = [stride = options_.stride](std::string_view k, std::string_view v) { Check(k, v, stride); };
      for (std::size_t i = begin; i < end; ++i) {
        const std::string_view key(ops[i].key, kScanKeySize);
        if (ops[i].count == 0) {
          records_.WriteValue(key, value);
          wrong += engine_->Set(key, {value, sizeof(value)}) ? 0 : 1;
        } else {
          wrong += scanner.Scan(key, ops[i].count, check) ? 0 : 1;
        }
      }
      return wrong;
    });
  }

  // Ends the program if a record is wrong.
  static void Check(std::string_view key, std::string_view value, std::size_t stride) {
    std::uint64_t word, first, sum = 0;
    std::memcpy(&first, value.data(), sizeof(first));
    for (std::size_t i = 0; i + sizeof(word) <= value.size(); i += stride) {
      std::memcpy(&word, value.data() + i, sizeof(word));
      sum += word;
    }
    asm volatile("" : : "r"(sum));
    std::memcpy(&word, key.data(), sizeof(word));
    if (word == ~first && value.size() == kScanValueSize) return;
    std::fputs("a record is wrong\n", stderr);
    std::exit(1);
  }

  template <class Body>
  bool Measure(const char* phase, std::size_t threads, std::size_t ops, Body body) {
    rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    const std::uint64_t start = Nanoseconds(), cpu = CpuNanoseconds();
    const std::uint64_t wrong = Spread(threads, ops, body);
    const auto per_op = [ops](std::uint64_t ns) { return static_cast<double>(ns) / static_cast<double>(ops); };
    const double wall_ns = per_op(Nanoseconds() - start), cpu_ns = per_op(CpuNanoseconds() - cpu);
    getrusage(RUSAGE_SELF, &after);
    const auto us = [](const timeval& time) {
      return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000 + static_cast<std::uint64_t>(time.tv_usec);
    };
    std::printf(
        "{\"engine\":\"%s\",\"phase\":\"%s\",\"threads\":%zu,\"ops\":%zu,\"ns_per_op\":%.1f,\"cpu_ns_per_op\":%.1f,"
        "\"sys_ns_per_op\":%.1f,\"switches\":%ld,\"minflt\":%ld}\n",
        std::string(E::kName).c_str(), phase, threads, ops, wall_ns, cpu_ns, per_op(1000 * (us(after.ru_stime) - us(before.ru_stime))),
        after.ru_nvcsw - before.ru_nvcsw, after.ru_minflt - before.ru_minflt);
    std::fflush(stdout);
    return wrong == 0;
  }

  const ScanOptions options_;
  const Zipfian zipfian_;
  const ScanRecords records_;
  std::optional<E> engine_;
  bool ascending_ = false;
  std::uint64_t next_id_ = 0;  // of the next new record
  std::uint64_t seed_ = 0;
};

template <ScanEngine E>
int ShortScansMain(int argc, char** argv) {
  ScanOptions options;
  const auto take = [&]([[maybe_unused]] std::string_view argument, auto number) {
    return number("--n=", &options.n) || number("--ops=", &options.ops) || number("--cache=", &options.cache) ||
           number("--stride=", &options.stride);
  };
  if (!ParseArguments(argc, argv, E::kName, "short_scans", &options.path, take)) return 2;
  ShortScans<E> scans(options);
  return ObeyCommands(argv[0], scans);
}

}  // namespace hako::compare
