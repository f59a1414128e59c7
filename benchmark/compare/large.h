// The driver for data larger than memory and for direct I/O. driver.h makes every operand
// before the clock starts. This driver makes keys and values while it measures, which costs some
// tens of nanoseconds per key and one copy per value: operands of gigabytes would take the memory
// that the engines are measured without.
//
//   large_hako_hash --path=/data/x.hkh --records=100000 --value_size=4000 --phase=fill --phase=sync --phase=get --phase=close
//
// Phases run in the order given and print one line of JSON each:
//
//   fill_seq   Set of every key in ascending order         fill       as many Sets, each of a random key
//   get        Get of random existing keys                 get_multi  the same in groups
//   set        Set of such keys, with another value        scan       all records, in the engine's fastest order
//   sync       all Sets before it survive a power cut    open, close
//
// The database is opened before a phase that needs it, created again if that phase fills it, and
// closed at the end; that prints a line too. Which keys `fill` has drawn follows from --seed; a
// process that opens what another one filled is told so by --drawn.
//
// The key of record i is i in decimal. A value begins with 8 bytes that follow from i, and goes on
// with incompressible bytes out of a pool, at an offset that changes with each Set. Get and scan
// check the length and the first 8 bytes of every value.
//
// A line has: engine, phase, ops (records or keys; 1 of open, sync, close), threads, ns_per_op,
// ops_per_s (wall clock, all threads together), cpu_ns_per_op, with --latency p50_us, p99_us,
// p999_us and max_us of a Get, Set or group; records, file_bytes (allocated), rss_bytes and
// anon_bytes (without file pages) of the process; and of the phase alone, blk_* by the block device
// that the file is on, regardless of the process, io_* by /proc/self/io (io_reads and io_writes
// count system calls), and `counters`, the engine's own.
#pragma once

#include <sys/sysmacros.h>

#include <array>
#include <charconv>
#include <concepts>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "meter.h"
#include "workload.h"

namespace hako::compare {

struct LargeOptions {
  std::string path;
  std::vector<std::string> phases;
  std::uint64_t records = 100'000, ops = 100'000, threads = 1, group = 32, seed = 1;
  std::uint64_t key_size = 8, value_size = 4000;
  std::uint64_t block_size = 4096, cache_bytes = std::uint64_t{64} << 20;          // of the file
  std::uint64_t page_size = 4060, buffer_pool_bytes = std::uint64_t{1000} * 4060;  // of a tree
  std::uint64_t direct = 1, mmap = 0;
  std::uint64_t align_pow = 0, min_read_size = 0;  // 0 = the engine's default; align_pow is Tkrzw's
  bool no_batching = false, no_speculation = false;
  bool drawn = false;
  bool latency = false;

  std::uint64_t FirstRead(std::uint64_t without_speculation) const { return no_speculation ? without_speculation : min_read_size; }

  static std::optional<LargeOptions> Parse(int argc, char** argv) {
    LargeOptions o;
    const std::pair<std::string_view, std::uint64_t*> numbers[] = {{"--records", &o.records},
                                                                   {"--ops", &o.ops},
                                                                   {"--threads", &o.threads},
                                                                   {"--group", &o.group},
                                                                   {"--seed", &o.seed},
                                                                   {"--key_size", &o.key_size},
                                                                   {"--value_size", &o.value_size},
                                                                   {"--block_size", &o.block_size},
                                                                   {"--cache_bytes", &o.cache_bytes},
                                                                   {"--page_size", &o.page_size},
                                                                   {"--direct", &o.direct},
                                                                   {"--buffer_pool_bytes", &o.buffer_pool_bytes},
                                                                   {"--mmap", &o.mmap},
                                                                   {"--align_pow", &o.align_pow},
                                                                   {"--min_read_size", &o.min_read_size}};
    const std::pair<std::string_view, bool*> switches[] = {
        {"--no_batching", &o.no_batching}, {"--no_speculation", &o.no_speculation}, {"--drawn", &o.drawn}, {"--latency", &o.latency}};
    for (int i = 1; i < argc; ++i) {
      const std::string_view argument = argv[i];
      const std::size_t equals = std::min(argument.find('='), argument.size());
      const std::string_view name = argument.substr(0, equals), value = argument.substr(std::min(equals + 1, argument.size()));
      bool good = name == "--path" || name == "--phase";
      if (name == "--path") o.path = value;
      if (name == "--phase") o.phases.emplace_back(value);
      for (const auto& [known, number] : numbers)
        if (name == known)
          good = std::from_chars(value.data(), value.data() + value.size(), *number).ptr == argument.end() && !value.empty();
      for (const auto& [known, on] : switches)
        if (argument == known) good = *on = true;
      if (!good) return Refuse(argument);
    }
    const std::uint64_t records_max = workload::kRecordsMax;
    if (o.path.empty() || o.phases.empty()) return Refuse("--path and --phase are needed");
    if (o.key_size != 8 && o.key_size != 16) return Refuse("--key_size is 8 or 16");
    if (o.records == 0 || o.records > records_max || o.value_size < 8 || o.value_size > records_max)
      return Refuse("--records, --value_size");
    if (o.ops == 0 || o.threads == 0 || o.threads > 1024 || o.group == 0) return Refuse("--ops, --threads, --group");
    return o;
  }

