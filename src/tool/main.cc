// hako, the command-line tool: finds the command, parses its options, runs it.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <new>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "hako/format/hash_file_format.h"
#include "hako/version.h"
#include "tool/command.h"

namespace hako::tool {
namespace {

constexpr const char* kFooter =
    "Exit codes: 0 done; 1 no (the key is absent, verify found damage); 2 a mistake on the command line;\n"
    "3 a file could not be opened, read or written; 4 another process has the database open; 128 + N stopped by\n"
    "signal N (130 for Ctrl-C). Data goes to stdout, everything else to stderr.";

// How many characters to insert, delete or replace to make one of the other.
std::size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

// "; did you mean 'x'?" where one of the names is near enough.
std::string Suggest(std::string_view given, const std::vector<std::string>& names) {
  const std::string* best = nullptr;
  std::size_t best_distance = given.size() / 3 + 2;
  for (const std::string& name : names) {
    const std::size_t distance = EditDistance(given, name);
    if (distance < best_distance) best_distance = distance, best = &name;
  }
  return best != nullptr ? absl::StrCat("; did you mean '", *best, "'?") : "";
}

std::vector<std::string> CommandNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    if (!command->get_name().empty()) names.push_back(command->get_name());  // groups of options have none
  }
  return names;
}

std::vector<std::string> OptionNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back(absl::StrCat("--", name));
  }
  for (const CLI::App* group : app.get_subcommands(nullptr)) {
    if (group->get_name().empty()) {
      for (std::string& name : OptionNames(*group)) names.push_back(std::move(name));
    }
  }
  return names;
}

// The innermost command on the line, and its name as in "perf sequence".
const CLI::App* ChosenCommand(const CLI::App& root, std::string* name) {
  const CLI::App* chosen = &root;
  while (true) {
    const auto below = chosen->get_subcommands();
    const auto it = std::find_if(below.begin(), below.end(), [](const CLI::App* app) { return !app->get_name().empty(); });
    if (it == below.end()) return chosen;
    chosen = *it;
    absl::StrAppend(name, name->empty() ? "" : " ", chosen->get_name());
  }
}

int FailParse(const CLI::App& root, const CLI::ParseError& error) {
  std::string name;
  const CLI::App* chosen = ChosenCommand(root, &name);
  const std::vector<std::string> extras = chosen->remaining();
  const auto unknown_option =
      std::find_if(extras.begin(), extras.end(), [](const std::string& s) { return s.starts_with('-') && s.size() > 1; });
  if (unknown_option != extras.end()) {
    const std::string option = unknown_option->substr(0, unknown_option->find('='));
    return FailUsage(name, absl::StrCat("unknown option '", option, "'", Suggest(option, OptionNames(*chosen))));
  }
  const std::vector<std::string> names = CommandNames(*chosen);
  if (!extras.empty() && !names.empty())
    return FailUsage(name, absl::StrCat("unknown command '", extras[0], "'", Suggest(extras[0], names)));
  if (!extras.empty()) return FailUsage(name, absl::StrCat("unexpected argument '", extras[0], "'"));
  std::string mistake = error.what();
  std::replace(mistake.begin(), mistake.end(), '\n', ' ');
  return FailUsage(name, mistake);
}

// Two numbers kept apart: the library's, and those of the file formats.
std::string VersionText() {
  return absl::StrCat("hako ", HAKO_VERSION_STRING, "\nfile format: hash (.hkh) ", format::kHashFileVersion, ", read and written");
}

int Run(std::vector<std::string> args) {
  CLI::App root("An embedded key-value database: persistent hash tables in one file each.", "hako");
  root.footer(kFooter);
  root.set_version_flag("--version", VersionText());
  root.require_subcommand(0, 1);  // at most one, so that later words are never taken for commands

  Commands commands(&root);
  AddCreateCommand(commands);
  AddInspectCommand(commands);
  AddGetCommand(commands);
  AddSetCommand(commands);
  AddRemoveCommand(commands);
  AddListCommand(commands);
  AddImportCommand(commands);
  AddExportCommand(commands);
  AddVerifyCommand(commands);
  AddPerfCommand(commands);
  commands.Add("help", "Explain a command: hako help CMD", [] { return kExitDone; });

  if (!args.empty() && args[0] == "help") {  // help CMD is CMD --help
    args.erase(args.begin());
    const std::vector<std::string> names = CommandNames(root);
    if (!args.empty() && std::find(names.begin(), names.end(), args[0]) == names.end())
      return FailUsage("", absl::StrCat("unknown command '", args[0], "'", Suggest(args[0], names)));
    args.push_back("--help");
  }
  if (args.empty()) args.push_back("--help");

  try {
    std::reverse(args.begin(), args.end());  // as CLI11 wants them
    root.parse(args);
  } catch (const CLI::CallForVersion&) {
    std::printf("%s\n", root.version().c_str());
    return kExitDone;
  } catch (const CLI::CallForHelp&) {
    std::printf("%s", root.help().c_str());
    return kExitDone;
  } catch (const CLI::ParseError& error) {
    return FailParse(root, error);
  }
  std::string name;
  const CLI::App* chosen = ChosenCommand(root, &name);
  if (!CommandNames(*chosen).empty()) {  // a group of commands: its help lists them
    std::printf("%s", root.help().c_str());
    return kExitDone;
  }
  return commands.Run(chosen);
}

}  // namespace
}  // namespace hako::tool

int main(int argc, char** argv) {
  try {
    return hako::tool::Run(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::bad_alloc&) {
    std::fputs("hako: out of memory; end other programs, or take a machine with more\n", stderr);
    return hako::tool::kExitFile;
  }
}
