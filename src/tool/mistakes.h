// Messages for usage errors, with suggestions.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace hako::tool {

// The commands right below `app`.
std::vector<std::string> CommandNames(const CLI::App& app);

// "; did you mean 'x'?" if one of the names is near enough.
std::string Suggest(std::string_view given, const std::vector<std::string>& names);

// The innermost command on the line, and its name as in "perf sequence".
const CLI::App* ChosenCommand(const CLI::App& root, std::string* name);

// Prints the usage error and returns the exit code.
int FailParse(const CLI::App& root, const CLI::ParseError& error);

}  // namespace hako::tool
