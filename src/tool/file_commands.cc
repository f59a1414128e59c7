// Commands on a database as a whole: create, inspect, verify.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tool/command.h"
#include "tool/database.h"
#include "tool/numbers.h"
#include "tool/output.h"
#include "tool/progress.h"

namespace hako::tool {
namespace {

std::int64_t FileSize(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 ? info.st_size : -1;
}

struct CreateOptions {
  DatabaseOptions database;
  bool truncate = false;
  std::int64_t num_records = -1;
  std::int64_t align_pow = -1;
  std::int64_t max_page_size = -1;
};

int RunCreate(CreateOptions options) {
  AnyOptions& any = options.database.any;
  const bool is_there = FileSize(any.path) >= 0;
  if (!options.truncate && FileSize(any.path) > 0) return Fail(any.path, absl::AlreadyExistsError(""));
  any.file.mode = options.truncate ? OpenMode::kTruncate : OpenMode::kCreate;
  if (options.num_records >= 0) any.num_records = static_cast<std::uint64_t>(options.num_records);
  if (options.align_pow >= 0) any.align_pow = static_cast<int>(options.align_pow);
  if (options.max_page_size >= 0) any.page_size = static_cast<unsigned>(options.max_page_size);
  const int code = WithDatabase(options.database, [](AnyDBM&) { return kExitDone; });
  if (!is_there && code == kExitFile) unlink(any.path.c_str());  // a partial file is no database, and may be large
  return code;
}

struct InspectOptions {
  DatabaseOptions database;
  std::string attribute;
  bool json = false;
  bool validate = false;
};

// The results of `inspect`, for both forms of its output.
struct Findings {
  std::int64_t file_size = 0;
  Inspection attributes;
  Stats stats;
  bool is_healthy = true;  // as far as checked: opening checks the superblock, --validate everything
  bool should_be_rebuilt = false;
  Status validated;
  double validation_seconds = 0;
};

void AppendJson(const InspectOptions& options, const Findings& findings, std::string* out) {
  const Stats& stats = findings.stats;
  nlohmann::ordered_json attributes = nlohmann::ordered_json::object();
  for (const auto& [name, value] : findings.attributes) attributes[name] = value;
  nlohmann::ordered_json root = {
      {"file", options.database.path()},
      {"file_size", findings.file_size},
      {"num_records", stats.num_records},
      {"healthy", findings.is_healthy},
      {"should_be_rebuilt", findings.should_be_rebuilt},
      {"stats",
       {{"total_bytes", stats.total_bytes},
        {"record_bytes", stats.record_bytes},
        {"free_bytes", stats.free_bytes},
        {"index_bytes", stats.index_bytes},
        {"num_buckets", stats.num_buckets},
        {"num_overflow", stats.num_overflow},
        {"epoch", stats.epoch}}},
      {"attributes", attributes},
  };
  if (options.validate) root["validated"] = findings.validated.ok();
  out->append(root.dump(2, ' ', false, nlohmann::json::error_handler_t::replace)).append("\n");
}

void AppendText(const InspectOptions& options, const Findings& findings, std::string* out) {
  out->append("Inspection:\n");
  for (const auto& [name, value] : findings.attributes) absl::StrAppend(out, "  ", name, "=", Displayed(value), "\n");
  absl::StrAppend(out, "Actual File Size: ", findings.file_size, "\nNumber of Records: ", findings.stats.num_records);
  absl::StrAppend(out, "\nHealthy: ", findings.is_healthy ? "true" : "false");
  absl::StrAppend(out, "\nShould be Rebuilt: ", findings.should_be_rebuilt ? "true" : "false", "\n");
  if (options.validate)
    absl::StrAppendFormat(out, "Validating records: ... %s (elapsed=%.6f)\n", findings.validated.ok() ? "ok" : "failed",
                          findings.validation_seconds);
}

Status VerifyShowingTime(AnyDBM& db) {
  const Ticker ticker(absl::StrCat("verifying ", CountOfRecords(db.Count())));
  return db.Verify();
}

Findings Examine(const InspectOptions& options, AnyDBM& db) {
  Findings findings;
  findings.file_size = FileSize(options.database.path());
  findings.attributes = db.Inspect();
  findings.stats = db.GetStats();
  findings.should_be_rebuilt = db.ShouldBeRebuilt();
  if (options.validate) {
    const auto start = std::chrono::steady_clock::now();
    findings.validated = VerifyShowingTime(db);
    findings.validation_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    findings.is_healthy = findings.validated.ok();
  }
  return findings;
}

int RunInspect(InspectOptions options) {
  if (options.validate) options.database.on_damage = kExitNo;
  return WithDatabase(options.database, [&options](AnyDBM& db) -> int {
    const Findings findings = Examine(options, db);
    Output output(STDOUT_FILENO);
    if (!options.attribute.empty()) {
      const auto it = std::find_if(findings.attributes.begin(), findings.attributes.end(),
                                   [&options](const auto& attribute) { return attribute.first == options.attribute; });
      if (it == findings.attributes.end()) {
        Note(absl::StrCat(options.database.path(), ": no attribute '", options.attribute, "'; 'hako inspect' lists them"));
        return kExitNo;
      }
      absl::StrAppend(output.buffer(), it->second, "\n");
    } else if (options.json) {
      AppendJson(options, findings, output.buffer());
    } else {
      AppendText(options, findings, output.buffer());
    }
    if (const Status written = output.Flush(); !written.ok()) return Fail("standard output", written);
    return findings.validated.ok() ? kExitDone : FailDatabase(options.database, findings.validated);
  });
}

struct VerifyOptions {
  DatabaseOptions database;
  bool json = false;
};

int RunVerify(const VerifyOptions& options) {
  Output output(STDOUT_FILENO);
  const int code = WithDatabase(options.database, [&](AnyDBM& db) -> int {
    if (const Status status = VerifyShowingTime(db); !status.ok()) return FailDatabase(options.database, status);
    if (options.json) {
      const nlohmann::ordered_json root = {{"file", options.database.path()}, {"ok", true}, {"num_records", db.Count()}};
      output.buffer()->append(root.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)).append("\n");
    } else {
      absl::StrAppend(output.buffer(), isatty(STDOUT_FILENO) == 1 ? Displayed(options.database.path()) : options.database.path(), ": ok, ",
                      db.Count() == 1 ? "1 record" : absl::StrCat(db.Count(), " records"), "\n");
    }
    return kExitDone;
  });
  if (const Status written = output.Flush(); !written.ok()) return Fail("standard output", written);
  return code;
}

struct CountOptions {
  DatabaseOptions database;
};

int RunCount(const CountOptions& options) {
  return WithRecords(options.database, [&options](auto& db) -> int {
    const StatusOr<std::uint64_t> count = db.Count();
    if (!count.ok()) return FailDatabase(options.database, count.status());
    Output output(STDOUT_FILENO);
    absl::StrAppend(output.buffer(), *count, "\n");
    const Status written = output.Flush();
    return written.ok() ? kExitDone : Fail("standard output", written);
  });
}

}  // namespace

