// The live state of a hash file (format::LiveState), with the table of index extents and the intent
// words. If the file is mapped, all are in the map, so that they survive the process if the kernel
// backs the map.
//
// Threads: any.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "hako/base/assert.h"
#include "hako/base/status.h"
#include "hako/file/file.h"
#include "hako/format/hash_file_format.h"
#include "hako/hash/file/file_bytes.h"

namespace hako::hash {

template <File FileT>
class LiveStateFile : public FileBytes<FileT> {
 public:
  using FileBytes<FileT>::kMapped;

  // Store and load a field of the live state.
  void StoreLive(std::uint64_t format::LiveState::*field, std::uint64_t value) {
    std::atomic_ref(live_->*field).store(value, std::memory_order_release);
  }
  std::uint64_t LoadLive(std::uint64_t format::LiveState::*field) const {
    return std::atomic_ref(live_->*field).load(std::memory_order_acquire);
  }
  // As above, for a sealed field. Loads a value that fails its check as all bits set.
  void StoreSealed(std::uint64_t format::LiveState::*field, std::uint64_t value) { StoreLive(field, format::SealLive(value)); }
  std::uint64_t LoadSealed(std::uint64_t format::LiveState::*field) const { return format::UnsealLive(LoadLive(field)); }
  // Makes the clock at least this one. Thread-safe.
  void RaiseLiveClock(std::uint64_t clock) {
    const std::atomic_ref word(live_->clock);
    std::uint64_t before = word.load(std::memory_order_relaxed);
    while ((format::UnsealClock(before) < clock || !format::IsSealedClock(before)) &&
           !word.compare_exchange_weak(before, format::SealClock(clock), std::memory_order_release, std::memory_order_relaxed))
      continue;
  }
  std::uint32_t* index_extents() { return index_extents_; }
  // REQUIRES: kMapped
  std::atomic_ref<std::uint64_t> IntentWord(unsigned i) const {
    HAKO_DCHECK(base_ != nullptr && i < format::kIntentWords);
    return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(base_ + format::kIntentsOffset + i * format::kIntentDistance));
  }

  // Withdraws the live state, and sets its fields that are used before it is published to those of
  // a synchronized state with this applied index.
  void ResetLiveState(std::uint64_t applied_index) {
    WithdrawLiveState();
    if constexpr (kMapped) {
      for (unsigned i = 0; i < format::kIntentWords; ++i) IntentWord(i).store(0, std::memory_order_release);
    }
    StoreLive(&format::LiveState::applied_index, applied_index);
    StoreLive(&format::LiveState::clock, 0);
  }

  // From now on the live state counts if the process dies. Call when everything it names exists.
  void PublishLiveState(std::uint64_t tail) {
    StoreLive(&format::LiveState::clearing, 0);  // a Clear that an earlier process did not finish
    NameLiveState();
    StoreSealed(&format::LiveState::tail, tail);
    StoreLive(&format::LiveState::poisoned, 0);
    StoreLive(&format::LiveState::in_use, 1);
    StoreLive(&format::LiveState::published, format::kPublished);
  }

  // Stores the identity of this file and boot in the live state.
  void NameLiveState() {
    if constexpr (KernelBackedFile<FileT>) {
      const FileIdentity identity = this->file_.Identity();
      live_->boot_id = identity.boot_id;
      StoreLive(&format::LiveState::device, identity.device);
      StoreLive(&format::LiveState::inode, identity.inode);
    }
  }

  // From now on the last synced state counts if the process dies.
  void WithdrawLiveState() {
    StoreLive(&format::LiveState::published, format::kWithdrawn);
    StoreLive(&format::LiveState::in_use, 0);
  }

 protected:
  using FileBytes<FileT>::base_;

  explicit LiveStateFile(FileT file) : FileBytes<FileT>(std::move(file)) {}

  // Sets the pointers to the live state and the table of index extents: into the map if the file is
  // mapped.
  void AttachLiveState() {
    if constexpr (kMapped) {
      live_ = reinterpret_cast<format::LiveState*>(base_ + format::kLiveStateOffset);
      index_extents_ = reinterpret_cast<std::uint32_t*>(base_ + format::kIndexExtentsOffset);
    } else {
      own_live_ = std::make_unique<OwnLive>();
      live_ = &own_live_->state;
      index_extents_ = own_live_->index_extents.data();
    }
  }

  // From now on the live state of a process that had the file mapped does not count.
  Status ForgetLiveState() {
    static constexpr format::LiveState kNone = [] {
      format::LiveState none{};
      none.published = format::kWithdrawn;
      return none;
    }();
    format::LiveState left;
    HAKO_RETURN_IF_ERROR(this->Read(format::kLiveStateOffset, reinterpret_cast<char*>(&left), sizeof(left)));
    if (left.in_use == 0 && left.published != format::kPublished) return absl::OkStatus();
    return this->Write(format::kLiveStateOffset, {reinterpret_cast<const char*>(&kNone), sizeof(kNone)});
  }

  format::LiveState* live_ = nullptr;

 private:
  struct OwnLive {
    format::LiveState state{};
    std::array<std::uint32_t, format::kIndexExtentsMax> index_extents{};
  };

  std::uint32_t* index_extents_ = nullptr;
  std::unique_ptr<OwnLive> own_live_;
};

}  // namespace hako::hash