 private:
  static std::optional<LargeOptions> Refuse(std::string_view what) {
    std::fprintf(stderr, "bad argument: %.*s; what there is: large.h\n", static_cast<int>(what.size()), what.data());
    return std::nullopt;
  }
};

using LargeCounters = std::vector<std::pair<std::string, std::uint64_t>>;

// As the Engine of driver.h. Open creates a new database if `create`. GetMulti copies the value of
// keys[i] into values[i]; its result is whether all keys exist. Optional: Counters(), sums
// since Open; BeginPhase(bool writing) and EndPhase(), which run on the clock.
template <class E>
concept LargeEngine = std::default_initializable<E> &&
    requires(E& e, const LargeOptions& options, std::string_view bytes, std::string* value, std::span<const std::string_view> keys,
             std::span<std::optional<std::string>> values, void (*visit)(std::string_view, std::string_view)) {
  { E::kName } -> std::convertible_to<std::string_view>;
  { E::kConcurrent } -> std::convertible_to<bool>;
  { e.Open(options, true) } -> std::same_as<bool>;
  { e.Set(bytes, bytes) } -> std::same_as<bool>;
  { e.Get(bytes, value) } -> std::same_as<bool>;
  { e.GetMulti(keys, values) } -> std::same_as<bool>;
  { e.Scan(visit) } -> std::same_as<bool>;
  { e.Sync() } -> std::same_as<bool>;
  { e.Close() } -> std::same_as<bool>;
};

// Counters of the kernel: the device of the file, and this process.
class IoCounters {
 public:
  static constexpr std::array kNames = {"blk_reads",     "blk_read_bytes", "blk_writes", "blk_written_bytes",
                                        "io_read_bytes", "io_write_bytes", "io_reads",   "io_writes"};
  using Values = std::array<std::uint64_t, kNames.size()>;

  explicit IoCounters(const std::filesystem::path& file) {
    struct stat facts {};
    stat(std::filesystem::absolute(file).parent_path().c_str(), &facts);
    device_ = "/sys/dev/block/" + std::to_string(major(facts.st_dev)) + ":" + std::to_string(minor(facts.st_dev)) + "/stat";
  }

  // Zeros where the kernel does not tell.
  Values Now() const {
    Values values{};
    std::uint64_t fields[7] = {};  // reads, merged, sectors, ms, writes, merged, sectors
    std::ifstream device(device_);
    for (std::uint64_t& field : fields) device >> field;
    values = {fields[0], fields[2] * 512, fields[4], fields[6] * 512};
    std::ifstream own("/proc/self/io");
    std::uint64_t number = 0;
    for (std::string name; own >> name >> number;)
      for (const auto& [known, index] : {std::pair("read_bytes:", 4), {"write_bytes:", 5}, {"syscr:", 6}, {"syscw:", 7}})
        if (name == known) values[static_cast<std::size_t>(index)] = number;
    return values;
  }

