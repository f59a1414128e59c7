// The command completion: scripts that teach a shell the commands and options, made from the
// command table.
//
//   bash  source <(hako completion bash), or the script in bash-completion's folder
//   zsh   the script as a file _hako in a folder of $fpath
//   fish  hako completion fish | source, or the script as completions/hako.fish
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "tool/command.h"
#include "tool/command_table.h"

namespace hako::tool {
namespace {

// Puts a text in single quotes of a shell.
std::string Quoted(std::string_view text) { return absl::StrCat("'", absl::StrReplaceAll(ToAbsl(text), {{"'", "'\\''"}}), "'"); }

// The script finds the command by a case over the words of the line, and then offers what may
// follow: the options of the command, the words that an option takes, or else files.
std::string BashScript(const std::vector<CommandRow>& table) {
  std::string names;
  std::string options;
  std::string values;
  for (const CommandRow& command : table) {
    std::vector<std::string> words = command.below;
    for (const OptionRow& option : command.options) {
      if (option.is_positional) continue;
      words.insert(words.end(), option.names.begin(), option.names.end());
      for (const std::string& name : option.names) {
        if (option.value.empty() || option.value == "FILE") continue;
        const std::string action = option.words.empty() ? "return" : absl::StrCat("words=", Quoted(absl::StrJoin(option.words, " ")));
        absl::StrAppend(&values, "    '", command.name, " ", name, "') ", action, " ;;\n");
      }
    }
    if (!command.name.empty()) absl::StrAppend(&names, names.empty() ? "" : "|", "'", command.name, "'");
    absl::StrAppend(&options, "      '", command.name, "') words='", absl::StrJoin(words, " "), "' ;;\n");
  }
  return absl::StrCat(R"(# Completion of hako for bash, made by: hako completion bash
_hako() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} command='' words='' i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "${command:+$command }${COMP_WORDS[i]}" in
    )",
                      names, R"() command=${command:+$command }${COMP_WORDS[i]} ;;
    esac
  done
  [[ $command != help ]] || command=''
  case "$command $previous" in
)",
                      values, R"(    *)
      case "$command" in
)",
                      options, R"(      esac
      [[ $current == -* || $command == '' || $command == perf || $command == completion ]] || words=
      ;;
  esac
  if [[ -n $words ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
  fi
}
complete -o filenames -F _hako hako
)");
}

// Escapes [ ] and :, which have a meaning in a spec of _arguments.
std::string ZshText(std::string_view text) {
  return absl::StrReplaceAll(ToAbsl(text), {{"[", "\\["}, {"]", "\\]"}, {":", "\\:"}, {"'", "'\\''"}});
}

std::string ZshScript(const std::vector<CommandRow>& table) {
  std::string script = "#compdef hako\n# Completion of hako for zsh, made by: hako completion zsh\n";
  for (const CommandRow& command : table) {
    absl::StrAppend(&script, "_hako", command.name.empty() ? "" : "_", absl::StrReplaceAll(command.name, {{" ", "_"}}),
                    "() {\n  local curcontext=$curcontext state line\n");
    if (!command.below.empty()) {
      absl::StrAppend(&script, "  local -a commands=(\n");
      for (const CommandRow& below : table) {
        const std::string prefix = command.name.empty() ? "" : absl::StrCat(command.name, " ");
        if (below.name.empty() || !below.name.starts_with(prefix) || below.name.find(' ', prefix.size()) != below.name.npos) continue;
        absl::StrAppend(&script, "    '", below.name.substr(prefix.size()), ":", ZshText(below.summary), "'\n");
      }
      absl::StrAppend(&script, "  )\n");
    }
    absl::StrAppend(&script, "  _arguments -C");
    for (const OptionRow& option : command.options) {
      for (const std::string& name : option.names) {
        if (option.is_positional) {
          absl::StrAppend(&script, " \\\n    '", option.is_many ? "*" : "", ":", ZshText(name), ":_files'");
        } else {
          absl::StrAppend(&script, " \\\n    '", name, "[", ZshText(option.description), "]");
          if (!option.words.empty()) {
            absl::StrAppend(&script, ":word:(", absl::StrJoin(option.words, " "), ")'");
          } else {
            absl::StrAppend(&script, option.value.empty() ? "'" : absl::StrCat(":", option.value, ":_files'"));
          }
        }
      }
    }
    if (!command.below.empty()) {
      const std::string function = command.name.empty() ? "_hako" : absl::StrCat("_hako_", command.name);
      absl::StrAppend(&script, " \\\n    '1:command:->command' '*::argument:->argument'\n  case $state in\n",
                      "    command) _describe command commands ;;\n    argument) (( $+functions[", function, "_$line[1]] )) && ", function,
                      "_$line[1] ;;\n  esac");
    }
    absl::StrAppend(&script, "\n}\n");
  }
  return script + "if [[ $funcstack[1] = _hako ]]; then _hako \"$@\"; else compdef _hako hako; fi\n";
}

std::string FishScript(const std::vector<CommandRow>& table) {
  std::string script = "# Completion of hako for fish, made by: hako completion fish\n";
  for (const CommandRow& command : table) {
    std::string seen;  // the condition that this command was typed, and none below it
    for (const absl::string_view word : absl::StrSplit(command.name, ' ', absl::SkipEmpty()))
      absl::StrAppend(&seen, seen.empty() ? "" : "; and ", "__fish_seen_subcommand_from ", word);
    for (const CommandRow& below : table) {
      const std::string prefix = command.name.empty() ? "" : absl::StrCat(command.name, " ");
      if (below.name.empty() || !below.name.starts_with(prefix) || below.name.find(' ', prefix.size()) != below.name.npos) continue;
      const std::string none = command.name.empty()
                                   ? "__fish_use_subcommand"
                                   : absl::StrCat(seen, "; and not __fish_seen_subcommand_from ", absl::StrJoin(command.below, " "));
      absl::StrAppend(&script, "complete -c hako -f -n ", Quoted(none), " -a ", below.name.substr(prefix.size()), " -d ",
                      Quoted(below.summary), "\n");
    }
    for (const OptionRow& option : command.options) {
      if (option.is_positional) continue;
      absl::StrAppend(&script, "complete -c hako -n ", Quoted(seen.empty() ? "__fish_use_subcommand" : seen));
      for (const std::string& name : option.names)
        absl::StrAppend(&script, name.starts_with("--") ? " -l " : " -s ", name.substr(name.find_first_not_of('-')));
      if (!option.words.empty()) absl::StrAppend(&script, " -x -a ", Quoted(absl::StrJoin(option.words, " ")));
      if (option.words.empty() && !option.value.empty()) absl::StrAppend(&script, " -r");
      absl::StrAppend(&script, " -d ", Quoted(option.description), "\n");
    }
  }
  return script;
}

}  // namespace

void AddCompletionCommand(Commands& commands) {
  CLI::App* completion = commands.Add("completion", "Print the completion script for a shell", [] { return kExitDone; });
  completion->require_subcommand(0, 1);
  const auto add = [&commands, completion](const char* shell, const char* summary, std::string (*script)(const std::vector<CommandRow>&)) {
    commands.Add(
        shell, summary,
        [&commands, script] {
          std::fputs(script(CommandTable(commands.root())).c_str(), stdout);
          return kExitDone;
        },
        completion);
  };
  add("bash", "For bash: source <(hako completion bash)", &BashScript);
  add("zsh", "For zsh: write it to a file _hako in a directory of $fpath", &ZshScript);
  add("fish", "For fish: hako completion fish | source", &FishScript);
}

}  // namespace hako::tool
