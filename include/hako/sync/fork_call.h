// Calls a function in each forked child, before fork returns there.
//
// A child has copies of the parent's objects, but not the threads that hold their locks, and it
// shares the parent's maps of files. An object that must not be used in a child closes itself by
// such a call, so that its usual operations need not check for a fork.
#pragma once

#include <pthread.h>

#include "absl/base/thread_annotations.h"
#include "hako/base/language.h"
#include "hako/sync/mutex.h"

namespace hako::sync {

class ForkCall {
 public:
  // From now on each forked child calls `call(object)`, which must allocate no memory and take no
  // lock. If there is no memory to register the handler of forks, the call is never made.
  ForkCall(void* object, void (*call)(void*)) : object_(object), call_(call) {
    static const int noted [[maybe_unused]] = pthread_atfork(&List::Lock, &List::Unlock, &List::RunAndUnlock);
    const sync::MutexLock lock(list_.mutex);
    next_ = list_.first;
    if (next_ != nullptr) next_->at_ = &next_;
    at_ = &list_.first;
    list_.first = this;
  }
  ForkCall(const ForkCall&) = delete;
  ForkCall& operator=(const ForkCall&) = delete;
  ~ForkCall() {
    const sync::MutexLock lock(list_.mutex);
    *at_ = next_;
    if (next_ != nullptr) next_->at_ = at_;
  }

 private:
  // Never destroyed, because a database with static storage may be destroyed later.
  struct List {
    static void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION(list_.mutex) { list_.mutex.Lock(); }
    static void Unlock() ABSL_UNLOCK_FUNCTION(list_.mutex) { list_.mutex.Unlock(); }
    static void RunAndUnlock() ABSL_UNLOCK_FUNCTION(list_.mutex) {
      for (ForkCall* one = list_.first; one != nullptr; one = one->next_) one->call_(one->object_);
      list_.mutex.Unlock();
    }
    Mutex mutex;
    ForkCall* first ABSL_GUARDED_BY(mutex) = nullptr;
  };
  static List list_;

  void* const object_;
  void (*const call_)(void*);
  ForkCall* next_;
  ForkCall** at_;  // the link of the list that points to this object
};

inline constinit ForkCall::List ForkCall::list_;

}  // namespace hako::sync
