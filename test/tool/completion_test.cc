// Completions and the manual page: the shells accept the scripts, and all of them know every
// option.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <sstream>

#include "support/temp_dir.h"
#include "tool/tool_runner.h"

namespace hako {
namespace {

using testing::ElementsAre;
using testing::IsSupersetOf;

bool Contains(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }
bool Has(const std::string& program) { return std::system(("command -v " + program + " > /dev/null").c_str()) == 0; }

class Completion : public testing::Test {
 protected:
  void WriteScript(const std::string& shell, const std::string& name) {
    const ToolResult script = RunTool({"completion", shell});
    ASSERT_EQ(script.exit_code, 0);
    WriteWhole(dir_.File(name), script.out);
  }
  // The lines that a program prints.
  std::vector<std::string> Run(const std::string& command) {
    EXPECT_EQ(std::system(("cd " + dir_.path() + " && " + command + " > out 2> err").c_str()), 0) << ReadWhole(dir_.File("err"));
    return SplitLines(ReadWhole(dir_.File("out")));
  }
  TempDir dir_;
};

TEST_F(Completion, Bash) {
  if (!Has("bash")) GTEST_SKIP() << "there is no bash";
  WriteScript("bash", "hako.bash");
  WriteWhole(dir_.File("a file.hkh"), "");
  WriteWhole(dir_.File("try.bash"), R"(source ./hako.bash
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_hako
printf '%s\n' "${COMPREPLY[@]}")");
  const auto complete = [this](const std::string& words) { return Run("bash try.bash hako " + words); };
  EXPECT_THAT(complete("''"), IsSupersetOf({"create", "get", "perf", "help", "--version"}));
  EXPECT_THAT(complete("i"), ElementsAre("inspect", "import"));
  EXPECT_THAT(complete("perf s"), ElementsAre("sequence"));
  EXPECT_THAT(complete("list a.hkh --it"), ElementsAre("--items"));
  EXPECT_THAT(complete("list a.hkh --move ''"), ElementsAre("first", "jump", "jumplower", "jumplowerinc", "jumpupper", "jumpupperinc"));
  EXPECT_THAT(complete("perf sequence --get_order z"), ElementsAre("zipf"));
  EXPECT_THAT(complete("perf parallel --get_order z"), ElementsAre("")) << "no such option there";
  EXPECT_THAT(complete("help rek"), ElementsAre("rekey"));
  EXPECT_THAT(complete("get a"), ElementsAre("a file.hkh"));
  EXPECT_THAT(complete("perf sequence --path a"), ElementsAre("a file.hkh"));
  EXPECT_THAT(complete("list --items ''"), ElementsAre("")) << "a number, no file";
}

// A function in place of the program prints the completed line.
TEST_F(Completion, Zsh) {
  if (!Has("zsh")) GTEST_SKIP() << "there is no zsh";
  WriteScript("zsh", "_hako");
  WriteWhole(dir_.File("try.zsh"), R"(zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "autoload -Uz compinit; compinit -u -D; source ./_hako; hako() { print -r -- '<''<'\"\$*\"'>''>' }"
for line; do
  zpty -w shell "$line"$'\t'
  zpty -r shell out '*<<*>>*'
  print -r -- "${${out##*<<}%%>>*}"
done)");
  EXPECT_THAT(Run("TERM=xterm zsh -f try.zsh 'hako lis' 'hako list --mo' 'hako perf seq' 'hako list --move j' "
                  "'hako perf sequence --get_order z' 'hako perf parallel --get_order z' 'hako completion f'"),
              ElementsAre("list", "list --move", "perf sequence", "list --move jump", "perf sequence --get_order zipf",
                          "perf parallel --get_order z", "completion fish"));
}

TEST_F(Completion, Fish) {
  if (!Has("fish")) GTEST_SKIP() << "there is no fish";
  WriteScript("fish", "hako.fish");
  const auto complete = [this](const std::string& line) {
    std::vector<std::string> words;
    for (const std::string& offer : Run("HOME=. fish --no-config -c 'source hako.fish; complete -C \"hako " + line + "\"'"))
      words.push_back(offer.substr(0, offer.find('\t')));
    return words;
  };
  EXPECT_THAT(complete("lis"), ElementsAre("list"));
  EXPECT_THAT(complete("perf "), IsSupersetOf({"sequence", "parallel", "wicked"}));
  EXPECT_THAT(complete("list x --mo"), ElementsAre("--move"));
  EXPECT_THAT(complete("list x --move "), ElementsAre("first", "jump", "jumplower", "jumplowerinc", "jumpupper", "jumpupperinc"));
  EXPECT_THAT(complete("perf sequence --get_order z"), ElementsAre("zipf"));
}

// The options that the help of a command shows.
std::set<std::string> OptionsOf(const std::vector<std::string>& command) {
  std::vector<std::string> args = {"help"};
  args.insert(args.end(), command.begin(), command.end());
  std::set<std::string> options;
  for (const std::string& line : SplitLines(RunTool(args).out)) {
    std::istringstream words(line);
    std::string names;
    words >> names;
    if (!names.starts_with('-')) continue;
    std::istringstream list(names);
    for (std::string name; std::getline(list, name, ',');) options.insert(name);
  }
  return options;
}

TEST(CommandTable, EveryOptionIsInTheManualAndInEveryCompletion) {
  std::string man = RunTool({"man"}).out, bash = RunTool({"completion", "bash"}).out, zsh = RunTool({"completion", "zsh"}).out,
              fish = RunTool({"completion", "fish"}).out;
  for (std::size_t at; (at = man.find("\\-")) != man.npos;) man.erase(at, 1);
  const std::vector<std::vector<std::string>> commands = {
      {"list"}, {"set"}, {"import"}, {"export"}, {"rebuild"}, {"perf", "sequence"}, {"perf", "wicked"}};
  for (const auto& command : commands) {
    const auto options = OptionsOf(command);
    EXPECT_GT(options.size(), 6u);
    for (const std::string& option : options) {
      SCOPED_TRACE(command.back() + " " + option);
      EXPECT_TRUE(Contains(man, "\\fB" + option + "\\fR") || option == "--help" || option == "-h");
      EXPECT_TRUE(Contains(bash, option));
      EXPECT_TRUE(Contains(zsh, "'" + option + "["));
      EXPECT_TRUE(Contains(fish, (option.starts_with("--") ? " -l " : " -s ") + option.substr(option.find_first_not_of('-')) + " "));
    }
  }
}

TEST(ManualPage, IsCorrectTroff) {
  if (!Has("mandoc")) GTEST_SKIP() << "there is no mandoc";
  TempDir dir;
  WriteWhole(dir.File("hako.1"), RunTool({"man"}).out);
  // The page has no date, so that every build makes the same page.
  std::system(("mandoc -T lint -W warning " + dir.File("hako.1") + " | grep -v 'missing date' > " + dir.File("complaints")).c_str());
  EXPECT_EQ(ReadWhole(dir.File("complaints")), "");
  ASSERT_EQ(std::system(("mandoc -T utf8 " + dir.File("hako.1") + " | sed 's/.\\x08//g' > " + dir.File("page")).c_str()), 0);
  const std::string page = ReadWhole(dir.File("page"));
  for (const char* section : {"NAME", "SYNOPSIS", "DATABASES", "COMMANDS", "EXIT STATUS", "ENVIRONMENT", "EXAMPLES"})
    EXPECT_TRUE(Contains(page, std::string("\n") + section + "\n")) << section;
  EXPECT_TRUE(Contains(page, "hako rekey FILE OLD_KEY NEW_KEY"));
}

}  // namespace
}  // namespace hako
