// The exit codes and the form of messages of all commands.
//
// Data goes to stdout, everything else to stderr. An error is one line: the file, the error and the
// way out. A usage error has a second line, which names the help.
#pragma once

#include <string>
#include <string_view>

#include "hako/base/status.h"

namespace hako::tool {

enum ExitCode : int {
  kExitDone = 0,
  kExitNo = 1,  // as in grep: the key is absent, or verify found damage
  kExitUsage = 2,
  kExitFile = 3,      // a file could not be opened, read or written
  kExitLocked = 4,    // another process has the database open
  kExitSignal = 128,  // plus the number of the signal that stopped the command
};

// Escapes the control characters in a text that contains a name. Backslashes stay, because keys are
// escaped already.
std::string Displayed(std::string_view text);

// Prints "hako: " or "hako COMMAND: " and Displayed(message) as a line to stderr. Complain is for
// errors, which are red on a terminal.
void Note(std::string_view message, std::string_view command = {});
void Complain(std::string_view message, std::string_view command = {});

// Prints the error of `file` and the way out: `advice`, if the error itself names none. Returns the
// exit code.
int Fail(std::string_view file, const Status& status, std::string_view advice = {});

// The status if the reader of the output is gone, as in "hako list | head". That is not an error:
// Fail prints nothing for it and returns the exit code of SIGPIPE, after the database was closed
// normally.
inline Status ClosedPipe() { return absl::CancelledError("closed pipe"); }
// The status of a failed write; `error` is errno.
Status WriteError(int error);

// Prints a usage error in two lines; `command` as in "perf sequence", empty for the program itself.
int FailUsage(std::string_view command, std::string_view mistake);

}  // namespace hako::tool
