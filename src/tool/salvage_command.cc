// The command salvage: writes the undamaged records of a database into a new one, and reports the
// losses.
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hako/dbm/any_dbm.h"
#include "hako/table/table_dbm.h"
#include "hako/text/text_encoding.h"
#include "tool/command.h"
#include "tool/output.h"
#include "tool/progress.h"

namespace hako::tool {
namespace {

struct SalvageOptions {
  std::string from, to;
  FileOptions file;
};

std::string QuotedKey(std::string_view key) {
  std::string quoted = "\"";
  text::AppendPrintable(key, &quoted);
  return quoted + "\"";
}

// Appends a line for each damaged place, each lost range and each note; then the totals.
void AppendReport(const SalvageReport& report, bool is_table, Output& output) {
  std::string& out = *output.buffer();
  for (const SalvageReport::Place& place : report.places) {
    absl::StrAppend(&out, "damaged: ", ToAbsl(NameOf(place.kind)));
    if (place.offset != 0 || place.size != 0 || place.key.empty()) absl::StrAppend(&out, " at offset ", place.offset);
    if (place.size != 0) absl::StrAppend(&out, ", ", place.size, " bytes");
    if (!place.key.empty()) absl::StrAppend(&out, ", key ", QuotedKey(place.key));
    out += "\n";
    output.MaybeFlush();
  }
  if (report.num_places > report.places.size())
    absl::StrAppend(&out, "damaged: ", report.num_places - report.places.size(), " more places\n");
  for (const SalvageReport::LostRange& range : report.lost_ranges) {
    absl::StrAppend(&out, "lost: all keys from ", QuotedKey(range.from),
                    range.to ? absl::StrCat(" to before ", QuotedKey(*range.to)) : " on", "\n");
    output.MaybeFlush();
  }
  for (const std::string& note : report.notes) absl::StrAppend(&out, "note: ", note, "\n");
  if (report.num_updates != 0) absl::StrAppend(&out, "updates of the log: ", report.num_updates, "\n");
  const absl::string_view records = is_table ? "rows" : "records";
  absl::StrAppend(&out, records, " written: ", report.num_records, "\n", records, " lost: ");
  absl::StrAppend(&out, report.num_lost ? absl::StrCat(*report.num_lost) : "unknown", "\n");
}

int RunSalvage(const SalvageOptions& options) {
  bool is_table = false;
  const StatusOr<SalvageReport> report = [&] {
    const Ticker ticker(absl::StrCat("salvaging ", options.from));
    StatusOr<SalvageReport> salvaged = AnyDBM::Salvage(options.from, options.to, options.file);
    is_table = absl::IsFailedPrecondition(salvaged.status());
    return is_table ? TableDBM::Salvage(options.from, options.to, options.file) : std::move(salvaged);
  }();
  if (absl::IsAlreadyExists(report.status())) {
    Complain(absl::StrCat(options.to, ": the file exists; choose another name: a salvage never replaces a file"));
    return kExitFile;
  }
  if (!report.ok()) {
    const std::string& file = absl::IsResourceExhausted(report.status()) ? options.to : options.from;
    return Fail(file, report.status());
  }
  Output output(STDOUT_FILENO);
  AppendReport(*report, is_table, output);
  if (const Status written = output.Flush(); !written.ok()) return Fail("standard output", written);
  return report->IsComplete() ? kExitDone : kExitNo;
}

}  // namespace

void AddSalvageCommand(Commands& commands) {
  const auto options = std::make_shared<SalvageOptions>();
  CLI::App* app =
      commands.Add("salvage", "Write the undamaged records of a damaged database into a new one; exit code 1 if some are lost, or may be",
                   [options] { return RunSalvage(*options); });
  app->add_option("FROM", options->from,
                  "The damaged hash table, tree, array or table, which is only read; with its log, FROM-log, if there is one")
      ->required()
      ->type_name("");
  app->add_option("TO", options->to, "The file to create, of the same kind")->required()->type_name("");
  const auto take_wait = [options](double seconds) {
    options->file.lock_timeout = std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
  };
  AddSeconds(app, "--wait", take_wait, "How long to wait while another process has the file open; 0 = do not wait");
}

}  // namespace hako::tool
