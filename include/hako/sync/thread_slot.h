// Per-thread state, without a lock and without a shared cache line.
//
// ThreadIndex() returns a small number, unique among the living threads of the process. A thread
// claims its number at the first call and keeps it until the destructors of its thread_local
// objects have run, because these may use a database too.
//
// PerThread<T> has one T per index, created at first use. Only the thread that holds the index may
// change its T, with plain stores. A T outlives the thread, and the next holder of the index takes
// it over, so its content is never lost. Members that other threads read must be atomics.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <new>

#include "hako/base/inline.h"
#include "hako/base/thread_exit.h"

namespace hako::sync {

inline constexpr unsigned kMaxThreads = 2048;  // living threads that use databases; operations of further threads fail

namespace internal {

// A bitmap of claimed indexes. Constant-initialized and without a destructor, because threads may
// run before and after main.
class ThreadIndexes {
 public:
  // Returns the least free index, or kMaxThreads if there is none.
  unsigned Claim() {
    for (unsigned i = 0; i < words_.size(); ++i) {
      std::uint64_t word = words_[i].load(std::memory_order_relaxed);
      while (word != ~std::uint64_t{0}) {
        const auto bit = static_cast<unsigned>(std::countr_one(word));
        if (words_[i].compare_exchange_weak(word, word | std::uint64_t{1} << bit, std::memory_order_acquire)) return 64 * i + bit;
      }
    }
    return kMaxThreads;
  }
  void Release(unsigned index) { words_[index / 64].fetch_and(~(std::uint64_t{1} << index % 64), std::memory_order_release); }

 private:
  std::array<std::atomic<std::uint64_t>, kMaxThreads / 64> words_{};
};

inline constinit ThreadIndexes thread_indexes;
inline constexpr unsigned kNoIndex = ~0u;
inline constinit thread_local unsigned thread_index = kNoIndex;

inline void ReleaseThreadIndex() {
  thread_indexes.Release(thread_index);
  thread_index = kNoIndex;  // a later use of a database claims another index
}
inline constinit thread_local ThreadExitCall release_thread_index{&ReleaseThreadIndex};

[[gnu::noinline]] inline unsigned ClaimThreadIndex() {
  const unsigned index = thread_indexes.Claim();
  if (index == kMaxThreads) return index;  // the next call tries again
  if (!release_thread_index.Arm()) {
    thread_indexes.Release(index);
    return kMaxThreads;
  }
  return thread_index = index;
}

}  // namespace internal

// Returns the calling thread's index, or kMaxThreads if that many other threads have one.
inline unsigned ThreadIndex() {
  const unsigned index = internal::thread_index;
  return index != internal::kNoIndex ? index : internal::ClaimThreadIndex();
}

template <class T>
class PerThread {
 public:
  PerThread() : slots_(new Slots()), found_(slots_.get()) {}
  PerThread(const PerThread&) = delete;
  PerThread& operator=(const PerThread&) = delete;
  ~PerThread() {
    ForEach([](T& slot) { delete &slot; });
  }

  // Returns the calling thread's T; nullptr if kMaxThreads other threads have an index, if memory
  // runs out, or after Seal.
  HAKO_INLINE T* Mine() {
    const unsigned index = ThreadIndex();
    if (index >= kMaxThreads) [[unlikely]]
      return nullptr;
    T* slot = (*found_)[index].load(std::memory_order_relaxed);
    return slot != nullptr ? slot : Make(index);
  }

  // Returns the calling thread's T if it has one.
  const T* Existing() const {
    const unsigned index = internal::thread_index;
    return index != internal::kNoIndex ? (*found_)[index].load(std::memory_order_relaxed) : nullptr;
  }

  // Makes Mine return nullptr to all threads.
  // REQUIRES: no other thread uses this object (checked in WriterStates::Close)
  void Seal() { found_ = &none_; }
  bool IsSealed() const { return found_ == &none_; }

  // Visits every T that exists.
  template <class F>
  void ForEach(F&& visit) const {
    const unsigned end = end_.load(std::memory_order_seq_cst);
    for (unsigned index = 0; index < end; ++index) {
      if (T* t = (*slots_)[index].load(std::memory_order_seq_cst)) visit(*t);
    }
  }

 private:
  using Slots = std::array<std::atomic<T*>, kMaxThreads>;

  [[gnu::noinline]] T* Make(unsigned index) {
    if (IsSealed()) return nullptr;
    T* slot = new (std::nothrow) T();
    if (slot == nullptr) return nullptr;
    (*slots_)[index].store(slot, std::memory_order_seq_cst);
    for (unsigned end = end_.load(std::memory_order_seq_cst); end <= index;) {
      if (end_.compare_exchange_weak(end, index + 1, std::memory_order_seq_cst)) break;
    }
    return slot;
  }

  std::atomic<unsigned> end_{0};  // no T exists at this index or above
  std::unique_ptr<Slots> slots_;
  Slots* found_;  // the slots that Mine reads: slots_, or none_ after Seal
  static inline constinit Slots none_{};
};

}  // namespace hako::sync