 private:
  std::string device_;
};

template <LargeEngine E>
class LargeDriver {
 public:
  explicit LargeDriver(const LargeOptions& options)
      : options_(options), io_(options.path), pool_((std::size_t{256} << 10) + options.value_size) {
    workload::WriteValue(0, 0, 0, pool_.data(), pool_.size());
    if (options.drawn) FindDrawn();
  }

  bool Run() {
    for (const std::string& phase : options_.phases)
      if (!RunPhase(phase)) return std::fprintf(stderr, "%s: %s failed\n", Name().c_str(), phase.c_str()), false;
    return !engine_ || Close();
  }

 private:
  enum class Operation { kFillInOrder, kFill, kGet, kSet };

  bool RunPhase(const std::string& phase) {
    const bool fills = phase == "fill" || phase == "fill_seq";
    if (phase == "close") return engine_ && Close();
    if (phase == "open") return !engine_ && Open(false);
    if (!engine_ && !Open(fills)) return false;
    if (phase == "sync") return Measure("sync", 1, 0, [this] { return engine_->Sync(); });
    if (phase == "scan") return Scan();
    if (phase == "get") return Points("get", Operation::kGet, options_.ops);
    if (phase == "set") return Points("set", Operation::kSet, options_.ops);
    if (phase == "get_multi") return Groups();
    if (!fills) return false;
    const bool in_order = phase == "fill_seq";
    ids_.clear();
    if (!in_order) FindDrawn();
    return Points(phase.c_str(), in_order ? Operation::kFillInOrder : Operation::kFill, options_.records);
  }

  bool Open(bool create) {
    engine_.emplace();
    if (Measure(
            "open", 1, 0, [this, create] { return engine_->Open(options_, create); }, false))
      return true;
    engine_.reset();
    return false;
  }
  bool Close() {
    const bool good = Measure(
        "close", 1, 0, [this] { return engine_->Close(); }, false);
    engine_.reset();
    return good;
  }

  bool Points(const char* name, Operation operation, std::uint64_t n) {
    return Measure(name, n, options_.latency ? n : 0, [this, operation, n] {
      const bool good = Begin(operation != Operation::kGet);
      const auto failures = Spread(options_.threads, n, [this, operation](std::size_t begin, std::size_t end) {
        return options_.latency ? Loop<true>(operation, begin, end) : Loop<false>(operation, begin, end);
      });
      return Count(failures) && End() && good;
    });
  }

  // How many operations failed or returned anything wrong.
  template <bool kTimed>
  [[gnu::noinline]] std::uint64_t Loop(Operation operation, std::uint64_t begin, std::uint64_t end) {
    char digits[16];
    const std::string_view key(digits, options_.key_size);
    std::string value(options_.value_size, '\0');
    std::uint64_t failures = 0;
    for (std::uint64_t i = begin; i < end; ++i) {
      const std::uint32_t id = IdOf(operation, i);
      workload::WriteDecimal(id, options_.key_size, digits);
      if (operation != Operation::kGet) WriteValue(id, operation == Operation::kSet ? i + 1 : 0, value.data());
      const std::uint64_t start = kTimed ? Nanoseconds() : 0;
      const bool good = operation == Operation::kGet ? engine_->Get(key, &value) && IsValue(id, value) : engine_->Set(key, value);
      if (kTimed) Sample(i, Nanoseconds() - start);
      failures += good ? 0 : 1;
    }
    return failures;
  }

  bool Groups() {
    const std::uint64_t num_groups = std::max<std::uint64_t>(1, options_.ops / options_.group);
    return Measure("get_multi", num_groups * options_.group, options_.latency ? num_groups : 0, [this, num_groups] {
      const bool good = Begin(false);
      return Count(Spread(options_.threads, num_groups, [this](std::size_t begin, std::size_t end) { return GroupLoop(begin, end); })) &&
             End() && good;
    });
  }

