#include "tool/database.h"

#include <unistd.h>

#include <chrono>

#include "absl/strings/str_cat.h"
#include "hako/dbm/key_space.h"
#include "tool/numbers.h"

namespace hako::tool {

CLI::Option* AddDatabase(CLI::App* app, const std::string& name, DatabaseOptions* options, Access access, const std::string& description) {
  options->any.file.mode = access == Access::kRead ? OpenMode::kReadOnly : OpenMode::kReadWrite;
  const auto parse = [name, options](const CLI::results_t& results) {
    StatusOr<AnyOptions> parsed = ParseAnyOptions(results[0], options->any);
    if (!parsed.ok()) throw CLI::ValidationError(name, absl::StrCat("'", results[0], "': ", parsed.status().message()));
    if (parsed->path.empty()) throw CLI::ValidationError(name, absl::StrCat("'", results[0], "' names no file"));
    if (parsed->file.mode != options->any.file.mode) throw CLI::ValidationError(name, "option mode is set by the command");
    options->any = *std::move(parsed);
    return true;
  };
  return app->add_option(name, parse, description)->type_name("")->expected(1);
}

void AddSpace(CLI::App* app, DatabaseOptions* options) {
  app->add_option("--space", options->space, "The table is in this key space of the tree FILE (.hkt), which may have several")
      ->type_name("NAME");
}

CLI::Option* AddDatabaseOptions(CLI::App* app, DatabaseOptions* options, Access access) {
  CLI::Option* file =
      AddDatabase(app, "FILE", options, access,
                  "The database file; the suffix selects its kind: .hkh = hash, .hkt = tree, .hka = array, .hks = snapshot, loaded as tiny")
          ->required();
  AddChoice(
      app, "--dbm", &options->any.kind, {"auto", "hash", "tree", "array", "tiny", "baby"},
      "The kind of database, default by the suffix; tree, array and baby are ordered, and baby loads a snapshot. The keys of an array are "
      "numbers, and 'FILE?width=BYTES' creates one");
  AddFileOptions(app, options, access);
  return file;
}

void AddFileOptions(CLI::App* app, DatabaseOptions* options, Access access) {
  AddChoice(app, "--file", &options->any.device, {"mmap", "pos"}, "How the file is accessed: mapped into memory, or by pread and pwrite");
  const auto take_wait = [options](double seconds) {
    options->any.file.lock_timeout = std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
  };
  AddSeconds(app, "--wait", take_wait, "How long to wait while another process has the file open; 0 = do not wait");
  if (access == Access::kRead) return;
  AddChoice(app, "--durability", &options->durability, {"none", "process", "power"},
            "What a completed change survives: the death of the process, or a power cut");
  app->add_option(
         "--log_archive,--log-archive", options->any.log_archive,
         "Keep the log in this directory, for 'hako restore'; needed at each change of a database whose log is kept. none: end its history")
      ->option_text("DIRECTORY");
  app->add_flag_callback(
      "--sync_hard", [options] { options->durability = "power"; }, "The same as --durability power");
}

namespace {
AnyDBM* shared_database = nullptr;
TableDBM* shared_table = nullptr;
}  // namespace

SharedDatabase::SharedDatabase(AnyDBM& db) { shared_database = &db; }
SharedDatabase::SharedDatabase(TableDBM& table) { shared_table = &table; }
SharedDatabase::~SharedDatabase() {
  shared_database = nullptr;
  shared_table = nullptr;
}
bool SharedDatabase::IsThere() { return shared_database != nullptr || shared_table != nullptr; }

void DamageSkipper::Note(const DatabaseOptions& database, const Status& damage) {
  ++count_;
  tool::Note(absl::StrCat(database.path(), ": skipped: ", damage.message()));
}

int DamageSkipper::Finish(const DatabaseOptions& database, int code) const {
  if (count_ == 0) return code;
  tool::Note(absl::StrCat(database.path(), ": ",
                          count_ == 1 ? "1 damaged place was skipped" : absl::StrCat(count_, " damaged places were skipped"),
                          "; keep the file, and restore a copy if there is one"));
  return code == kExitDone ? kExitNo : code;
}

NewFile::NewFile(const DatabaseOptions& database)
    : path_(!database.any.log_archive.empty() || SharedDatabase::IsThere() || access(database.path().c_str(), F_OK) == 0
                ? std::string()
                : database.path()) {}

void NewFile::Remove() const {
  if (!path_.empty()) unlink(path_.c_str());
}

int FailDatabase(const DatabaseOptions& options, const Status& status, std::string_view advice) {
  const int code = Fail(options.path(), status, advice);
  return absl::IsDataLoss(status) ? options.on_damage : code;
}

namespace {

// Calls Fail for an open that has failed.
int FailOpen(const DatabaseOptions& options, const Status& status) {
  return FailDatabase(options, status, absl::IsInvalidArgument(status) ? "check the file name and the options" : "");
}

// Runs `body` on an open database, and synchronizes the database if that is wanted.
template <class Db>
int RunOn(Db& db, const DatabaseOptions& options, const std::function<int(Db&)>& body) {
  const int code = body(db);
  const Status synced = options.durability == "power" ? db.Synchronize(SyncMode::kHard) : absl::OkStatus();
  return synced.ok() ? code : FailDatabase(options, synced);
}

// As above, on a database that was just opened, which it then closes.
template <class Db>
int RunAndClose(Db& db, const DatabaseOptions& options, const std::function<int(Db&)>& body) {
  const int code = body(db);
  Status status;
  if (options.durability == "power") status = db.Synchronize(SyncMode::kHard);
  const Status closed = db.Close();
  if (status.ok()) status = closed;
  return status.ok() ? code : FailDatabase(options, status);
}

}  // namespace

std::uint64_t NumRecords(AnyDBM& db) { return db.Count(); }
std::uint64_t NumRecords(TableDBM& table) { return table.Count().value_or(0); }
std::string CountOf(AnyDBM& db) { return CountOfRecords(NumRecords(db)); }
std::string CountOf(TableDBM& table) { return CountOfRows(NumRecords(table)); }

int WithTable(const DatabaseOptions& options, const std::function<int(TableDBM&)>& body, TableOptions create) {
  if (shared_table != nullptr) return RunOn(*shared_table, options, body);
  if (shared_database != nullptr) return FailUsage("table", "the shell has another database open");
  const AnyOptions& any = options.any;
  if (!options.space.empty()) {
    const auto db = AnyDBM::Open(any);
    if (!db.ok()) return FailOpen(options, db.status());
    const auto in_db = [&](AnyDBM& tree) -> int {
      const auto table = TableDBM::Open(KeySpace(tree, options.space), create);
      if (!table.ok()) return FailDatabase(options, table.status(), "--space names a table in a tree of bytewise order");
      const int code = body(**table);
      const Status closed = (*table)->Close();
      return closed.ok() ? code : FailDatabase(options, closed);
    };
    return RunAndClose<AnyDBM>(**db, options, in_db);
  }
  if (!any.order.empty() || !any.codec.empty() || any.expiry || (any.kind != AnyOptions::kAuto && any.kind != AnyOptions::kTree))
    return FailUsage("table", absl::StrCat(options.path(), ": a table is in a tree of bytewise order, without a codec and without expiry"));
  create.tree = TreeOptionsOf(any);
  create.file = any.file;
  create.positional = any.device == "pos";
  const auto opened = TableDBM::Open(options.path(), create);
  if (!opened.ok()) return FailOpen(options, opened.status());
  return RunAndClose(**opened, options, body);
}

int WithDatabase(const DatabaseOptions& options, const std::function<int(AnyDBM&)>& body) {
  if (shared_database != nullptr) return RunOn(*shared_database, options, body);
  if (options.IsTable() || shared_table != nullptr) {
    Complain(absl::StrCat(options.path(), ": is a table of rows; ", ToAbsl(options.for_tables)));
    return kExitFile;
  }
  if (options.any.ResolvedKind().empty()) {
    return FailUsage(
        "", absl::StrCat(options.path(), ": unknown suffix; use .hkh, .hkt, .hka or .hks, or set --dbm hash, tree, array, tiny or baby"));
  }
  const auto db = AnyDBM::Open(options.any);
  if (!db.ok()) return FailOpen(options, db.status());
  return RunAndClose(**db, options, body);
}

}  // namespace hako::tool
