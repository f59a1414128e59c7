// hako perf: its options and reports. The phases are in perf_sequence.h, perf_parallel.h,
// perf_wicked.h and perf_stalls.h.
//
// The phases print the lines of tkrzw_dbm_perf, so that its published figures can be compared. Only
// `mem` differs: it is in bytes (there: KiB times 1000). The honest modes, which that tool lacks,
// and direct I/O add lines.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hako/base/status.h"
#include "tool/latency.h"
#include "tool/perf_access.h"

namespace hako::tool {

struct PerfOptions {
  std::string command;        // "perf sequence"
  std::string impl = "auto";  // as it was given
  std::string path;
  PerfAccess access;
  std::int64_t num_iterations = 10000;  // iterations of each thread
  std::int64_t value_size = 8;
  std::int64_t num_threads = 1;
  std::int64_t random_seed = 0;  // negative = from the system's entropy, with other keys in each phase
  std::int64_t num_buckets = -1;
  std::int64_t align_pow = -1;
  std::int64_t max_page_size = -1;
  std::int64_t cache_bytes = -1;
  std::int64_t checkpoint_bytes = -1;
  bool sync_hard = false, json = false, latency = false;
  bool random_key = false, random_value = false, validate = false, rebuild = false;

  // sequence
  bool set_only = false, get_only = false, iter_only = false, remove_only = false;
  std::string copy_path;
  bool get_copy = false, honest = false;
  std::string get_order = "same";
  std::int64_t miss_percent = 0;
  // parallel
  std::int64_t num_keys = 0;  // 0 = as many as iterations
  double sleep_seconds = 0;
  // wicked
  bool iterator = false, clear = false, sync = false;
  // stalls
  bool stalls = false, durable = false;
  std::int64_t num_records = 1'000'000;
  std::int64_t huge_size = 128 << 20;
  std::int64_t batch_size = -1;  // -1 = a sixteenth of the records
  double seconds = 1;
  std::vector<std::string> operations;  // empty = all

  bool IsAll() const { return !set_only && !get_only && !iter_only && !remove_only; }
};

// The kinds of runs, and the functions that execute them on one kind of database. They return the
// exit code.
enum class PerfRunKind { kSequence, kParallel, kWicked, kStalls };
int RunPerfOnHash(PerfRunKind run, const PerfOptions& options);
int RunPerfOnTree(PerfRunKind run, const PerfOptions& options);
int RunPerfOnTiny(PerfRunKind run, const PerfOptions& options);
int RunPerfOnBaby(PerfRunKind run, const PerfOptions& options);

// The dots that thread 0 prints during a phase.
class Dots {
 public:
  explicit Dots(const PerfOptions& options);
  void Step(std::int64_t iteration);  // called after each iteration; the first has the number 0
  void Finish();

 private:
  bool is_silent_;
  std::int64_t num_iterations_, dot_every_, count_every_;
  bool is_in_line_ = false;
};

// The device transfers of a phase: the difference of two Stats.
struct DeviceTraffic {
  std::uint64_t reads = 0, writes = 0, read_bytes = 0, written_bytes = 0, second_reads = 0;
};

struct PhaseReport {
  std::string_view name;  // such as "Setting"; "Doing" if there is only one phase
  double elapsed = 0;
  std::optional<double> sync_elapsed, validation_elapsed;
  std::uint64_t num_records = 0;
  std::int64_t mem = 0;
  std::optional<std::uint64_t> file_size, data_size;  // of a database in a file; of the keys and values alone
  std::uint64_t num_buckets = 0;
  std::optional<DeviceTraffic> device;  // of a file with direct I/O, after the open and before the validation
  double open_elapsed = 0, close_elapsed = 0;
  LatencyHistogram latency;  // empty unless requested
  bool has_error = false;
};

void PrintHead(const PerfOptions& options, std::string_view phase);
void PrintReport(const PerfOptions& options, const PhaseReport& report);

// Returns the memory of this process, in bytes.
std::int64_t ResidentBytes();

}  // namespace hako::tool