void AddCreateCommand(Commands& commands) {
  const auto options = std::make_shared<CreateOptions>();
  CLI::App* app = commands.Add("create", "Create an empty database", [options] { return RunCreate(*options); });
  AddDatabaseOptions(app, &options->database, Access::kWrite);
  app->add_flag("--truncate", options->truncate, "Empty an existing file, even if it is no database");
  AddNumber(app, "--num_records", &options->num_records, "Expected number of records; a hint, as the table grows by itself; for hash", 0,
            std::int64_t{1} << 32);
  AddNumber(app, "--align_pow", &options->align_pow, "Align records to 2^N bytes: 3 allows files of 32 GiB, 6 of 256 GiB; for hash", 2, 6);
  AddNumber(app, "--max_page_size", &options->max_page_size, "Maximum size of a page in bytes, default 8192; for tree", 128, 8192);
}

void AddInspectCommand(Commands& commands) {
  const auto options = std::make_shared<InspectOptions>();
  CLI::App* app = commands.Add("inspect", "Print the properties and the figures of a database", [options] { return RunInspect(*options); });
  AddDatabaseOptions(app, &options->database, Access::kRead);
  app->add_option("ATTRIBUTE", options->attribute, "Print the value of this attribute only; exit code 1 if there is none")->type_name("");
  app->add_flag("--json", options->json, "One JSON object: file, file_size, num_records, healthy, should_be_rebuilt, stats, attributes");
  app->add_flag("--validate", options->validate, "Check the whole structure too, as 'verify' does");
}

void AddVerifyCommand(Commands& commands) {
  const auto options = std::make_shared<VerifyOptions>();
  CLI::App* app =
      commands.Add("verify", "Check every byte of a database; exit code 1 if it is damaged", [options] { return RunVerify(*options); });
  options->database.on_damage = kExitNo;
  AddDatabaseOptions(app, &options->database, Access::kRead);
  app->add_flag("--json", options->json, "One JSON object: file, ok, num_records; nothing if the database is damaged");
}

void AddCountCommand(Commands& commands) {
  const auto options = std::make_shared<CountOptions>();
  CLI::App* app = commands.Add("count", "Print the number of records", [options] { return RunCount(*options); });
  options->database.takes_server = true;
  AddDatabaseOptions(app, &options->database, Access::kRead);
}

}  // namespace hako::tool
