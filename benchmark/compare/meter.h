// The base of the driver: the command line, threads that start together, and the meter that turns a
// phase into a line of JSON.
//
// A line has: engine, workload, records (after fill), phase, n (operations), threads, ns_per_op,
// ops_per_s (wall clock, all threads together), cpu_ns_per_op (processor time, all threads added
// up: on a busy machine the steadier of the two), checksum, rss_bytes and anon_bytes (growth of
// resident memory since before Open, in all and without file pages; by smaps_rollup, hence exact),
// file_bytes (allocated blocks, not the apparent size), minflt, majflt, sys_ms, and with --latency
// p50_ns, p99_ns, p999_ns, max_ns.
#pragma once

#include <malloc.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "workload.h"

namespace hako::compare {

inline std::uint64_t Nanoseconds() {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count());
}

// Of all threads of the process.
inline std::uint64_t CpuNanoseconds() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(time.tv_nsec);
}

// Removes a database: an engine may keep several files whose names begin with the path, or a folder.
inline void RemoveDatabase(const std::filesystem::path& path) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(path.parent_path()))
    if (entry.path().filename().string().starts_with(path.filename().string())) files.push_back(entry.path());
  for (const auto& file : files) std::filesystem::remove_all(file);
}

// Carries out the commands of the standard input, one a line, by obeyer.Obey(command), until one fails. Returns the exit status.
template <class Obeyer>
int ObeyCommands(const char* program, Obeyer&& obeyer) {
  for (std::string command; std::getline(std::cin, command);) {
    if (obeyer.Obey(command)) continue;
    std::fprintf(stderr, "%s: failed: %s\n", program, command.c_str());
    return 1;
  }
  return 0;
}

// Reads the arguments of a program that obeys commands: --dir=DIR, and those that take(argument, number) accepts, where
// number(name, out) reads a number behind `name`. Sets *path to that of the engine's database. Returns false, and says
// which header describes the options, for any other argument.
template <class Take>
bool ParseArguments(int argc, char** argv, std::string_view engine, const std::string& kind, std::string* path, Take&& take) {
  std::string dir = std::filesystem::temp_directory_path();
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const auto number = [&](std::string_view name, auto* out) {
      return argument.starts_with(name) && std::from_chars(argument.data() + name.size(), argument.end(), *out).ptr == argument.end();
    };
    if (argument.starts_with("--dir="))
      dir = argument.substr(6);
    else if (!take(argument, number))
      return std::fprintf(stderr, "the options and commands are described in %s.h\n", kind.c_str()), false;
  }
  *path = std::filesystem::path(dir) / (std::string(engine) + "." + std::to_string(getpid()) + "." + kind);
  return true;
}

// How an engine is opened, where it has a choice; engines without one ignore it.
enum class Settings {
  kFast,        // tuned for speed; nothing is durable before the end of a phase or Close
  kProcess,     // tuned, and each Set survives a kill of the process once it returns
  kDefault,     // the library's defaults
  kSeed,        // those of the article whose runs field.py repeats
  kSeedRandom,  // the same for its B+ trees in random order
};
inline constexpr std::string_view kSettingsNames[] = {"fast", "process", "default", "seed", "seed_random"};
inline Settings settings = Settings::kFast;
inline bool IsTuned() { return settings != Settings::kDefault; }
inline bool IsSeed() { return settings >= Settings::kSeed; }

// Prints what a library said about a failure; returns false, for `return Fail(...)`.
inline bool Fail(const char* text) { return std::fprintf(stderr, "%s\n", text), false; }

struct Options {
  std::vector<workload::Kind> workloads;
  std::uint32_t n = 1'000'000;
  std::uint64_t seed = 1;
  std::string dir = std::filesystem::temp_directory_path().string();
  std::size_t threads = 1;
  std::vector<std::string> phases;  // none = all; open, fill and close always run
  bool latency = false;
  bool verify = false;
  bool keep = false;  // leave the file

  bool Wants(std::string_view phase) const { return phases.empty() || std::find(phases.begin(), phases.end(), phase) != phases.end(); }

