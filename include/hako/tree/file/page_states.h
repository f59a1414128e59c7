// Where each page of a buffer pool is, by page id.
//
//            RegisterChildren        Evict
//      (none) -------------> kEvicted <------------ kCooling --.
//                               | ^                    ^       |
//                      LoadPage | | error     CoolSome |       | LoadPage,
//                               v |                    |       | HeldPages
//   Installed by ............ kLoading                 |       v
//   a scan: kProbationary <-----+------------------> kCached <-- NewPage
//
//   kEvicted       only in the file
//   kLoading       a thread is reading its image
//   kCooling       in memory and queued for eviction; LoadPage makes it kCached again
//   kCached        in memory
//   kProbationary  in memory, loaded by a scan: it is evicted sooner
//   kFree          no page has the id (FreePage, FreeLong; from kEvicted: DiscardEvicted)
//   kLong          the id is that of a long value that was stored since the file was opened
//
// While a page is kEvicted, kLoading or kCooling, its line is locked, but no thread owns the lock.
// States change under `mutex`, which also guards the pool's lists of pages.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "hako/base/status.h"
#include "hako/storage/arena.h"
#include "hako/sync/mutex.h"
#include "hako/tree/lock_order.h"

namespace hako::tree {

class PageStates {
 public:
  enum State : std::uint8_t { kEvicted, kLoading, kCooling, kCached, kProbationary, kFree, kLong };
  enum Flag : std::uint8_t {
    kHeld = 0x10,    // HeldPages holds it: it is not evicted
    kListed = 0x20,  // it is in the list of the CLOCK hand
    kPinned = 0x40   // a checkpoint has put its image, which is only in the store's buffer
  };

  // `table` has id_mask + 1 bytes.
  PageStates(storage::ReservedMemory table, std::uint32_t id_mask) : table_(std::move(table)), id_mask_(id_mask) {}
  PageStates(const PageStates&) = delete;
  PageStates& operator=(const PageStates&) = delete;

  State Of(std::uint32_t id) const { return static_cast<State>(WordOf(id).load(std::memory_order_acquire) & kStates); }
  bool IsInMemory(std::uint32_t id) const {
    const State state = Of(id);
    return state == kCached || state == kProbationary;
  }
  void Set(std::uint32_t id, State state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { Store(id, (Load(id) & ~kStates) | state); }
  bool Has(std::uint32_t id, unsigned flags) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { return (Load(id) & flags) != 0; }
  void SetFlag(std::uint32_t id, Flag flag, bool value) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    Store(id, value ? Load(id) | flag : Load(id) & ~static_cast<unsigned>(flag));
  }

  mutable sync::Mutex mutex ABSL_ACQUIRED_AFTER(kMaintenanceLocks) ABSL_ACQUIRED_BEFORE(kPoolLocks);

 private:
  static constexpr unsigned kStates = 0x07;

  std::atomic_ref<std::uint8_t> WordOf(std::uint32_t id) const {
    return std::atomic_ref(reinterpret_cast<std::uint8_t*>(table_.base())[id & id_mask_]);
  }
  unsigned Load(std::uint32_t id) const { return WordOf(id).load(std::memory_order_relaxed); }
  void Store(std::uint32_t id, unsigned word) { WordOf(id).store(static_cast<std::uint8_t>(word), std::memory_order_release); }

  const storage::ReservedMemory table_;
  const std::uint32_t id_mask_;
};

}  // namespace hako::tree
