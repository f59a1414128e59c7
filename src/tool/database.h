// Opens the database that a FILE on the command line names. FILE is a name with options
// (dbm/any_options.h), which options of the command line override. WithDatabase opens it, calls
// body(db), and closes it. Commands use AnyDBM, so they do not depend on the kind of database.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "hako/base/status.h"
#include "hako/dbm/any_dbm.h"
#include "hako/table/table_dbm.h"
#include "tool/command.h"

namespace hako::tool {

enum class Access { kRead, kWrite };

struct DatabaseOptions {
  AnyOptions any;
  std::string durability = "process";  // or "none", "power"
  ExitCode on_damage = kExitFile;      // kExitNo for verify
  std::string space;                   // of a table: the key space of the tree in which it is, or ""
  // For a command that takes no table: a clause that says what to do instead, such as "'hako table
  // get' prints a row".
  std::string_view for_tables = "see 'hako help table'";

  const std::string& path() const { return any.path; }
  // Whether FILE is a table by its suffix, and is not opened as a plain tree (?raw).
  bool IsTable() const { return !any.raw && any.path.ends_with(".hktb"); }
};

// Adds the positional FILE, which is returned, and the options of every command on a database.
CLI::Option* AddDatabaseOptions(CLI::App* app, DatabaseOptions* options, Access access);

// Adds only the options on the file: --file, --wait, --durability and --log_archive.
void AddFileOptions(CLI::App* app, DatabaseOptions* options, Access access);

// Adds --space, for commands on tables.
void AddSpace(CLI::App* app, DatabaseOptions* options);

// Adds only a positional `name`, which is also a database.
CLI::Option* AddDatabase(CLI::App* app, const std::string& name, DatabaseOptions* options, Access access, const std::string& description);

// While this object exists, WithDatabase or WithTable uses its open database, regardless of the
// options, and does not close it. Only one object may exist at a time.
class SharedDatabase {
 public:
  explicit SharedDatabase(AnyDBM& db);
  explicit SharedDatabase(TableDBM& table);
  SharedDatabase(const SharedDatabase&) = delete;
  SharedDatabase& operator=(const SharedDatabase&) = delete;
  ~SharedDatabase();
  static bool IsThere();
};

// The option --skip_damaged of commands that read all records. Reports each damaged record when it
// is found, and counts them.
class DamageSkipper {
 public:
  void AddTo(CLI::App* app) {
    app->add_flag("--skip_damaged,--skip-damaged", is_wanted_, "Report, count and skip damage; the exit code is then 1");
  }
  bool is_wanted() const { return is_wanted_; }
  void Note(const DatabaseOptions& database, const Status& damage);
  // Skips damage if that is wanted. Returns whether `it` is then at a record.
  bool IsAtRecord(const DatabaseOptions& database, AnyDBM::Iterator& it) {
    return it.Valid() || (is_wanted_ && it.PassDamage([&](const Status& damage) { Note(database, damage); }));
  }
  // Prints the count, if damage was skipped. Returns `code`, or kExitNo in place of kExitDone if
  // damage was skipped.
  int Finish(const DatabaseOptions& database, int code) const;

 private:
  bool is_wanted_ = false;
  std::uint64_t count_ = 0;
};

// A file that a command may create. If the command fails before it has stored anything, Remove
// removes the file again.
class NewFile {
 public:
  explicit NewFile(const DatabaseOptions& database);
  // Removes the file if it was absent before. REQUIRES: the database is closed
  void Remove() const;

 private:
  const std::string path_;  // empty = nothing to remove
};

// Calls Fail for the database itself.
int FailDatabase(const DatabaseOptions& options, const Status& status, std::string_view advice = {});

// Returns body(shown), where `shown` is a snapshot of the database if that is ordered, else the database itself. Of an
// ordered database a command then shows one moment, while records expire.
template <class Body>
int WithMoment(const DatabaseOptions& options, AnyDBM& db, Body&& body) {
  if (!db.IsOrdered()) return body(db);
  const StatusOr<std::unique_ptr<AnyDBM>> snapshot = db.Snapshot();
  return snapshot.ok() ? body(**snapshot) : FailDatabase(options, snapshot.status());
}

// Opens the database, runs `body` on it, and closes it. Returns the exit code. If the close fails,
// so does the command, regardless of the result of `body`. A table is refused.
int WithDatabase(const DatabaseOptions& options, const std::function<int(AnyDBM&)>& body);

// As WithDatabase for a table, whatever the suffix of FILE. `create` has the options of a new
// table; how the file is opened follows from the options of the database.
int WithTable(const DatabaseOptions& options, const std::function<int(TableDBM&)>& body, TableOptions create = {});

// Calls WithDatabase or WithTable, depending on the suffix. `body` takes both.
template <class Body>
int WithFile(const DatabaseOptions& options, const Body& body) {
  if (options.IsTable()) return WithTable(options, [&](TableDBM& table) -> int { return body(table); });
  return WithDatabase(options, [&](AnyDBM& db) -> int { return body(db); });
}
// CountOf returns a text such as "3 records" or "3 rows"; NumRecords the number, or 0 if it is
// unknown.
std::uint64_t NumRecords(AnyDBM& db);
std::uint64_t NumRecords(TableDBM& table);
std::string CountOf(AnyDBM& db);
std::string CountOf(TableDBM& table);

}  // namespace hako::tool
