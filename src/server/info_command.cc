// INFO, in the sections of Redis. Lines of Redis that make no sense here are left out.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>

#include "hako/base/wall_clock.h"
#include "hako/version.h"
#include "server/command_table.h"
#include "server/handlers.h"
#include "server/process_memory.h"
#include "server/version.h"

namespace hako::server::commands {

namespace {

// Writes the lines of one section.
class Section {
 public:
  Section(std::string* text, std::string_view title) : text_(*text) {
    if (!text_.empty()) text_ += "\r\n";
    text_.append("# ").append(title).append("\r\n");
  }
  void Add(std::string_view name, std::string_view value) { text_.append(name).append(":").append(value).append("\r\n"); }
  void Add(std::string_view name, std::uint64_t value) { Add(name, std::to_string(value)); }

 private:
  std::string& text_;
};

void AddServer(Call& call, std::string* text) {
  Section section(text, "Server");
  section.Add("redis_version", kRedisVersion);
  section.Add("hako_version", HAKO_VERSION_STRING);
  section.Add("redis_mode", "standalone");
  section.Add("arch_bits", 8 * sizeof(void*));
  section.Add("process_id", static_cast<std::uint64_t>(getpid()));
  section.Add("run_id", call.server().run_id);
  section.Add("tcp_port", static_cast<std::uint64_t>(std::max(call.server().settings.port, 0)));
  section.Add("uptime_in_seconds", (SteadyMilliseconds() - call.server().started_at) / 1000);
  section.Add("io_threads_active", call.server().threads.size());
}

void AddClients(Call& call, std::string* text) {
  Section section(text, "Clients");
  section.Add("connected_clients", call.server().clients.size());
  section.Add("maxclients", static_cast<std::uint64_t>(call.server().settings.clients_max.load()));
}

void AddMemory(Call& call, std::string* text) {
  Section section(text, "Memory");
  const std::uint64_t resident = ResidentBytes();
  section.Add("used_memory", resident);
  section.Add("used_memory_rss", resident);
  section.Add("used_memory_dataset", call.keys().database().GetStats().total_bytes);
  section.Add("maxmemory", static_cast<std::uint64_t>(call.server().settings.memory_max.load()));
  section.Add("maxmemory_policy", call.server().settings.eviction_policy());
}

void AddPersistence(Call& call, std::string* text) {
  Section section(text, "Persistence");
  const Stats stats = call.keys().database().GetStats();
  std::uint64_t changes = 0;
  for (const CommandThread* const thread : call.server().threads) changes += thread->keys.num_changes();
  section.Add("loading", std::uint64_t{0});
  section.Add("rdb_changes_since_last_save", changes);
  section.Add("rdb_last_save_time", stats.synced_at / 1'000'000);
  section.Add("aof_enabled", call.server().settings.has_file() ? 1 : 0);
  section.Add("aof_last_write_status", call.keys().database().GetHealth().ok() ? "ok" : "err");
  section.Add("hako_synchronizations", stats.epoch);
}

void AddStats(Call& call, std::string* text) {
  Section section(text, "Stats");
  const ServerState& server = call.server();
  std::uint64_t commands = 0;
  for (const CommandThread* const thread : server.threads) {
    for (const CommandCounters& command : thread->counters.commands) commands += command.calls.value();
  }
  section.Add("total_connections_received", Sum(server, &ThreadCounters::connections));
  section.Add("total_commands_processed", commands);
  section.Add("total_net_input_bytes", Sum(server, &ThreadCounters::input_bytes));
  section.Add("total_net_output_bytes", Sum(server, &ThreadCounters::output_bytes));
  section.Add("rejected_connections", Sum(server, &ThreadCounters::rejected_connections));
  section.Add("evicted_keys", call.keys().database().GetStats().evictions);
  section.Add("keyspace_hits", Sum(server, &ThreadCounters::hits));
  section.Add("keyspace_misses", Sum(server, &ThreadCounters::misses));
  section.Add("total_error_replies", Sum(server, &ThreadCounters::errors));
  section.Add("hako_group_commits", Sum(server, &ThreadCounters::commits));
}

void AddReplication(Call&, std::string* text) {
  Section section(text, "Replication");
  section.Add("role", "master");
  section.Add("connected_slaves", std::uint64_t{0});
}

void AddCpu(Call&, std::string* text) {
  Section section(text, "CPU");
  rusage usage;
  if (getrusage(RUSAGE_SELF, &usage) != 0) return;
  const auto seconds = [](const timeval& time) {
    return std::to_string(static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6);
  };
  section.Add("used_cpu_sys", seconds(usage.ru_stime));
  section.Add("used_cpu_user", seconds(usage.ru_utime));
}

void AddCommandStats(Call& call, std::string* text) {
  Section section(text, "Commandstats");
  for (const Command& command : AllCommands()) {
    std::uint64_t calls = 0, nanoseconds = 0, failed = 0, rejected = 0;
    for (const CommandThread* const thread : call.server().threads) {
      const CommandCounters& counters = thread->counters.commands[CommandIndex(command)];
      calls += counters.calls.value();
      nanoseconds += counters.nanoseconds.value();
      failed += counters.failed.value();
      rejected += counters.rejected.value();
    }
    if (calls + rejected == 0) continue;
    char value[160];
    std::snprintf(value, sizeof(value), "calls=%llu,usec=%llu,usec_per_call=%.2f,rejected_calls=%llu,failed_calls=%llu",
                  static_cast<unsigned long long>(calls), static_cast<unsigned long long>(nanoseconds / 1000),
                  calls == 0 ? 0.0 : static_cast<double>(nanoseconds) / 1000 / static_cast<double>(calls),
                  static_cast<unsigned long long>(rejected), static_cast<unsigned long long>(failed));
    section.Add(std::string("cmdstat_") + command.name, value);
  }
}

void AddKeyspace(Call& call, std::string* text) {
  Section section(text, "Keyspace");
  const std::uint64_t count = call.keys().Count();
  if (count > 0) section.Add("db0", "keys=" + std::to_string(count) + ",expires=0,avg_ttl=0");
}

void AddCluster(Call&, std::string* text) { Section(text, "Cluster").Add("cluster_enabled", std::uint64_t{0}); }

void AddTable(Call& call, std::string* text) {
  TableDBM* const table = call.server().table;
  if (table == nullptr) return;
  Section section(text, "Table");
  section.Add("table_file", call.server().settings.table);
  section.Add("table_rows", table->Count().value_or(0));
  section.Add("table_columns", table->Columns().size());
  section.Add("table_indices", table->Indices().size());
  section.Add("table_bytes", table->GetStats().total_bytes);
  section.Add("table_last_write_status", table->GetHealth().ok() ? "ok" : "err");
}

struct InfoSection {
  const char* name;
  void (*add)(Call&, std::string*);
  bool is_default = true;
};
constexpr InfoSection kSections[] = {
    {"server", AddServer},   {"clients", AddClients},         {"memory", AddMemory}, {"persistence", AddPersistence},
    {"stats", AddStats},     {"replication", AddReplication}, {"cpu", AddCpu},       {"commandstats", AddCommandStats, false},
    {"cluster", AddCluster}, {"keyspace", AddKeyspace},       {"table", AddTable}};

}  // namespace

void Info(Call& call) {
  std::string text;
  for (const InfoSection& section : kSections) {
    bool is_wanted = call.size() == 1 && section.is_default;
    for (const std::string_view name : call.args.subspan(1)) {
      is_wanted |= EqualsIgnoringCase(name, section.name) || EqualsIgnoringCase(name, "all") || EqualsIgnoringCase(name, "everything") ||
                   (section.is_default && EqualsIgnoringCase(name, "default"));
    }
    if (is_wanted) section.add(call, &text);
  }
  call.reply.Verbatim(text);
}

}  // namespace hako::server::commands
