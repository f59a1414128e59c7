// The writer states of a database's threads, and whether the database may be used.
//
// A closed database has no state for any thread, so the look-up of the state, which every update
// makes, fails, and Refusal returns the reason. In a forked child the owner closes these states,
// too (sync/fork_call.h). So the checks for a closed database and for a fork cost an open database
// nothing. A thread that runs a visitor of this database gets no state either, because its call
// would wait for a lock or gate that it holds itself.
//
// Thread-safe, except Close.
#pragma once

#include <atomic>
#include <cstdint>

#include "hako/base/assert.h"
#include "hako/base/inline.h"
#include "hako/base/status.h"
#include "hako/sync/process_number.h"
#include "hako/sync/thread_slot.h"
#include "hako/sync/write_gate.h"

namespace hako::sync {

template <class State>
class WriterStates {
 public:
  // Returns the calling thread's state; nullptr if the thread may not use the database now. Refusal
  // then returns the reason.
  HAKO_INLINE State* Mine() {
    State* const slot = states_.Mine();
    if (slot == nullptr || slot->busy.load(std::memory_order_relaxed)) [[unlikely]]
      return nullptr;
    return slot;
  }
  [[gnu::cold]] Status Refusal() {
    HAKO_RETURN_IF_ERROR(CheckOpen());
    if (states_.Mine() != nullptr && IsInVisitor()) return VisitorError();  // the second call may find the memory that the first one lacked
    return absl::ResourceExhaustedError(absl::StrCat("out of memory for the state of a thread, or more than ", kMaxThreads, " threads"));
  }
  template <class F>
  void ForEach(F&& visit) const {
    states_.ForEach(visit);
  }

  // Returns OK, or FailedPrecondition if the database is closed or belongs to the process that
  // forked this one.
  Status CheckOpen() const {
    if (IsInherited()) [[unlikely]]
      return absl::FailedPreconditionError("the database belongs to the process that opened it, from which this one was forked");
    if (states_.IsSealed()) [[unlikely]]
      return absl::FailedPreconditionError("the database is closed");
    return absl::OkStatus();
  }
  // As CheckOpen, and also an error if the calling thread runs a visitor: for calls that wait for
  // locks or stop the writers.
  Status CheckIdle() { return Mine() != nullptr ? CheckOpen() : Refusal(); }
  // As CheckIdle, for calls that only read and need no state.
  Status CheckReads() const {
    HAKO_RETURN_IF_ERROR(CheckOpen());
    if (IsInVisitor()) [[unlikely]]
      return VisitorError();
    return absl::OkStatus();
  }
  bool IsClosed() const { return states_.IsSealed(); }
  // Whether a fork copied the database into this process, without its threads and locks.
  bool IsInherited() const { return process_ != ProcessNumber(); }
  // For HAKO_DCHECK: whether no thread of this process is between Enter and Leave.
  bool IsIdle() const {
    bool is_idle = true;
    ForEach([&](const State& state) { is_idle = is_idle && !state.busy.load(std::memory_order_relaxed); });
    return is_idle || IsInherited();
  }
  // Takes no lock. REQUIRES: no other thread of this process uses the database
  void Close() {
    HAKO_DCHECK(IsIdle());
    states_.Seal();
  }

 private:
  bool IsInVisitor() const {
    const State* const slot = states_.Existing();
    return slot != nullptr && slot->busy.load(std::memory_order_relaxed);
  }
  [[gnu::cold]] static Status VisitorError() { return absl::FailedPreconditionError("a visitor must not call its own database"); }

  PerThread<State> states_;
  const std::uint64_t process_ = ProcessNumber();
};

}  // namespace hako::sync
