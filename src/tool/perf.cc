#include "tool/perf.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace hako::tool {

Dots::Dots(const PerfOptions& options)
    : is_silent_(options.json),
      num_iterations_(options.num_iterations),
      dot_every_(std::max<std::int64_t>(options.num_iterations / 1000, 1)),
      count_every_(std::max<std::int64_t>(options.num_iterations / 20, 1)) {}

void Dots::Step(std::int64_t iteration) {
  const std::int64_t done = iteration + 1;
  if (done % dot_every_ != 0 || is_silent_) return;
  std::putchar('.');
  is_in_line_ = done % count_every_ != 0;
  if (!is_in_line_) std::printf(" (%08d)\n", static_cast<int>(done));
}

void Dots::Finish() {
  if (is_in_line_) std::printf(" (%08d)\n", static_cast<int>(num_iterations_));
}

void PrintHead(const PerfOptions& options, std::string_view phase) {
  if (options.json) return;
  std::printf("%.*s: impl=%s num_iterations=%lld value_size=%lld num_threads=%lld\n", static_cast<int>(phase.size()), phase.data(),
              options.impl.c_str(), static_cast<long long>(options.num_iterations), static_cast<long long>(options.value_size),
              static_cast<long long>(options.num_threads));
}

namespace {

double Ratio(std::uint64_t part, std::uint64_t whole) { return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole); }

std::uint64_t NumOperations(const PerfOptions& options) { return static_cast<std::uint64_t>(options.num_iterations * options.num_threads); }

double OperationsPerSecond(const PerfOptions& options, const PhaseReport& report) {
  return static_cast<double>(NumOperations(options)) / std::max(report.elapsed, 1e-9);
}

void PrintJson(const PerfOptions& options, const PhaseReport& report) {
  nlohmann::ordered_json object = {{"phase", report.name},
                                   {"impl", options.impl},
                                   {"num_iterations", options.num_iterations},
                                   {"value_size", options.value_size},
                                   {"num_threads", options.num_threads},
                                   {"elapsed_time", report.elapsed},
                                   {"num_records", report.num_records},
                                   {"qps", OperationsPerSecond(options, report)},
                                   {"mem", report.mem},
                                   {"num_buckets", report.num_buckets},
                                   {"load_factor", Ratio(report.num_records, report.num_buckets)},
                                   {"ok", !report.has_error}};
  if (report.sync_elapsed) object["sync_time"] = *report.sync_elapsed;
  if (report.validation_elapsed) object["validation_time"] = *report.validation_elapsed;
  if (report.file_size) object["file_size"] = *report.file_size;
  if (report.data_size) object["eff_data_size"] = *report.data_size;
  if (report.device) {
    const DeviceTraffic& device = *report.device;
    object["dev"] = {{"reads", device.reads},
                     {"writes", device.writes},
                     {"read_bytes", device.read_bytes},
                     {"written_bytes", device.written_bytes},
                     {"second_reads", device.second_reads},
                     {"reads_per_op", Ratio(device.reads, NumOperations(options))},
                     {"writes_per_op", Ratio(device.writes, NumOperations(options))}};
  }
  object["open_time"] = report.open_elapsed;
  object["close_time"] = report.close_elapsed;
  if (report.name == "Getting") {
    object["values_copied"] = options.get_copy;
    object["get_order"] = options.get_order;
    object["miss_percent"] = options.miss_percent;
  }
  if (const LatencyHistogram& latency = report.latency; latency.total() > 0) {
    object["latency_ns"] = {
        {"p50", latency.Percentile(0.5)}, {"p99", latency.Percentile(0.99)}, {"p99.9", latency.Percentile(0.999)}, {"max", latency.max()}};
  }
  std::printf("%s\n", object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
}

}  // namespace

void PrintReport(const PerfOptions& options, const PhaseReport& report) {
  if (options.json) {
    PrintJson(options, report);
    std::fflush(stdout);
    return;
  }
  const std::string done = report.name == "Doing" ? "Done" : absl::StrCat(ToAbsl(report.name), " done");
  std::printf("%s: elapsed_time=%.6f num_records=%lld qps=%.0f mem=%lld\n", done.c_str(), report.elapsed,
              static_cast<long long>(report.num_records), OperationsPerSecond(options, report), static_cast<long long>(report.mem));
  if (report.file_size && report.data_size) {
    std::printf("  file_size=%lld eff_data_size=%lld efficiency=%.2f%%\n", static_cast<long long>(*report.file_size),
                static_cast<long long>(*report.data_size), Ratio(*report.data_size, *report.file_size) * 100);
  }
  std::printf("  num_buckets=%lld load_factor=%.2f\n", static_cast<long long>(report.num_buckets),
              Ratio(report.num_records, report.num_buckets));
  if (report.device) {
    const auto& [reads, writes, read_bytes, written_bytes, second_reads] = *report.device;
    std::printf("  dev: reads=%lld writes=%lld read_bytes=%lld written_bytes=%lld second_reads=%lld reads_per_op=%.3f writes_per_op=%.3f\n",
                static_cast<long long>(reads), static_cast<long long>(writes), static_cast<long long>(read_bytes),
                static_cast<long long>(written_bytes), static_cast<long long>(second_reads), Ratio(reads, NumOperations(options)),
                Ratio(writes, NumOperations(options)));
  }
  if (const LatencyHistogram& latency = report.latency; latency.total() > 0) {
    const auto percentile = [&latency](double share) { return static_cast<unsigned long long>(latency.Percentile(share)); };
    std::printf("  latency_ns: p50=%llu p99=%llu p99.9=%llu max=%llu\n", percentile(0.5), percentile(0.99), percentile(0.999),
                static_cast<unsigned long long>(latency.max()));
  }
  if (options.honest) std::printf("  open_time=%.6f close_time=%.6f\n", report.open_elapsed, report.close_elapsed);
  std::printf("\n");
  std::fflush(stdout);
}

std::int64_t ResidentBytes() {
  long long total = 0;
  long long resident = 0;
  std::FILE* file = std::fopen("/proc/self/statm", "re");
  if (file == nullptr) return 0;
  if (std::fscanf(file, "%lld %lld", &total, &resident) != 2) resident = 0;
  std::fclose(file);
  return resident * sysconf(_SC_PAGESIZE);
}

}  // namespace hako::tool
