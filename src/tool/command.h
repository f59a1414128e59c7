// Shared by the commands: exit codes, the form of messages, and the registration of commands.
//
// The tree of CLI::App objects that the Add...Command functions build is the only table of commands
// and options: the parser, the help, the man page (man_page.cc) and the completions (completion.cc)
// are made from it.
//
// Data goes to stdout, everything else to stderr. An error is one line: the file, the error and the
// way out. A usage error has a second line, which names the help.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "hako/base/status.h"

namespace hako::tool {

enum ExitCode : int {
  kExitDone = 0,
  kExitNo = 1,  // as in grep: the key is absent, verify found damage
  kExitUsage = 2,
  kExitFile = 3,      // a file could not be opened, read or written
  kExitLocked = 4,    // another process has the database open
  kExitSignal = 128,  // plus the number of the signal that stopped the command
};

// Text that contains a name, with control characters escaped. Backslashes stay, because keys are
// escaped already.
std::string Displayed(std::string_view text);

// Prints "hako: " or "hako COMMAND: " and Displayed(message) as a line to stderr. Complain is for
// errors, which are red on a terminal.
void Note(std::string_view message, std::string_view command = {});
void Complain(std::string_view message, std::string_view command = {});

// Prints the error of `file` and the way out. Returns the exit code.
int Fail(std::string_view file, const Status& status);

// The reader of the output is gone, as in "hako list | head": not an error. Fail then prints
// nothing and returns the exit code of SIGPIPE, after the database was closed normally.
inline Status ClosedPipe() { return absl::CancelledError("closed pipe"); }
// A failed write; `error` is errno.
Status WriteError(int error);

// Prints a usage error in two lines; `command` as in "perf sequence", empty for the program itself.
int FailUsage(std::string_view command, std::string_view mistake);

// The commands of the program. Each Add...Command below registers one, with its options kept alive
// by the function that runs it.
class Commands {
 public:
  explicit Commands(CLI::App* root) : root_(root) {}

  // The parser of a new command below `parent` (nullptr: of the program); `run` is called once the
  // line is parsed and returns the exit code.
  CLI::App* Add(const std::string& name, const std::string& summary, std::function<int()> run, CLI::App* parent = nullptr);

  int Run(const CLI::App* command) const { return runs_.at(command)(); }
  const CLI::App& root() const { return *root_; }

 private:
  CLI::App* root_;
  std::map<const CLI::App*, std::function<int()>> runs_;
};

void AddCreateCommand(Commands& commands);
void AddInspectCommand(Commands& commands);
void AddCountCommand(Commands& commands);
void AddVerifyCommand(Commands& commands);
void AddRebuildCommand(Commands& commands);
void AddCopyCommand(Commands& commands);
void AddMergeCommand(Commands& commands);
void AddGetCommand(Commands& commands);
void AddSetCommand(Commands& commands);
void AddRemoveCommand(Commands& commands);
void AddRekeyCommand(Commands& commands);
void AddListCommand(Commands& commands);
void AddSearchCommand(Commands& commands);
void AddExportCommand(Commands& commands);
void AddImportCommand(Commands& commands);
void AddPerfCommand(Commands& commands);
// Runs a command line, the words after "hako"; the exit code.
using RunArguments = std::function<int(std::vector<std::string>)>;
void AddShellCommand(Commands& commands, RunArguments run);
void AddCompletionCommand(Commands& commands);
void AddManCommand(Commands& commands);

// An option that takes a number with an optional suffix (hako/base/parse_number.h), refused outside
// [min, max].
CLI::Option* AddNumber(CLI::App* app, const std::string& name, std::int64_t* number, const std::string& description, std::int64_t min,
                       std::int64_t max);

// An option that takes a duration.
CLI::Option* AddSeconds(CLI::App* app, const std::string& name, std::function<void(double)> store, const std::string& description);

// An option that takes one of a few words.
CLI::Option* AddChoice(CLI::App* app, const std::string& name, std::string* choice, const std::vector<std::string>& words,
                       const std::string& description);

}  // namespace hako::tool
