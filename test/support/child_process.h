// A child process that runs a piece of the test, in step with the parent. It must not use gtest's
// assertions; it reports by its result.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

#include "hako/base/assert.h"

namespace hako {

class ChildProcess {
 public:
  // Forks. The child runs body(child), where it may call Tell and Wait too, and exits with the int
  // that body returns.
  // REQUIRES: the test has one thread.
  template <class Body>
  explicit ChildProcess(Body body) {
    HAKO_ASSERT(pipe(to_parent_) == 0 && pipe(to_child_) == 0);
    pid_ = fork();
    HAKO_ASSERT(pid_ >= 0);
    if (pid_ == 0) {
      std::swap(to_parent_, to_child_);
      close(to_child_[0]), close(to_parent_[1]);
      _exit(body(*this));
    }
    close(to_child_[0]), close(to_parent_[1]);
  }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  ~ChildProcess() {
    close(to_child_[1]), close(to_parent_[0]);
    if (pid_ > 0) Kill();
  }

  // Lets one Wait of the other side return.
  void Tell() { HAKO_ASSERT(write(to_child_[1], "!", 1) == 1); }
  // Returns when the other side has called Tell, or has ended.
  void Wait() {
    char c;
    (void)!read(to_parent_[0], &c, 1);
  }

  // The result of body, or -1 - the signal that ended the child.
  int Result() {
    int status = 0;
    HAKO_ASSERT(waitpid(std::exchange(pid_, -1), &status, 0) > 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1 - WTERMSIG(status);
  }

  // kill -9, and waits for the end. Returns Result, which a child that had ended before decides.
  int Kill() {
    kill(pid_, SIGKILL);
    return Result();
  }

 private:
  pid_t pid_ = -1;
  int to_parent_[2];  // the parent's names; the child sees them swapped
  int to_child_[2];
};

}  // namespace hako
