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
#include <thread>
#include <type_traits>
#include <vector>

#include "hako/base/comparator.h"
#include "hako/base/inline.h"
#include "hako/base/status.h"
#include "hako/dbm/common.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/memory_operations.h"
#include "hako/dbm/operations.h"
#include "hako/dbm/options.h"
#include "hako/dbm/ordered_operations.h"
#include "hako/dbm/tree_cursor.h"
#include "hako/file/memory_map_parallel_file.h"
#include "hako/index/page_tree.h"
#include "hako/storage/page_slab.h"
#include "hako/sync/thread_slot.h"

namespace hako {

template <File FileT = MemoryMapParallelFile, Comparator Compare = BytewiseComparator>
class BabyDBM : public Operations<BabyDBM<FileT, Compare>>,
                public OrderedOperations<BabyDBM<FileT, Compare>, Compare>,
                public MemoryOperations<BabyDBM<FileT, Compare>, FileT> {
  using Space = storage::PageSlab;
  using Tree = index::PageTree<Space, Compare>;

 public:
  using Iterator = TreeCursor<BabyDBM, Tree, Compare>;
  static constexpr std::uint64_t kKeySizeMax = kTreeKeySizeMax;

  static StatusOr<std::unique_ptr<BabyDBM>> Open(const BabyOptions& options = {}) {
    if (options.page_size < 128 || options.page_size > 8192)
      return absl::InvalidArgumentError("BabyOptions::page_size must be 128 to 8192");
    if (options.max_bytes < kBytesMin || options.max_bytes > Space::kBytesMax)
      return absl::InvalidArgumentError(absl::StrCat("BabyOptions::max_bytes must be ", kBytesMin, " to ", Space::kBytesMax));
    HAKO_ASSIGN_OR_RETURN(auto space, Space::Create(options.max_bytes));
    auto dbm = std::unique_ptr<BabyDBM>(new BabyDBM(std::move(space), options));
    HAKO_RETURN_IF_ERROR(dbm->tree_.Create());
    return dbm;
  }

  // Pages and lines go with the space; a value outside of the pages can be found only by way of them. Where Open failed there may be no
  // tree yet, but then no such value either.
  ~BabyDBM() {
    if (space_->long_bytes() != 0) (void)tree_.RemoveAll();
  }

  template <Visitor V>
  Status Process(std::string_view key, V&& visitor) {
    HAKO_RETURN_IF_ERROR(CheckKey(key, kKeySizeMax));
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

  template <MultiVisitor V>
  Status ProcessMulti(std::span<const std::string_view> keys, V&& visitor) {
    for (const std::string_view key : keys) HAKO_RETURN_IF_ERROR(CheckKey(key, kKeySizeMax));
    Space::Slot* slot = slots_.Mine();
    if (slot == nullptr) return TooManyThreads();
    if constexpr (MultiReadVisitor<std::remove_reference_t<V>>) {
      return tree_.template ProcessMulti<Action>(*slot, keys, KeepAll(visitor));
    } else {
      return tree_.template ProcessMulti<Action>(*slot, keys, visitor);
    }
  }

  // Fetch of each key, overlapped: sink(index, size), then arrived(index, whether the key is there).
  template <class S, class F>
  Status FetchMulti(std::span<const std::string_view> keys, S&& sink, F&& arrived) {
    return tree_.FetchMulti([this] { return slots_.Mine(); }, keys, sink, arrived);
  }
  // A hint that these keys are going to be used.
  void Prefetch(std::span<const std::string_view> keys) const { tree_.Prefetch(keys); }

  // In the order of keys.
  template <class V>
  Status ProcessEach(V&& visitor) {
    Iterator it = MakeIterator();
    for (it.First(); it.Valid(); it.Next()) visitor(it.key(), it.value());
    return it.status();
  }

  // ProcessEach in several threads, which call the visitor at the same time, each in a part of the keys.
  template <class V>
  Status ProcessEachParallel(unsigned num_threads, V&& visitor) {
    return ProcessParts(tree_.Parts(std::max(num_threads, 1u)), visitor);
  }

  Iterator MakeIterator() { return Iterator(*this, tree_); }

  std::uint64_t Count() const { return tree_.Count(ForEachSlot()); }

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

  // See OrderedOperations.
  std::uint64_t CountKeys(std::string_view from, std::optional<std::string_view> to) const { return tree_.CountRange({from, to}); }
  StatusOr<std::uint64_t> RemoveKeys(std::string_view from, std::optional<std::string_view> to) {
    Space::Slot* slot = slots_.Mine();
    if (slot == nullptr) return TooManyThreads();
    return tree_.RemoveRange(*slot, {from, to});
  }

 private:
  static constexpr std::uint64_t kBytesMin = 1 << 20;

  // Walks over the keys between each of `bounds` and the next, and before the first and after the last.
  template <class V>
  Status ProcessParts(const std::vector<std::string>& bounds, V& visitor) {
    std::vector<std::thread> threads;
    std::vector<Status> statuses(bounds.size() + 1);
    for (std::size_t part = 0; part <= bounds.size(); ++part) {
      threads.emplace_back([this, part, &bounds, &visitor, &statuses] {
        Iterator it = MakeIterator();
        for (part == 0 ? it.First() : it.Jump(bounds[part - 1]); it.Valid(); it.Next()) {
          if (part < bounds.size() && Compare::Compare(it.key(), bounds[part]) >= 0) break;
          visitor(it.key(), it.value());
        }
        statuses[part] = it.status();
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const Status& status : statuses) HAKO_RETURN_IF_ERROR(status);
    return absl::OkStatus();
  }

  BabyDBM(std::unique_ptr<Space> space, const BabyOptions& options) : space_(std::move(space)), tree_(*space_, options.page_size) {}

  auto ForEachSlot() const {
    return [this](auto&& visit) { slots_.ForEach(visit); };
  }
  template <class Body>
  auto Alone(Body&& body) {
    return space_->gate().RunAlone(ForEachSlot(), body);
  }

  std::unique_ptr<Space> space_;
  Tree tree_;
  mutable sync::PerThread<Space::Slot> slots_;
};

}  // namespace hako
