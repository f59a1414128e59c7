// The table of commands and options, read from the tree of CLI::App objects, for the man page and
// the completions.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace hako::tool {

struct OptionRow {
  std::vector<std::string> names;  // "--json"; of a positional its one name, "FILE"
  std::string value;               // "N", "tsv|jsonl|dump"; empty for a flag and a positional
  std::vector<std::string> words;  // of a value that is one of a few
  std::string description;
  bool is_positional = false;
  bool is_required = false;
  bool is_many = false;
};

struct CommandRow {
  std::string name;  // "perf sequence"
  std::string summary;
  std::vector<OptionRow> options;
  std::vector<std::string> below;  // the names of the commands below it
};

// The program first, then every command, depth first. Options that the help does not show are left
// out.
std::vector<CommandRow> CommandTable(const CLI::App& root);

}  // namespace hako::tool
