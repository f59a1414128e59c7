// Stopping cleanly on SIGINT, SIGTERM and SIGHUP: while an Interrupt exists they do not end the process but are noted.
//
// One at a time, in the main thread. The handler writes to a pipe, so that a signal is never lost between looking and waiting.
#pragma once

#include "hako/base/status.h"

namespace hako::tool {

class Interrupt {
 public:
  Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
  ~Interrupt();

  int signal() const;  // the one that came first, or 0

  // Waits until `fd` can be read or written, or has ended; Cancelled as soon as a signal has come.
  enum class For { kReading, kWriting };
  Status Wait(int fd, For use) const;
};

}  // namespace hako::tool
