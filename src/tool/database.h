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
  bool sync_hard = false;
  ExitCode on_damage = kExitFile;  // verify: kExitNo

  const std::string& path() const { return any.path; }
};

// The positional FILE and the options that every command on a database takes.
void AddDatabaseOptions(CLI::App* app, DatabaseOptions* options, Access access);

// The positional `name` alone, a database as well.
CLI::Option* AddDatabase(CLI::App* app, const std::string& name, DatabaseOptions* options, Access access, const std::string& description);

// Fail for the database itself.
int FailDatabase(const DatabaseOptions& options, const Status& status);

// Runs `body` on a database that was opened, and closes it; returns the exit code. A failed close is a failed command, whatever the body
// returned.
int WithDatabase(const DatabaseOptions& options, const std::function<int(AnyDBM&)>& body);

}  // namespace hako::tool
