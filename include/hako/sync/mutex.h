// Mutexes whose rules clang checks: -Wthread-safety -Wthread-safety-beta, on in the presets asan
// and tsan. ABSL_GUARDED_BY marks a member that a mutex guards, ABSL_EXCLUSIVE_LOCKS_REQUIRED a
// function that is called with the mutex held. The classes wrap std::mutex and std::shared_mutex,
// which lack these annotations in libstdc++.
//
// Clang checks the order of locks in functions that take several. ABSL_ACQUIRED_AFTER and
// ABSL_ACQUIRED_BEFORE place a mutex in that order, after or before other mutexes or a LockRank.
//
// Clang checks a lambda as a function that holds nothing. So a lambda that is called with a mutex
// held begins with AssertHeld, which a debug build also checks at run time.
#pragma once

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <shared_mutex>
#include <stop_token>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "hako/base/assert.h"
#include "hako/base/language.h"
#include "hako/sync/process_number.h"

namespace hako::sync {

// A place in an order of locks. It is never locked.
class ABSL_LOCKABLE LockRank {};

class ABSL_LOCKABLE Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }
  bool TryLock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) { return mutex_.try_lock(); }
  // REQUIRES: the calling thread holds the mutex
  void AssertHeld() const ABSL_ASSERT_EXCLUSIVE_LOCK() { HAKO_DCHECK(IsHeld(true)); }
  // REQUIRES: the calling thread does not hold the mutex
  void AssertNotHeld() const { HAKO_DCHECK(!IsHeld(false)); }
  // For HAKO_DCHECK: whether the calling thread holds the mutex; `unknown` where the C library does
  // not tell. The mutex has the same layout in debug and release builds, because a program may link
  // a library of the other kind.
  bool IsHeld([[maybe_unused]] bool unknown) const {
#ifdef __GLIBC__
    return __atomic_load_n(&const_cast<std::mutex&>(mutex_).native_handle()->__data.__owner, __ATOMIC_RELAXED) == ThreadId();
#else
    return unknown;
#endif
  }

 private:
  friend class ConditionVariable;
  friend class StoppableCondition;
  // Returns gettid(), a system call that each thread and forked child makes only once.
  static pid_t ThreadId() {
    struct Known {
      std::uint64_t process = ~std::uint64_t{0};
      pid_t id = 0;
    };
    static thread_local Known known;
    if (const std::uint64_t process = ProcessNumber(); known.process != process) known = {process, ::gettid()};
    return known.id;
  }

  std::mutex mutex_;
};

// Releases a held mutex until the end of the scope.
#if defined(__clang__)
#define HAKO_RELEASES(...) __attribute__((release_capability(__VA_ARGS__)))
#else
#define HAKO_RELEASES(...)
#endif
class ABSL_SCOPED_LOCKABLE MutexUnlock {
 public:
  explicit MutexUnlock(Mutex& mutex) HAKO_RELEASES(mutex) : mutex_(mutex) { mutex_.Unlock(); }
  MutexUnlock(const MutexUnlock&) = delete;
  ~MutexUnlock() HAKO_RELEASES() { mutex_.Lock(); }

 private:
  Mutex& mutex_;
};
#undef HAKO_RELEASES

// The waits may also return without a notification, so callers wait in a loop.
class ConditionVariable {
 public:
  void Wait(Mutex& mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }
  // Returns false if the deadline has passed.
  bool WaitUntil(Mutex& mutex, std::chrono::steady_clock::time_point deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    const bool in_time = condition_.wait_until(lock, deadline) == std::cv_status::no_timeout;
    lock.release();
    return in_time;
  }
  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

// A ConditionVariable for a thread that can be stopped: a wait ends when is_due() holds or `stop`
// is requested, and returns whether is_due() holds. is_due() is called with the mutex held.
class StoppableCondition {
 public:
  template <class F>
  bool Wait(Mutex& mutex, const std::stop_token& stop, F&& is_due) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    const bool due = condition_.wait(lock, stop, std::forward<F>(is_due));
    lock.release();
    return due;
  }
  // Also returns after this time.
  template <class F>
  bool WaitFor(Mutex& mutex, const std::stop_token& stop, std::chrono::milliseconds time, F&& is_due) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    const bool due = condition_.wait_for(lock, stop, time, std::forward<F>(is_due));
    lock.release();
    return due;
  }
  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable_any condition_;
};

class ABSL_LOCKABLE SharedMutex {
 public:
  SharedMutex() = default;
  SharedMutex(const SharedMutex&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }
  void LockShared() ABSL_SHARED_LOCK_FUNCTION() { mutex_.lock_shared(); }
  void UnlockShared() ABSL_UNLOCK_FUNCTION() { mutex_.unlock_shared(); }

 private:
  std::shared_mutex mutex_;
};

// Holds a Mutex, or a SharedMutex exclusively, until the end of the scope.
template <class M>
class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(M& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) { mutex_.Lock(); }
  MutexLock(M& mutex, std::adopt_lock_t) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) : mutex_(mutex) {}
  MutexLock(const MutexLock&) = delete;
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_.Unlock(); }

 private:
  M& mutex_;
};

class ABSL_SCOPED_LOCKABLE SharedLock {
 public:
  explicit SharedLock(SharedMutex& mutex) ABSL_SHARED_LOCK_FUNCTION(mutex) : mutex_(mutex) { mutex_.LockShared(); }
  SharedLock(SharedMutex& mutex, std::adopt_lock_t) ABSL_SHARED_LOCKS_REQUIRED(mutex) : mutex_(mutex) {}
  SharedLock(const SharedLock&) = delete;
  ~SharedLock() ABSL_UNLOCK_FUNCTION() { mutex_.UnlockShared(); }

 private:
  SharedMutex& mutex_;
};

}  // namespace hako::sync
