// The driver for snapshots and for readers in other processes: records of 16 + 100 bytes. snapshots.py runs several
// programs in turn; each makes a database of --n records, in --dir, and then obeys commands on its standard input, one a
// line, and answers each with a line of JSON:
//
//   take           takes and ends snapshots, for --seconds
//   get plain      reads records drawn uniformly; `get snapshot` those of one snapshot
//   set plain      sets records drawn uniformly; `set snapshot` while one is open, which is taken first
//   scan plain     reads all records in key order, once; `scan snapshot` those of one snapshot
//   captured       sets each record once, with a snapshot open, and then reads the snapshot as `get snapshot`
//   beside READERS one process sets records, and READERS others read them, for --seconds; each takes the newest state every
//                  200 ms. The line has: writes_per_s, reads_per_s (of all), open_us, refresh_us (the median)
//
// The others have: engine, command, count, ns (of one), per_s, file_bytes, rss_bytes. `seconds=S` behind a command
// replaces --seconds.
#pragma once

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "meter.h"
#include "workload.h"

namespace hako::compare {

struct SnapshotOptions {
  std::uint64_t n = 1'000'000;
  double seconds = 1;
  std::string path;
};

// An engine has Open, which makes a new database or opens the one that is there, Close, Set, Get and Scan. A View is a
// snapshot, with Get and Scan. A Reader is of another process, with Open, Get, and Refresh, which returns whether there was
// a newer state; without it the engine has no `beside`.
template <class E>
class Snapshots {
 public:
  explicit Snapshots(SnapshotOptions options) : options_(std::move(options)) {
    keys_.Reset(kKeySize, options_.n);
    for (std::uint64_t i = 0; i < options_.n; ++i) {
      const std::uint64_t key[2] = {workload::Mix(i), i};
      std::memcpy(keys_.row(i), key, kKeySize);
    }
  }
  ~Snapshots() {
    if (engine_ != nullptr) (void)engine_->Close();
    RemoveDatabase(options_.path);
  }

  bool Load() {
    RemoveDatabase(options_.path);
    return Open() && SetAll();
  }

  bool Obey(const std::string& command) {
    std::istringstream words(command);
    std::string verb, how;
    words >> verb >> how;
    seconds_ = options_.seconds;
    if (const std::size_t at = command.find("seconds="); at != command.npos) seconds_ = std::stod(command.substr(at + 8));
    if (verb == "beside") return ReadBeside(command, static_cast<unsigned>(std::stoul(how)));
    typename E::View view;
    const bool has_view = how == "snapshot" || verb == "captured";
    if (has_view && !view.Take(*engine_)) return false;
    if (verb == "captured" && !SetAll()) return false;
    const std::uint64_t begin = Nanoseconds(), end = begin + static_cast<std::uint64_t>(seconds_ * 1e9);
    std::uint64_t count = 0;
    bool good = true;
    if (verb == "scan") {
      std::uint64_t sum = 0;
      const auto visit = [&](std::string_view key, std::string_view value) {
        sum += static_cast<unsigned char>(key[0]) + static_cast<unsigned char>(value[0]);
        ++count;
      };
      good = (has_view ? view.Scan(visit) : engine_->Scan(visit)) && count == options_.n && sum != 0;
    } else {
      std::string value(kValueSize, 'w');
      for (; good && Nanoseconds() < end; count += kGroup) {
        for (std::uint64_t i = 0; good && i < kGroup; ++i) {
          const std::string_view key = keys_[random_.Next() % options_.n];
          if (verb == "take") {
            typename E::View one;
            good = one.Take(*engine_);
          } else if (verb == "set") {
            good = engine_->Set(key, value);
          } else if (verb == "get" || verb == "captured") {
            good = has_view ? view.Get(key, &value) : engine_->Get(key, &value);
          } else {
            return false;
          }
        }
      }
    }
    const double ns = static_cast<double>(Nanoseconds() - begin);
    std::printf("{\"engine\":\"%s\",\"command\":\"%s\",\"count\":%llu,\"ns\":%.1f,\"per_s\":%.0f,\"file_bytes\":%llu,\"rss_bytes\":%llu}\n",
                std::string(E::kName).c_str(), command.c_str(), static_cast<unsigned long long>(count), ns / static_cast<double>(count),
                static_cast<double>(count) * 1e9 / ns, static_cast<unsigned long long>(FileBytes()),
                static_cast<unsigned long long>(AnonymousBytes()));
    std::fflush(stdout);
    return good;
  }

 private:
  static constexpr std::size_t kKeySize = 16, kValueSize = 100;
  static constexpr std::uint64_t kGroup = 16;

  struct Shared {
    static constexpr unsigned kReadersMax = 64;
    std::atomic<bool> is_open, stops;
    std::atomic<std::uint64_t> writes, failures;
    struct alignas(64) Reader {
      std::uint64_t reads;
      double open_us, refresh_us;
    } readers[kReadersMax];
  };

