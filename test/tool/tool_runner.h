// Runs the program `hako` as users do: another process, arguments, standard streams, an exit code.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hako/base/assert.h"
#include "support/file_system.h"
#include "support/temp_dir.h"

extern char** environ;

namespace hako {

struct ToolResult {
  int exit_code = -1;  // minus the signal that ended it
  std::string out;
  std::string err;
};

// One run. Its input is a pipe from here; its output goes to files, so that neither side waits for
// the other, or to a terminal.
class ToolProcess {
 public:
  enum class Screen { kNone, kTerminal, kInteractive };  // kTerminal: stdout and stderr are one; kInteractive: stdin too

  explicit ToolProcess(const std::vector<std::string>& args, Screen screen = Screen::kNone) {
    signal(SIGPIPE, SIG_IGN);  // the program may end before it has read all input
    int input[2];
    HAKO_ASSERT(pipe2(input, O_CLOEXEC) == 0);
    input_ = input[1];
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input[0], 0);
    if (screen != Screen::kNone) {
      const std::string terminal = OpenTerminal();
      posix_spawn_file_actions_addopen(&actions, 1, terminal.c_str(), O_RDWR | O_NOCTTY, 0);
      if (screen == Screen::kInteractive) {
        posix_spawn_file_actions_adddup2(&actions, 1, 0);
        close(std::exchange(input_, fcntl(terminal_, F_DUPFD_CLOEXEC, 3)));
      }
      posix_spawn_file_actions_adddup2(&actions, 1, 2);
    } else {
      posix_spawn_file_actions_addopen(&actions, 1, dir_.File("out").c_str(), O_WRONLY | O_CREAT, 0600);
      posix_spawn_file_actions_addopen(&actions, 2, dir_.File("err").c_str(), O_WRONLY | O_CREAT, 0600);
    }
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t defaults;
    sigemptyset(&defaults);
    for (const int number : {SIGPIPE, SIGINT, SIGTERM, SIGHUP}) sigaddset(&defaults, number);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    std::vector<std::string> words = args;
    std::vector<char*> argv = {const_cast<char*>(HAKO_TOOL_PATH)};
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    HAKO_ASSERT(posix_spawn(&pid_, HAKO_TOOL_PATH, &actions, &attributes, argv.data(), environ) == 0);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    close(input[0]);
  }
  ToolProcess(const ToolProcess&) = delete;
  ToolProcess& operator=(const ToolProcess&) = delete;
  ~ToolProcess() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      Finish();
    }
  }

  // Returns when the program has read all but the capacity of a pipe (64 KiB); false if it has
  // ended.
  bool Write(std::string_view text) {
    while (!text.empty()) {
      const ssize_t size = write(input_, text.data(), text.size());
      if (size < 0) return false;
      text.remove_prefix(static_cast<std::size_t>(size));
    }
    return true;
  }
  void CloseInput() {
    if (input_ >= 0) close(std::exchange(input_, -1));
  }
  void Send(int signal_number) { HAKO_ASSERT(kill(pid_, signal_number) == 0); }

  // The output on the terminal so far. Must be called regularly, as the program waits while the
  // terminal's buffer is full.
  const std::string& ReadTerminal(int timeout_ms = 0) {
    pollfd wait = {.fd = terminal_, .events = POLLIN, .revents = 0};
    char buffer[4096];
    while (poll(&wait, 1, timeout_ms) > 0) {
      const ssize_t size = read(terminal_, buffer, sizeof(buffer));
      if (size <= 0) break;  // EIO: the program has closed it
      shown_.append(buffer, static_cast<std::size_t>(size));
    }
    return shown_;
  }

  // Whether the program has ended by itself.
  bool HasEnded() {
    siginfo_t info = {};
    return waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT | WNOHANG) == 0 && info.si_pid == pid_;
  }
  // Waits for the end of a program whose input stays open; 0, or errno.
  int WaitForEnd() {
    siginfo_t info = {};
    return waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT) == 0 ? 0 : errno;
  }

  // Ends the input and waits for the program.
  ToolResult Finish() {
    CloseInput();
    if (terminal_ >= 0) ReadTerminal(-1);
    int status = 0;
    HAKO_ASSERT(waitpid(std::exchange(pid_, -1), &status, 0) > 0);
    ToolResult result;
    result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    result.out = terminal_ >= 0 ? shown_ : ReadWhole(dir_.File("out"));
    result.err = ReadWhole(dir_.File("err"));
    if (terminal_ >= 0) close(std::exchange(terminal_, -1));
    return result;
  }

 private:
  std::string OpenTerminal() {
    terminal_ = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    HAKO_ASSERT(terminal_ >= 0 && grantpt(terminal_) == 0 && unlockpt(terminal_) == 0);
    char name[64];
    HAKO_ASSERT(ptsname_r(terminal_, name, sizeof(name)) == 0);
    return name;
  }

  TempDir dir_;
  pid_t pid_ = -1;
  int input_ = -1;
  int terminal_ = -1;
  std::string shown_;
};

inline ToolResult RunTool(const std::vector<std::string>& args, std::string_view input = {}) {
  ToolProcess process(args);
  process.Write(input);
  return process.Finish();
}

// As RunTool on a terminal; `out` is what it shows, with the terminal's \r\n for each line feed.
inline ToolResult RunOnTerminal(const std::vector<std::string>& args) { return ToolProcess(args, ToolProcess::Screen::kTerminal).Finish(); }

inline std::vector<std::string> SplitLines(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
  }
  return lines;
}

}  // namespace hako