  [[gnu::noinline]] std::uint64_t GroupLoop(std::uint64_t begin, std::uint64_t end) {
    const std::size_t group = options_.group;
    workload::Rows digits;
    digits.Reset(options_.key_size, group);
    std::vector<std::string_view> keys(group);
    for (std::size_t k = 0; k < group; ++k) keys[k] = digits[k];
    std::vector<std::uint32_t> ids(group);
    std::vector<std::optional<std::string>> values(group);
    std::uint64_t failures = 0;
    for (std::uint64_t i = begin; i < end; ++i) {
      for (std::size_t k = 0; k < group; ++k) {
        ids[k] = IdOf(Operation::kGet, i * group + k);
        workload::WriteDecimal(ids[k], options_.key_size, digits.row(k));
      }
      const std::uint64_t start = options_.latency ? Nanoseconds() : 0;
      const bool good = engine_->GetMulti(keys, values);
      if (options_.latency) Sample(i, Nanoseconds() - start);
      failures += good ? 0 : 1;
      for (std::size_t k = 0; k < group; ++k) failures += values[k] && IsValue(ids[k], *values[k]) ? 0 : 1;
    }
    return failures;
  }

  bool Scan() {
    return Measure("scan", NumRecords(), 0, [this] {
      std::uint64_t seen = 0, failures = 0;
      const auto visit = [&](std::string_view key, std::string_view value) {
        std::uint32_t id = 0;
        std::from_chars(key.data(), key.data() + key.size(), id);
        failures += key.size() == options_.key_size && IsValue(id, value) ? 0 : 1;
        ++seen;
      };
      const bool good = Begin(false) && engine_->Scan(visit) && End();
      return good && Count(failures + (seen > NumRecords() ? seen - NumRecords() : NumRecords() - seen));
    });
  }

  bool Begin(bool writing) {
    if constexpr (requires { engine_->BeginPhase(writing); }) return engine_->BeginPhase(writing);
    return true;
  }
  bool End() {
    if constexpr (requires { engine_->EndPhase(); }) return engine_->EndPhase();
    return true;
  }
  bool Count(std::uint64_t failures) const {
    if (failures != 0)
      std::fprintf(stderr, "%s: %llu operations failed or returned anything wrong\n", Name().c_str(),
                   static_cast<unsigned long long>(failures));
    return failures == 0;
  }

  // The i-th draw of an operation, in [0, bound), regardless of the thread.
  std::uint32_t Draw(Operation operation, std::uint64_t i, std::uint64_t bound) const {
    const std::uint64_t stream = workload::Mix(options_.seed ^ workload::Mix(static_cast<std::uint64_t>(operation)));
    return static_cast<std::uint32_t>(((workload::Mix(stream + i * 0x9e3779b97f4a7c15) >> 32) * bound) >> 32);
  }
  std::uint32_t IdOf(Operation operation, std::uint64_t i) const {
    if (operation == Operation::kFillInOrder) return static_cast<std::uint32_t>(i);
    if (operation == Operation::kFill || ids_.empty()) return Draw(operation, i, options_.records);
    return ids_[Draw(operation, i, ids_.size())];
  }
  void FindDrawn() {
    std::vector<bool> drawn(options_.records);
    for (std::uint64_t i = 0; i < options_.records; ++i) drawn[Draw(Operation::kFill, i, options_.records)] = true;
    ids_.clear();
    for (std::uint32_t id = 0; id < options_.records; ++id)
      if (drawn[id]) ids_.push_back(id);
  }
  std::uint64_t NumRecords() const { return ids_.empty() ? options_.records : ids_.size(); }

  void WriteValue(std::uint32_t id, std::uint64_t generation, char* out) const {
    const std::uint64_t head = workload::Mix(id);
    std::memcpy(out, &head, sizeof(head));
    const std::uint64_t offset = workload::Mix(head + generation) % (pool_.size() - options_.value_size);
    std::memcpy(out + sizeof(head), pool_.data() + offset, options_.value_size - sizeof(head));
  }
  bool IsValue(std::uint32_t id, std::string_view value) const {
    const std::uint64_t head = workload::Mix(id);
    return value.size() == options_.value_size && std::memcmp(value.data(), &head, sizeof(head)) == 0;
  }

  std::string Name() const { return std::string(E::kName) + (options_.mmap != 0 ? "_mmap" : ""); }

  void Sample(std::uint64_t index, std::uint64_t ns) { samples_[index] = static_cast<std::uint32_t>(std::min<std::uint64_t>(ns, ~0u)); }

  LargeCounters Counters() {
    if constexpr (requires { engine_->Counters(); }) return engine_->Counters();
    return {};
  }

