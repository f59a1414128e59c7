// The driver for loads, kills and openings: records of 16 + 100 bytes in random order, one thread.
// recovery.py runs the programs; each obeys commands on its standard input, one a line, and answers
// each with a line of JSON (engine, command, ms, cpu_ms, and what is named here):
//
//   load      sets all --n records in a new database, which stays open: ns_per_op, cpu_ns_per_op,
//             written and device_written (bytes a record: written_bytes.h)
//   sync      makes all of it durable
//   set M     sets the first M records again, to another value: the same figures as load
//   exit      ends the process at once, as a kill would: the database is not closed
//   open      opens the database, and reads a record
//   check M   reads a hundred thousand records, of which the first M have been set again, and counts all
//   close
//
// Keys are made before the clock starts, and random in their order; a value is copied from a pool
// and stamped, which takes some 10 ns of each operation. --file=PATH (kept), --n=RECORDS,
// --cache=MIB, --checkpoint=MIB (of changed pages that start one; 0 = default; both for trees),
// --log=MIB (that start one; 0 = default), --durability=none|process|power.
#pragma once

#include <unistd.h>

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
#include <vector>

#include "meter.h"
#include "workload.h"
#include "written_bytes.h"

namespace hako::compare {

struct RecoveryOptions {
  std::uint64_t n = 10'000'000, cache = 4096, checkpoint = 0, log = 0;
  std::string path, durability = "process";
};

// Open makes a new database or opens an old one. EndSets: what makes the Sets before complete, on
// the clock. Crash-free engines need no more.
template <class E>
concept RecoveryEngine = std::default_initializable<E> &&
    requires(E& e, const RecoveryOptions& options, std::string_view bytes, std::string* value) {
  { E::kName } -> std::convertible_to<std::string_view>;
  { e.Open(options, true) } -> std::same_as<bool>;
  { e.Set(bytes, bytes) } -> std::same_as<bool>;
  { e.EndSets() } -> std::same_as<bool>;
  { e.Sync() } -> std::same_as<bool>;
  { e.Get(bytes, value) } -> std::same_as<bool>;
  { e.Count() } -> std::same_as<std::uint64_t>;
  { e.Close() } -> std::same_as<bool>;
};

template <RecoveryEngine E>
class Recovery {
 public:
  explicit Recovery(RecoveryOptions options) : options_(std::move(options)), pool_(kPool + kValueSize) {
    workload::WriteValue(0, 0, 1, pool_.data(), pool_.size());
    keys_.Reset(kKeySize, options_.n);
    for (std::uint64_t id = 0; id < options_.n; ++id) {
      const std::uint64_t key[2] = {workload::Mix(id), id};
      std::memcpy(keys_.row(id), key, kKeySize);
    }
  }

  bool Obey(const std::string& command) {
    std::istringstream words(command);
    std::string verb;
    std::uint64_t count = 0;
    words >> verb >> count;
    if (verb == "load") return engine_.Open(options_, true) && Sets("load", options_.n, 0);
    if (verb == "set") return count <= options_.n && Sets("set", count, 1);
    if (verb == "exit") _exit(0);
    std::string value;
    if (verb == "open") return Time("open", [&] { return engine_.Open(options_, false) && engine_.Get(keys_[0], &value); });
    if (verb == "sync") return Time("sync", [&] { return engine_.Sync(); });
    if (verb == "check") return Time("check", [&] { return Check(count); });
    if (verb == "close") return Time("close", [&] { return engine_.Close(); });
    return false;
  }

 private:
  static constexpr std::size_t kKeySize = 16, kValueSize = 100, kPool = 1 << 18;  // stays in the second-level cache

  void WriteValue(std::uint64_t id, std::uint64_t generation, char* out) const {
    const std::uint64_t word = workload::Mix(id * 2 + generation);
    std::memcpy(out, pool_.data() + word % kPool, kValueSize);
    std::memcpy(out, &word, sizeof(word));
  }

  template <class Body>
  bool Time(const char* command, Body body) {
    const std::uint64_t start = Nanoseconds(), cpu = CpuNanoseconds();
    const bool good = body();
    std::printf("{\"engine\":\"%s\",\"command\":\"%s\",\"ms\":%.2f,\"cpu_ms\":%.2f}\n", std::string(E::kName).c_str(), command,
                static_cast<double>(Nanoseconds() - start) / 1e6, static_cast<double>(CpuNanoseconds() - cpu) / 1e6);
    std::fflush(stdout);
    return good;
  }

  bool Sets(const char* command, std::uint64_t count, std::uint64_t generation) {
    const WrittenBytes before = WrittenBytes::Now(options_.path);
    const std::uint64_t start = Nanoseconds(), cpu = CpuNanoseconds();
    char value[kValueSize];
    bool good = true;
    for (std::uint64_t id = 0; id < count; ++id) {
      WriteValue(id, generation, value);
      good = engine_.Set(keys_[id], {value, kValueSize}) && good;
    }
    good = engine_.EndSets() && good;
    const double n = static_cast<double>(count), ns = static_cast<double>(Nanoseconds() - start),
                 cpu_ns = static_cast<double>(CpuNanoseconds() - cpu);
    const WrittenBytes written = WrittenBytes::Now(options_.path) - before;
    std::printf(
        "{\"engine\":\"%s\",\"command\":\"%s\",\"ms\":%.2f,\"ns_per_op\":%.1f,\"cpu_ns_per_op\":%.1f,\"written\":%.1f,"
        "\"device_written\":%.1f}\n",
        std::string(E::kName).c_str(), command, ns / 1e6, ns / n, cpu_ns / n, static_cast<double>(written.process) / n,
        static_cast<double>(written.device) / n);
    std::fflush(stdout);
    return good;
  }

  bool Check(std::uint64_t num_set_again) {
    const std::uint64_t step = std::max<std::uint64_t>(1, options_.n / 100'000);
    char expected[kValueSize];
    std::string value;
    for (std::uint64_t id = 0; id < options_.n; id += step) {
      WriteValue(id, id < num_set_again ? 1 : 0, expected);
      if (!engine_.Get(keys_[id], &value) || value != std::string_view(expected, kValueSize)) return false;
    }
    return engine_.Count() == options_.n;
  }

  const RecoveryOptions options_;
  std::vector<char> pool_;
  workload::Rows keys_;
  E engine_;
};

template <RecoveryEngine E>
int RecoveryMain(int argc, char** argv) {
  RecoveryOptions options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const auto number = [&](std::string_view name, std::uint64_t* out) {
      return argument.starts_with(name) && std::from_chars(argument.data() + name.size(), argument.end(), *out).ptr == argument.end();
    };
    if (argument.starts_with("--file="))
      options.path = argument.substr(7);
    else if (argument.starts_with("--durability="))
      options.durability = argument.substr(13);
    else if (!number("--n=", &options.n) && !number("--cache=", &options.cache) && !number("--checkpoint=", &options.checkpoint) &&
             !number("--log=", &options.log))
      return std::fputs("the options and commands are described in recovery.h\n", stderr), 2;
  }
  Recovery<E> recovery(options);
  return ObeyCommands(argv[0], recovery);
}

}  // namespace hako::compare
