// The table of commands: names, arity, flags and keys, as COMMAND shows them. A subcommand has a separate
// line, such as "client|id".
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "server/command.h"

namespace hako::server {

// Finds the command with which the words begin; nullptr if there is none. If the first word is a
// container and there is a second word, finds the subcommand.
const Command* FindCommand(std::span<const std::string_view> words);
// All commands, and the position of a command among them.
std::span<const Command> AllCommands();
std::size_t CommandIndex(const Command& command);

}  // namespace hako::server
