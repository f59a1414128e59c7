// The whole program, as a function.
#pragma once

namespace hako::tool {

// Finds the command in the arguments of main, parses its options, runs it. Returns the exit code.
int RunProgram(int argc, char** argv);

}  // namespace hako::tool
