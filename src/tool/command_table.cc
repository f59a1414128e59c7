#include "tool/command_table.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tool/mistakes.h"

namespace hako::tool {
namespace {

void AddOptions(const CLI::App& app, CommandRow* row) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    OptionRow added;
    for (const std::string& name : option->get_snames()) added.names.push_back(absl::StrCat("-", name));
    for (const std::string& name : option->get_lnames()) added.names.push_back(absl::StrCat("--", name));
    added.is_positional = added.names.empty();
    if (added.is_positional) added.names.push_back(option->get_name(true));
    added.description = option->get_description();
    added.is_required = option->get_required();
    added.is_many = option->get_expected_max() > 1;
    if (!added.is_positional && option->get_type_size() != 0) {
      const std::string& text = option->get_option_text();
      added.value = text.empty() ? option->get_type_name() : text;
      added.value = added.value.substr(0, added.value.find(':'));  // the words of a validator follow
      if (text.find('|') != text.npos) added.words = absl::StrSplit(text, '|');
    }
    row->options.push_back(std::move(added));
  }
  for (const CLI::App* group : app.get_subcommands(nullptr)) {
    if (group->get_name().empty()) AddOptions(*group, row);
  }
}

void AddCommand(const CLI::App& app, const std::string& name, std::vector<CommandRow>* table) {
  CommandRow row = {.name = name, .summary = app.get_description(), .options = {}, .below = CommandNames(app)};
  AddOptions(app, &row);
  table->push_back(std::move(row));
  for (const CLI::App* below : app.get_subcommands(nullptr)) {
    if (!below->get_name().empty() && !below->get_group().empty())
      AddCommand(*below, absl::StrCat(name, name.empty() ? "" : " ", below->get_name()), table);
  }
}

}  // namespace

std::vector<CommandRow> CommandTable(const CLI::App& root) {
  std::vector<CommandRow> table;
  AddCommand(root, "", &table);
  return table;
}

}  // namespace hako::tool