  static std::optional<Options> Parse(int argc, char** argv) {
    Options options;
    bool good = true;
    for (int i = 1; i < argc && good; ++i) {
      const std::string_view argument = argv[i];
      const std::size_t equals = argument.find('=');
      const std::string_view name = argument.substr(0, equals);
      const std::string_view value = equals == std::string_view::npos ? std::string_view() : argument.substr(equals + 1);
      if (name == "--workload")
        good = options.ParseWorkload(value);
      else if (name == "--n")
        good = Number<std::uint32_t>(value, 1, workload::kRecordsMax, &options.n);
      else if (name == "--seed")
        good = Number<std::uint64_t>(value, 0, ~std::uint64_t{0}, &options.seed);
      else if (name == "--threads")
        good = Number<std::size_t>(value, 1, 1024, &options.threads);
      else if (name == "--dir")
        options.dir = value;
      else if (name == "--settings")
        good = ParseSettings(value);
      else if (name == "--phase")
        good = options.AddPhase(value);
      else if (argument == "--latency")
        options.latency = true;
      else if (argument == "--verify")
        options.verify = true;
      else if (argument == "--keep")
        options.keep = true;
      else
        good = false;
      if (!good) std::fprintf(stderr, "bad argument: %s\n", argv[i]);
    }
    if (!good)
      std::fprintf(stderr,
                   "options: --workload=seq8|rnd8|uniq16x100|all --n=1000000 --seed=1 --threads=1 --dir=DIR\n"
                   "         --settings=fast|process|default|seed|seed_random\n"
                   "         --phase=get|absent|update|scan|scan100|remove|none (repeatable) --latency --verify --keep\n");
    if (options.workloads.empty()) options.workloads.assign(std::begin(workload::kKinds), std::end(workload::kKinds));
    return good ? std::optional(options) : std::nullopt;
  }

 private:
  bool ParseWorkload(std::string_view value) {
    if (value == "all") return true;
    const std::optional<workload::Kind> kind = workload::ParseKind(value);
    if (kind) workloads.push_back(*kind);
    return kind.has_value();
  }

  static bool ParseSettings(std::string_view value) {
    const auto* found = std::find(std::begin(kSettingsNames), std::end(kSettingsNames), value);
    settings = static_cast<Settings>(found - std::begin(kSettingsNames));
    return found != std::end(kSettingsNames);
  }

  bool AddPhase(std::string_view value) {
    phases.emplace_back(value);
    for (std::string_view known : {"get", "absent", "update", "scan", "scan100", "remove", "none"})
      if (value == known) return true;
    return false;
  }

  template <class T>
  static bool Number(std::string_view text, T least, T most, T* number) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
    return error == std::errc() && end == text.data() + text.size() && *number >= least && *number <= most;
  }
};

// Runs body(begin, end) over [0, n), split among `threads` threads that start together, and returns
// the sum of the results. One thread is the calling one. Starting and joining the others takes some
// 50 us of the time measured.
template <class Body>
std::uint64_t Spread(std::size_t threads, std::size_t n, Body body) {
  if (threads == 1) return body(0, n);
  std::barrier<> ready(static_cast<std::ptrdiff_t>(threads));
  std::vector<std::uint64_t> sums(threads * 8);  // a cache line each
  std::vector<std::thread> workers;
  for (std::size_t t = 0; t < threads; ++t)
    workers.emplace_back([&, t] {
      ready.arrive_and_wait();
      sums[t * 8] = body(n * t / threads, n * (t + 1) / threads);
    });
  for (std::thread& worker : workers) worker.join();
  std::uint64_t sum = 0;
  for (std::uint64_t part : sums) sum += part;
  return sum;
}

class Meter {
 public:
  Meter(const Options& options, std::string_view engine, const workload::Workload& work)
      : options_(options), engine_(engine), workload_(work.name()), num_records_(work.num_records) {}
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;
  ~Meter() {
    if (!options_.keep) RemoveFiles();
  }

  const std::string& path() const { return path_; }
  void set_path(std::string path) { path_ = std::move(path); }

  // Before Open: memory that is resident now is not the engine's.
  void Start() {
    RemoveFiles();
    malloc_trim(0);
    baseline_ = Resident();
  }

  void Begin(std::size_t threads, std::size_t num_samples) {
    threads_ = threads;
    samples_.assign(num_samples, 0);  // touched here, not on the clock
    getrusage(RUSAGE_SELF, &usage_);
    cpu_start_ = CpuNanoseconds();
    start_ = Nanoseconds();
  }

  void Sample(std::size_t index, std::uint64_t ns) {
    samples_[index] = static_cast<std::uint32_t>(std::min<std::uint64_t>(ns, std::numeric_limits<std::uint32_t>::max()));
  }

