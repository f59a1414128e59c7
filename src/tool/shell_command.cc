// The command shell: runs a command for each line, on one database or table, which stays open and
// locked to the end.
//
// A line is a command of the program without the name of the file: "set key value" in the shell of
// db.hkh is "hako set db.hkh key value". In the shell of a table a line may also be a statement
// (hako/table/query_text.h), with or without a semicolon at its end, and "get key" is "hako table
// get FILE key". On a terminal lines are edited (tool/line_editor.h) and mistakes do no harm; from
// a pipe or a file the first line that fails is the last.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "hako/text/text_encoding.h"
#include "tool/command.h"
#include "tool/command_table.h"
#include "tool/database.h"
#include "tool/interrupt.h"
#include "tool/line_editor.h"
#include "tool/mistakes.h"
#include "tool/row_printer.h"
#include "tool/table_statement.h"

namespace hako::tool {
namespace {

// The commands that work on the open database.
const std::vector<std::string> kLines = {"get",     "set",    "remove", "rekey", "expire",  "count",  "list", "search",
                                         "inspect", "import", "export", "copy",  "rebuild", "verify", "help", "exit"};

// The commands in the shell of a table: those of "hako table ...", then others; and the words that
// begin a statement.
const std::vector<std::string> kTableCommands = {"get", "put", "remove", "columns", "schema", "index", "import", "export"};
const std::vector<std::string> kTableLines = {"select",  "update",  "delete",  "explain", "bind",   "get",    "put",
                                              "remove",  "columns", "schema",  "index",   "import", "export", "count",
                                              "inspect", "copy",    "rebuild", "verify",  "scrub",  "help",   "exit"};
const std::vector<std::string> kStatementWords = {"select", "update", "delete"};

bool Has(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Splits a line into words, which are separated by blanks outside of quotes. A backslash outside of
// '...' takes the next character literally. A # at the beginning of a word starts a comment.
// Returns nullopt if a quote is unterminated.
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

// Reads the lines of standard input. A signal ends the wait for a line.
class Lines {
 public:
  // Returns nullopt at the end, after a signal, and after a failed read.
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
  const Status& status() const { return status_; }  // the error of a failed read

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
  std::string name;  // as it was given, with its options
  RowStyleOption style;
};

// A shell. It runs and completes lines.
class Session {
 public:
  virtual ~Session() = default;
  // Runs a line, and returns the exit code; nullopt = the line ends the shell.
  virtual std::optional<int> Run(const std::string& line) = 0;
  virtual LineEditor::Completion Complete(std::string_view line) = 0;
};

// Prints commands with the summaries of the program's help.
void PrintHelp(const Commands& commands, const std::string& group, const std::vector<std::string>& names) {
  for (const CommandRow& row : CommandTable(commands.root())) {
    const std::string_view name = row.name;
    if (name.starts_with(group) && name != "help" && Has(names, name.substr(group.size())))
      std::printf("  %-10s %s\n", row.name.c_str() + group.size(), row.summary.c_str());
  }
}

int FailUnknown(const std::string& wanted, const std::vector<std::string>& names) {
  return FailUsage(
      "shell", absl::StrCat("unknown command '", wanted, "'", Suggest(wanted, names), "; the commands are ", absl::StrJoin(names, ", ")));
}

// Returns a word as it must be typed; nullopt if a line cannot have it.
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

// Returns where the last word of a line begins. Escaped blanks do not separate words.
std::size_t LastWord(std::string_view line) {
  std::size_t begin = line.size();
  while (begin > 0 && (line[begin - 1] != ' ' || (begin > 1 && line[begin - 2] == '\\'))) --begin;
  return begin;
}

void OfferOptions(const Commands& commands, const std::string& command, std::string_view typed, LineEditor::Completion* completion) {
  for (const CommandRow& row : CommandTable(commands.root())) {
    for (const OptionRow& option : row.name == command ? row.options : std::vector<OptionRow>()) {
      for (const std::string& name : option.is_positional ? std::vector<std::string>() : option.names) {
        if (name.starts_with(typed)) completion->words.push_back(name);
      }
    }
  }
}

constexpr std::size_t kKeysMax = 50;  // the most keys that a completion offers

class DatabaseSession final : public Session {
 public:
  DatabaseSession(const ShellOptions& options, const Commands& commands, const RunArguments& run, AnyDBM& db)
      : options_(options), commands_(commands), run_(run), db_(db) {}

  std::optional<int> Run(const std::string& line) override {
    std::optional<std::vector<std::string>> words = SplitWords(line);
    if (!words) return FailUsage("shell", "unterminated quote");
    if (words->empty()) return kExitDone;
    const std::string& command = words->front();
    if (command == "exit") return std::nullopt;
    const std::string& wanted = command == "help" && words->size() > 1 ? (*words)[1] : command;
    if (!Has(kLines, wanted)) return FailUnknown(wanted, kLines);
    if (command == "help" && (words->size() == 1 || wanted == "help" || wanted == "exit")) {
      std::printf("Commands on the open database, without its name; 'help COMMAND' explains one:\n");
      PrintHelp(commands_, "", kLines);
      std::printf("  help       Print this, or explain a command\n  exit       End the shell, as the end of the input does\n");
      return kExitDone;
    }
    if (command != "help") words->insert(words->begin() + 1, {options_.name, "--dbm", std::string(options_.database.any.ResolvedKind())});
    return run_(*words);
  }

  // Offers commands, their options, and keys of ordered databases, in which that takes reading few
  // keys.
  LineEditor::Completion Complete(std::string_view line) override {
    LineEditor::Completion completion;
    completion.begin = LastWord(line);
    const std::string_view typed = line.substr(completion.begin);
    const std::optional<std::vector<std::string>> before = SplitWords(line.substr(0, completion.begin));
    if (!before) return completion;  // the cursor is within quotes
    if (before->empty() || (before->size() == 1 && before->front() == "help")) {
      for (const std::string& name : kLines) {
        if (name.starts_with(typed)) completion.words.push_back(name);
      }
      return completion;
    }
    if (typed.starts_with('-')) {
      OfferOptions(commands_, before->front(), typed, &completion);
      return completion;
    }
    const std::optional<std::vector<std::string>> word = SplitWords(typed);
    if (!db_.IsOrdered() || !word || word->size() > 1) return completion;
    const std::string prefix = word->empty() ? "" : word->front();
    auto it = db_.MakeIterator();
    for (it.Jump(prefix); it.Valid() && it.key().starts_with(prefix) && completion.words.size() < kKeysMax; it.Next()) {
      const std::optional<std::string> key = Typed(it.key());
      if (key && key->starts_with(typed)) completion.words.push_back(*key);
    }
    return completion;
  }

 private:
  const ShellOptions& options_;
  const Commands& commands_;
  const RunArguments& run_;
  AnyDBM& db_;
};

class TableSession final : public Session {
 public:
  TableSession(const ShellOptions& options, const Commands& commands, const RunArguments& run, TableDBM& table)
      : options_(options), commands_(commands), run_(run), table_(table) {}

  std::optional<int> Run(const std::string& line) override {
    std::string_view text = ToStd(absl::StripAsciiWhitespace(line));
    const std::size_t end = std::min(text.find_first_of(" \t"), text.size());
    const std::string first = absl::AsciiStrToLower(ToAbsl(text.substr(0, end)));
    const bool explains = first == "explain";
    if (Has(kStatementWords, first) || explains) {
      if (explains) text.remove_prefix(end);
      if (text.ends_with(';')) text.remove_suffix(1);
      const StatusOr<Statement> statement = ParseWithParameters(std::string(text), parameters_);
      if (!statement.ok()) return FailUsage("shell", ToStd(statement.status().message()));
      return explains ? ExplainStatement(options_.database, table_, *statement)
                      : RunStatement(options_.database, table_, *statement, options_.style.style());
    }
    std::optional<std::vector<std::string>> words = SplitWords(line);
    if (!words) return FailUsage("shell", "unterminated quote");
    if (words->empty()) return kExitDone;
    const std::string command = words->front();
    if (command == "exit") return std::nullopt;
    if (command == "bind") {
      parameters_.assign(words->begin() + 1, words->end());
      return kExitDone;
    }
    const std::string wanted = command == "help" && words->size() > 1 ? (*words)[1] : command;
    if (!Has(kTableLines, wanted)) return FailUnknown(wanted, kTableLines);
    const bool is_own = Has(kStatementWords, wanted) || wanted == "explain" || wanted == "bind" || wanted == "help" || wanted == "exit";
    if (command == "help" && (words->size() == 1 || is_own)) {
      PrintTableHelp();
      return kExitDone;
    }
    if (command != "help") words->insert(words->begin() + 1, options_.name);
    if (Has(kTableCommands, wanted)) words->insert(words->begin() + (command == "help" ? 1 : 0), "table");
    return run_(*words);
  }

  // Offers commands and their options, words and columns of statements, and keys.
  LineEditor::Completion Complete(std::string_view line) override {
    LineEditor::Completion completion;
    const std::string first = absl::AsciiStrToLower(ToAbsl(line.substr(0, line.find(' '))));
    const bool is_begun = line.find(' ') != line.npos;
    completion.begin = LastWord(line);
    const std::string_view typed = line.substr(completion.begin);
    const auto offer = [&](const std::string& word) {
      if (word.starts_with(typed)) completion.words.push_back(word);
    };
    if (!is_begun || (first == "help" && line.find(' ') + 1 == completion.begin)) {
      for (const std::string& name : kTableLines) offer(name);
    } else if (Has(kStatementWords, first) || first == "explain") {
      for (const char* word : {"and",   "asc",   "begins", "between", "by",    "contains", "count(*)", "delete", "desc", "ends", "false",
                               "group", "in",    "is",     "key",     "limit", "matches",  "max(",     "min(",   "not",  "null", "offset",
                               "or",    "order", "search", "select",  "set",   "sum(",     "true",     "update", "where"})
        offer(word);
      for (const ColumnInfo& column : table_.Columns()) {
        std::string name;
        table::AppendColumnName(column.name, &name);
        offer(name);
      }
    } else if (typed.starts_with('-')) {
      OfferOptions(commands_, (Has(kTableCommands, first) ? "table " : "") + first, typed, &completion);
    } else if (first == "get" || first == "put" || first == "remove") {
      const std::optional<std::vector<std::string>> word = SplitWords(typed);
      const std::optional<std::vector<std::string>> before = SplitWords(line.substr(0, completion.begin));
      if (!word || word->size() > 1 || !before || before->size() != 1) return completion;
      const auto keys = table_.Select().Where(Key().BeginsWith(word->empty() ? "" : word->front())).Limit(kKeysMax).Keys();
      for (const std::string& key : keys.ok() ? *keys : std::vector<std::string>()) {
        if (const std::optional<std::string> shown = Typed(key)) offer(*shown);
      }
    }
    return completion;
  }

 private:
  void PrintTableHelp() const {
    std::printf(
        "Statements, such as: select name, age where age >= ? order by age desc limit 10\n"
        "  select     Show rows or figures\n  update     Change columns: update set a = 1 where b = 'x'\n  delete     Remove rows\n"
        "  explain    Print how a statement finds its rows\n"
        "  bind       What stands for each ? of the statements that follow: bind 20 'two words'\n"
        "Commands on the table, without its name; 'help COMMAND' explains one:\n");
    PrintHelp(commands_, "table ", kTableCommands);
    PrintHelp(commands_, "", {"count", "inspect", "copy", "rebuild", "verify", "scrub"});
    std::printf("  help       Print this, or explain a command\n  exit       End the shell, as the end of the input does\n");
  }

  const ShellOptions& options_;
  const Commands& commands_;
  const RunArguments& run_;
  TableDBM& table_;
  std::vector<std::string> parameters_;
};

int RunLines(Session& session) {
  const bool is_terminal = isatty(STDIN_FILENO) == 1;
  constexpr const char* kPrompt = "hako> ";
  const auto editor = LineEditor::Make(kPrompt, [&](std::string_view line) { return session.Complete(line); });
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
    const std::optional<int> code = session.Run(*line);
    std::fflush(stdout);
    if (!code) return result;
    if (is_terminal) continue;
    if (*code != kExitDone) result = *code;
    if (*code <= kExitNo) continue;
    Note(absl::StrCat("stopped at line ", number), "shell");
    return *code;
  }
}

int RunShell(const ShellOptions& options, const Commands& commands, const RunArguments& run) {
  if (options.database.IsTable()) {
    return WithTable(options.database, [&](TableDBM& table) -> int {
      const SharedDatabase shared(table);
      TableSession session(options, commands, run, table);
      return RunLines(session);
    });
  }
  if (options.style.is_given()) return FailUsage("shell", "--csv, --json and --box are for the statements of a table (.hktb)");
  return WithDatabase(options.database, [&](AnyDBM& db) -> int {
    const SharedDatabase shared(db);
    DatabaseSession session(options, commands, run, db);
    return RunLines(session);
  });
}

}  // namespace

void AddShellCommand(Commands& commands, RunArguments run) {
  const auto options = std::make_shared<ShellOptions>();
  CLI::App* app = commands.Add("shell", "Run commands, one a line, on a database that stays open; on a table statements too",
                               [options, &commands, run] { return RunShell(*options, commands, run); });
  AddDatabaseOptions(app, &options->database, Access::kWrite)->each([options](const std::string& name) { options->name = name; });
  options->style.AddTo(app);
}

}  // namespace hako::tool
