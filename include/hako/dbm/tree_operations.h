// The operations that TreeDBM and BabyDBM share, over a space for pages and a tree in it.
//
// A tree DBM class D inherits TreeOperations<D, Space, Compare> publicly, and its home beside it
// (dbm/database_home.h).
//
// Threads: see dbm/dbm.h. A visitor runs with its leaf locked.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hako/base/comparator.h"
#include "hako/base/inline.h"
#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/base/string_arg.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/engine_operations.h"
#include "hako/dbm/ordered_operations.h"
#include "hako/dbm/snapshot.h"
#include "hako/dbm/state_scan.h"
#include "hako/dbm/tree_cursor.h"
#include "hako/format/log_format.h"
#include "hako/format/page_format.h"
#include "hako/sync/run_parts.h"
#include "hako/tree/page_tree.h"

namespace hako {

// Inherits
//   OrderedOperations (dbm/ordered_operations.h)
//     Range, ReverseRange, PrefixRange  records of [from, to) as an input range
//     CountRange, RemoveRange           count or remove the records of [from, to)
//     BulkLoad                          load sorted records into full pages
//     CompareKeys                       the order of keys
//   EngineOperations (dbm/engine_operations.h)
//     Process, ProcessMulti, Prefetch   the primitives of every DBM
//     CheckOpen, CheckIdle, IsClosed    whether the database can be used
template <class D, class Space, Comparator Compare>
class TreeOperations : public EngineOperations<D, Space, tree::PageTree<Space, Compare>>, public OrderedOperations<D, Compare> {
 protected:
  using Tree = tree::PageTree<Space, Compare>;
  using Shared = EngineOperations<D, Space, Tree>;
  using typename Shared::WriterState;

 public:
  using Iterator = TreeCursor<D, Tree, Compare>;                 // see dbm/tree_cursor.h
  using Capture = typename Tree::Capture;                        // for snapshots
  static constexpr std::uint64_t kKeySizeMax = kTreeKeySizeMax;  // bytes

  // See dbm/dbm.h. OutOfRange for a key above kKeySizeMax bytes.
  template <Sink S>
  HAKO_INLINE Status Fetch(StringArg key, S&& sink) {
    if (key.size() > kKeySizeMax) [[unlikely]]
      return this->RefuseKey(key);
    if (!this->reads_plainly_) [[unlikely]] {
      if (this->expiry_ != nullptr) return this->FetchLive(key, sink);
      if constexpr (tree::LimitedPageSpace<Space>) return FetchStored(key, sink);
    }
    return tree().template Fetch<false>(writers_, key, sink);
  }

  // Fetches each key, with overlapped reads: calls sink(index, size), then arrived(index, found).
  template <class S, class F>
  Status FetchMulti(std::span<const std::string_view> keys, S&& sink, F&& arrived) HAKO_TRY {
    HAKO_RETURN_IF_ERROR(this->CheckKeys(keys));
    if (this->expiry_ != nullptr) return MultiOperations<D>::FetchMulti(keys, sink, arrived);
    return tree().FetchMulti(writers_, keys, sink, arrived);
  }
  HAKO_OR_NO_MEMORY

  // Shows all records in key order, with nothing locked.
  Status ProcessEach(EachRef visitor);

  // ProcessEach in several threads, which call the visitor concurrently, each for one part of the
  // key range.
  Status ProcessEachParallel(unsigned num_threads, EachRef visitor);
  using Shared::ProcessEach, Shared::ProcessEachParallel;  // which refuse other visitors

  // Returns a cursor: see dbm/tree_cursor.h.
  Iterator MakeIterator() { return Iterator(static_cast<D&>(*this), tree(), this->expiry()); }
  // As MakeIterator, for copies of the database: also shows expired records, and values in their
  // stored form.
  Iterator MakeStoredIterator() { return Iterator(static_cast<D&>(*this), tree(), nullptr); }

  // Returns a read-only view of the database as it is now: see dbm/snapshot.h.
  StatusOr<std::unique_ptr<SnapshotView<D, Compare>>> Snapshot() { return SnapshotView<D, Compare>::Take(static_cast<D&>(*this)); }

  // See dbm/write_batch.h.
  std::uint64_t AppliedIndex() const { return this->IsClosed() ? 0 : tree().applied_index(); }

  // Returns the number of records, which is exact while no update runs.
  std::uint64_t Count() const final { return this->IsClosed() ? 0 : tree().Count(this->ForEachWriter()); }

  // CountRange and RemoveRange (dbm/ordered_operations.h) check the bounds and call these.
  StatusOr<std::uint64_t> CountKeys(std::string_view from, std::optional<std::string_view> to) HAKO_TRY {
    HAKO_RETURN_IF_ERROR(this->CheckReads());
    if (this->expiry_ != nullptr) return this->CountShown(from, to);
    return tree().CountRange({from, to});
  }
  HAKO_OR_NO_MEMORY
  // See CountKeys. If records expire, counts the live ones first, because whole pages are removed
  // without reading their values.
  StatusOr<std::uint64_t> RemoveKeys(std::string_view from, std::optional<std::string_view> to) HAKO_TRY {
    HAKO_RETURN_IF_ERROR(this->CheckReads());
    WriterState* writer = writers_.Mine();
    if (writer == nullptr) return writers_.Refusal();
    D& self = static_cast<D&>(*this);
    HAKO_RETURN_IF_ERROR(self.MayRemove());
    std::uint64_t num_live = 0;
    if (this->expiry_ != nullptr) {
      HAKO_ASSIGN_OR_RETURN(num_live, this->CountShown(from, to));
    }
    HAKO_ASSIGN_OR_RETURN(const std::uint64_t removed, tree().RemoveRange(*writer, {from, to}));
    if (removed > 0 && self.HasAfterUpdate()) HAKO_RETURN_IF_ERROR(self.AfterUpdate());
    return this->expiry_ != nullptr ? num_live : removed;
  }
  HAKO_OR_NO_MEMORY

