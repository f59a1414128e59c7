// Calls a function at the end of a thread, after the destructors of all its thread_local objects.
//
// These destructors may use a database, so hako's per-thread state must outlive them. A
// thread_local object with a destructor does not, because such objects are destroyed in reverse
// order of construction. Therefore the state is constant-initialized, has no destructor, and is
// released by a ThreadExitCall. The calls run when the system destroys its thread-specific data,
// which is later. The main thread makes no calls: it ends with the process, and the destructors of
// static objects still find its state.
#pragma once

#include <pthread.h>

#include "hako/base/language.h"

namespace hako {

class ThreadExitCall {
 public:
  // `call` may arm this object again, if it runs code that needs the state.
  constexpr explicit ThreadExitCall(void (*call)()) : call_(call) {}
  ThreadExitCall(const ThreadExitCall&) = delete;
  ThreadExitCall& operator=(const ThreadExitCall&) = delete;

  // Schedules the call for the end of this thread. Returns false, and schedules nothing, if the
  // system has no space for it.
  // REQUIRES: this object is thread_local to the calling thread (unchecked: an object does not know its storage)
  bool Arm() {
    if (is_armed_) return true;
    const Key& key = TheKey();
    if (!key.is_there) return false;
    next_ = static_cast<ThreadExitCall*>(pthread_getspecific(key.key));
    return is_armed_ = pthread_setspecific(key.key, this) == 0;
  }

 private:
  struct Key {
    Key() : is_there(pthread_key_create(&key, &Run) == 0) {}
    pthread_key_t key = 0;
    bool is_there;
  };
  static const Key& TheKey() {
    static const Key key;
    return key;
  }
  static void Run(void* first) {
    for (auto* one = static_cast<ThreadExitCall*>(first); one != nullptr;) {
      ThreadExitCall* const next = one->next_;
      one->is_armed_ = false;
      one->call_();
      one = next;
    }
  }

  void (*call_)();
  ThreadExitCall* next_ = nullptr;
  bool is_armed_ = false;
};

}  // namespace hako
