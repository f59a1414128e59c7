// hako perf: what is measured, and how it is told. The phases themselves are in perf_sequence.h.
//
// "sequence" prints what tkrzw_dbm_perf prints, line for line, so that scripts and eyes trained on that tool go on working. Two things
// differ on purpose: `mem` is bytes (there: KiB times 1000), and errors of the command line end with exit code 2.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <string_view>

#include "hako/base/status.h"

namespace hako::tool {

struct PerfOptions {
  std::string impl = "auto";  // as given
  std::string path;
  std::string device = "mmap-para";
  std::string copy_path;
  std::int64_t num_iterations = 10000;  // of each thread
  std::int64_t value_size = 8;
  std::int64_t num_threads = 1;
  std::int64_t random_seed = 0;  // negative: from the system's entropy, other keys in each phase
  std::int64_t num_buckets = -1;
  std::int64_t align_pow = -1;
  bool sync_hard = false, json = false;
  bool random_key = false, random_value = false, validate = false;
  bool set_only = false, get_only = false, iter_only = false, remove_only = false;
  bool get_copy = false;

  bool IsAll() const { return !set_only && !get_only && !iter_only && !remove_only; }
};

// The keys of one thread in one phase: decimal, at least 8 digits. Every phase starts the same stream again.
class KeyStream {
 public:
  KeyStream(const PerfOptions& options, int thread);
  std::string_view Next(std::int64_t iteration);

 private:
  bool is_random_;
  std::int64_t num_threads_;
  int thread_;
  std::mt19937 generator_;
  std::uniform_int_distribution<std::int32_t> distribution_;
  char buffer_[16];
};

// The values that one thread sets: slices of one buffer of letters.
class ValueStream {
 public:
  ValueStream(const PerfOptions& options, int thread);
  std::string_view Next(std::int64_t iteration);

 private:
  bool is_random_;
  std::size_t size_;
  std::mt19937 generator_;
  std::uniform_int_distribution<std::int32_t> distribution_;
  std::string buffer_;
};

// The dots that thread 0 prints on its way.
class Dots {
 public:
  explicit Dots(const PerfOptions& options);
  void Step(std::int64_t iteration);  // called after each, from 0
  void Finish();

 private:
  bool is_silent_;
  std::int64_t num_iterations_, dot_every_, count_every_;
  bool is_in_line_ = false;
};

struct PhaseReport {
  std::string_view name;  // "Setting"
  double elapsed = 0;
  std::optional<double> sync_elapsed, validation_elapsed;
  std::uint64_t num_records = 0;
  std::int64_t mem = 0;
  std::optional<std::uint64_t> file_size, data_size;  // of databases in a file; keys and values alone
  std::uint64_t num_buckets = 0;
  bool has_error = false;
};

void PrintHead(const PerfOptions& options, std::string_view phase);
void PrintReport(const PerfOptions& options, const PhaseReport& report);

// Memory of this process, in bytes.
std::int64_t ResidentBytes();

// A status in the words of Tkrzw: "NOT_FOUND_ERROR", "SYSTEM_ERROR: message".
std::string TkrzwName(const Status& status);

}  // namespace hako::tool
