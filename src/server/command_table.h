// The table of commands: names, arity, flags and keys, as COMMAND shows them. A subcommand has a separate
// line, such as "client|id".
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "server/command.h"

namespace hako::server {

// The command that the words begin with; nullptr if there is none. Only the first word counts unless
// the command is a container, which with one word is found itself.
const Command* FindCommand(std::span<const std::string_view> words);
// All commands; the position of a command among them.
std::span<const Command> AllCommands();
std::size_t CommandIndex(const Command& command);

}  // namespace hako::server
