#include "tool/interrupt.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

namespace hako::tool {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP};
volatile std::sig_atomic_t first_signal = 0;
int wake_pipe[2];
std::array<struct sigaction, kSignals.size()> old_actions;

extern "C" void NoteSignal(int number) {
  const int saved = errno;
  if (first_signal == 0) first_signal = number;
  [[maybe_unused]] const ssize_t ignored = write(wake_pipe[1], "", 1);
  errno = saved;
}

}  // namespace

Interrupt::Interrupt() {
  first_signal = 0;
  if (pipe2(wake_pipe, O_CLOEXEC | O_NONBLOCK) != 0) wake_pipe[0] = wake_pipe[1] = -1;  // poll ignores -1
  struct sigaction action = {};
  action.sa_handler = NoteSignal;
  action.sa_flags = SA_RESTART;  // restarts the database's system calls; poll is never restarted
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], nullptr, &old_actions[i]);
    if (old_actions[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);  // keeps signals ignored under nohup
  }
}

Interrupt::~Interrupt() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &old_actions[i], nullptr);
  for (const int fd : wake_pipe) {
    if (fd >= 0) close(fd);
  }
}

int Interrupt::signal() const { return first_signal; }

Status Interrupt::Wait(int fd, For use) const {
  while (first_signal == 0) {
    const short events = use == For::kReading ? POLLIN : POLLOUT;
    pollfd waits[2] = {{.fd = fd, .events = events, .revents = 0}, {.fd = wake_pipe[0], .events = POLLIN, .revents = 0}};
    const int ready = poll(waits, 2, -1);
    if (ready < 0 && errno != EINTR) return SystemError(errno, "poll");
    if (ready > 0 && waits[1].revents == 0) return absl::OkStatus();
  }
  return absl::CancelledError("stopped by a signal");
}

}  // namespace hako::tool
