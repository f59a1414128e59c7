// Stops all writers of a database for a moment, at no cost to them while the gate is open.
//
// Protocol (Dekker's argument). A writer marks its own state busy by a plain store, locks the
// bucket that it changes (a full fence), then checks whether the gate is closed; if so, it undoes
// both and waits. A thread that closes the gate does the reverse: it closes the gate, then waits
// until every writer state is idle. While the gate is closed, that thread owns all per-thread
// state. Readers are not affected.
//
// Fairness. Waiters check only from time to time, and could miss every moment in which the gate is
// open if it were closed again at once. So the next thread that closes the gate first lets all
// current waiters pass.
//
// Key holds. A writer that has decided on a key but has yet to write a long value holds the key
// (KeyHold) while its bucket is unlocked. Other threads may read the key and use all other keys of
// the bucket. A writer that wants the same key finds it held after locking the bucket; it unlocks
// the bucket and waits. Holds and the gate share a word, so that a writer checks both at once.
//
// Captures. While a scan shows the records of one moment (sync/captured_ranges.h,
// hash/bucket_capture.h), a writer copies the records of its bucket or leaf before it changes
// anything there. The flag for this is in the same word of the gate, so a database without a
// capture pays nothing.
//
// Lock order: a key is held before its bucket is unlocked, and released after the decision is
// published. A writer that holds keys may lock buckets and pass the gate. A writer that has a
// bucket locked never waits for a hold.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "hako/base/assert.h"
#include "hako/base/inline.h"
#include "hako/sync/mutex.h"
#include "hako/sync/version_lock.h"

namespace hako::sync {

// The part of a writer's per-thread state that the gate and the index need. Each space derives its
// own from it.
struct alignas(128) WriterState {
  std::atomic<bool> busy{false};
  std::atomic<std::int64_t> pending_count{0};  // records added minus removed, not yet in the shared count
  void Enter() {
    HAKO_DCHECK(!busy.load(std::memory_order_relaxed));  // otherwise a visitor calls the database that runs it
    busy.store(true, std::memory_order_relaxed);
  }
  void Leave() { busy.store(false, std::memory_order_release); }
  // REQUIRES: between Enter and Leave
  void AssertBusy() const { HAKO_DCHECK(busy.load(std::memory_order_relaxed)); }
  // REQUIRES: not between Enter and Leave
  void AssertIdle() const { HAKO_DCHECK(!busy.load(std::memory_order_relaxed)); }
};

// Calls Leave at the end of the scope, after Enter or WriteGate::Pass.
class LeaveAtEnd {
 public:
  explicit LeaveAtEnd(WriterState& writer) : writer_(writer) {}
  LeaveAtEnd(const LeaveAtEnd&) = delete;
  LeaveAtEnd& operator=(const LeaveAtEnd&) = delete;
  ~LeaveAtEnd() { writer_.Leave(); }

 private:
  WriterState& writer_;
};

class WriteGate {
 public:
  static constexpr std::size_t kHoldsMax = 16;  // keys

  // REQUIRES: the calling writer is busy, and has executed a full fence since it became so
  // (checked in MoveLock and LockLeafSlowly: that it is busy)
  bool IsClosed() const { return (state_.load(std::memory_order_seq_cst) & kClosed) != 0; }
  // Whether the gate may be closed, a key held or a capture running.
  // REQUIRES: as IsClosed (checked in MoveLock)
  HAKO_INLINE bool IsBusy() const { return state_.load(std::memory_order_seq_cst) != 0; }
  // Whether a capture runs. It neither begins nor ends while the calling writer is busy.
  bool IsCapturing() const { return (state_.load(std::memory_order_relaxed) & kCapturing) != 0; }
  // For HAKO_DCHECK: whether the calling thread is in the body of RunExclusive.
  bool IsExclusive() const { return (state_.load(std::memory_order_relaxed) & kClosed) != 0 && mutex_.IsHeld(true); }
  // REQUIRES: the calling thread is in the body of RunExclusive
  void AssertNoWriters() const { HAKO_DCHECK(IsExclusive()); }
  // REQUIRES: the calling thread is in the body of RunExclusive, where the writer may be busy for a
  // moment until it finds the gate closed; or the writer's thread does nothing
  void AssertKeptOut(const WriterState& writer) const { HAKO_DCHECK(IsExclusive() || !writer.busy.load(std::memory_order_relaxed)); }
  // REQUIRES: no writers, as in the body of RunExclusive
  void SetCapturing(bool is_capturing) {
    AssertNoWriters();
    is_capturing ? state_.fetch_or(kCapturing, std::memory_order_relaxed) : state_.fetch_and(~kCapturing, std::memory_order_relaxed);
  }

  // Whether another writer holds the key with this hash. A hint, unless the caller has the key's
  // bucket locked. Sequentially consistent: if a thread publishes something and then calls IsHeld,
  // it sees the hold of every writer that does not see the publication.
  bool IsHeld(std::uint64_t hash) const {
    if (state_.load(std::memory_order_seq_cst) < kHold) return false;
    for (const auto& held : held_) {
      if (held.load(std::memory_order_seq_cst) == NameOf(hash)) return true;
    }
    return false;
  }
  void WaitUntilReleased(std::uint64_t hash) const {
    for (Backoff backoff; IsHeld(hash);) backoff.Pause();
  }

