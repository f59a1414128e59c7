// The slots of a database's threads, and whether the database may be used.
//
// A database that is closed has no slot for anybody: a lookup that every update makes anyway finds none, and Refusal says why. So an update
// after Close costs an open database nothing. Nor is there a slot for a thread that runs a visitor of this database: its call would wait
// for a lock or a gate that it holds itself.
//
// Threads: any, except Close.
#pragma once

#include <unistd.h>

#include <atomic>

#include "hako/base/inline.h"
#include "hako/base/status.h"
#include "hako/sync/thread_slot.h"
#include "hako/sync/write_gate.h"

namespace hako::sync {

template <class State>
class WriterStates {
 public:
  // The calling thread's slot; nullptr, for a reason that Refusal gives, if the thread may not use the database now.
  HAKO_INLINE State* Mine() {
    State* const slot = states_.Mine();
    if (slot == nullptr || slot->busy.load(std::memory_order_relaxed)) [[unlikely]]
      return nullptr;
    return slot;
  }
  [[gnu::cold]] Status Refusal() {
    HAKO_RETURN_IF_ERROR(CheckOpen());
    if (states_.Mine() != nullptr) return absl::FailedPreconditionError("a visitor called the database that runs it; call it afterwards");
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory, or more than ", kMaxThreads, " threads, for what the database keeps for each of them"));
  }
  template <class F>
  void ForEach(F&& visit) const {
    states_.ForEach(visit);
  }

  // OK, or that the database is closed, or belongs to the process from which this one was forked. A system call; not for the hot path.
  Status CheckOpen() const {
    if (states_.IsSealed()) [[unlikely]]
      return absl::FailedPreconditionError("the database is closed");
    if (IsInherited()) [[unlikely]]
      return absl::FailedPreconditionError("the database belongs to the process that opened it, from which this one was forked");
    return absl::OkStatus();
  }
  // As CheckOpen, and that the calling thread runs no visitor: for calls that wait for locks or stop the writers.
  Status CheckIdle() { return Mine() != nullptr ? CheckOpen() : Refusal(); }
  bool IsClosed() const { return states_.IsSealed(); }
  // Whether a fork copied the database into this process, without the threads and the locks that belong to it.
  bool IsInherited() const { return process_ != getpid(); }
  // REQUIRES: no other thread uses the database
  void Close() { states_.Seal(); }

 private:
  PerThread<State> states_;
  const pid_t process_ = getpid();
};

}  // namespace hako::sync
