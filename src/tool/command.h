// How the commands are registered.
//
// The tree of CLI::App objects that the Add...Command functions build is the only table of commands
// and options: the parser, the help, the man page (man_page.cc) and the completions (completion.cc)
// are made from it.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tool/message.h"

namespace hako::tool {

// The commands of the program. Each Add...Command below registers one. The function that runs the
// command keeps its options alive.
class Commands {
 public:
  explicit Commands(CLI::App* root) : root_(root) {}

  // Adds a command below `parent` (nullptr = below the program), and returns its parser. `run` is
  // called once the line is parsed, and returns the exit code.
  CLI::App* Add(const std::string& name, const std::string& summary, std::function<int()> run, CLI::App* parent = nullptr);

  int Run(const CLI::App* command) const { return runs_.at(command)(); }
  const CLI::App& root() const { return *root_; }

 private:
  CLI::App* root_;
  std::map<const CLI::App*, std::function<int()>> runs_;
};

void AddCreateCommand(Commands& commands);
void AddInspectCommand(Commands& commands);
void AddStatCommand(Commands& commands);
void AddCountCommand(Commands& commands);
void AddVerifyCommand(Commands& commands);
void AddScrubCommand(Commands& commands);
void AddSalvageCommand(Commands& commands);
void AddRestoreCommand(Commands& commands);
void AddLogCommand(Commands& commands);
void AddRebuildCommand(Commands& commands);
void AddCopyCommand(Commands& commands);
void AddMergeCommand(Commands& commands);
void AddGetCommand(Commands& commands);
void AddSetCommand(Commands& commands);
void AddRemoveCommand(Commands& commands);
void AddRekeyCommand(Commands& commands);
void AddExpireCommand(Commands& commands);
void AddListCommand(Commands& commands);
void AddSearchCommand(Commands& commands);
void AddExportCommand(Commands& commands);
void AddImportCommand(Commands& commands);
void AddTableCommand(Commands& commands);
void AddPerfCommand(Commands& commands);
// Runs a command line, given as the words after "hako". Returns the exit code.
using RunArguments = std::function<int(std::vector<std::string>)>;
void AddShellCommand(Commands& commands, RunArguments run);
void AddCompletionCommand(Commands& commands);
void AddManCommand(Commands& commands);

// Adds an option that takes a number with an optional suffix (hako/base/parse_number.h). Numbers
// outside [min, max] are refused.
CLI::Option* AddNumber(CLI::App* app, const std::string& name, std::int64_t* number, const std::string& description, std::int64_t min,
                       std::int64_t max);

// Adds an option that takes a duration (tool/times.h). A plain number counts seconds.
CLI::Option* AddSeconds(CLI::App* app, const std::string& name, std::function<void(double)> store, const std::string& description);

// Adds an option that takes one of a few words.
CLI::Option* AddChoice(CLI::App* app, const std::string& name, std::string* choice, const std::vector<std::string>& words,
                       const std::string& description);

}  // namespace hako::tool
