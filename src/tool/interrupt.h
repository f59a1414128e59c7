// Stops cleanly on SIGINT, SIGTERM and SIGHUP: while an Interrupt exists, these signals do not end
// the process but are recorded. Only one Interrupt may exist at a time, in the main thread. The
// handler writes to a pipe, so that no signal is lost between a check and a wait.
#pragma once

#include "hako/base/status.h"

namespace hako::tool {

class Interrupt {
 public:
  Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
  ~Interrupt();

  int signal() const;  // the first signal that arrived, or 0

  // Waits until `fd` can be read or written, or has ended. Returns Cancelled once a signal has
  // arrived.
  enum class For { kReading, kWriting };
  Status Wait(int fd, For use) const;
};

}  // namespace hako::tool