 protected:
  friend Shared;
  using Shared::space_;
  using Shared::writers_;

  static constexpr bool kMayEvict = tree::LimitedPageSpace<Space>;
  template <class V>
  static constexpr bool IsUpdateRef = std::is_same_v<V, UpdateRef> || std::is_same_v<V, BlindUpdateRef>;

  TreeOperations(std::unique_ptr<Space> space, unsigned page_size) : Shared(std::move(space), page_size) {}
  ~TreeOperations() = default;

  Tree& tree() const { return this->engine_; }

  // For EngineOperations.
  template <class S>
  HAKO_INLINE Status FetchStored(std::string_view key, S& sink) {
    return tree().template Fetch<true>(writers_, key, sink);
  }
  template <class ActionT, class V>
  HAKO_INLINE Status ProcessIn(WriterState& writer, std::string_view key, V&& visitor) {
    if constexpr (kMayEvict && IsUpdateRef<std::remove_cvref_t<V>>) {
      if (space_->limit() != nullptr) {
        Status status = tree().template Process<ActionT>(writer, key, visitor);
        tree().JoinSparse(writer);
        return status;
      }
    }
    return tree().template Process<ActionT>(writer, key, visitor);
  }
  Status ProcessMultiIn(WriterState& writer, const Batch<Action>& batch) {
    Status status = tree().ProcessMulti(writer, batch);
    tree().JoinSparse(writer);
    return status;
  }

  // For ProcessState.
  RangeStateScan<Iterator, Capture> MakeStateScan() { return RangeStateScan<Iterator, Capture>(MakeStoredIterator()); }

  // REQUIRES: no writers
  Status RemoveAll(typename Space::Deferred& deferred) {
    this->AssertNoWriters();
    HAKO_RETURN_IF_ERROR(tree().RemoveAll(deferred));
    this->ForgetCounts();
    return absl::OkStatus();
  }

  // See DatabaseRecords.
  Status Redo(const format::LogEntry& entry) final;
  Status RedoMulti(const Batch<Action>& batch) final;
};

template <class D, class Space, Comparator Compare>
Status TreeOperations<D, Space, Compare>::ProcessEach(EachRef visitor) HAKO_TRY {
  auto it = MakeIterator();
  for (it.First(); it.Valid(); it.Next()) visitor(it.key(), it.value());
  return it.status();
}
HAKO_OR_NO_MEMORY

// Scans each part of the key range in its own thread: before the first bound, between two bounds,
// after the last.
template <class D, class Space, Comparator Compare>
Status TreeOperations<D, Space, Compare>::ProcessEachParallel(unsigned num_threads, EachRef visitor) HAKO_TRY {
  HAKO_RETURN_IF_ERROR(this->CheckReads());
  HAKO_RETURN_IF_ERROR(this->CheckThreads(num_threads));
  const std::vector<std::string> bounds = tree().Parts(std::max(num_threads, 1u));
  return sync::RunParts(bounds.size() + 1, [&](std::size_t part) -> Status {
    auto it = MakeIterator();
    for (part == 0 ? it.First() : it.Jump(bounds[part - 1]); it.Valid(); it.Next()) {
      if (part < bounds.size() && Compare::Compare(it.key(), bounds[part]) >= 0) break;
      visitor(it.key(), it.value());
    }
    return it.status();
  });
}
HAKO_OR_NO_MEMORY

template <class D, class Space, Comparator Compare>
Status TreeOperations<D, Space, Compare>::Redo(const format::LogEntry& entry) {
  WriterState* const writer = writers_.Mine();
  if (writer == nullptr) return writers_.Refusal();
  const auto process = [&](const Action& action) {
    if (kMayEvict) return this->template ProcessIn<Action>(*writer, entry.key, BlindUpdateRef(action));
    return tree().template Process<Action>(*writer, entry.key, action);
  };
  switch (entry.op) {
    case format::LogOp::kSet:
      return process(Action::Set(entry.value));
    case format::LogOp::kRemove:
      return process(Action::Remove());
    case format::LogOp::kRemoveRange:
      return tree().RemoveRange(*writer, {entry.key, entry.value}).status();
    case format::LogOp::kRemoveFrom:
      return tree().RemoveRange(*writer, {entry.key, std::nullopt}).status();
    case format::LogOp::kClear: {
      typename Space::Deferred deferred(*space_);
      return this->RunExclusive([&] { return this->RemoveAll(deferred); });
    }
    default:
      return this->RedoTogether(std::span(&entry, 1));
  }
}

template <class D, class Space, Comparator Compare>
Status TreeOperations<D, Space, Compare>::RedoMulti(const Batch<Action>& batch) {
  WriterState* const writer = writers_.Mine();
  if (writer == nullptr) return writers_.Refusal();
  const KeyRange* before = nullptr;
  for (const KeyRange& range : batch.removed_ranges) {
    const bool is_valid = (!range.to || Compare::Compare(range.from, *range.to) < 0) &&
                          (before == nullptr || (before->to && Compare::Compare(*before->to, range.from) <= 0));
    if (!is_valid) return absl::DataLossError("the log has ranges that do not ascend");
    before = &range;
  }
  return ProcessMultiIn(*writer, batch);
}

}  // namespace hako
