// Definitions of server/metrics.h.
#include "server/metrics.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <cstdint>
#include <ios>
#include <sstream>
#include <utility>
#include <vector>

#include "hako/dbm/any_options.h"
#include "hako/dbm/log_place.h"
#include "hako/version.h"
#include "prometheus/client_metric.h"
#include "prometheus/metric_family.h"
#include "prometheus/metric_type.h"
#include "prometheus/text_serializer.h"
#include "server/command.h"
#include "server/command_table.h"
#include "server/process_memory.h"

namespace hako::server {

namespace {

using prometheus::ClientMetric;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

// Builds the families, one by one.
class Exposition {
 public:
  // Begins a family, whose samples follow.
  void Begin(const char* name, MetricType type, const char* help) { families_.push_back({name, help, type, {}}); }
  // Adds a sample to a family of counters or gauges.
  template <class N>
  void Add(N value, const Labels& labels = {}) {
    ClientMetric& sample = families_.back().metric.emplace_back();
    sample.label = labels;
    sample.counter.value = sample.gauge.value = static_cast<double>(value);
  }
  void Add(ClientMetric::Histogram histogram, const Labels& labels) {
    ClientMetric& sample = families_.back().metric.emplace_back();
    sample.label = labels;
    sample.histogram = std::move(histogram);
  }
  template <class N>
  void Counter(const char* name, const char* help, N value) {
    Begin(name, MetricType::Counter, help);
    Add(value);
  }
  template <class N>
  void Gauge(const char* name, const char* help, N value) {
    Begin(name, MetricType::Gauge, help);
    Add(value);
  }
  std::string Text() const {
    std::ostringstream text;
    text.exceptions(std::ios::badbit);  // else a failed allocation would cut the text
    prometheus::TextSerializer().Serialize(text, families_);
    return std::move(text).str();
  }

 private:
  std::vector<prometheus::MetricFamily> families_;
};

void AddProcess(const ServerState& server, Exposition& out) {
  out.Begin("hako_build_info", MetricType::Gauge, "The version of the server; the value is always 1.");
  out.Add(1, {{"version", HAKO_VERSION_STRING}});
  out.Begin("hako_database_info", MetricType::Gauge, "The database as the option db names it; the value is always 1.");
  out.Add(1, {{"db", server.settings.database}});
  out.Gauge("process_start_time_seconds", "When the server was started, in seconds since 1970.", server.started_on / 1'000'000);
  out.Gauge("process_resident_memory_bytes", "Memory that the server has.", ResidentBytes());
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) { return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6; };
  out.Counter("process_cpu_seconds_total", "Processor time that the server has used.", seconds(usage.ru_utime) + seconds(usage.ru_stime));
}

void AddClients(const ServerState& server, Exposition& out) {
  out.Gauge("hako_connected_clients", "Clients that are connected.", server.clients.size());
  out.Gauge("hako_max_clients", "The limit of that, maxclients.", server.settings.clients_max.load());
  out.Counter("hako_connections_total", "Clients accepted.", Sum(server, &ThreadCounters::connections));
  out.Counter("hako_rejected_connections_total", "Clients refused for maxclients.", Sum(server, &ThreadCounters::rejected_connections));
  out.Counter("hako_tls_handshake_failures_total", "Clients whose TLS handshake failed.", Sum(server, &ThreadCounters::tls_failures));
  out.Counter("hako_received_bytes_total", "Bytes received from clients, before decryption.", Sum(server, &ThreadCounters::input_bytes));
  out.Counter("hako_sent_bytes_total", "Bytes sent to clients, after encryption.", Sum(server, &ThreadCounters::output_bytes));
}

// The calls of one command in all threads. Other threads may change the counters meanwhile, so the
// count of a histogram is computed from its buckets.
struct CommandSum {
  const Command* command;
  std::uint64_t calls = 0, nanoseconds = 0, failed = 0, rejected = 0;
  std::uint64_t buckets[CommandCounters::kBuckets] = {};

