#include "tool/perf_stalls.h"

#include <cstdio>
#include <nlohmann/json.hpp>

namespace hako::tool {
namespace {

double Microseconds(std::uint64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1000; }

void PrintHalf(const LatencyHistogram& latency) {
  std::printf(" %9llu %8.1f %9.1f %10.1f", static_cast<unsigned long long>(latency.total()), Microseconds(latency.Percentile(0.5)),
              Microseconds(latency.Percentile(0.999)), Microseconds(latency.max()));
}

nlohmann::ordered_json ToJson(const LatencyHistogram& latency) {
  return {{"count", latency.total()}, {"p50", latency.Percentile(0.5)}, {"p99.9", latency.Percentile(0.999)}, {"max", latency.max()}};
}

}  // namespace

void PrintStallHead(const PerfOptions& options) {
  if (options.json) return;
  std::printf("Stalls: impl=%s num_records=%lld value_size=%lld; microseconds of single Gets and %sSets beside each operation\n",
              options.impl.c_str(), static_cast<long long>(options.num_records), static_cast<long long>(options.value_size),
              options.durable ? "durable " : "");
  std::printf("%-12s %9s %9s %8s %9s %10s %9s %8s %9s %10s\n", "operation", "seconds", "gets", "p50", "p99.9", "longest", "sets", "p50",
              "p99.9", "longest");
}

void PrintStalls(const PerfOptions& options, std::string_view operation, const StallReport& report) {
  if (options.json) {
    const nlohmann::ordered_json object = {
        {"operation", operation},           {"impl", options.impl},          {"num_records", options.num_records},
        {"value_size", options.value_size}, {"durable", options.durable},    {"elapsed_time", report.elapsed},
        {"get_ns", ToJson(report.gets)},    {"set_ns", ToJson(report.sets)}, {"ok", report.status.ok()}};
    std::printf("%s\n", object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
  } else {
    std::printf("%-12.*s %9.3f", static_cast<int>(operation.size()), operation.data(), report.elapsed);
    PrintHalf(report.gets);
    PrintHalf(report.sets);
    std::printf("\n");
  }
  std::fflush(stdout);
}

}  // namespace hako::tool
