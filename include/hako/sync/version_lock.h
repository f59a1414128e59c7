// A lock and a version in one 32-bit word inside the data that it guards (a seqlock with a lock
// bit; cf. optimistic lock coupling, Leis et al. 2016).
//
//   bit 0        locked
//   bit 1        a flag of the owner, protected by the version
//   bits 2..31   version, advanced by every unlock after a change
//
// A reader takes no lock and writes nothing: it loads the word (ReadVersion), reads the data by
// sync/atomic_bytes.h, and checks by IsCurrent that the word is unchanged. A writer locks with one
// locked instruction. This is also the full fence that orders its earlier plain stores before its
// later loads (see write_gate.h).
//
// The lock has no queue: a thread that finds it free takes it. A waiter gets the lock after a few
// attempts, unless visitors hold one bucket nearly all the time. It must keep trying, and must let
// the holder run: see Backoff.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "hako/base/assert.h"
#include "hako/base/inline.h"
#include "hako/sync/atomic_bytes.h"

#if defined(__GLIBC__)
#include <sys/single_threaded.h>
#endif

namespace hako::sync {

inline void CpuRelax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Waits a little longer at each call: first spins, then yields to another thread, which may be the
// holder, then sleeps.
//
// Yielding alone does not suffice. A waiter of a real-time class never yields to a holder of an
// ordinary class, and a waiter of higher weight hardly ever does. On a busy processor each yield
// may cost a whole time slice, so that the lock is tried only a few hundred times a second.
// Sleeping lets every thread run, and wake-ups are prompt. The sleeping time varies, so that a
// waiter does not fall into step with a holder that takes the lock repeatedly. With many sleepers
// each sleeps proportionally longer, so that together they wake no more often than kFewSleepers
// would: hundreds of threads that wake every few microseconds would leave no processor to the
// holder.
class Backoff {
 public:
  static constexpr unsigned kSpins = 63, kYields = 32;  // together about as long as the shortest sleep

  void Pause() {
    if (count_ < kSpins) {
      CpuRelax();
    } else if (count_ < kSpins + kYields) {
      std::this_thread::yield();
    } else {
      const unsigned sleepers = sleepers_.fetch_add(1, std::memory_order_relaxed) + 1;
      std::this_thread::sleep_for(std::chrono::microseconds((20 + count_ % 64) * std::clamp(sleepers / kFewSleepers, 1u, kLongestFactor)));
      sleepers_.fetch_sub(1, std::memory_order_relaxed);
    }
    ++count_;
  }

  unsigned count() const { return count_; }

 private:
  static constexpr unsigned kFewSleepers = 4, kLongestFactor = 100;  // at most 8 milliseconds
  static inline std::atomic<unsigned> sleepers_{0};                  // in the process

  unsigned count_ = 0;
};

// Whether the process never had a second thread, as glibc knows. Until then a locked instruction is
// useless, and it prevents the cache misses of consecutive operations from overlapping. shared_ptr
// makes the same check.
HAKO_INLINE bool IsSingleThreaded() {
#if defined(__GLIBC__) && !defined(HAKO_TSAN)
  return __libc_single_threaded != 0;
#else
  return false;
#endif
}

class VersionLock {
 public:
  static constexpr std::uint32_t kLocked = 1;
  static constexpr std::uint32_t kFlag = 2;
  static constexpr std::uint32_t kStep = 4;

  explicit VersionLock(std::uint32_t& word) : word_(word) {}

  HAKO_INLINE std::uint32_t ReadVersion() const { return word_.load(std::memory_order_acquire); }

  // Returns true if nothing that the word protects has changed since ReadVersion() returned
  // `version`.
  // REQUIRES: `version` was not locked
  HAKO_INLINE bool IsCurrent(std::uint32_t version) const {
    HAKO_DCHECK((version & kLocked) == 0);
#ifdef HAKO_TSAN  // the sanitizer does not model fences; a read-modify-write has the same order
    return word_.fetch_or(0, std::memory_order_acq_rel) == version;
#else
    std::atomic_thread_fence(std::memory_order_acquire);
    return word_.load(std::memory_order_relaxed) == version;
#endif
  }

  HAKO_INLINE void Lock() {
    std::uint32_t word = word_.load(std::memory_order_relaxed);
    if (IsSingleThreaded() && (word & kLocked) == 0) {
      word_.store(word | kLocked, std::memory_order_relaxed);
      std::atomic_signal_fence(std::memory_order_seq_cst);
      return;
    }
    if ((word & kLocked) != 0 || !word_.compare_exchange_weak(word, word | kLocked, std::memory_order_seq_cst)) [[unlikely]]
      LockSlowly(word_);
#if !defined(__x86_64__) && !defined(HAKO_TSAN)
    std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
  }

  // Returns false if another thread holds the lock.
  bool TryLock() {
    std::uint32_t word = word_.load(std::memory_order_relaxed);
    if ((word & kLocked) != 0) return false;
    return LockIf(word);
  }

  // Locks if nothing has changed since ReadVersion() returned `version`; otherwise returns false.
  // REQUIRES: `version` was not locked
  HAKO_INLINE bool LockIf(std::uint32_t version) {
    HAKO_DCHECK((version & kLocked) == 0);
    if (IsSingleThreaded()) {
      if (word_.load(std::memory_order_relaxed) != version) return false;
      word_.store(version | kLocked, std::memory_order_relaxed);
      std::atomic_signal_fence(std::memory_order_seq_cst);
      return true;
    }
    if (!word_.compare_exchange_strong(version, version | kLocked, std::memory_order_seq_cst)) return false;
#if !defined(__x86_64__) && !defined(HAKO_TSAN)
    std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
    return true;
  }

  // Advances the version, whether or not the next unlock does.
  // REQUIRES: locked by the caller
  void Advance() {
    AssertLocked();
    word_.store(word_.load(std::memory_order_relaxed) + kStep, std::memory_order_release);
  }

  // REQUIRES: some thread has locked it; the word does not tell which
  HAKO_INLINE void AssertLocked() const { HAKO_DCHECK(IsLocked()); }
  bool IsLocked() const { return (word_.load(std::memory_order_relaxed) & kLocked) != 0; }

  // REQUIRES: locked by the caller
  HAKO_INLINE void Unlock(bool changed) {
    AssertLocked();
    const std::uint32_t word = word_.load(std::memory_order_relaxed) & ~kLocked;
    word_.store(changed ? word + kStep : word, std::memory_order_release);
  }

 private:
  [[gnu::noinline]] static void LockSlowly(std::atomic_ref<std::uint32_t> shared) {
    for (Backoff backoff;; backoff.Pause()) {
      std::uint32_t word = shared.load(std::memory_order_relaxed);
      if ((word & kLocked) == 0 && shared.compare_exchange_weak(word, word | kLocked, std::memory_order_seq_cst)) return;
    }
  }

  std::atomic_ref<std::uint32_t> word_;
};

// Unlocks a lock that the caller holds at the end of the scope.
class LockHolder {
 public:
  explicit LockHolder(const VersionLock& lock) : lock_(lock) {}
  LockHolder(const LockHolder&) = delete;
  LockHolder& operator=(const LockHolder&) = delete;
  ~LockHolder() { lock_.Unlock(changed); }
  bool changed = false;

 private:
  VersionLock lock_;
};

}  // namespace hako::sync
