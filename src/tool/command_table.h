// The table of commands and options, read from the tree of CLI::App objects, for the man page and
// the completions.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace hako::tool {

struct OptionRow {
  std::vector<std::string> names;  // such as "--json"; a positional has one name, such as "FILE"
  std::string value;               // such as "N" or "tsv|jsonl|dump"; empty for a flag and a positional
  std::vector<std::string> words;  // the words that the value may be, if it is one of a few
  std::string description;
  bool is_positional = false;
  bool is_required = false;
  bool is_many = false;
};

struct CommandRow {
  std::string name;  // such as "perf sequence"
  std::string summary;
  std::vector<OptionRow> options;
  std::vector<std::string> below;  // names of the commands below this one
};

// Returns the program, then every command, depth first. Leaves out options that the help does not
// show.
std::vector<CommandRow> CommandTable(const CLI::App& root);

}  // namespace hako::tool
