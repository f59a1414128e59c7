// The command restore: makes a database of the state after an update, from a copy and the archive of
// its log.
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "hako/dbm/any_dbm.h"
#include "hako/dbm/log_place.h"
#include "hako/dbm/restore.h"
#include "tool/command.h"
#include "tool/output.h"
#include "tool/progress.h"
#include "tool/times.h"

namespace hako::tool {
namespace {

struct RestoreCommandOptions {
  std::string copy, archive, to;
  bool json = false;
  hako::RestoreOptions restore;
};

// A text such as "4711" is an LSN, and anything else a time.
bool TakePoint(const std::string& text, hako::RestoreOptions* options) {
  std::uint64_t number = 0;
  if (text.find_first_not_of("0123456789") == text.npos && absl::SimpleAtoi(text, &number)) return options->until_lsn = number, true;
  return (options->until_time = ParseTime(text)).has_value();
}

int FailRestore(const RestoreCommandOptions& options, const Status& status) {
  std::error_code ignored;
  if (absl::IsNotFound(status) && !options.restore.log.empty() && !std::filesystem::exists(options.restore.log, ignored)) {
    Complain(absl::StrCat(options.restore.log, ": no such file; the option --log takes the log beside a lost database, if it is there"));
    return kExitFile;
  }
  std::string_view advice;
  switch (status.code()) {
    case absl::StatusCode::kAlreadyExists:
      Complain(absl::StrCat(options.to, ": the file exists; choose another name: a restore never replaces a file"));
      return kExitFile;
    case absl::StatusCode::kOutOfRange:
      advice = "choose another point, or an older copy, or add what the archive lacks";
      break;
    case absl::StatusCode::kFailedPrecondition:
      advice = "use the archive that the database had when the copy was made, and its log by --log";
      break;
    case absl::StatusCode::kDataLoss:
      advice = "put back an undamaged copy of that segment, or choose a point before it";
      break;
    default:
      return Fail(absl::IsResourceExhausted(status) ? options.to : options.copy, status);
  }
  Complain(absl::StrCat(options.copy, ": ", status.message(), "; ", ToAbsl(advice)));
  return kExitFile;
}

int RunRestore(const RestoreCommandOptions& options) {
  if (const Status free = RefuseLogBeside(options.to); !free.ok()) return Fail(options.to, free);
  const StatusOr<RestoreReport> report = [&] {
    const Ticker ticker(absl::StrCat("restoring ", options.to));
    return AnyDBM::Restore(options.copy, options.archive, options.to, options.restore);
  }();
  if (!report.ok()) return FailRestore(options, report.status());
  Output output(STDOUT_FILENO);
  if (options.json) {
    const nlohmann::ordered_json root = {{"copy_lsn", report->copy_lsn},
                                         {"lsn", report->lsn},
                                         {"time", report->time == 0 ? "" : FormatTime(report->time)},
                                         {"num_updates", report->num_updates}};
    output.buffer()->append(root.dump()).append("\n");
  } else {
    absl::StrAppend(output.buffer(), "copy: LSN ", report->copy_lsn, "\nrestored: to LSN ", report->lsn);
    if (report->time != 0) absl::StrAppend(output.buffer(), ", ", FormatTime(report->time));
    absl::StrAppend(output.buffer(), "\nupdates: ", report->num_updates, "\n");
  }
  const Status written = output.Flush();
  return written.ok() ? kExitDone : Fail("standard output", written);
}

}  // namespace

void AddRestoreCommand(Commands& commands) {
  const auto options = std::make_shared<RestoreCommandOptions>();
  CLI::App* app = commands.Add("restore", "Make a database as it was after an update or at a time, from a copy and the archive of its log",
                               [options] { return RunRestore(*options); });
  app->add_option("COPY", options->copy, "An older copy of the database, by 'hako copy' or made while it was closed; it is only read")
      ->required()
      ->type_name("");
  app->add_option("ARCHIVE", options->archive, "The directory of its option log_archive; it is only read")->required()->type_name("");
  app->add_option("TO", options->to, "The file to create, of the same kind")->required()->type_name("");
  const auto take_point = [options](const CLI::results_t& results) {
    if (TakePoint(results[0], &options->restore)) return true;
    throw CLI::ValidationError("--until", absl::StrCat("'", results[0], "' is neither an LSN nor a time such as ", kTimeExamples));
  };
  app->add_option(
         "--until", take_point,
         "The last update to make: an LSN, as 'hako log' shows them, or a time as 2026-11-25T07:07:05Z, 2026-11-25T08:07+01:00 or @ and "
         "seconds since 1970, exact to 0.1 seconds; default: the end")
      ->option_text("LSN|TIME")
      ->expected(1);
  app->add_option("--log", options->restore.log, "The log beside the lost database, DATABASE-log, for the updates that the archive lacks")
      ->option_text("FILE");
  app->add_flag("--json", options->json, "One JSON object: copy_lsn, lsn, time, num_updates");
  const auto take_wait = [options](double seconds) {
    options->restore.lock_timeout = std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
  };
  AddSeconds(app, "--wait", take_wait, "How long to wait while another process has the copy open; 0 = do not wait");
}

}  // namespace hako::tool
