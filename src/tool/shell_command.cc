// The command shell: a command a line, on one database that is opened once and stays open, and
// locked, to the end.
//
// A line is a command of the program without the name of the file: "set key value" in the shell of
// db.hkh is "hako set db.hkh key value". On a terminal lines are edited (tool/line_editor.h) and
// mistakes do no harm; from a pipe or a file the first line that fails is the last.
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
#include "hako/text/text_encoding.h"
#include "tool/command.h"
#include "tool/command_table.h"
#include "tool/database.h"
#include "tool/interrupt.h"
#include "tool/line_editor.h"
#include "tool/mistakes.h"

namespace hako::tool {
namespace {

// The commands that work on the open database.
const std::vector<std::string> kLines = {"get",     "set",    "remove", "rekey", "expire",  "count",  "list", "search",
                                         "inspect", "import", "export", "copy",  "rebuild", "verify", "help", "exit"};

// The words of a line, separated by blanks outside of quotes. A backslash outside of '...' takes
// the next character literally. A # at the beginning of a word starts a comment. nullopt if a quote
// is unterminated.
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

// The lines of standard input. A signal ends the wait for a line.
class Lines {
 public:
  // nullopt at the end, after a signal, and after a failed read.
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
  const Status& status() const { return status_; }  // why nothing can be read

 private:
  void Read() {
    const Interrupt interrupt;
    std::array<char, 4096> buffer;
    const ssize_t size = interrupt.Wait(STDIN_FILENO, Interrupt::For::kReading).ok() ? read(STDIN_FILENO, buffer.data(), buffer.size()) : 0;
    if (size < 0) status_ = SystemError(errno, "cannot read");
    signal_ = interrupt.signal();
    if (signal_ != 0) text_.clear();
    is_at_end_ = size <= 0;
    if (size > 0) text_.append(buffer.data(), static_cast<std::size_t>(size));
  }

  std::string text_;
  bool is_at_end_ = false;
  int signal_ = 0;
  Status status_;
};

struct ShellOptions {
  DatabaseOptions database;
  std::string name;  // as given, with its options
};

// Prints the commands, with the summaries of the program's help.
void PrintHelp(const Commands& commands) {
  std::printf("Commands on the open database, without its name; 'help COMMAND' explains one:\n");
  for (const CommandRow& row : CommandTable(commands.root())) {
    if (row.name != "help" && std::find(kLines.begin(), kLines.end(), row.name) != kLines.end())
      std::printf("  %-10s %s\n", row.name.c_str(), row.summary.c_str());
  }
  std::printf("  %-10s %s\n  %-10s %s\n", "help", "Print this, or explain a command", "exit",
              "End the shell, as the end of the input does");
}

int RunWords(const ShellOptions& options, std::vector<std::string> words, const Commands& commands, const RunArguments& run) {
  const std::string& command = words[0];
  const auto exists = [](const std::string& name) { return std::find(kLines.begin(), kLines.end(), name) != kLines.end(); };
  const std::string& wanted = command == "help" && words.size() > 1 ? words[1] : command;
  if (!exists(wanted))
    return FailUsage("shell", absl::StrCat("unknown command '", wanted, "'", Suggest(wanted, kLines), "; the commands are ",
                                           absl::StrJoin(kLines, ", ")));
  if (command == "help" && (words.size() == 1 || wanted == "help" || wanted == "exit")) {
    PrintHelp(commands);
    std::fflush(stdout);
    return kExitDone;
  }
  if (command != "help") words.insert(words.begin() + 1, {options.name, "--dbm", std::string(options.database.any.ResolvedKind())});
  const int code = run(words);
  std::fflush(stdout);
  return code;
}

// A word as it would be typed; nullopt if a line cannot hold it.
std::optional<std::string> Typed(std::string_view word) {
  std::string typed;
  for (const char c : word) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return std::nullopt;
    if (std::string_view(" \\'\"#").find(c) != std::string_view::npos) typed.push_back('\\');
    typed.push_back(c);
  }
  if (!text::IsUtf8(typed)) return std::nullopt;
  return typed;
}

// Completes commands, their options, and keys of ordered databases, where few keys have to be read.
LineEditor::Completion CompleteLine(std::string_view line, const Commands& commands, AnyDBM& db) {
  constexpr std::size_t kKeysMax = 50;
  LineEditor::Completion completion;
  std::size_t begin = line.size();  // of the last word: a blank before it is not escaped
  while (begin > 0 && (line[begin - 1] != ' ' || (begin > 1 && line[begin - 2] == '\\'))) --begin;
  completion.begin = begin;
  const std::string_view typed = line.substr(begin);
  const auto offer = [&](const std::string& word) {
    if (word.starts_with(typed)) completion.words.push_back(word);
  };
  const std::optional<std::vector<std::string>> before = SplitWords(line.substr(0, begin));
  if (!before) return completion;  // within quotes
  if (before->empty() || (before->size() == 1 && before->front() == "help")) {
    for (const std::string& name : kLines) offer(name);
    return completion;
  }
  if (typed.starts_with('-')) {
    for (const CommandRow& row : CommandTable(commands.root())) {
      for (const OptionRow& option : row.name == before->front() ? row.options : std::vector<OptionRow>()) {
        for (const std::string& name : option.is_positional ? std::vector<std::string>() : option.names) offer(name);
      }
    }
    return completion;
  }
  const std::optional<std::vector<std::string>> word = SplitWords(typed);
  if (!db.IsOrdered() || !word || word->size() > 1) return completion;
  const std::string prefix = word->empty() ? "" : word->front();
  auto it = db.MakeIterator();
  for (it.Jump(prefix); it.Valid() && it.key().starts_with(prefix) && completion.words.size() < kKeysMax; it.Next()) {
    if (const std::optional<std::string> key = Typed(it.key())) offer(*key);
  }
  return completion;
}

int RunShell(const ShellOptions& options, const Commands& commands, const RunArguments& run) {
  return WithDatabase(options.database, [&](AnyDBM& db) -> int {
    const SharedDatabase shared(db);
    const bool is_terminal = isatty(STDIN_FILENO) == 1;
    constexpr const char* kPrompt = "hako> ";
    const auto editor = LineEditor::Make(kPrompt, [&](std::string_view line) { return CompleteLine(line, commands, db); });
    Lines lines;
    int result = kExitDone;
    for (int number = 1;; ++number) {
      if (is_terminal && editor == nullptr) std::fputs(kPrompt, stderr);
      const std::optional<std::string> line = editor != nullptr ? editor->Next() : lines.Next();
      if (!line) {
        const int signal = editor != nullptr ? editor->signal() : lines.signal();
        if (is_terminal) std::fputc('\n', stderr);
        if (signal == 0 && !lines.status().ok()) return Fail("standard input", lines.status());
        return signal != 0 ? kExitSignal + signal : result;
      }
      const std::optional<std::vector<std::string>> words = SplitWords(*line);
      if (words && words->empty()) continue;
      if (words && words->front() == "exit") return result;
      const int code = words ? RunWords(options, *words, commands, run) : FailUsage("shell", "unterminated quote");
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
  CLI::App* app = commands.Add("shell", "Run commands, one a line, on a database that stays open",
                               [options, &commands, run] { return RunShell(*options, commands, run); });
  AddDatabaseOptions(app, &options->database, Access::kWrite)->each([options](const std::string& name) { options->name = name; });
}

}  // namespace hako::tool