  bool Open() {
    engine_ = std::make_unique<E>();
    return engine_->Open(options_.path);
  }
  bool SetAll() {
    const std::string value(kValueSize, 'v');
    for (std::uint64_t i = 0; i < options_.n; ++i)
      if (!engine_->Set(keys_[i], value)) return false;
    return engine_->Flush();
  }
  std::uint64_t FileBytes() const {
    std::uint64_t bytes = 0;
    const std::filesystem::path path(options_.path);
    const auto add = [&bytes](const std::filesystem::path& file) {
      struct stat found;
      if (stat(file.c_str(), &found) == 0) bytes += static_cast<std::uint64_t>(found.st_blocks) * 512;
    };
    for (const auto& entry : std::filesystem::directory_iterator(path.parent_path())) {
      if (!entry.path().filename().string().starts_with(path.filename().string())) continue;
      if (!entry.is_directory()) {
        add(entry.path());
        continue;
      }
      for (const auto& file : std::filesystem::directory_iterator(entry.path())) add(file.path());
    }
    return bytes;
  }
  static std::uint64_t AnonymousBytes() {
    std::ifstream rollup("/proc/self/smaps_rollup");
    for (std::string line; std::getline(rollup, line);)
      if (line.starts_with("Anonymous:")) return std::stoull(line.substr(10)) * 1024;
    return 0;
  }

  bool ReadBeside(const std::string& command, unsigned num_readers) {
    if constexpr (!requires { typename E::Reader; }) {
      return false;
    } else {
      if (num_readers > Shared::kReadersMax || !engine_->Close()) return false;
      engine_.reset();
      void* const memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
      if (memory == MAP_FAILED) return false;
      Shared& shared = *new (memory) Shared{};
      std::vector<pid_t> children;
      const auto start = [&](auto body) {
        const pid_t child = fork();
        if (child == 0) {
          if (!body()) ++shared.failures;
          _exit(0);
        }
        children.push_back(child);
      };
      start([&] { return Write(shared); });
      while (!shared.is_open && shared.failures == 0) usleep(1000);
      for (unsigned i = 0; i < num_readers; ++i) start([&, i] { return Read(shared, i); });
      usleep(static_cast<useconds_t>(seconds_ * 1e6));
      shared.stops = true;
      for (const pid_t child : children) waitpid(child, nullptr, 0);
      std::uint64_t reads = 0;
      std::vector<double> opens, refreshes;
      for (unsigned i = 0; i < num_readers; ++i) {
        reads += shared.readers[i].reads;
        opens.push_back(shared.readers[i].open_us);
        refreshes.push_back(shared.readers[i].refresh_us);
      }
      std::printf(
          "{\"engine\":\"%s\",\"command\":\"%s\",\"writes_per_s\":%.0f,\"reads_per_s\":%.0f,\"open_us\":%.1f,\"refresh_us\":%.1f,"
          "\"file_bytes\":%llu}\n",
          std::string(E::kName).c_str(), command.c_str(), static_cast<double>(shared.writes) / seconds_,
          static_cast<double>(reads) / seconds_, Median(opens), Median(refreshes), static_cast<unsigned long long>(FileBytes()));
      std::fflush(stdout);
      const bool good = shared.failures == 0;
      munmap(memory, sizeof(Shared));
      return good && Open();
    }
  }
  bool Write(Shared& shared) {
    if (!Open()) return false;
    shared.is_open = true;
    const std::string value(kValueSize, 'w');
    workload::Random random(7);
    while (!shared.stops) {
      for (std::uint64_t i = 0; i < kGroup; ++i)
        if (!engine_->Set(keys_[random.Next() % options_.n], value)) return false;
      shared.writes += kGroup;
    }
    return engine_->Close();
  }
  bool Read(Shared& shared, unsigned number) {
    static constexpr std::uint64_t kInterval = 200'000'000;
    auto& mine = shared.readers[number];
    std::uint64_t begin = Nanoseconds();
    typename E::Reader reader;
    if (!reader.Open(options_.path)) return false;
    std::uint64_t now = Nanoseconds(), next = now + kInterval;
    mine.open_us = static_cast<double>(now - begin) / 1e3;
    std::vector<double> refreshes;
    std::string value;
    workload::Random random(100 + number);
    while (!shared.stops) {
      for (std::uint64_t i = 0; i < kGroup; ++i)
        if (!reader.Get(keys_[random.Next() % options_.n], &value)) return false;
      mine.reads += kGroup;
      now = Nanoseconds();
      if (now < next) continue;
      next = now + kInterval;
      bool is_newer = false;
      if (!reader.Refresh(&is_newer)) return false;
      if (is_newer) refreshes.push_back(static_cast<double>(Nanoseconds() - now) / 1e3);
    }
    mine.refresh_us = Median(refreshes);
    return true;
  }
  static double Median(std::vector<double> numbers) {
    if (numbers.empty()) return 0;
    std::ranges::sort(numbers);
    return numbers[numbers.size() / 2];
  }

  const SnapshotOptions options_;
  double seconds_ = 1;
  workload::Rows keys_;
  workload::Random random_{1};
  std::unique_ptr<E> engine_;
};

template <class E>
int SnapshotMain(int argc, char** argv) {
  SnapshotOptions options;
  const auto take = [&]([[maybe_unused]] std::string_view argument, auto number) {
    return number("--n=", &options.n) || number("--seconds=", &options.seconds);
  };
  if (!ParseArguments(argc, argv, E::kName, "snapshots", &options.path, take)) return 2;
  Snapshots<E> snapshots(options);
  if (!snapshots.Load()) return std::fprintf(stderr, "%s: cannot make the database\n", argv[0]), 1;
  return ObeyCommands(argv[0], snapshots);
}

}  // namespace hako::compare