  // Runs the body, which is `n` operations, and prints the line. `counts`: the database is open
  // before and after.
  template <class Body>
  bool Measure(const char* name, std::uint64_t n, std::uint64_t num_samples, Body body, bool counts = true) {
    samples_.assign(num_samples, 0);
    const LargeCounters counters_before = counts ? Counters() : LargeCounters();
    const IoCounters::Values io_before = io_.Now();
    const std::uint64_t cpu_start = CpuNanoseconds(), start = Nanoseconds();
    const bool good = body();
    const std::uint64_t ns = Nanoseconds() - start, cpu_ns = CpuNanoseconds() - cpu_start;
    const IoCounters::Values io_after = io_.Now();
    const LargeCounters counters_after = counts ? Counters() : LargeCounters();
    if (!good) return false;

    const double ops = static_cast<double>(n), per_op = static_cast<double>(ns) / ops;
    std::printf(
        "{\"engine\":\"%s\",\"phase\":\"%s\",\"ops\":%llu,\"threads\":%llu,\"ns_per_op\":%.1f,\"ops_per_s\":%.1f,\"cpu_ns_per_op\":%.1f,",
        Name().c_str(), name, ull(n), ull(options_.threads), per_op, 1e9 / per_op, static_cast<double>(cpu_ns) / ops);
    if (!samples_.empty()) {
      std::sort(samples_.begin(), samples_.end());
      for (const auto& [quantile, at] : {std::pair("p50", .5), {"p99", .99}, {"p999", .999}, {"max", 1.}})
        std::printf("\"%s_us\":%.1f,", quantile, samples_[static_cast<std::size_t>(at * static_cast<double>(samples_.size() - 1))] / 1000.);
    }
    unsigned long long pages[3] = {};  // size, resident, shared
    std::ifstream memory("/proc/self/statm");
    for (unsigned long long& field : pages) memory >> field;
    const auto page_size = static_cast<unsigned long long>(sysconf(_SC_PAGESIZE));
    std::printf("\"records\":%llu,\"file_bytes\":%llu,\"rss_bytes\":%llu,\"anon_bytes\":%llu", ull(NumRecords()), FileBytes(),
                pages[1] * page_size, (pages[1] - pages[2]) * page_size);
    for (std::size_t i = 0; i < io_after.size(); ++i) std::printf(",\"%s\":%llu", IoCounters::kNames[i], ull(io_after[i] - io_before[i]));
    std::printf(",\"counters\":{");
    for (std::size_t i = 0; i < counters_after.size(); ++i)
      std::printf("%s\"%s\":%llu", i == 0 ? "" : ",", counters_after[i].first.c_str(),
                  ull(counters_after[i].second - counters_before[i].second));
    std::printf("}}\n");
    std::fflush(stdout);
    return true;
  }

  static unsigned long long ull(std::uint64_t number) { return number; }

  // The database may be a folder.
  unsigned long long FileBytes() const {
    unsigned long long blocks = 0;
    struct stat facts;
    if (stat(options_.path.c_str(), &facts) == 0) blocks = static_cast<unsigned long long>(facts.st_blocks);
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(options_.path, error))
      if (stat(entry.path().c_str(), &facts) == 0) blocks += static_cast<unsigned long long>(facts.st_blocks);
    return blocks * 512;
  }

  const LargeOptions& options_;
  const IoCounters io_;
  std::vector<char> pool_;          // what values are cut from
  std::vector<std::uint32_t> ids_;  // the records that exist; empty = all
  std::optional<E> engine_;         // while open
  std::vector<std::uint32_t> samples_;
};

// E, or MappedE where --mmap=1 says so.
template <class E, class MappedE = E>
int LargeMain(int argc, char** argv) {
  const std::optional<LargeOptions> options = LargeOptions::Parse(argc, argv);
  if (!options) return 2;
  if (!E::kConcurrent && options->threads > 1) return std::fprintf(stderr, "%s: one thread only\n", std::string(E::kName).c_str()), 2;
  return (options->mmap != 0 ? LargeDriver<MappedE>(*options).Run() : LargeDriver<E>(*options).Run()) ? 0 : 1;
}

}  // namespace hako::compare
