// Makes the n-th system call that reads, writes, syncs or extends a real file, or opens, cuts, renames
// or removes one, fail, transfer a part, be interrupted, or kill the process, in all threads.
//
// A test program that includes failing_calls_definitions.h in one of its files defines these
// functions, which the linker prefers to those of the C library. The kernel makes io_uring's
// transfers; their completions are changed before the waiting thread sees them.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>

namespace hako {

enum class CallKind { kRead, kWrite, kSync, kLengthen, kName, kRemove };  // kName: open, rename, msync; kRemove: unlink, ftruncate

struct CallFault {
  enum class How { kInterrupted, kPartial, kFails, kKills };
  How how = How::kFails;
  int error = EIO;                                                   // of kFails
  std::uint64_t call = 1;                                            // which one, counted from 1
  bool forever = false;                                              // and all after it
  bool every_other = false;                                          // and each second one after it
  bool reads = true, writes = true, syncs = true, lengthens = true;  // the kinds that are counted
  bool plain = true;                                                 // and of these, calls beside the transfers of rings
  bool names = false, removes = false;

  bool Concerns(CallKind kind) const {
    switch (kind) {
      case CallKind::kRead:
        return reads;
      case CallKind::kWrite:
        return writes;
      case CallKind::kSync:
        return syncs;
      case CallKind::kLengthen:
        return lengthens;
      case CallKind::kName:
        return names;
      case CallKind::kRemove:
        return removes;
    }
    return false;
  }
};

class FailingCalls {
 public:
  static FailingCalls& Instance() {
    static FailingCalls calls;
    return calls;
  }

  void Arm(const CallFault& fault) {
    const std::lock_guard lock(mutex_);
    fault_ = fault;
    counted_ = fired_ = fired_writes_ = syncs_after_failure_ = 0;
    sync_failed_ = false;
    armed_ = true;
  }
  void Disarm() {
    const std::lock_guard lock(mutex_);
    armed_ = false;
  }

  // If not nullptr, it is called in place of fsync.
  std::atomic<void (*)(int fd)> on_fsync{nullptr};
  // If not nullptr, fsync fails with the error that it returns; 0 = it does not fail.
  std::atomic<int (*)(int fd)> on_fsync_result{nullptr};

  // Rings made from now on are refused, as in a sandbox.
  void RefuseRings(bool refuse) { refuses_rings_ = refuse; }
  bool refuses_rings() const { return refuses_rings_; }

  // The next `count` submissions to a ring fail with this error.
  void RefuseSubmissions(int error, int count) {
    submission_error_ = error;
    refused_submissions_ = count;
  }
  // For the definitions: the error of this submission; 0 = none.
  int NextSubmissionError() {
    if (refused_submissions_ <= 0 || refused_submissions_.fetch_sub(1) <= 0) return 0;
    return submission_error_;
  }

  // Since Arm.
  std::uint64_t counted() const { return Get(counted_); }
  std::uint64_t fired() const { return Get(fired_); }
  std::uint64_t fired_writes() const { return Get(fired_writes_); }  // or syncs, or lengthenings
  std::uint64_t syncs_after_failure() const { return Get(syncs_after_failure_); }

  bool armed() const { return armed_; }

  // For the definitions: counts a call, and returns how it is to fail, if at all.
  bool Next(CallKind kind, CallFault::How* how, int* error, bool is_of_ring = false) {
    if (!armed_) return false;
    const std::lock_guard lock(mutex_);
    if (kind == CallKind::kSync && sync_failed_) ++syncs_after_failure_;
    if (!armed_ || !fault_.Concerns(kind) || (!is_of_ring && !fault_.plain)) return false;
    if (fault_.how == CallFault::How::kPartial && kind != CallKind::kRead && kind != CallKind::kWrite) return false;
    ++counted_;
    if (counted_ < fault_.call) return false;
    const std::uint64_t later = counted_ - fault_.call;
    if (later != 0 && !fault_.forever && !(fault_.every_other && later % 2 == 0)) return false;
    if (fault_.how == CallFault::How::kKills) (void)kill(getpid(), SIGKILL);
    ++fired_;
    fired_writes_ += kind != CallKind::kRead;
    if (kind == CallKind::kSync && fault_.how == CallFault::How::kFails) sync_failed_ = true;
    *how = fault_.how;
    *error = fault_.error;
    return true;
  }

 private:
  std::uint64_t Get(const std::uint64_t& number) const {
    const std::lock_guard lock(mutex_);
    return number;
  }

  mutable std::mutex mutex_;
  std::atomic<bool> armed_{false}, refuses_rings_{false};
  std::atomic<int> submission_error_{0}, refused_submissions_{0};
  CallFault fault_;
  std::uint64_t counted_ = 0, fired_ = 0, fired_writes_ = 0, syncs_after_failure_ = 0;
  bool sync_failed_ = false;
};

}  // namespace hako
