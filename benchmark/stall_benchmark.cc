// How long single Gets and Sets wait beside each maintenance operation, for every DBM: "hako perf
// --stalls" under google-benchmark, which repeats and compares runs. The time of a benchmark is
// that of the operation; the waits are its counters, in microseconds.
//
// Files lie in $TMPDIR, else /tmp. The harvest after a kill is measured by the tool only, as it
// needs a process that dies.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "hako/hako.h"
#include "tool/stall_meter.h"
#include "tool/stall_operations.h"

namespace hako {
namespace {

using benchmark::State;
using tool::StallRecords;

struct Size {
  std::uint64_t records = 1'000'000;
  std::size_t huge = 128 << 20;
};

// A separate database for each benchmark, removed with the object.
template <class D>
class Database {
 public:
  explicit Database(const Size& size) : db_(Open(path_, size)) {}
  ~Database() {
    if (db_.ok()) (void)(*db_)->Close();
    std::filesystem::remove(path_);
  }
  Status status() const { return db_.status(); }
  D& db() { return **db_; }
  std::string copy_path() const { return path_ + ".copy"; }

 private:
  static StatusOr<std::unique_ptr<D>> Open(const std::string& path, const Size& size) {
    if constexpr (!requires(D & db) { db.Rebuild(); }) {
      return D::Open();
    } else if constexpr (OrderedDBM<D>) {  // in a tenth of the memory that its pages take
      return D::Open(path, {.cache_bytes = std::max<std::uint64_t>(1 << 20, size.records * 116 / 10)}, {.mode = OpenMode::kTruncate});
    } else {
      return D::Open(path, {}, {.mode = OpenMode::kTruncate});
    }
  }

  const std::string path_ = std::filesystem::temp_directory_path() / ("hako_stall_benchmark." + std::to_string(getpid()));
  StatusOr<std::unique_ptr<D>> db_;
};

void SetCounters(State& state, const char* name, const tool::LatencyHistogram& latency) {
  const auto set = [&](const char* what, std::uint64_t nanoseconds) {
    state.counters[std::string(name) + what] = static_cast<double>(nanoseconds) / 1000;
  };
  set("_p50", latency.Percentile(0.5));
  set("_p99.9", latency.Percentile(0.999));
  set("_longest", latency.max());
}

template <class D>
void Beside(State& state, std::string_view operation, const Size& size) {
  const StallRecords records(size.records, 100, size.huge);
  Database<D> database(size);
  Status status = database.status();
  tool::LatencyHistogram gets, sets;
  if (status.ok()) {
    tool::StallOperations<D> operations(
        database.db(), records,
        {.batch_size = size.records / 16, .huge_size = size.huge, .seconds = 0.01, .copy_path = database.copy_path()});
    status = operations.Fill(0, records.size());
    for (auto _ : state) {
      if (status.ok()) status = operations.Prepare(operation);
      if (!status.ok()) break;
      const tool::StallReport report = tool::MeasureStalls(database.db(), records, false, [&] { return operations.Run(operation); });
      state.SetIterationTime(report.elapsed);
      gets.Merge(report.gets);
      sets.Merge(report.sets);
      status = report.status.ok() ? operations.CleanUp(operation) : report.status;
    }
  }
  SetCounters(state, "get", gets);
  SetCounters(state, "set", sets);
  if (!status.ok()) state.SkipWithError(status.ToString().c_str());
}

template <class D>
void Register(const std::string& name, const Size& size) {
  for (const std::string_view operation : tool::kStallOperations) {
    if (!tool::StallOperations<D>::Has(operation)) continue;
    benchmark::RegisterBenchmark((std::string(operation) + "/" + name).c_str(), Beside<D>, operation, size)
        ->UseManualTime()
        ->Iterations(1)
        ->Unit(benchmark::kMillisecond);
  }
}

void RegisterAll() {
  benchmark::AddCustomContext("hako", HAKO_VERSION_STRING);
  benchmark::AddCustomContext("build", HAKO_BUILD_FACTS);
  const Size size = std::getenv("HAKO_BENCHMARK_SMOKE") != nullptr ? Size{1000, 1 << 20} : Size{};
  Register<HashDBM<MemoryMapParallelFile>>("hash/mmap", size);
  Register<HashDBM<PositionalParallelFile>>("hash/pos", size);
  Register<TreeDBM<MemoryMapParallelFile>>("tree/mmap", size);
  Register<TreeDBM<PositionalParallelFile>>("tree/pos", size);
  Register<TinyDBM<>>("tiny", size);
  Register<BabyDBM<>>("baby", size);
}
[[maybe_unused]] const bool registered = (RegisterAll(), true);

}  // namespace
}  // namespace hako
