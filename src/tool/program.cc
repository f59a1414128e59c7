// hako, the command-line tool: finds the command, parses its options, runs it.
#include "tool/program.h"

#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <new>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "hako/format/array_format.h"
#include "hako/format/hash_file_format.h"
#include "hako/format/snapshot_format.h"
#include "hako/format/tree_file_format.h"
#include "hako/version.h"
#include "tool/command.h"
#include "tool/mistakes.h"
#include "tool/other_trees.h"

namespace hako::tool {
namespace {

constexpr const char* kFooter =
    "Begin with: hako create db.hkh; hako set db.hkh key value; hako get db.hkh key; hako list db.hkh\n"
    "or, with lines of key, tab, value: hako import db.hkh data.tsv. Everything: hako man | man -l -\n\n"
    "Exit codes: 0 done; 1 no (the key is absent, verify found damage, salvage lost records); 2 wrong usage;\n"
    "3 a file could not be opened, read or written; 4 another process has the database open; 128 + N stopped by\n"
    "signal N (130 for Ctrl-C). Data goes to stdout, everything else to stderr.";

// Returns the version of the library, and those of the file formats.
std::string VersionText() {
  return absl::StrCat("hako ", HAKO_VERSION_STRING, "\nfile format: hash (.hkh) ", format::kHashFileVersion, ", tree (.hkt) ",
                      format::kTreeFileVersion, ", array (.hka) ", format::kArrayFileVersion, ", snapshot (.hks) ",
                      format::kSnapshotVersion, ", read and written");
}

// If a standard stream is closed, the next file that is opened, such as a database, would get its
// descriptor, and messages would be written into that file. So this opens a file in its place that
// fails when it is used.
void OccupyStandardStreams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) < 0) (void)!open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

// Buffers all output of printf, except on a terminal, which shows each line at once.
// FlushStandardOutput reports a failed write.
void BufferStandardOutput() {
  static char buffer[256 << 10];
  if (isatty(STDOUT_FILENO) != 1) (void)std::setvbuf(stdout, buffer, _IOFBF, sizeof(buffer));
}

// Flushes the output of printf. If a write has failed, now or before, the command fails.
int FlushStandardOutput(int code) {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  const int failed = Fail("standard output", errno != 0 ? WriteError(errno) : absl::UnknownError("cannot write all output"));
  return code == kExitDone ? failed : code;
}

int Run(std::vector<std::string> args);

void AddCommands(Commands& commands) {
  AddCreateCommand(commands);
  AddInspectCommand(commands);
  AddStatCommand(commands);
  AddGetCommand(commands);
  AddSetCommand(commands);
  AddRemoveCommand(commands);
  AddRekeyCommand(commands);
  AddExpireCommand(commands);
  AddCountCommand(commands);
  AddListCommand(commands);
  AddSearchCommand(commands);
  AddImportCommand(commands);
  AddExportCommand(commands);
  AddCopyCommand(commands);
  AddMergeCommand(commands);
  AddRebuildCommand(commands);
  AddVerifyCommand(commands);
  AddScrubCommand(commands);
  AddSalvageCommand(commands);
  AddRestoreCommand(commands);
  AddLogCommand(commands);
  AddTableCommand(commands);
  AddShellCommand(commands, &Run);
  AddPerfCommand(commands);
  AddCompletionCommand(commands);
  AddManCommand(commands);
}

int Run(std::vector<std::string> args) {
  CLI::App root("An embedded key-value database: hash tables and ordered trees, each in one file or in memory.", "hako");
  root.footer(kFooter);
  root.set_version_flag("--version", VersionText());
  root.require_subcommand(0, 1);  // at most one, so that later words are never commands

  Commands commands(&root);
  AddCommands(commands);
  commands.Add("help", "Explain a command: hako help CMD", [] { return kExitDone; });

  if (!args.empty() && args[0] == "help") {  // "help CMD" means "CMD --help"
    args.erase(args.begin());
    const std::vector<std::string> names = CommandNames(root);
    if (!args.empty() && std::find(names.begin(), names.end(), args[0]) == names.end())
      return FailUsage("", absl::StrCat("unknown command '", args[0], "'", Suggest(args[0], names)));
    args.push_back("--help");
  }
  if (args.empty()) args.push_back("--help");

  try {
    std::reverse(args.begin(), args.end());  // CLI11 expects them in reverse order
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
  if (!CommandNames(*chosen).empty() && chosen->parse_order().empty()) {  // a group of commands, whose help lists them
    std::printf("%s", root.help().c_str());
    return kExitDone;
  }
  return commands.Run(chosen);
}

}  // namespace

int RunProgram(int argc, char** argv) {
  try {
    OccupyStandardStreams();
    BufferStandardOutput();
    AddOtherTrees();
    std::signal(SIGPIPE, SIG_IGN);  // then a write fails instead, and the database is closed properly
    return FlushStandardOutput(Run(std::vector<std::string>(argv + 1, argv + argc)));
  } catch (const std::bad_alloc&) {
    std::fputs("hako: out of memory; end other programs, or use a machine with more\n", stderr);
    return kExitFile;
  }
}

}  // namespace hako::tool
