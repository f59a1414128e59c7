// Requests a synchronization once large blocks that wait for the end of the epoch take much of the
// file, and slows down writers of long values until it is done.
//
// Small blocks do not count: after a synchronization the first store to each page takes
// microseconds, which is little for a large record but ten times the update of a small one.
//
// The arguments `live_bytes` are functions. They return the number of bytes of the file that are in
// use, without the waiting ones.
//
// Thread-safe, except Start, which is called first.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "hako/base/language.h"

namespace hako::hash {

class Reclaimer {
 public:
  // `ask` arranges a synchronization followed by End and returns true, or returns false. The thread
  // that calls `ask` has a bucket locked, so `ask` must neither wait nor retire blocks.
  struct Call {
    bool (*ask)(void* context) = nullptr;
    void* context = nullptr;
  };

  // Calls `ask` once `bytes` bytes wait, and an eighth of the live bytes; 0 = never.
  void Start(std::uint64_t bytes, Call call) {
    least_ = bytes;
    call_ = call;
  }
  void End() { is_asking_.store(false, std::memory_order_release); }

  // Adds a large block that waits from now on.
  template <class LiveBytes>
  void Add(std::uint64_t bytes, LiveBytes&& live_bytes) {
    waiting_.fetch_add(bytes, std::memory_order_relaxed);
    if (!IsDue(live_bytes) || is_asking_.exchange(true, std::memory_order_acq_rel)) return;
    if (!call_.ask(call_.context)) End();
  }
  template <class LiveBytes>
  bool IsDue(LiveBytes&& live_bytes) const {
    const std::uint64_t waiting = waiting_.load(std::memory_order_relaxed);
    return least_ != 0 && waiting >= least_ && waiting >= live_bytes() / kShare;
  }
  // Bytes that wait, of this epoch and of the one that is becoming durable.
  std::uint64_t waiting_bytes() const { return waiting_.load(std::memory_order_relaxed) + closing_.load(std::memory_order_relaxed); }

  // Call when the epoch ends: its blocks wait until the epoch is durable.
  // REQUIRES: writers kept out (checked in RecordHeap::CloseEpoch)
  void CloseEpoch() { closing_.store(waiting_.exchange(0, std::memory_order_relaxed), std::memory_order_relaxed); }
  void EndClosed() { closing_.store(0, std::memory_order_relaxed); }

  // Slows down Sets of long values, which can be written faster than a device syncs. While the
  // waiting bytes are more than twice as many as request a synchronization, each such Set waits up
  // to kPauses ms for it, so that the file does not grow by all bytes written meanwhile.
  template <class LiveBytes>
  void Pace(LiveBytes&& live_bytes) const {
    if (!is_asking_.load(std::memory_order_acquire) || waiting_bytes() < 2 * least_) [[likely]]
      return;
    const std::uint64_t most = std::max(2 * least_, live_bytes() / kShare * 2);
    for (int i = 0; i < kPauses && waiting_bytes() >= most && is_asking_.load(std::memory_order_acquire); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

 private:
  static constexpr std::uint64_t kShare = 8;  // 1/8 of the live bytes
  static constexpr int kPauses = 10;          // of 1 ms each

  std::atomic<std::uint64_t> waiting_{0};  // bytes of large blocks retired in this epoch
  std::atomic<std::uint64_t> closing_{0};  // the same for the epoch that is becoming durable
  std::atomic<bool> is_asking_{false};     // a synchronization was requested
  std::uint64_t least_ = 0;
  Call call_;
};

}  // namespace hako::hash
