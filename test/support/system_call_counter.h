// Counts the system calls of a piece of code, which runs in a traced child process.
#pragma once

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <optional>

namespace hako {

// Runs `body(mark)` in a child with one thread and a copy of this process's memory. The body calls
// mark() twice; returns the number of system calls in between. nullopt if tracing is not allowed or
// the child did not finish.
template <class Body>
std::optional<std::uint64_t> CountSystemCalls(Body body) {
  constexpr long kMark = SYS_getppid;  // nothing else calls it
  const pid_t child = fork();
  if (child == 0) {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(1);
    raise(SIGSTOP);
    body([] { syscall(kMark); });
    _exit(0);
  }
  int state = 0;
  std::uint64_t calls = 0;
  int marks = 0;
  bool entering = true;
  if (child < 0 || waitpid(child, &state, 0) != child) return std::nullopt;
  if (!WIFSTOPPED(state)) return std::nullopt;
  ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
  for (int deliver = 0;;) {
    if (ptrace(PTRACE_SYSCALL, child, nullptr, deliver) != 0 || waitpid(child, &state, 0) != child) return std::nullopt;
    deliver = 0;
    if (WIFEXITED(state) || WIFSIGNALED(state)) break;
    if (WSTOPSIG(state) != (SIGTRAP | 0x80)) {
      deliver = WSTOPSIG(state);
      continue;
    }
    if (entering) {
      __ptrace_syscall_info info = {};
      if (ptrace(PTRACE_GET_SYSCALL_INFO, child, sizeof(info), &info) <= 0) return std::nullopt;
      if (info.entry.nr == static_cast<std::uint64_t>(kMark)) {
        ++marks;
      } else if (marks == 1) {
        ++calls;
      }
    }
    entering = !entering;
  }
  if (!WIFEXITED(state) || WEXITSTATUS(state) != 0 || marks != 2) return std::nullopt;
  return calls;
}

}  // namespace hako
