// The settings of a running server, which CONFIG GET and CONFIG SET show and change.
//
// Thread-safe. Settings that cannot change are set before the threads start.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hako/base/status.h"
#include "hako/sync/mutex.h"
#include "server/server_log.h"
#include "server/tls_context.h"
#include "server/user_table.h"

namespace hako::server {

// When an update becomes durable (appendfsync of Redis).
enum class Fsync {
  kAlways,       // survives a power cut once its reply is sent
  kEverySecond,  // survives the death of the process at once, and a power cut after about a second
  kNo,           // survives the death of the process at once, and a power cut once the database has synchronized
};

// Special values of a port.
inline constexpr int kNoPort = -1, kAnyPort = 0;

struct Settings {
  // These settings are fixed at the start.
  std::string database;  // empty: in memory
  std::string bind = "127.0.0.1";
  // Whether the database is in a file.
  bool has_file() const { return !database.empty() && database[0] != '?'; }
  std::string table;  // the file for HAKO.TABLE; empty = none
  int port = 6379;
  int tls_port = kNoPort;
  TlsOptions tls;
  int metrics_port = kNoPort;
  std::string metrics_bind = "127.0.0.1";
  unsigned threads = 1;
  std::string backup_dir;  // the directory for HAKO.BACKUP; empty = HAKO.BACKUP is refused
  // The limit of all memory of a database in memory; 0 = no limit. Beyond it the database evicts
  // records that were not used lately.
  std::atomic<std::int64_t> memory_max{0};
  bool evicts = false;  // whether the database has a limit, of memory or of records
  std::string_view eviction_policy() const { return evicts ? "allkeys-lru" : "noeviction"; }  // the nearest policy of Redis

  std::atomic<Fsync> fsync{Fsync::kEverySecond};
  std::atomic<std::int64_t> clients_max{10'000};
  std::atomic<std::int64_t> idle_seconds{0};            // 0 = idle clients stay connected
  std::atomic<std::int64_t> slow_microseconds{10'000};  // from this duration on, commands appear in SLOWLOG; negative = none do
  std::atomic<std::int64_t> slow_log_size{128};
  std::atomic<std::int64_t> bulk_max{std::int64_t{512} << 20};
  std::atomic<std::int64_t> request_max{std::int64_t{1} << 30};   // unconsumed bytes of a client
  std::atomic<std::int64_t> output_max{std::int64_t{256} << 20};  // unsent bytes of replies, beyond which the client is disconnected
  std::atomic<bool> is_protected{true};
  std::atomic<std::int64_t> handshake_seconds{10};  // after which a TLS client without a handshake is disconnected
  std::atomic<LogLevel> log_level{LogLevel::kInfo};

  UserTable users;
  // The password of the user `default`; empty = none.
  std::string password() const {
    sync::MutexLock lock(mutex_);
    return password_;
  }
  void set_password(std::string_view password) {
    sync::MutexLock lock(mutex_);
    password_ = password;
    users.SetDefaultPassword(password);
  }
  // Whether clients have to authenticate.
  bool has_password() const { return users.NeedsPassword(); }

 private:
  mutable sync::Mutex mutex_;
  std::string password_ ABSL_GUARDED_BY(mutex_);
};

// A name of CONFIG.
struct SettingName {
  const char* name;
  std::string (*get)(const Settings&);
  bool (*set)(Settings&, std::string_view value);                       // returns false for a wrong value; nullptr = cannot be changed
  const char* expects = "argument couldn't be parsed into an integer";  // the error for a wrong value
  bool is_fixed = false;                                                // whether it is fixed at the start
};
// All names, in alphabetical order.
const std::vector<SettingName>& SettingNames();

}  // namespace hako::server
