// Stops all writers of a database for a moment, at no cost to them while it is open.
//
// A writer announces itself by a plain store to its own slot, then locks the bucket it changes (a full fence), then looks whether the gate
// is closed, and if so takes everything back and waits. Whoever closes the gate does the mirror image: closes, then waits until each slot
// is idle (Dekker's argument). While the gate is closed the holder owns all per-thread state; readers never notice.
//
// Waiters look only now and then, and might miss every moment in which the gate is open if it were closed again at once; so the next to
// close it lets those go first who still wait.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "hako/base/assert.h"
#include "hako/sync/version_lock.h"

namespace hako::sync {

// A writer's per-thread state, as far as the gate and the index need it; what a store needs is derived from it.
struct alignas(128) WriterSlot {
  std::atomic<bool> busy{false};
  std::atomic<std::int64_t> pending_count{0};  // records added less removed, not yet in the shared count
  void Enter() {
    HAKO_DCHECK(!busy.load(std::memory_order_relaxed));  // else a visitor calls the database that called it
    busy.store(true, std::memory_order_relaxed);
  }
  void Leave() { busy.store(false, std::memory_order_release); }
};

// Ends what Enter, or WriteGate::Pass, has begun, at the end of the scope.
class LeaveAtEnd {
 public:
  explicit LeaveAtEnd(WriterSlot& slot) : slot_(slot) {}
  LeaveAtEnd(const LeaveAtEnd&) = delete;
  LeaveAtEnd& operator=(const LeaveAtEnd&) = delete;
  ~LeaveAtEnd() { slot_.Leave(); }

 private:
  WriterSlot& slot_;
};

class WriteGate {
 public:
  // REQUIRES: the calling writer announced itself and has executed a full fence since.
  bool IsClosed() const { return closed_.load(std::memory_order_seq_cst); }

  // Announces a writer that locks no bucket but changes its per-thread state; it calls Leave in the end.
  void Pass(WriterSlot& slot) const {
    for (;;) {
      slot.Enter();
      slot.busy.store(true, std::memory_order_seq_cst);  // the fence that a bucket's lock would be
      if (!IsClosed()) return;
      slot.Leave();
      WaitUntilOpen();
    }
  }

  void WaitUntilOpen() const {
    waiters_.fetch_add(1, std::memory_order_relaxed);
    for (Backoff backoff; closed_.load(std::memory_order_acquire);) backoff.Pause();
    waiters_.fetch_sub(1, std::memory_order_relaxed);
  }

  // Runs `body` while no writer is between Enter and Leave. `for_each` visits every WriterSlot. One at a time.
  template <class ForEach, class Body>
  auto RunAlone(ForEach&& for_each, Body&& body) {
    std::lock_guard lock(mutex_);
    struct Opener {
      std::atomic<bool>& closed;
      ~Opener() { closed.store(false, std::memory_order_release); }
    } opener{closed_};
    for (Backoff backoff; waiters_.load(std::memory_order_relaxed) != 0;) backoff.Pause();
    closed_.store(true, std::memory_order_seq_cst);
    for_each([](WriterSlot& writer) {
      for (Backoff backoff; writer.busy.load(std::memory_order_seq_cst);) backoff.Pause();
    });
    return body();
  }

 private:
  std::atomic<bool> closed_{false};
  mutable std::atomic<int> waiters_{0};
  std::mutex mutex_;
};

}  // namespace hako::sync
