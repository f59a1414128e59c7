#include "tool/mistakes.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tool/command.h"

namespace hako::tool {
namespace {

// Returns how many characters must be inserted, deleted or replaced to turn one text into the
// other.
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

// The names that other programs have for these commands.
constexpr std::pair<std::string_view, std::string_view> kOtherNames[] = {
    {"add", "set"},         {"backup", "copy"},    {"cat", "get"},          {"check", "verify"},  {"cli", "shell"},
    {"compact", "rebuild"}, {"cp", "copy"},        {"del", "remove"},       {"delete", "remove"}, {"dump", "export"},
    {"find", "search"},     {"fsck", "verify"},    {"grep", "search"},      {"info", "inspect"},  {"init", "create"},
    {"insert", "set"},      {"keys", "list"},      {"len", "count"},        {"load", "import"},   {"ls", "list"},
    {"mv", "rekey"},        {"new", "create"},     {"optimize", "rebuild"}, {"put", "set"},       {"recover", "salvage"},
    {"rename", "rekey"},    {"repair", "salvage"}, {"repl", "shell"},       {"rm", "remove"},     {"scan", "list"},
    {"size", "count"},      {"stats", "inspect"},  {"store", "set"},        {"unset", "remove"},  {"update", "set"},
    {"vacuum", "rebuild"},  {"bench", "perf"},     {"benchmark", "perf"},   {"quit", "exit"}};

}  // namespace

std::string Suggest(std::string_view given, const std::vector<std::string>& names) {
  for (const auto& [other, ours] : kOtherNames) {
    if (given == other && std::find(names.begin(), names.end(), ours) != names.end())
      return absl::StrCat("; did you mean '", ToAbsl(ours), "'?");
  }
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
    const bool is_shown = !command->get_name().empty() && !command->get_group().empty();  // groups of options have no name
    if (is_shown) names.push_back(command->get_name());
  }
  return names;
}

namespace {

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

}  // namespace

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
  const std::vector<std::string> before = root.remaining();  // the command
  if (!before.empty()) return FailUsage(name, absl::StrCat("unexpected '", before[0], "'; options go after the command"));
  std::string mistake = error.what();
  if (const std::size_t end = mistake.find(": 1 required "); end != mistake.npos && mistake.ends_with(" missing"))
    mistake = absl::StrCat(mistake.substr(0, end), " needs a value");
  std::replace(mistake.begin(), mistake.end(), '\n', ' ');
  return FailUsage(name, mistake);
}

}  // namespace hako::tool
