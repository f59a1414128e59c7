// Stops all writers of a database for a moment, at no cost to them while it is open.
//
// A writer announces itself by a plain store to its own slot, then locks the bucket it changes (a full fence), then looks whether the gate
// is closed, and if so takes everything back and waits. Whoever closes the gate does the mirror image: closes, then waits until each slot
// is idle (Dekker's argument). While the gate is closed the holder owns all per-thread state; readers never notice.
//
// Waiters look only now and then, and might miss every moment in which the gate is open if it were closed again at once; so the next to
// close it lets those go first who still wait.
//
// A writer that has decided on a key but has yet to write a long value holds the key (KeyHold) while its bucket is not locked. Others may
// read the key, and use all others of the bucket; a writer that wants the same key finds it held once it has locked the bucket, unlocks
// that, and waits. Holds and the gate share a word, so that a writer looks at one thing.
//
// Order: a key is held before its bucket is unlocked, and released after the decision is published. A writer that holds keys may lock
// buckets and pass the gate; a writer that has a bucket locked waits for no hold.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "hako/base/assert.h"
#include "hako/base/inline.h"
#include "hako/sync/version_lock.h"

namespace hako::sync {

// A writer's per-thread state, as far as the gate and the index need it; what a store needs is derived from it.
struct alignas(128) WriterState {
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

  // REQUIRES: the calling writer announced itself and has executed a full fence since.
  bool IsClosed() const { return (state_.load(std::memory_order_seq_cst) & kClosed) != 0; }
  // Whether the gate may be closed or a key held. REQUIRES: as IsClosed
  HAKO_INLINE bool IsBusy() const { return state_.load(std::memory_order_seq_cst) != 0; }
  // Whether another writer holds the key with this hash; a hint, unless the caller has the key's bucket locked.
  bool IsHeld(std::uint64_t hash) const {
    if (state_.load(std::memory_order_acquire) < kHold) return false;
    for (const auto& held : held_) {
      if (held.load(std::memory_order_acquire) == NameOf(hash)) return true;
    }
    return false;
  }
  void WaitUntilReleased(std::uint64_t hash) const {
    for (Backoff backoff; IsHeld(hash);) backoff.Pause();
  }

  // Announces a writer that locks no bucket but changes its per-thread state; it calls Leave in the end.
  void Pass(WriterState& writer) const {
    for (;;) {
      writer.Enter();
      writer.busy.store(true, std::memory_order_seq_cst);  // the fence that a bucket's lock would be
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

  // Runs `body` while no writer is between Enter and Leave. `for_each` visits every WriterState. One at a time.
  template <class ForEach, class Body>
  auto RunExclusive(ForEach&& for_each, Body&& body) {
    std::lock_guard lock(mutex_);
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

 private:
  friend class KeyHold;
  friend class NoHolds;
  static constexpr std::uint32_t kClosed = 1, kHold = 2;
  static std::uint64_t NameOf(std::uint64_t hash) { return hash | 1; }  // 0 is no key

  std::atomic<std::uint32_t> state_{0};  // kClosed, and kHold for each key held
  mutable std::atomic<int> waiters_{0};
  std::mutex mutex_;
  std::atomic<int> barred_{0};
  std::array<std::atomic<std::uint64_t>, kHoldsMax> held_{};  // names of keys
};

// The keys that one writer holds; see above.
class KeyHold {
 public:
  explicit KeyHold(WriteGate& gate) : gate_(gate) {}
  KeyHold(const KeyHold&) = delete;
  ~KeyHold() { Release(); }

  // False if no more can be held: then the caller keeps the bucket locked instead. REQUIRES: the key's bucket is locked by the caller
  bool Add(std::uint64_t hash) {
    gate_.state_.fetch_add(WriteGate::kHold, std::memory_order_seq_cst);  // before the look at barred_: see NoHolds
    for (std::size_t i = 0; i < WriteGate::kHoldsMax && gate_.barred_.load(std::memory_order_seq_cst) == 0; ++i) {
      std::uint64_t none = 0;
      if (!gate_.held_[i].compare_exchange_strong(none, WriteGate::NameOf(hash), std::memory_order_acq_rel)) continue;
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

// While one lives no key is held. REQUIRES: the caller holds none, and is no writer
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
