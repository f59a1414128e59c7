// The records of one synchronized state of a HashDBM, for a reader that scans the file while newer
// states are made durable.
//
// Stamps alone do not suffice: they store an epoch in a few bits (format/stamp.h), and a copy may
// take longer than the period of these bits. So while a state is pinned each of its blocks keeps
// its content, except its stamp, and two bits per block decide:
//   handed out   a writer has taken the block since the pin, so it was not part of the state
//   released     the block was part of the state, was retired since the pin, and its stamp now says
//                free
//
// Thread-safe, except `waiting`, which belongs to the thread that releases waiting blocks.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "hako/base/status.h"
#include "hako/format/size_class.h"
#include "hako/format/stamp.h"
#include "hako/storage/arena.h"

namespace hako::hash {

// A set of handles below `end`, one bit each; only parts with handles take memory.
class HandleSet {
 public:
  static StatusOr<HandleSet> Create(std::uint64_t end) {
    HAKO_ASSIGN_OR_RETURN(storage::ReservedMemory memory, storage::ReservedMemory::Reserve(end / 8 + sizeof(std::uint64_t)));
    return HandleSet(std::move(memory), end);
  }

  // Ignores handles from `end` on, for which Has is always true.
  void Add(std::uint64_t handle) {
    if (handle < end_) Word(handle).fetch_or(Bit(handle), std::memory_order_relaxed);
  }
  void Add(std::uint64_t first, std::uint64_t last) {  // [first, last)
    for (last = last < end_ ? last : end_; first < last;) {
      if (first % 64 == 0 && last - first >= 64) {
        Word(first).store(~std::uint64_t{0}, std::memory_order_relaxed);
        first += 64;
      } else {
        Add(first++);
      }
    }
  }
  bool Has(std::uint64_t handle) const { return handle >= end_ || (Word(handle).load(std::memory_order_relaxed) & Bit(handle)) != 0; }

 private:
  HandleSet(storage::ReservedMemory memory, std::uint64_t end) : memory_(std::move(memory)), end_(end) {}
  static std::uint64_t Bit(std::uint64_t handle) { return std::uint64_t{1} << handle % 64; }
  std::atomic_ref<std::uint64_t> Word(std::uint64_t handle) const {
    return std::atomic_ref(reinterpret_cast<std::uint64_t*>(memory_.base())[handle / 64]);
  }

  storage::ReservedMemory memory_;
  std::uint64_t end_;
};

struct PinnedState {
  // `end`: one more than the largest handle of the state.
  static StatusOr<std::unique_ptr<PinnedState>> Create(std::uint64_t epoch, std::uint64_t tail, std::uint64_t end) {
    HAKO_ASSIGN_OR_RETURN(HandleSet handed_out, HandleSet::Create(end));
    HAKO_ASSIGN_OR_RETURN(HandleSet released, HandleSet::Create(end));
    return std::make_unique<PinnedState>(PinnedState{epoch, tail, std::move(handed_out), std::move(released), {}});
  }

  // Whether a record of a scan belongs to the state; `now` is the current epoch. A block of the
  // state that was retired since the pin is in one of three conditions. It is stamped as retired in
  // a later epoch than the pinned one, which the stamp shows while it is younger than a period. Or
  // it is stamped as free, and was added to `released` before. Or its stamp is live, because the
  // scan read it before the block was retired.
  bool Has(std::uint32_t handle, format::Stamp stamp, std::uint64_t now) const {
    std::atomic_thread_fence(std::memory_order_acquire);
    if (handed_out.Has(handle)) return false;
    const bool is_retired = stamp.state() == format::BlockState::kRetired || stamp.state() == format::BlockState::kYoungRetired;
    return stamp.IsLive() || (is_retired && now - stamp.AgeAt(now) > epoch) || released.Has(handle);
  }

  std::uint64_t epoch;
  std::uint64_t tail;  // of the file
  HandleSet handed_out;
  HandleSet released;
  // Blocks that become free when the pin ends, by size class.
  std::array<std::vector<std::uint32_t>, format::kSizeClasses> waiting;
};

}  // namespace hako::hash