  // Marks a writer busy, for changes of its per-thread state without the lock of a bucket. The
  // caller ends this with Leave.
  void Pass(WriterState& writer) const {
    for (;;) {
      writer.Enter();
      writer.busy.store(true, std::memory_order_seq_cst);  // replaces the fence of a bucket's lock
      if (!IsClosed()) return;
      writer.Leave();
      WaitUntilOpen();
    }
  }

  void WaitUntilOpen() const {
    waiters_.fetch_add(1, std::memory_order_relaxed);
    for (Backoff backoff; (state_.load(std::memory_order_acquire) & kClosed) != 0;) backoff.Pause();
    waiters_.fetch_sub(1, std::memory_order_relaxed);
  }

  // Runs `body` while no writer is between Enter and Leave. `for_each` visits every WriterState.
  // Only one thread at a time runs its body; others wait.
  // REQUIRES: the calling thread is not in the body of another one
  template <class ForEach, class Body>
  auto RunExclusive(ForEach&& for_each, Body&& body) {
    mutex_.AssertNotHeld();
    MutexLock lock(mutex_);
    struct Opener {
      std::atomic<std::uint32_t>& state;
      ~Opener() { state.fetch_and(~kClosed, std::memory_order_release); }
    } opener{state_};
    for (Backoff backoff; waiters_.load(std::memory_order_relaxed) != 0;) backoff.Pause();
    state_.fetch_or(kClosed, std::memory_order_seq_cst);
    for_each([](WriterState& writer) {
      for (Backoff backoff; writer.busy.load(std::memory_order_seq_cst);) backoff.Pause();
    });
    return body();
  }

  // Lets a writer take over the state of other writers: closes the gate, calls visit(WriterState&)
  // for those that are idle, then body(). Waits at most `patience` pauses for each of the other
  // writers, because they may be waiting for the caller. If another thread is closing the gate, it
  // only calls body().
  template <class ForEach, class F, class Body>
  void RunBesideBusy(const WriterState& mine, unsigned patience, ForEach&& for_each, F&& visit,
                     Body&& body) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (!mutex_.TryLock()) return body();
    struct Opener {
      WriteGate& gate;
      ~Opener() ABSL_NO_THREAD_SAFETY_ANALYSIS {
        gate.state_.fetch_and(~kClosed, std::memory_order_release);
        gate.mutex_.Unlock();
      }
    } opener{*this};
    state_.fetch_or(kClosed, std::memory_order_seq_cst);
    for_each([&](WriterState& writer) {
      if (&writer == &mine) return;
      Backoff backoff;
      while (writer.busy.load(std::memory_order_seq_cst)) {
        if (backoff.count() >= patience) return;
        backoff.Pause();
      }
      visit(writer);
    });
    body();
  }

 private:
  friend class KeyHold;
  friend class NoHolds;
  static constexpr std::uint32_t kClosed = 1, kCapturing = 2, kHold = 4;
  static std::uint64_t NameOf(std::uint64_t hash) { return hash | 1; }  // 0 means no key

  std::atomic<std::uint32_t> state_{0};  // kClosed, kCapturing, plus kHold for each key held
  mutable std::atomic<int> waiters_{0};
  Mutex mutex_;
  std::atomic<int> barred_{0};
  std::array<std::atomic<std::uint64_t>, kHoldsMax> held_{};  // hashes of held keys, with bit 0 set
};

// The keys that one writer holds: see Key holds above.
class KeyHold {
 public:
  explicit KeyHold(WriteGate& gate) : gate_(gate) {}
  KeyHold(const KeyHold&) = delete;
  ~KeyHold() { Release(); }

  // Returns false if no more keys can be held; the caller then keeps the bucket locked.
  // REQUIRES: the caller has the key's bucket locked (unchecked: the gate does not know the buckets)
  bool Add(std::uint64_t hash) {
    gate_.state_.fetch_add(WriteGate::kHold, std::memory_order_seq_cst);  // must precede the load of barred_: see NoHolds
    for (std::size_t i = 0; i < WriteGate::kHoldsMax && gate_.barred_.load(std::memory_order_seq_cst) == 0; ++i) {
      std::uint64_t none = 0;
      if (!gate_.held_[i].compare_exchange_strong(none, WriteGate::NameOf(hash), std::memory_order_seq_cst)) continue;
      taken_ |= 1u << i;
      return true;
    }
    gate_.state_.fetch_sub(WriteGate::kHold, std::memory_order_release);
    return false;
  }
  void Release() {
    for (; taken_ != 0; taken_ &= taken_ - 1) {
      gate_.held_[static_cast<std::size_t>(std::countr_zero(taken_))].store(0, std::memory_order_release);
      gate_.state_.fetch_sub(WriteGate::kHold, std::memory_order_release);
    }
  }
  bool IsEmpty() const { return taken_ == 0; }

 private:
  WriteGate& gate_;
  std::uint32_t taken_ = 0;  // a bit for each of held_
};

// While an instance exists, no key is held. The constructor waits for current holders.
// REQUIRES: the caller holds no key and is not busy (unchecked: a caller that breaks this waits
// forever)
class NoHolds {
 public:
  explicit NoHolds(WriteGate& gate) : gate_(gate) {
    gate_.barred_.fetch_add(1, std::memory_order_seq_cst);
    for (Backoff backoff; gate_.state_.load(std::memory_order_seq_cst) >= WriteGate::kHold;) backoff.Pause();
  }
  NoHolds(const NoHolds&) = delete;
  ~NoHolds() { gate_.barred_.fetch_sub(1, std::memory_order_release); }

 private:
  WriteGate& gate_;
};

}  // namespace hako::sync
