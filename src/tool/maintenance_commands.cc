// Commands that make databases from databases: rebuild, copy, merge.
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "hako/file/replace_file.h"
#include "tool/command.h"
#include "tool/database.h"
#include "tool/interrupt.h"
#include "tool/numbers.h"
#include "tool/progress.h"
#include "tool/text_file.h"

namespace hako::tool {
namespace {

std::uint64_t FileSizeOrZero(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 ? static_cast<std::uint64_t>(info.st_size) : 0;
}

bool IsThere(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

struct RebuildOptions {
  DatabaseOptions database;
  bool dry_run = false;
  bool if_needed = false;
};

int RunRebuild(RebuildOptions options) {
  const std::string& path = options.database.path();
  if (options.dry_run) options.database.any.file.mode = OpenMode::kReadOnly;
  bool is_rebuilt = false;
  const std::uint64_t size = FileSizeOrZero(path);
  const int code = WithFile(options.database, [&](auto& db) -> int {
    const bool should = db.ShouldBeRebuilt();
    if (options.dry_run || (options.if_needed && !should)) {
      Note(absl::StrCat(path, should ? ": should be rebuilt" : ": need not be rebuilt"));
      return should ? kExitDone : kExitNo;
    }
    const Status status = [&] {
      const Ticker ticker(absl::StrCat("rebuilding ", CountOf(db)));
      return db.Rebuild();
    }();
    is_rebuilt = status.ok();
    return is_rebuilt ? kExitDone : FailDatabase(options.database, status);
  });
  // The file gets its final size in Close.
  if (code == kExitDone && is_rebuilt)
    Note(absl::StrCat(path, ": rebuilt, ", GroupDigits(size), " bytes before, ", GroupDigits(FileSizeOrZero(path)), " after"));
  return code;
}

// While this object exists, new files have at most the permissions of the file at `path`.
class UmaskOf {
 public:
  explicit UmaskOf(const std::string& path) : before_(umask(077)) {
    struct stat info;
    umask(stat(path.c_str(), &info) == 0 ? before_ | (~info.st_mode & 0777) : before_);
  }
  UmaskOf(const UmaskOf&) = delete;
  UmaskOf& operator=(const UmaskOf&) = delete;
  ~UmaskOf() { umask(before_); }

 private:
  const mode_t before_;
};

struct CopyOptions {
  DatabaseOptions database;
  std::string destination;
  bool force = false;
};

int RunCopy(const CopyOptions& options) {
  const std::string& source = options.database.path();
  if (IsSameFile(source, options.destination)) return FailUsage("copy", "the database and its copy are the same file");
  if (options.destination.find('?') != options.destination.npos)
    return FailUsage("copy", absl::StrCat(options.destination, ": a copy has the options of its database, and its name takes none"));
  const auto file_kind = [](const AnyOptions& any) {
    const std::string_view kind = any.ResolvedKind();
    if (any.path.ends_with(".hktb")) return std::string("table");
    return std::string(kind == AnyOptions::kBaby ? AnyOptions::kTiny : kind);  // both are stored as snapshots
  };
  const std::string kind = file_kind(AnyOptions{.path = options.destination, .kind = "auto"});
  if (!kind.empty() && kind != file_kind(options.database.any)) {
    if (kind == "table" || options.database.IsTable())
      return FailUsage("copy",
                       absl::StrCat(options.destination, " is of another kind; the copy of a table is a table, NAME.hktb, and no other"));
    return FailUsage("copy", absl::StrCat(options.destination, " is of another kind; to convert the database, run 'hako merge ",
                                          options.destination, " ", source, "'"));
  }
  std::error_code ignored;
  if (std::filesystem::is_directory(options.destination, ignored)) return Fail(options.destination, absl::AlreadyExistsError(""));
  if (!options.force && IsThere(options.destination)) {
    Complain(absl::StrCat(options.destination, ": the file exists; choose another name, or replace it with --force"));
    return kExitFile;
  }
  const UmaskOf as_source(source);
  // Wait for a process that has the destination open, because CopyTo does not wait.
  const auto possible = FileReplacement::Begin(options.destination, options.database.any.file.lock_timeout).status();
  if (!possible.ok()) return Fail(options.destination, possible);
  return WithFile(options.database, [&](auto& db) -> int {
    const Status copied = [&] {
      const Ticker ticker(absl::StrCat("copying ", CountOf(db)));
      return db.CopyTo(options.destination);
    }();
    if (copied.ok()) return kExitDone;
    // A copy fails because of the source only if that is damaged.
    return absl::IsDataLoss(copied) ? FailDatabase(options.database, copied) : Fail(options.destination, copied);
  });
}

constexpr std::string_view kNoMerge = "'hako table export' and 'hako table import' add its rows to another";

struct MergeOptions {
  DatabaseOptions database;
  std::vector<std::string> sources;
  bool no_overwrite = false;
  bool no_progress = false;
  DamageSkipper damage;
};

// Adds the records of one source to `db`. Returns the exit code.
int MergeFrom(MergeOptions& options, const DatabaseOptions& source, const Interrupt& interrupt, AnyDBM& db) {
  return WithDatabase(source, [&](AnyDBM& from) -> int {
    Progress progress(Progress::Stream(!options.no_progress), from.Count());
    std::uint64_t num_records = 0;
    auto it = from.MakeIterator();
    for (it.First(); options.damage.IsAtRecord(source, it) && interrupt.signal() == 0; it.Next()) {
      const Status set = db.Set(it.key(), it.value(), {.overwrite = !options.no_overwrite, .expire_at = it.expire_at()});
      if (!set.ok() && !absl::IsAlreadyExists(set)) return FailDatabase(options.database, set);
      if (++num_records % 256 == 0) progress.Update(num_records, num_records);
    }
    progress.Finish();
    Note(absl::StrCat(source.path(), ": ", CountOfRecords(num_records), " merged into ", options.database.path(),
                      interrupt.signal() != 0 ? ", then stopped by a signal" : ""));
    if (interrupt.signal() != 0) return kExitSignal + interrupt.signal();
    return it.status().ok() ? kExitDone : FailDatabase(source, it.status());
  });
}

int RunMerge(MergeOptions options) {
  std::vector<DatabaseOptions> sources;
  for (const std::string& name : options.sources) {
    DatabaseOptions source;
    source.any.file.mode = OpenMode::kReadOnly;
    source.any.file.lock_timeout = options.database.any.file.lock_timeout;
    source.any.device = options.database.any.device;
    StatusOr<AnyOptions> parsed = ParseAnyOptions(name, source.any);
    if (!parsed.ok()) return FailUsage("merge", absl::StrCat("'", name, "': ", parsed.status().message()));
    source.any = *std::move(parsed);
    source.any.file.mode = OpenMode::kReadOnly;
    source.for_tables = kNoMerge;
    if (IsSameFile(source.path(), options.database.path())) return FailUsage("merge", "a database cannot be merged into itself");
    sources.push_back(std::move(source));
  }
  options.database.any.file.mode = OpenMode::kCreate;
  const Interrupt interrupt;
  return WithDatabase(options.database, [&](AnyDBM& db) -> int {
    for (const DatabaseOptions& source : sources) {
      if (const int code = MergeFrom(options, source, interrupt, db); code != kExitDone) return code;
    }
    return options.damage.Finish(options.database, kExitDone);
  });
}

}  // namespace

void AddRebuildCommand(Commands& commands) {
  const auto options = std::make_shared<RebuildOptions>();
  CLI::App* app = commands.Add("rebuild", "Compact the file and give free space back", [options] { return RunRebuild(*options); });
  AddDatabaseOptions(app, &options->database, Access::kWrite);
  app->add_flag("--dry_run,--dry-run", options->dry_run, "Only report whether it is needed; exit code 1 if not");
  app->add_flag("--if_needed,--if-needed", options->if_needed, "Rebuild only if it is needed; exit code 1 if not");
}

void AddCopyCommand(Commands& commands) {
  const auto options = std::make_shared<CopyOptions>();
  CLI::App* app =
      commands.Add("copy", "Back up a database: the copy appears whole and synced, or not at all", [options] { return RunCopy(*options); });
  AddDatabaseOptions(app, &options->database, Access::kRead);
  app->add_option("DESTINATION", options->destination, "The file to create, of the same kind")->required()->type_name("");
  app->add_flag("--force", options->force, "Replace an existing file");
}

void AddMergeCommand(Commands& commands) {
  const auto options = std::make_shared<MergeOptions>();
  CLI::App* app = commands.Add("merge", "Add the records of other databases; creates the database if it is absent",
                               [options] { return RunMerge(*options); });
  options->database.for_tables = kNoMerge;
  AddDatabaseOptions(app, &options->database, Access::kWrite);
  app->add_option("SOURCE", options->sources, "The other databases; the last record of a key wins")->required()->type_name("");
  options->damage.AddTo(app);
  app->add_flag("--no_overwrite", options->no_overwrite, "The first record of a key wins");
  app->add_flag("--no-progress,--no_progress", options->no_progress, "Show no progress line on a terminal");
}

}  // namespace hako::tool
