// A process to be killed: runs a body in a child that shares a page of progress with its parent,
// which ends it by SIGKILL.
//
// The child must end by being killed or by returning from its body; it never runs the parent's
// destructors. It dies with its parent.
#pragma once

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "hako/base/assert.h"

namespace hako {

// The child's progress, in memory that survives it. Operations of a writer are numbered from 0.
struct CrashProgress {
  static constexpr int kMaxWriters = 4;
  struct alignas(64) Writer {
    std::atomic<std::uint64_t> begun{0};         // operations that may have been carried out
    std::atomic<std::uint64_t> acknowledged{0};  // operations that were
  };
  std::atomic<bool> ready{false};  // the database is open
  Writer writers[kMaxWriters];
  char failure[1024] = {};  // the first error that the child saw

  void Fail(std::string_view message) {
    message = message.substr(0, sizeof(failure) - 1);
    std::memcpy(failure, message.data(), message.size());
  }
};

class CrashChild {
 public:
  // Starts `body(progress)` in a child. REQUIRES: this process has one thread.
  template <class Body>
  explicit CrashChild(Body body) {
    void* shared = mmap(nullptr, sizeof(CrashProgress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    HAKO_ASSERT(shared != MAP_FAILED);
    progress_ = new (shared) CrashProgress;
    pid_ = fork();
    HAKO_ASSERT(pid_ >= 0);
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    body(*progress_);
    _exit(0);
  }
  CrashChild(const CrashChild&) = delete;
  CrashChild& operator=(const CrashChild&) = delete;
  ~CrashChild() {
    Kill();
    munmap(progress_, sizeof(CrashProgress));
  }

  // Waits until the child is ready or has ended by itself.
  void AwaitReady() {
    while (!progress_->ready && !HasEnded()) Pause(50);
  }

  static void Pause(std::uint64_t microseconds) {
    const timespec time = {static_cast<time_t>(microseconds / 1'000'000), static_cast<long>(microseconds % 1'000'000 * 1000)};
    nanosleep(&time, nullptr);
  }

  void Kill() {
    if (pid_ == 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

  // REQUIRES: it was killed.
  const CrashProgress& progress() const { return *progress_; }

 private:
  bool HasEnded() {
    if (waitpid(pid_, nullptr, WNOHANG) != pid_) return false;
    pid_ = 0;
    return true;
  }

  CrashProgress* progress_;
  pid_t pid_;
};

}  // namespace hako
