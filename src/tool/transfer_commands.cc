// The commands import and export: records to and from text, as streams. When import stops (at the
// end, at a malformed line or by a signal), the records that it has set are in the database and
// survive a power cut.
#include <algorithm>
#include <filesystem>
#include <limits>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "hako/dbm/transfer.h"
#include "tool/command.h"
#include "tool/database.h"
#include "tool/interrupt.h"
#include "tool/numbers.h"
#include "tool/progress.h"
#include "tool/table_transfer.h"
#include "tool/text_file.h"

namespace hako::tool {
namespace {

struct CommandOptions {
  DatabaseOptions database;
  std::string path;  // of the text; empty or "-" = standard input or output
  std::string format;
  std::string key_name;  // import, of a table
  bool no_progress = false;
  bool times = false;
  bool no_escape = false;                        // import
  std::int64_t line_max = LineReader::kLineMax;  // import
  bool print = false;                            // export
  DamageSkipper damage;                          // export
  std::int64_t mapsize = 0;                      // export

  TableTransfer OfTable() const { return {.database = database, .text = path, .format = format, .key_name = key_name}; }
  bool IsCsv() const { return format == "csv" || (format.empty() && path.ends_with(".csv")); }
  TextFormat Format() const {
    if (!format.empty()) return *TextFormatOfName(format);
    return TextFormatOfPath(path).value_or(TextFormat::kTsv);
  }
};

constexpr std::string_view kCsvMistake =
    "CSV is for the rows of a table (.hktb); use tsv or jsonl, or 'hako table import FILE.hktb ROWS.csv'";
constexpr std::string_view kTimesMistake = "--times requires --format tsv: JSON Lines always has the times of records, and a dump never";

// Lets a transfer stop at a signal and report its progress. `how_far` returns the part of the total
// that is done.
template <class HowFar>
auto Watch(const Interrupt& interrupt, Progress& progress, HowFar how_far) {
  return [&interrupt, &progress, how_far](const TransferProgress& now) {
    progress.Update(how_far(now), now.num_records);
    return interrupt.signal() == 0 ? absl::OkStatus() : absl::CancelledError("");
  };
}

std::string CountOf(const CommandOptions& options, const TransferResult& result, const char* what) {
  return absl::StrCat(options.database.path(), ": ", CountOfRecords(result.num_records), " ", what,
                      absl::IsCancelled(result.text) ? ", then stopped by a signal" : "");
}

int RunImport(CommandOptions options) {
  if (IsSameFile(options.database.path(), options.path)) return FailUsage("import", "the database and the text are the same file");
  if (HoldsDatabase(options.path)) {
    return FailUsage("import", absl::StrCat(options.path, " is a database; to copy its records, run 'hako merge ", options.database.path(),
                                            " ", options.path, "'"));
  }
  if (options.database.IsTable()) return ImportRows(options.OfTable());
  if (options.IsCsv()) return FailUsage("import", kCsvMistake);
  if (!options.key_name.empty()) return FailUsage("import", "--key is for the rows of a table (.hktb)");
  if (options.times && options.Format() != TextFormat::kTsv) return FailUsage("import", kTimesMistake);
  if (IsStandardStream(options.path) && SharedDatabase::IsThere())
    return FailUsage("import", "the shell reads its commands from standard input; name a file");
  TextInput text;
  if (const Status opened = text.Open(options.path); !opened.ok()) return FailText(text.name(), opened);
  options.database.any.file.mode = OpenMode::kCreate;
  const NewFile file(options.database);
  const Interrupt interrupt;
  bool is_refused = false;
  const int code = WithDatabase(options.database, [&](AnyDBM& db) -> int {
    const std::uint64_t before = db.Count();
    Progress progress(Progress::Stream(!options.no_progress), text.Remaining());
    const TransferResult result =
        Import(db, [&](std::span<char> buffer) { return text.Read(interrupt, buffer); },
               {.format = options.Format(),
                .tsv = {.escapes = !options.no_escape, .times = options.times},
                .line_max = static_cast<std::uint64_t>(options.line_max),
                .progress = Watch(interrupt, progress, [](const TransferProgress& now) { return now.num_bytes; })});
    progress.Finish();
    const Status synced = db.Synchronize(SyncMode::kHard);
    const std::uint64_t num_more = db.Count() - std::min(before, db.Count());
    Note(absl::StrCat(CountOf(options, result, "imported"), num_more < result.num_records
                                                                ? absl::StrCat("; the database has ", GroupDigits(num_more),
                                                                               " more than before, as later records replace earlier ones")
                                                                : ""));
    is_refused = result.num_records == 0 && absl::IsInvalidArgument(result.text);
    if (!result.database.ok()) return FailDatabase(options.database, result.database);
    if (!synced.ok()) return FailDatabase(options.database, synced);
    if (absl::IsCancelled(result.text)) return kExitSignal + interrupt.signal();
    return result.text.ok() ? kExitDone : FailText(text.name(), result.text);
  });
  if (is_refused) file.Remove();
  return code;
}

// Returns the error in the name of the text; empty if there is none.
std::string MistakeInTarget(const CommandOptions& options) {
  std::error_code ignored;
  if (IsStandardStream(options.path) || std::filesystem::is_directory(options.path, ignored)) return "";
  if (IsSameFile(options.database.path(), options.path)) return "the database and the text are the same file";
  if (IsNamedAsDatabase(options.path) || HoldsDatabase(options.path)) {
    return absl::StrCat(options.path, " is a database, not a text; 'hako copy' copies a database, 'hako merge ", options.path, " ",
                        options.database.path(), "' adds the records to another");
  }
  const bool is_stream = std::filesystem::exists(options.path, ignored) && !std::filesystem::is_regular_file(options.path, ignored);
  if (is_stream || !options.format.empty() || TextFormatOfPath(options.path)) return "";
  return absl::StrCat(options.path, ": unknown suffix; use .tsv, .jsonl or .dump, or set --format tsv, jsonl or dump");
}

int RunExport(CommandOptions options) {
  if (options.database.IsTable()) return ExportRows(options.OfTable());
  if (options.IsCsv()) return FailUsage("export", kCsvMistake);
  if (const std::string mistake = MistakeInTarget(options); !mistake.empty()) return FailUsage("export", mistake);
  if ((options.print || options.mapsize != 0) && options.Format() != TextFormat::kDump)
    return FailUsage("export", absl::StrCat(options.print ? "--print" : "--mapsize", " requires --format dump"));
  if (options.times && options.Format() != TextFormat::kTsv) return FailUsage("export", kTimesMistake);
  const Interrupt interrupt;
  return WithDatabase(options.database, [&](AnyDBM& db) -> int {
    TextOutput text;
    if (const Status opened = text.Open(options.path); !opened.ok()) return FailText(text.name(), opened);
    Progress progress(Progress::Stream(!options.no_progress), db.Count());
    const auto note_damage = [&options](const Status& damage) { options.damage.Note(options.database, damage); };
    TransferResult result = Export(db, [&](std::string_view bytes) { return text.Write(interrupt, bytes); },
                                   {.format = options.Format(),
                                    .tsv = {.times = options.times},
                                    .dump = {.print = options.print, .mapsize = static_cast<std::uint64_t>(options.mapsize)},
                                    .on_damage = options.damage.is_wanted() ? std::function<void(const Status&)>(note_damage) : nullptr,
                                    .progress = Watch(interrupt, progress, [](const TransferProgress& now) { return now.num_records; })});
    progress.Finish();
    if (absl::IsCancelled(result.text) && interrupt.signal() != 0) {
      Note(text.is_replacement() ? absl::StrCat(text.name(), ": stopped by a signal; nothing was written")
                                 : CountOf(options, result, "exported"));
      return kExitSignal + interrupt.signal();
    }
    if (!result.text.ok()) return Fail(text.name(), result.text);
    if (!result.database.ok()) return FailDatabase(options.database, result.database);
    if (result.num_times_lost != 0) {
      Note(absl::StrCat(options.database.path(), ": the text lacks the time of ", CountOfRecords(result.num_times_lost),
                        " that expire; --format jsonl, or tsv with --times, has them"));
    }
    const Status committed = text.Commit();
    return options.damage.Finish(options.database, committed.ok() ? kExitDone : Fail(text.name(), committed));
  });
}

void AddTransferOptions(CLI::App* app, CommandOptions* options, Access access) {
  AddDatabaseOptions(app, &options->database, access);
  app->add_option("TEXT", options->path,
                  access == Access::kWrite ? "The text to read, default standard input" : "The text to write, default standard output")
      ->type_name("");
  AddChoice(
      app, "--format", &options->format, {"tsv", "jsonl", "dump", "csv"},
      "The format, default by the suffix of TEXT, else tsv, of a table jsonl; jsonl is JSON Lines, dump that of mdb_dump and db_dump; "
      "the rows of a table are csv or jsonl");
  app->add_flag("--times", options->times,
                "TSV: between key and value there is the time at which the record expires, in milliseconds since 1970, or nothing");
  app->add_flag("--no-progress,--no_progress", options->no_progress, "Show no progress line on a terminal");
}

}  // namespace

void AddImportCommand(Commands& commands) {
  const auto options = std::make_shared<CommandOptions>();
  CLI::App* app = commands.Add("import", "Store the records of a text, or the rows of a table; creates the database if it is absent",
                               [options] { return RunImport(*options); });
  AddTransferOptions(app, options.get(), Access::kWrite);
  app->add_flag("--no_escape,--no-escape", options->no_escape, "Take backslashes in TSV literally");
  app->add_option("--key", options->key_name, "Of a table: the field that is the primary key, default 'key', else the first of CSV")
      ->type_name("NAME");
  AddNumber(app, "--max_line", &options->line_max,
            "Maximum length of a line in bytes, at least 256Ki, default 256Mi; a longer one is an error", 1,
            std::numeric_limits<std::int64_t>::max());
}

void AddExportCommand(Commands& commands) {
  const auto options = std::make_shared<CommandOptions>();
  CLI::App* app = commands.Add("export", "Write all records, or rows of a table, as text", [options] { return RunExport(*options); });
  AddTransferOptions(app, options.get(), Access::kRead);
  options->damage.AddTo(app);
  app->add_flag("--print", options->print, "Dump: readable text (format=print) instead of hexadecimal digits");
  AddNumber(app, "--mapsize", &options->mapsize, "Dump: the map size for mdb_load in bytes; db_load refuses such a dump", 0,
            std::numeric_limits<std::int64_t>::max());
}

}  // namespace hako::tool
