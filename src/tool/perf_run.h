// The common part of the runs of perf: phases in several threads, their timing, reports and errors.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "hako/base/status.h"
#include "hako/dbm/dbm.h"
#include "tool/message.h"
#include "tool/perf.h"

namespace hako::tool {

template <class Target>
class PerfRun {
 protected:
  using Clock = std::chrono::steady_clock;
  using Db = std::remove_reference_t<decltype(std::declval<Target&>().db())>;

  explicit PerfRun(const PerfOptions& options) : options_(options), start_mem_(ResidentBytes()), target_(options) {}

  struct Phase {
    std::string_view name;
    bool is_update = false;
    bool truncate = false;
    std::int64_t extra_mem = 0;  // memory of this phase that does not belong to the database
  };

  // Runs task(thread) in every thread. Later phases are skipped if the database could not be
  // opened.
  template <class Task>
  void RunPhase(const Phase& phase, Task task) {
    if (open_failure_ != kExitDone) return;
    PhaseReport report;
    report.name = phase.name;
    Status opened;
    report.open_elapsed = Time([&] { opened = target_.SetUp(phase.is_update, phase.truncate); });
    if (!opened.ok()) {
      open_failure_ = Fail(options_.path, opened);
      return;
    }
    latency_ = LatencyHistogram();
    const std::optional<DeviceTraffic> device_before = DeviceSinceOpen();
    PrintHead(options_, phase.name);
    report.elapsed = Time([&] {
      std::vector<std::thread> threads;
      for (int i = 0; i < options_.num_threads; ++i) threads.emplace_back(task, i);
      for (std::thread& thread : threads) thread.join();
      if (phase.is_update)
        report.sync_elapsed = Measure("Synchronizing", [this] { Check("Synchronize", db().Synchronize(SyncMode::kSoft)); });
      report.device = DeviceSinceOpen();
      if (phase.is_update && options_.validate)
        report.validation_elapsed = Measure("Validating records", [this] { Check("Validate", db().Verify()); });
    });
    if (report.device) Subtract(*device_before, &*report.device);
    report.mem = ResidentBytes() - start_mem_ - phase.extra_mem;
    report.latency = latency_;
    Describe(&report);
    if (phase.truncate && !options_.copy_path.empty()) Check("Copy", target_.Copy(options_.copy_path));
    report.close_elapsed = Time([this] { Check("Close", target_.TearDown()); });
    report.has_error = has_error_;
    PrintReport(options_, report);
  }

  // Calls step(i) for each iteration until it returns false or another thread failed.
  template <class Step>
  void Loop(int thread, Step step) {
    Dots dots(options_);
    LatencyHistogram latency;
    for (std::int64_t i = 0; i < options_.num_iterations && !has_error_.load(std::memory_order_relaxed); ++i) {
      if (!options_.latency) {
        if (!step(i)) break;
      } else {
        const auto start = Clock::now();
        if (!step(i)) break;
        latency.Add(static_cast<std::uint64_t>(std::chrono::nanoseconds(Clock::now() - start).count()));
      }
      if (thread == 0) dots.Step(i);
    }
    if (thread == 0) dots.Finish();
    if (!options_.latency) return;
    const std::lock_guard lock(latency_mutex_);
    latency_.Merge(latency);
  }

  bool Check(const char* operation, const Status& status) {
    if (status.ok()) return true;
    const std::string why = status.message().empty() ? absl::StatusCodeToString(status.code()) : std::string(status.message());
    Complain(absl::StrCat(operation, " failed: ", why), options_.command);
    has_error_ = true;
    return false;
  }

  int ExitCodeOfRun() const { return open_failure_ != kExitDone ? open_failure_ : has_error_ ? kExitNo : kExitDone; }

  Target& target() { return target_; }
  Db& db() { return target_.db(); }
  const PerfOptions& options_;

 private:
  template <class Step>
  static double Time(Step step) {
    const auto start = Clock::now();
    step();
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  template <class Step>
  double Measure(const char* name, Step step) {
    if (!options_.json) std::printf("%s: ... ", name);
    const double elapsed = Time(step);
    if (!options_.json) std::printf("done (elapsed=%.6f)\n", elapsed);
    return elapsed;
  }

  // Returns nullopt without direct I/O.
  std::optional<DeviceTraffic> DeviceSinceOpen() {
    if (!Target::kIsInFile || !options_.access.direct_io) return std::nullopt;
    const Stats stats = db().GetStats();
    return DeviceTraffic{.reads = stats.device_reads,
                         .writes = stats.device_writes,
                         .read_bytes = stats.device_read_bytes,
                         .written_bytes = stats.device_written_bytes,
                         .second_reads = stats.second_reads};
  }
  static void Subtract(const DeviceTraffic& before, DeviceTraffic* traffic) {
    traffic->reads -= before.reads;
    traffic->writes -= before.writes;
    traffic->read_bytes -= before.read_bytes;
    traffic->written_bytes -= before.written_bytes;
    traffic->second_reads -= before.second_reads;
  }

  void Describe(PhaseReport* report) {
    const Stats stats = db().GetStats();
    report->num_records = db().Count();
    report->num_buckets = stats.num_buckets;
    if constexpr (Target::kIsInFile) {
      report->file_size = stats.total_bytes;
      std::uint64_t data_size = 0;
      Check("ProcessEach",
            db().ProcessEach([&data_size](std::string_view key, std::string_view value) { data_size += key.size() + value.size(); }));
      report->data_size = data_size;
    }
  }

  const std::int64_t start_mem_;
  Target target_;
  std::atomic<bool> has_error_{false};
  int open_failure_ = kExitDone;
  std::mutex latency_mutex_;
  LatencyHistogram latency_;
};

}  // namespace hako::tool
