#include "tool/perf.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace hako::tool {
namespace {

constexpr std::size_t kPatternSize = 2039;  // a prime, so that the slices of values do not repeat soon

std::uint32_t Seed(const PerfOptions& options, std::int64_t seed) {
  return options.random_seed < 0 ? std::random_device()() : static_cast<std::uint32_t>(seed);
}

}  // namespace

KeyStream::KeyStream(const PerfOptions& options, int thread)
    : is_random_(options.random_key),
      num_threads_(options.num_threads),
      thread_(thread),
      generator_(Seed(options, options.random_seed + thread)),
      distribution_(0, static_cast<std::int32_t>(options.num_iterations * options.num_threads - 1)) {}

std::string_view KeyStream::Next(std::int64_t iteration) {
  const std::int64_t number = is_random_ ? distribution_(generator_) : iteration * num_threads_ + thread_;
  char digits[16];
  const auto size = static_cast<std::size_t>(std::to_chars(digits, digits + sizeof(digits), number).ptr - digits);
  const std::size_t padding = size < 8 ? 8 - size : 0;
  std::fill_n(buffer_, padding, '0');
  std::copy_n(digits, size, buffer_ + padding);
  return {buffer_, padding + size};
}

ValueStream::ValueStream(const PerfOptions& options, int thread)
    : is_random_(options.random_value),
      size_(static_cast<std::size_t>(options.value_size)),
      generator_(Seed(options, options.random_seed * 2 + thread + 1)),
      distribution_(0, static_cast<std::int32_t>(options.value_size)),
      buffer_(size_ + kPatternSize, '\0') {
  for (std::size_t i = 0; i < buffer_.size(); ++i)
    buffer_[i] = static_cast<char>('a' + (static_cast<std::size_t>(thread) + i) % (i % 2 == 1 ? 26 : 9));
}

std::string_view ValueStream::Next(std::int64_t iteration) {
  const auto i = static_cast<std::uint32_t>(iteration);
  const std::size_t offset = i * (i + 1) % kPatternSize;
  return std::string_view(buffer_).substr(offset, is_random_ ? static_cast<std::size_t>(distribution_(generator_)) : size_);
}

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

double OperationsPerSecond(const PerfOptions& options, const PhaseReport& report) {
  return static_cast<double>(options.num_iterations * options.num_threads) / std::max(report.elapsed, 1e-9);
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
  if (report.name == "Getting") object["values_copied"] = options.get_copy;
  std::printf("%s\n", object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
}

}  // namespace

void PrintReport(const PerfOptions& options, const PhaseReport& report) {
  if (options.json) {
    PrintJson(options, report);
    std::fflush(stdout);
    return;
  }
  std::printf("%.*s done: elapsed_time=%.6f num_records=%lld qps=%.0f mem=%lld\n", static_cast<int>(report.name.size()), report.name.data(),
              report.elapsed, static_cast<long long>(report.num_records), OperationsPerSecond(options, report),
              static_cast<long long>(report.mem));
  if (report.file_size && report.data_size) {
    std::printf("  file_size=%lld eff_data_size=%lld efficiency=%.2f%%\n", static_cast<long long>(*report.file_size),
                static_cast<long long>(*report.data_size), Ratio(*report.data_size, *report.file_size) * 100);
  }
  std::printf("  num_buckets=%lld load_factor=%.2f\n", static_cast<long long>(report.num_buckets),
              Ratio(report.num_records, report.num_buckets));
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

std::string TkrzwName(const Status& status) {
  const char* name = "UNKNOWN_ERROR";
  switch (status.code()) {
    case absl::StatusCode::kOk:
      name = "SUCCESS";
      break;
    case absl::StatusCode::kNotFound:
      name = "NOT_FOUND_ERROR";
      break;
    case absl::StatusCode::kAlreadyExists:
      name = "DUPLICATION_ERROR";
      break;
    case absl::StatusCode::kAborted:
      name = "INFEASIBLE_ERROR";
      break;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      name = "INVALID_ARGUMENT_ERROR";
      break;
    case absl::StatusCode::kFailedPrecondition:
      name = "PRECONDITION_ERROR";
      break;
    case absl::StatusCode::kPermissionDenied:
      name = "PERMISSION_ERROR";
      break;
    case absl::StatusCode::kDataLoss:
      name = "BROKEN_DATA_ERROR";
      break;
    case absl::StatusCode::kUnimplemented:
      name = "NOT_IMPLEMENTED_ERROR";
      break;
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kUnavailable:
      name = "SYSTEM_ERROR";
      break;
    default:
      break;
  }
  return status.message().empty() ? name : absl::StrCat(name, ": ", status.message());
}

}  // namespace hako::tool
