// A call at the end of a thread, after the destructors of all its thread_local objects.
//
// These destructors may use a database, so whatever hako keeps for a thread must outlive them. A thread_local object with a destructor does
// not: it goes in the reverse order of construction. Therefore such state is constant-initialized, has no destructor, and is given back by
// a ThreadExitCall. The calls are made where the system ends its thread-specific data, which is later. The main thread makes none: it ends
// with the process, and the destructors of static objects still find its state.
#pragma once

#include <pthread.h>

namespace hako {

class ThreadExitCall {
 public:
  // `call` may arm this object again, if it runs something that needs the state after all.
  constexpr explicit ThreadExitCall(void (*call)()) : call_(call) {}
  ThreadExitCall(const ThreadExitCall&) = delete;
  ThreadExitCall& operator=(const ThreadExitCall&) = delete;

  // Has the call made when this thread ends. False if the system has no room to note it; then it is not made.
  // REQUIRES: this object is thread_local, and the calling thread's
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
