// The command shell: a command a line, on one database that is opened once and stays open, and locked, to the end.
//
// A line is a command of the program without the name of the file: "set key value" in the shell of db.hkh is "hako set db.hkh key value".
// From a terminal a prompt is shown and mistakes do no harm; from a pipe or a file the first line that fails is the last.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tool/command.h"
#include "tool/database.h"
#include "tool/interrupt.h"
#include "tool/mistakes.h"

namespace hako::tool {
namespace {

// Those that work on one database that is open.
const std::vector<std::string> kLines = {"get",    "set",    "remove", "rekey",   "count",  "list", "search", "inspect",
                                         "import", "export", "copy",   "rebuild", "verify", "help", "exit"};

// The words of a line: separated by blanks, but for those in quotes; a backslash outside of '...' takes the next character as it is. From a
// # where a word would begin the rest is a comment. nullopt where a quote has no end.
std::optional<std::vector<std::string>> SplitWords(std::string_view line) {
  std::vector<std::string> words;
  bool in_word = false;
  char quote = '\0';
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    const bool is_blank = c == ' ' || c == '\t' || c == '\r';
    if (quote == '\0' && !in_word && c == '#') break;
    if (quote == '\0' && is_blank) {
      in_word = false;
      continue;
    }
    if (!std::exchange(in_word, true)) words.emplace_back();
    if (c == quote) {
      quote = '\0';
    } else if (quote == '\0' && (c == '\'' || c == '"')) {
      quote = c;
    } else if (c == '\\' && quote != '\'' && i + 1 < line.size()) {
      words.back().push_back(line[++i]);
    } else {
      words.back().push_back(c);
    }
  }
  if (quote != '\0') return std::nullopt;
  return words;
}

// The lines of standard input; a signal ends the wait for one.
class Lines {
 public:
  // nullopt at the end, after a signal, and where nothing can be read.
  std::optional<std::string> Next() {
    while (true) {
      const std::size_t end = text_.find('\n');
      if (end != text_.npos || (is_at_end_ && !text_.empty())) {
        std::string line = text_.substr(0, end);
        text_.erase(0, end == text_.npos ? end : end + 1);
        return line;
      }
      if (is_at_end_) return std::nullopt;
      Read();
    }
  }
  int signal() const { return signal_; }

 private:
  void Read() {
    const Interrupt interrupt;
    std::array<char, 4096> buffer;
    const ssize_t size = interrupt.Wait(STDIN_FILENO, Interrupt::For::kReading).ok() ? read(STDIN_FILENO, buffer.data(), buffer.size()) : 0;
    signal_ = interrupt.signal();
    if (signal_ != 0) text_.clear();
    is_at_end_ = size <= 0;
    if (size > 0) text_.append(buffer.data(), static_cast<std::size_t>(size));
  }

  std::string text_;
  bool is_at_end_ = false;
  int signal_ = 0;
};

struct ShellOptions {
  DatabaseOptions database;
  std::string name;  // as given, with its options
};

int RunWords(const ShellOptions& options, std::vector<std::string> words, const RunArguments& run) {
  const std::string& command = words[0];
  if (std::find(kLines.begin(), kLines.end(), command) == kLines.end())
    return FailUsage(
        "shell", absl::StrCat("there is no '", command, "' here", Suggest(command, kLines), "; there are ", absl::StrJoin(kLines, ", ")));
  if (command != "help") words.insert(words.begin() + 1, {options.name, "--dbm", std::string(options.database.any.ResolvedKind())});
  const int code = run(words);
  std::fflush(stdout);
  return code;
}

int RunShell(const ShellOptions& options, const RunArguments& run) {
  return WithDatabase(options.database, [&](AnyDBM& db) -> int {
    const SharedDatabase shared(db);
    const bool is_terminal = isatty(STDIN_FILENO) == 1;
    Lines lines;
    int result = kExitDone;
    for (int number = 1;; ++number) {
      if (is_terminal) std::fputs("hako> ", stderr);
      const std::optional<std::string> line = lines.Next();
      if (!line) {
        if (is_terminal) std::fputc('\n', stderr);
        return lines.signal() != 0 ? kExitSignal + lines.signal() : result;
      }
      const std::optional<std::vector<std::string>> words = SplitWords(*line);
      if (words && words->empty()) continue;
      if (words && words->front() == "exit") return result;
      const int code = words ? RunWords(options, *words, run) : FailUsage("shell", "a quote has no end");
      if (is_terminal) continue;
      if (code != kExitDone) result = code;
      if (code <= kExitNo) continue;
      Note(absl::StrCat("stopped at line ", number), "shell");
      return code;
    }
  });
}

}  // namespace

void AddShellCommand(Commands& commands, RunArguments run) {
  const auto options = std::make_shared<ShellOptions>();
  CLI::App* app =
      commands.Add("shell", "Run commands, a line each, on a database that stays open", [options, run] { return RunShell(*options, run); });
  AddDatabaseOptions(app, &options->database, Access::kWrite)->each([options](const std::string& name) { options->name = name; });
}

}  // namespace hako::tool
