// hako-server: the options of the command line and of the configuration file.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "hako/version.h"
#include "server/config_file.h"
#include "server/number_text.h"
#include "server/open_options.h"
#include "server/server.h"
#include "server/server_log.h"
#include "server/settings.h"

namespace hako::server {
namespace {

constexpr const char* kFooter =
    "Begin with: hako-server --db data.hkh, and redis-cli set key value\n"
    "A file of --config has a line 'option = value' for each option that differs from its default.\n"
    "Exit codes: 0 stopped; 1 the database could not be opened or closed; 2 wrong usage.";

struct Program {
  Settings settings;
  std::string log_file, log_format = "text";
  bool checks_config = false;
};

// Adds an option that is also a setting of CONFIG SET.
void AddSetting(CLI::App* app, Program* program, const char* name, const char* description) {
  for (const SettingName& setting : SettingNames()) {
    if (std::string_view(setting.name) != name) continue;
    const auto set = [program, &setting](const std::string& value) {
      if (!setting.set(program->settings, value))
        throw CLI::ValidationError(setting.name, std::string(setting.expects) + ", not '" + value + "'");
    };
    app->add_option_function<std::string>(std::string("--") + name, set, description)->default_str(setting.get(program->settings));
  }
}

// Adds the option of a port: a number, or "any" for kAnyPort. 0 means kNoPort.
void AddPort(CLI::App* app, const char* name, int* port, const char* description) {
  const auto set = [name, port](const std::string& value) {
    const auto number = ParseInteger(value);
    if (value != "any" && (!number || *number < 0 || *number > 65535))
      throw CLI::ValidationError(name, "a port is 0 to 65535, or any, not '" + value + "'");
    *port = !number ? kAnyPort : *number == 0 ? kNoPort : static_cast<int>(*number);
  };
  app->add_option_function<std::string>(name, set, description)->default_str(*port == kNoPort ? "0" : std::to_string(*port));
}

void AddTlsOptions(CLI::App* app, Program* program) {
  TlsOptions& tls = program->settings.tls;
  AddPort(app, "--tls-port", &program->settings.tls_port, "Serve clients with TLS on this port; 0: none; any");
  app->add_option("--tls-cert-file", tls.cert_file, "The certificate, and those between it and its CA (PEM); loaded again when it changes");
  app->add_option("--tls-key-file", tls.key_file, "Its key (PEM, without a passphrase)");
  app->add_option("--tls-ca-cert-file", tls.ca_cert_file, "The CA of the clients' certificates (PEM)");
  app->add_option("--tls-auth-clients", tls.auth_clients,
                  "Whether a client needs a certificate of that CA: no, optional (if it sends one), yes")
      ->check(CLI::IsMember({"no", "optional", "yes"}))
      ->capture_default_str();
  app->add_option("--tls-protocols", tls.protocols, "The versions of TLS")->capture_default_str();
  AddSetting(app, program, "tls-handshake-timeout", "Disconnect a client whose handshake takes more seconds");
}

void AddOptions(CLI::App* app, Program* program) {
  Settings& settings = program->settings;
  app->add_option(
      "--db", settings.database,
      "The database: FILE.hkh a hash table, FILE.hkt a tree (in order), FILE.hks in memory with a snapshot and a log; options of "
      "the kind may follow, as in 'data.hkt?cache_bytes=1gi'. Default: in memory only");
  app->add_option("--table", settings.table,
                  "A table, FILE.hktb: rows of named columns with indices, for HAKO.TABLE. With it, and without --db, there is no other "
                  "database");
  app->add_option("--bind", settings.bind, "IP addresses to listen on")->capture_default_str();
  AddPort(app, "--port", &settings.port, "The port; any: one that is free, see the log; 0: the same without tls-port, and none with it");
  app->add_option("--threads", settings.threads, "Threads that run commands")->check(CLI::Range(1, 256))->capture_default_str();
  app->add_option("--backup-dir", settings.backup_dir, "The directory of HAKO.BACKUP; without it that is refused");
  AddSetting(app, program, "appendfsync",
             "When an update is durable: always (before its reply, to a power cut), everysec, no (both: to the death of the process)");
  AddSetting(app, program, "requirepass", "The password of the user default, who may do everything; better in the configuration file");
  const auto add_users = [&settings](const std::vector<std::string>& lines) {
    for (const std::string& line : lines) {
      if (const Status added = settings.users.Add(line); !added.ok())
        throw CLI::ValidationError("user", std::string(ToStd(added.message())));
    }
  };
  app->add_option_function<std::vector<std::string>>(
         "--user", add_users,
         "'NAME PASSWORD ROLE': a user, who may read, write, or do everything (admin); once for "
         "each. '#' and the SHA-256 of the password in hexadecimal can stand for it")
      ->allow_extra_args(false);
  AddSetting(app, program, "protected-mode", "Without a password, accept clients of this machine only");
  AddSetting(app, program, "maxmemory",
             "Memory of a database in memory (tiny, baby, .hks), which then evicts records that were not used lately; 0: no limit");
  AddSetting(app, program, "maxclients", "Clients at a time");
  AddSetting(app, program, "timeout", "Disconnect clients that are idle for this many seconds; 0: never");
  AddSetting(app, program, "client-output-buffer-limit", "Disconnect a client that has this many bytes of replies waiting");
  AddSetting(app, program, "client-query-buffer-limit", "Bytes of one request");
  AddSetting(app, program, "proto-max-bulk-len", "Bytes of one argument, and of a value that commands make");
  AddSetting(app, program, "slowlog-log-slower-than", "Microseconds of a command that SLOWLOG keeps; -1: none");
  AddSetting(app, program, "slowlog-max-len", "Commands that SLOWLOG keeps");
  app->add_option("--logfile", program->log_file, "Append the log to this file; default: standard error");
  AddSetting(app, program, "loglevel", "The least that is logged: debug, info, warning or error");
  app->add_option("--log-format", program->log_format, "text, or json: an object a line")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  AddTlsOptions(app, program);
  AddPort(app, "--metrics-port", &settings.metrics_port, "Serve metrics for Prometheus on this port: GET /metrics; 0: none; any");
  app->add_option("--metrics-bind", settings.metrics_bind, "IP address of that port")->capture_default_str();
  app->add_flag("--check-config", program->checks_config, "Check the options and the certificate, and end")->configurable(false);
  app->config_formatter(std::make_shared<ConfigFile>());
  app->set_config("--config", "", "Read options from this file");
  app->allow_config_extras(CLI::config_extras_mode::error);
  app->set_version_flag("--version", "hako-server " HAKO_VERSION_STRING);
  app->footer(kFooter);
}

// Checks the settings without opening the database or the ports.
int CheckConfig(const Settings& settings) {
  const Status status = CheckSettings(settings);
  if (status.ok()) return 0;
  std::fprintf(stderr, "hako-server: %s\n", std::string(status.message()).c_str());
  return 2;
}

int Run(int argc, char** argv) {
  Program program;
  CLI::App app("A server of hako databases for clients of Redis (RESP 2 and 3)", "hako-server");
  AddOptions(&app, &program);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (program.checks_config) return CheckConfig(program.settings);
  if (!OpenLog(program.log_file, program.settings.log_level, program.log_format == "json" ? LogFormat::kJson : LogFormat::kText)) {
    std::fprintf(stderr, "hako-server: cannot open %s\n", program.log_file.c_str());
    return 2;
  }
  auto server = Server::Open(program.settings);
  if (!server.ok()) {
    LogError("start", server.status());
    return 1;
  }
  return (*server)->Run().ok() ? 0 : 1;
}

}  // namespace
}  // namespace hako::server

int main(int argc, char** argv) { return hako::server::Run(argc, argv); }