  void End(const char* phase, std::uint64_t n, std::uint64_t checksum) {
    const double ns = static_cast<double>(Nanoseconds() - start_);
    const double cpu_ns = static_cast<double>(CpuNanoseconds() - cpu_start_);
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    const double per_op = ns / static_cast<double>(n);
    std::printf("{\"engine\":\"%s\",\"workload\":\"%s\",\"records\":%u,\"phase\":\"%s\",\"n\":%llu,\"threads\":%zu,", engine_.c_str(),
                workload_.c_str(), num_records_, phase, static_cast<unsigned long long>(n), threads_);
    std::printf("\"ns_per_op\":%.2f,\"ops_per_s\":%.0f,\"cpu_ns_per_op\":%.2f,", per_op, 1e9 / per_op, cpu_ns / static_cast<double>(n));
    if (!samples_.empty()) {
      std::sort(samples_.begin(), samples_.end());
      const auto quantile = [this](double q) { return samples_[static_cast<std::size_t>(q * static_cast<double>(samples_.size() - 1))]; };
      std::printf("\"p50_ns\":%u,\"p99_ns\":%u,\"p999_ns\":%u,\"max_ns\":%u,", quantile(.5), quantile(.99), quantile(.999),
                  samples_.back());
    }
    samples_ = {};
    if (std::string_view(phase) == "fill") malloc_trim(0);  // what growth left behind; once, as engines would have to fault it in again
    const Memory now = Resident();
    std::printf("\"checksum\":\"%016llx\",\"rss_bytes\":%lld,\"anon_bytes\":%lld,\"file_bytes\":%llu,",
                static_cast<unsigned long long>(checksum), now.rss - baseline_.rss, now.anonymous - baseline_.anonymous, FileBytes());
    std::printf("\"minflt\":%ld,\"majflt\":%ld,\"sys_ms\":%.3f}\n", usage.ru_minflt - usage_.ru_minflt, usage.ru_majflt - usage_.ru_majflt,
                Milliseconds(usage.ru_stime) - Milliseconds(usage_.ru_stime));
    std::fflush(stdout);
  }

  bool Fail(const char* phase, const char* what) const {
    std::fprintf(stderr, "%s: %s: %s: %s\n", engine_.c_str(), workload_.c_str(), phase, what);
    return false;
  }

 private:
  struct Memory {
    long long rss = 0, anonymous = 0;
  };

  static double Milliseconds(const timeval& time) {
    return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_usec) / 1e3;
  }

  static Memory Resident() {
    Memory memory;
    std::ifstream file("/proc/self/smaps_rollup");
    for (std::string line; std::getline(file, line);) {
      if (line.rfind("Rss:", 0) == 0) memory.rss = std::atoll(line.c_str() + 4) * 1024;
      if (line.rfind("Anonymous:", 0) == 0) memory.anonymous = std::atoll(line.c_str() + 10) * 1024;
    }
    return memory;
  }

  // An engine may keep several files whose names begin with the path, or a folder.
  std::vector<std::filesystem::path> Files() const {
    std::vector<std::filesystem::path> files;
    if (path_.empty()) return files;
    const std::filesystem::path path(path_);
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(path.parent_path(), error))
      if (entry.path().filename().string().starts_with(path.filename().string())) files.push_back(entry.path());
    return files;
  }

  unsigned long long FileBytes() const {
    unsigned long long bytes = 0;
    const auto add = [&bytes](const std::filesystem::path& file) {
      struct stat facts;
      if (stat(file.c_str(), &facts) == 0) bytes += static_cast<unsigned long long>(facts.st_blocks) * 512;
    };
    std::error_code error;
    for (const auto& file : Files()) {
      add(file);
      if (!std::filesystem::is_directory(file, error)) continue;
      for (const auto& entry : std::filesystem::directory_iterator(file, error)) add(entry.path());
    }
    return bytes;
  }

  void RemoveFiles() const {
    std::error_code error;
    for (const auto& file : Files()) std::filesystem::remove_all(file, error);
  }

  const Options& options_;
  const std::string engine_;
  const std::string workload_;
  const std::uint32_t num_records_;
  std::string path_;
  Memory baseline_;
  std::size_t threads_ = 1;
  std::uint64_t start_ = 0, cpu_start_ = 0;
  rusage usage_{};
  std::vector<std::uint32_t> samples_;
};

}  // namespace hako::compare