  CommandSum(const ServerState& server, const Command& of) : command(&of) {
    for (const CommandThread* const thread : server.threads) {
      const CommandCounters& counters = thread->counters.commands[CommandIndex(of)];
      nanoseconds += counters.nanoseconds.value();
      failed += counters.failed.value();
      rejected += counters.rejected.value();
      for (std::size_t i = 0; i < CommandCounters::kBuckets; ++i) buckets[i] += counters.histogram[i].value();
    }
    for (const std::uint64_t bucket : buckets) calls += bucket;
  }
  Labels labels() const { return {{"cmd", std::string(command->name)}}; }
};

// Bucket i of the server counts calls of less than 2^i microseconds; every second bucket is shown.
ClientMetric::Histogram HistogramOf(const CommandSum& sum) {
  static constexpr std::size_t kLast = 26;  // 67 seconds
  ClientMetric::Histogram histogram = {sum.calls, static_cast<double>(sum.nanoseconds) / 1e9, {}};
  std::uint64_t calls = 0;
  for (std::size_t i = 0; i <= kLast; ++i) {
    calls += sum.buckets[i];
    if (i % 2 == 0) histogram.bucket.push_back({calls, static_cast<double>(std::uint64_t{1} << i) / 1e6});
  }
  return histogram;
}

void AddCommands(const ServerState& server, Exposition& out) {
  std::vector<CommandSum> sums;
  for (const Command& command : AllCommands()) {
    CommandSum sum(server, command);
    if (sum.calls + sum.rejected > 0) sums.push_back(sum);
  }
  out.Begin("hako_commands_total", MetricType::Counter, "Calls of a command.");
  for (const CommandSum& sum : sums) out.Add(sum.calls, sum.labels());
  out.Begin("hako_commands_failed_total", MetricType::Counter, "Calls of a command that replied an error.");
  for (const CommandSum& sum : sums) out.Add(sum.failed, sum.labels());
  out.Begin("hako_commands_rejected_total", MetricType::Counter,
            "Calls of a command that were refused: a wrong number of arguments, or no permission.");
  for (const CommandSum& sum : sums) out.Add(sum.rejected, sum.labels());
  out.Begin("hako_command_seconds", MetricType::Histogram,
            "How long calls of a command take, without the wait for the log and the socket.");
  for (const CommandSum& sum : sums) out.Add(HistogramOf(sum), sum.labels());
  out.Counter("hako_error_replies_total", "Errors replied.", Sum(server, &ThreadCounters::errors));
  out.Gauge("hako_slow_log_entries", "Commands in SLOWLOG.", server.slow_log.size());
}

// Returns the size of the database's log; 0 if there is none.
std::uint64_t LogBytes(const Settings& settings) {
  const auto options = ParseAnyOptions(settings.database);
  if (!options.ok() || options->path.empty()) return 0;
  struct stat file = {};
  return stat(LogPathOf(options->path).c_str(), &file) == 0 ? static_cast<std::uint64_t>(file.st_size) : 0;
}

void AddDatabase(const ServerState& server, Exposition& out) {
  const Stats stats = server.database.GetStats();
  out.Counter("hako_keyspace_hits_total", "Keys looked up and found.", Sum(server, &ThreadCounters::hits));
  out.Counter("hako_keyspace_misses_total", "Keys looked up and absent.", Sum(server, &ThreadCounters::misses));
  out.Counter("hako_evictions_total", "Records evicted for the limit of the database.", stats.evictions);
  out.Gauge("hako_records", "Records, with expired ones that were not removed yet.", server.database.Count());
  const char* const of_total = "The file's size, or the memory of a database without a file.";
  out.Gauge("hako_database_bytes", of_total, stats.total_bytes);
  out.Gauge("hako_database_free_bytes", "The part of it without records.", stats.free_bytes);
  out.Gauge("hako_database_index_bytes", "The part of it that finds records.", stats.index_bytes);
  out.Gauge("hako_healthy", "0 after a failed write or synchronization, when the database refuses updates; else 1.",
            server.database.GetHealth().ok() ? 1 : 0);
  out.Counter("hako_group_commits_total", "Turns of a loop whose changes were committed together.", Sum(server, &ThreadCounters::commits));
  out.Gauge("hako_synchronizations", "Times that the database was synchronized, since it was created.", stats.epoch);
  out.Gauge("hako_last_synchronization_timestamp_seconds", "When it was synchronized last, in seconds since 1970; 0: unknown.",
            static_cast<double>(stats.synced_at) / 1e6);
  out.Gauge("hako_log_bytes", "The size of the log's file; 0 without a log.", LogBytes(server.settings));
  out.Gauge("hako_log_last_lsn", "The position in the log behind the last committed change; 0 without a log.", server.log.last_lsn());
  out.Gauge("hako_log_durable_lsn", "The position up to which the log is known to survive a power cut.", server.log.durable_lsn());
  out.Counter("hako_device_read_bytes_total", "Bytes that the database has read from its file, if it counts them.",
              stats.device_read_bytes);
  out.Counter("hako_device_written_bytes_total", "Bytes that it has written.", stats.device_written_bytes);
}

void AddTable(const ServerState& server, Exposition& out) {
  if (server.table == nullptr) return;
  out.Gauge("hako_table_rows", "Rows of the table.", server.table->Count().value_or(0));
  out.Gauge("hako_table_bytes", "The size of the table's file.", server.table->GetStats().total_bytes);
  out.Gauge("hako_table_healthy", "0 after a failed write or synchronization, when the table refuses updates; else 1.",
            server.table->GetHealth().ok() ? 1 : 0);
}

}  // namespace

std::string MetricsText(const ServerState& server) {
  Exposition out;
  AddProcess(server, out);
  AddClients(server, out);
  AddCommands(server, out);
  AddDatabase(server, out);
  AddTable(server, out);
  return out.Text();
}

}  // namespace hako::server
