// From a FILE on the command line to an open database.
//
// FILE is a name of dbm/any_options.h, options after a question mark included; the options of the command line win over those.
// WithDatabase opens it, calls body(db), and closes it. The commands know nothing of kinds: that is AnyDBM's business.
#pragma once

#include <functional>
#include <string>

#include "hako/base/status.h"
#include "hako/dbm/any_dbm.h"
#include "tool/command.h"

namespace hako::tool {

enum class Access { kRead, kWrite };

struct DatabaseOptions {
  AnyOptions any;
  std::string durability = "process";  // or "power"
  ExitCode on_damage = kExitFile;      // verify: kExitNo

  const std::string& path() const { return any.path; }
};

// The positional FILE, which is returned, and the options that every command on a database takes.
CLI::Option* AddDatabaseOptions(CLI::App* app, DatabaseOptions* options, Access access);

// The positional `name` alone, a database as well.
CLI::Option* AddDatabase(CLI::App* app, const std::string& name, DatabaseOptions* options, Access access, const std::string& description);

// While it exists, WithDatabase works on this database, which stays open, whatever its options say. One at a time.
class SharedDatabase {
 public:
  explicit SharedDatabase(AnyDBM& db);
  SharedDatabase(const SharedDatabase&) = delete;
  SharedDatabase& operator=(const SharedDatabase&) = delete;
  ~SharedDatabase();
  static bool IsThere();
};

// The option --skip_damaged of commands that read all records, and what became of it: damage is told as it is met.
class DamageSkipper {
 public:
  void AddTo(CLI::App* app) {
    app->add_flag("--skip_damaged,--skip-damaged", is_wanted_, "Report, count and skip damage; the exit code is then 1");
  }
  bool is_wanted() const { return is_wanted_; }
  void Note(const DatabaseOptions& database, const Status& damage);
  // Whether `it` is at a record, behind damage if that is to be skipped.
  bool IsAtRecord(const DatabaseOptions& database, AnyDBM::Iterator& it) {
    return it.Valid() || (is_wanted_ && it.PassDamage([&](const Status& damage) { Note(database, damage); }));
  }
  // `code`, or where that is kExitDone and something was damaged the code that says so, after a line with the count.
  int Finish(const DatabaseOptions& database, int code) const;

 private:
  bool is_wanted_ = false;
  std::uint64_t count_ = 0;
};

// Fail for the database itself.
int FailDatabase(const DatabaseOptions& options, const Status& status);

// Runs `body` on a database that was opened, and closes it; returns the exit code. A failed close is a failed command, whatever the body
// returned.
int WithDatabase(const DatabaseOptions& options, const std::function<int(AnyDBM&)>& body);

}  // namespace hako::tool
