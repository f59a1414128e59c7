// From a FILE on the command line to an open database. FILE is a name with options
// (dbm/any_options.h), which options of the command line override. WithDatabase opens it, calls
// body(db), and closes it. The commands do not depend on the kind of database, which AnyDBM
// handles.
#pragma once

#include <functional>
#include <optional>
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
  ExitCode on_damage = kExitFile;      // verify: kExitNo
  // What to do with a table instead, of a command that takes none: a clause, such as "'hako table get' prints a row".
  std::string_view for_tables = "see 'hako help table'";

  const std::string& path() const { return any.path; }
  // Whether FILE is a table, by its suffix, and not to be opened as a plain tree (?raw).
  bool IsTable() const { return !any.raw && any.path.ends_with(".hktb"); }
};

// The positional FILE, which is returned, and the options that every command on a database takes.
CLI::Option* AddDatabaseOptions(CLI::App* app, DatabaseOptions* options, Access access);

// Of these options those on the file: --file, --wait, --durability and --log_archive.
void AddFileOptions(CLI::App* app, DatabaseOptions* options, Access access);

// The positional `name` alone, a database as well.
CLI::Option* AddDatabase(CLI::App* app, const std::string& name, DatabaseOptions* options, Access access, const std::string& description);

// While it exists, WithDatabase, or WithTable, uses this open database, regardless of its options, and does
// not close it. One object at a time.
class SharedDatabase {
 public:
  explicit SharedDatabase(AnyDBM& db);
  explicit SharedDatabase(TableDBM& table);
  SharedDatabase(const SharedDatabase&) = delete;
  SharedDatabase& operator=(const SharedDatabase&) = delete;
  ~SharedDatabase();
  static bool IsThere();
};

// The option --skip_damaged of commands that read all records. Reports each damage when it is
// found, and counts them.
class DamageSkipper {
 public:
  void AddTo(CLI::App* app) {
    app->add_flag("--skip_damaged,--skip-damaged", is_wanted_, "Report, count and skip damage; the exit code is then 1");
  }
  bool is_wanted() const { return is_wanted_; }
  void Note(const DatabaseOptions& database, const Status& damage);
  // Whether `it` is at a record, after damage was skipped if wanted.
  bool IsAtRecord(const DatabaseOptions& database, AnyDBM::Iterator& it) {
    return it.Valid() || (is_wanted_ && it.PassDamage([&](const Status& damage) { Note(database, damage); }));
  }
  // Returns `code`, or kExitNo if that is kExitDone and damage was skipped, after a line with the
  // count.
  int Finish(const DatabaseOptions& database, int code) const;

 private:
  bool is_wanted_ = false;
  std::uint64_t count_ = 0;
};

// A file that a command may create. If the command fails before it has stored anything, Remove takes the
// file away again, which would be no database that anyone wanted.
class NewFile {
 public:
  explicit NewFile(const DatabaseOptions& database);
  // Removes the file, if it was absent before. REQUIRES: the database is closed
  void Remove() const;

 private:
  const std::string path_;  // empty: nothing to remove
};

// Fail for the database itself.
int FailDatabase(const DatabaseOptions& options, const Status& status, std::string_view advice = {});

// Opens the database, runs `body` on it, and closes it. Returns the exit code. A failed close fails
// the command, regardless of the result of `body`. A table is refused.
int WithDatabase(const DatabaseOptions& options, const std::function<int(AnyDBM&)>& body);

// The same on a table, which FILE is regardless of its suffix. `create` is what a new one has; the file is
// opened as the database's options say.
int WithTable(const DatabaseOptions& options, const std::function<int(TableDBM&)>& body, TableOptions create = {});

// The same on either, by the suffix: `body` takes both.
template <class Body>
int WithFile(const DatabaseOptions& options, const Body& body) {
  if (options.IsTable()) return WithTable(options, [&](TableDBM& table) -> int { return body(table); });
  return WithDatabase(options, [&](AnyDBM& db) -> int { return body(db); });
}
// "3 records" or "3 rows", and their number; 0 if it cannot be known.
std::uint64_t NumRecords(AnyDBM& db);
std::uint64_t NumRecords(TableDBM& table);
std::string CountOf(AnyDBM& db);
std::string CountOf(TableDBM& table);

}  // namespace hako::tool
