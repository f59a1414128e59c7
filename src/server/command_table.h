// The table of commands: names, arity, flags and keys, as COMMAND gives them. A subcommand has a line of
// its own, "client|id".
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "server/command.h"

namespace hako::server {

// The command that the words begin with; nullptr if there is none. Only the first word counts unless
// the command is a container, which with one word is found itself.
const Command* FindCommand(std::span<const std::string_view> words);
// All of them; a command's place in it.
std::span<const Command> AllCommands();
std::size_t CommandIndex(const Command& command);

}  // namespace hako::server
