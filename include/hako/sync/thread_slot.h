// State that each thread has for itself, without a lock and without sharing a cache line.
//
// ThreadIndex() is a small number that no other living thread of the process has; it is claimed at a thread's first call and free again
// when the thread ends. PerThread<T> has one T per index, made at first use. Only the thread that holds the index may change its T, with
// plain stores; a T outlives the thread and is taken over by the next holder of the index, so nothing in it is lost. Members that other
// threads read must be atomics.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

namespace hako::sync {

inline constexpr unsigned kMaxThreads = 2048;  // living threads that use databases; the operations of one more fail

namespace internal {

class ThreadIndexRegistry {
 public:
  static ThreadIndexRegistry& Get() {
    static auto* registry = new ThreadIndexRegistry;  // never destroyed: threads may end after main returns
    return *registry;
  }
  unsigned Claim() {
    std::lock_guard lock(mutex_);
    if (free_.empty()) return next_ < kMaxThreads ? next_++ : kMaxThreads;
    const unsigned index = free_.back();
    free_.pop_back();
    return index;
  }
  void Release(unsigned index) {
    std::lock_guard lock(mutex_);
    if (index < kMaxThreads) free_.push_back(index);
  }

 private:
  std::mutex mutex_;
  std::vector<unsigned> free_;
  unsigned next_ = 0;
};

inline constinit thread_local unsigned thread_index = ~0u;

struct ThreadIndexHolder {
  ~ThreadIndexHolder() { ThreadIndexRegistry::Get().Release(thread_index); }
};

[[gnu::noinline]] inline unsigned ClaimThreadIndex() {
  thread_index = ThreadIndexRegistry::Get().Claim();
  static thread_local ThreadIndexHolder holder;
  (void)holder;
  return thread_index;
}

}  // namespace internal

inline unsigned ThreadIndex() {
  const unsigned index = internal::thread_index;
  return index != ~0u ? index : internal::ClaimThreadIndex();
}

template <class T>
class PerThread {
 public:
  PerThread() : slots_(new std::array<std::atomic<T*>, kMaxThreads>()) {}
  PerThread(const PerThread&) = delete;
  PerThread& operator=(const PerThread&) = delete;
  ~PerThread() {
    ForEach([](T& slot) { delete &slot; });
  }

  // The calling thread's T; nullptr if more than kMaxThreads threads live.
  T* Mine() {
    const unsigned index = ThreadIndex();
    if (index >= kMaxThreads) [[unlikely]]
      return nullptr;
    T* slot = (*slots_)[index].load(std::memory_order_relaxed);
    return slot != nullptr ? slot : Make(index);
  }

  // Visits every T that was made so far.
  template <class F>
  void ForEach(F&& visit) const {
    const unsigned end = end_.load(std::memory_order_seq_cst);
    for (unsigned index = 0; index < end; ++index) {
      if (T* t = (*slots_)[index].load(std::memory_order_seq_cst)) visit(*t);
    }
  }

 private:
  [[gnu::noinline]] T* Make(unsigned index) {
    T* slot = new T();
    (*slots_)[index].store(slot, std::memory_order_seq_cst);
    for (unsigned end = end_.load(std::memory_order_seq_cst); end <= index;) {
      if (end_.compare_exchange_weak(end, index + 1, std::memory_order_seq_cst)) break;
    }
    return slot;
  }

  std::atomic<unsigned> end_{0};  // no T was made at this index or above
  std::unique_ptr<std::array<std::atomic<T*>, kMaxThreads>> slots_;
};

}  // namespace hako::sync
