// Messages for usage errors, with suggestions.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace hako::tool {

// Returns the names of the commands right below `app`.
std::vector<std::string> CommandNames(const CLI::App& app);

// Returns "; did you mean 'x'?" if one of the names is similar enough, else an empty text.
std::string Suggest(std::string_view given, const std::vector<std::string>& names);

// Returns the innermost command on the line, and sets *name to its name, such as "perf sequence".
const CLI::App* ChosenCommand(const CLI::App& root, std::string* name);

// Prints the usage error and returns the exit code.
int FailParse(const CLI::App& root, const CLI::ParseError& error);

}  // namespace hako::tool
