// BabyDBM: a B+ tree in memory, on the page engine.
//
// Records lie in the order of their keys, which Compare decides. Nothing of it survives the process but what Save wrote. Save writes a
// snapshot beside the target, syncs it and renames it, so a crash or an error leaves the old file as it was; Load refuses a snapshot that
// does not validate and then changes nothing. About 18 bytes of memory for a record of 8 + 8 bytes loaded in order, 21 in random order;
// keys are at most kTreeKeySizeMax bytes long.
//
// Threads: see dbm/dbm.h. A visitor runs with its leaf locked.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "hako/base/comparator.h"
#include "hako/base/inline.h"
#include "hako/base/status.h"
#include "hako/dbm/common.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/operations.h"
#include "hako/dbm/options.h"
#include "hako/dbm/tree_cursor.h"
#include "hako/file/memory_map_parallel_file.h"
#include "hako/file/path.h"
#include "hako/index/page_tree.h"
#include "hako/storage/page_slab.h"
#include "hako/storage/snapshot.h"
#include "hako/sync/thread_slot.h"

namespace hako {

template <File FileT = MemoryMapParallelFile, Comparator Compare = BytewiseComparator>
class BabyDBM : public Operations<BabyDBM<FileT, Compare>> {
  using Space = storage::PageSlab;
  using Tree = index::PageTree<Space, Compare>;

 public:
  using Iterator = TreeCursor<BabyDBM, Tree, Compare>;

  static StatusOr<std::unique_ptr<BabyDBM>> Open(const BabyOptions& options = {}) {
    if (options.page_size < 128 || options.page_size > 8192)
      return absl::InvalidArgumentError("BabyOptions::page_size must be 128 to 8192");
    HAKO_ASSIGN_OR_RETURN(auto space, Space::Create(options.max_bytes));
    auto dbm = std::unique_ptr<BabyDBM>(new BabyDBM(std::move(space), options));
    HAKO_RETURN_IF_ERROR(dbm->tree_.Create());
    return dbm;
  }

  ~BabyDBM() { (void)tree_.RemoveAll(); }

  template <Visitor V>
  Status Process(std::string_view key, V&& visitor) {
    if (key.size() > kTreeKeySizeMax) [[unlikely]]
      return TooLargeError("a key", key.size(), kTreeKeySizeMax);
    Space::Slot* slot = slots_.Mine();
    if (slot == nullptr) [[unlikely]]
      return TooManyThreads();
    if constexpr (ReadVisitor<std::remove_reference_t<V>>) {
      return tree_.template Process<void>(*slot, key, visitor);
    } else {
      return tree_.template Process<Action>(*slot, key, visitor);
    }
  }

  template <Sink S>
  HAKO_INLINE Status Fetch(std::string_view key, S&& sink) {
    return tree_.Fetch([this] { return slots_.Mine(); }, key, sink);
  }

  template <class V>
  Status ProcessEach(V&& visitor) {
    Iterator it = MakeIterator();
    for (it.First(); it.Valid(); it.Next()) visitor(it.key(), it.value());
    return it.status();
  }

  Iterator MakeIterator() { return Iterator(*this, tree_); }

  std::uint64_t Count() const {
    return tree_.Count([this](auto&& visit) { slots_.ForEach([&](Space::Slot& slot) { visit(slot); }); });
  }

  // There is no file to synchronize with; always OK.
  Status Synchronize(SyncMode) { return absl::OkStatus(); }

  Status Verify() {
    return Alone([&] { return tree_.Verify(Count()); });
  }

  Status Clear() {
    return Alone([&] {
      HAKO_RETURN_IF_ERROR(tree_.RemoveAll());
      slots_.ForEach([](Space::Slot& slot) { slot.pending_count.store(0, std::memory_order_relaxed); });
      return absl::OkStatus();
    });
  }

  // Stops writers for a moment.
  Stats GetStats() {
    Stats stats;
    Alone([&] {
      stats.num_records = Count();
      stats.total_bytes = space_->total_bytes();
      stats.index_bytes = space_->line_bytes();
      stats.record_bytes = space_->long_bytes();
      tree_.ForEachPage([&stats](unsigned level, unsigned size, unsigned live) {
        (level == 0 ? stats.record_bytes : stats.index_bytes) += level == 0 ? live : size;
        stats.num_buckets += level == 0 ? 1 : 0;
      });
      stats.free_bytes = stats.total_bytes - stats.index_bytes - stats.record_bytes;
      return 0;
    });
    return stats;
  }

  Inspection Inspect() { return InspectionOf("BabyDBM", GetStats()); }

  bool IsWritable() const { return true; }
  Status GetHealth() const { return absl::OkStatus(); }
  // Nothing to write back; the memory goes with the object.
  Status Close() { return absl::OkStatus(); }

 private:
  BabyDBM(std::unique_ptr<Space> space, const BabyOptions& options) : space_(std::move(space)), tree_(*space_, options.page_size) {}

  template <class Body>
  auto Alone(Body&& body) {
    return space_->gate().RunAlone([this](auto&& visit) { slots_.ForEach([&](Space::Slot& slot) { visit(slot); }); }, body);
  }

  std::unique_ptr<Space> space_;
  Tree tree_;
  mutable sync::PerThread<Space::Slot> slots_;
};

}  // namespace hako
