// The operations shared by the two tree DBMs: a space for pages, and a tree in it.
//
// A tree DBM class D inherits TreeOperations<D, Space, Compare> publicly. If updates can be
// refused, D hides MayUpdate and MayRemove; if they must be synchronized, SyncsEachUpdate and
// AfterUpdate.
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
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "hako/base/comparator.h"
#include "hako/base/inline.h"
#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/dbm/common.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/operations.h"
#include "hako/dbm/ordered_operations.h"
#include "hako/dbm/tree_cursor.h"
#include "hako/format/page_format.h"
#include "hako/sync/run_parts.h"
#include "hako/sync/writer_states.h"
#include "hako/tree/page_tree.h"

namespace hako {

// Inherits
//   OrderedOperations (dbm/ordered_operations.h)
//     Range, ReverseRange, PrefixRange  records of [from, to) as an input range
//     CountRange, RemoveRange           count or remove the records of [from, to)
//     BulkLoad                          load sorted records into full pages
//     CompareKeys                       the order of keys
//   Operations (dbm/operations.h)       operations on one record, and its MultiOperations
template <class D, class Space, Comparator Compare>
class TreeOperations : public Operations<D>, public OrderedOperations<D, Compare> {
 protected:
  using Tree = tree::PageTree<Space, Compare>;
  using WriterState = typename Space::WriterState;

 public:
  using Iterator = TreeCursor<D, Tree, Compare>;                 // see dbm/tree_cursor.h
  static constexpr std::uint64_t kKeySizeMax = kTreeKeySizeMax;  // bytes

  // See dbm/dbm.h. OutOfRange for a key above kKeySizeMax bytes.
  template <Visitor V>
  HAKO_INLINE Status Process(std::string_view key, V&& visitor) HAKO_TRY {
    HAKO_RETURN_IF_ERROR(CheckKey(key, kKeySizeMax));
    WriterState* writer = writers_.Mine();
    if (writer == nullptr) [[unlikely]]
      return writers_.Refusal();
    if constexpr (ReadVisitor<std::remove_reference_t<V>>) {
      return tree_.template Process<void>(*writer, key, visitor);
    } else {
      if (const Status may = self().MayUpdate(); !may.ok()) [[unlikely]]
        return ProcessRemoval(*writer, key, visitor, may);
      if (self().SyncsEachUpdate()) [[unlikely]]
        return ProcessDurably(*writer, key, visitor);
      return tree_.template Process<Action>(*writer, key, visitor);
    }
  }
  HAKO_OR_NO_MEMORY

  // See dbm/dbm.h.
  template <Sink S>
  HAKO_INLINE Status Fetch(std::string_view key, S&& sink) {
    HAKO_RETURN_IF_ERROR(CheckKey(key, kKeySizeMax));
    return tree_.Fetch(writers_, key, sink);
  }

  // See dbm/dbm.h.
  template <MultiVisitor V>
  Status ProcessMulti(std::span<const std::string_view> keys, V&& visitor) HAKO_TRY {
    for (const std::string_view key : keys) HAKO_RETURN_IF_ERROR(CheckKey(key, kKeySizeMax));
    WriterState* writer = writers_.Mine();
    if (writer == nullptr) return writers_.Refusal();
    if constexpr (MultiReadVisitor<std::remove_reference_t<V>>) {
      return tree_.template ProcessMulti<Action>(*writer, keys, KeepAll(visitor));
    } else {
      if (const Status may = self().MayUpdate(); !may.ok()) return ProcessMultiRemoval(*writer, keys, visitor, may);
      if (self().SyncsEachUpdate()) return ProcessMultiDurably(*writer, keys, visitor);
      return tree_.template ProcessMulti<Action>(*writer, keys, visitor);
    }
  }
  HAKO_OR_NO_MEMORY

  // Fetches each key, with overlapped reads: calls sink(index, size), then arrived(index, found).
  template <class S, class F>
  Status FetchMulti(std::span<const std::string_view> keys, S&& sink, F&& arrived) HAKO_TRY {
    for (const std::string_view key : keys) HAKO_RETURN_IF_ERROR(CheckKey(key, kKeySizeMax));
    if (IsClosed()) return writers_.Refusal();
    return tree_.FetchMulti(writers_, keys, sink, arrived);
  }
  HAKO_OR_NO_MEMORY
  // A hint that these keys will be used.
  void Prefetch(std::span<const std::string_view> keys) const {
    if (!IsClosed()) tree_.Prefetch(keys);
  }

  // Shows all records in key order, with nothing locked.
  template <class V>
  Status ProcessEach(V&& visitor) HAKO_TRY {
    auto it = MakeIterator();
    for (it.First(); it.Valid(); it.Next()) visitor(it.key(), it.value());
    return it.status();
  }
  HAKO_OR_NO_MEMORY

  // ProcessEach in several threads, which call the visitor concurrently, each for one part of the
  // key range.
  template <class V>
  Status ProcessEachParallel(unsigned num_threads, V&& visitor) HAKO_TRY {
    HAKO_RETURN_IF_ERROR(CheckOpen());
    return ProcessParts(tree_.Parts(std::max(num_threads, 1u)), visitor);
  }
  HAKO_OR_NO_MEMORY

  // Returns a cursor: see dbm/tree_cursor.h.
  Iterator MakeIterator() { return Iterator(self(), tree_); }

  // The number of records; exact while no update runs.
  std::uint64_t Count() const { return IsClosed() ? 0 : tree_.Count(ForEachWriter()); }

  // OK, or FailedPrecondition if the database is closed or inherited by a fork. CheckIdle also
  // fails within a visitor of this database (sync/writer_states.h).
  Status CheckOpen() const { return writers_.CheckOpen(); }
  Status CheckIdle() const { return writers_.CheckIdle(); }
  // Whether Close was called.
  bool IsClosed() const { return writers_.IsClosed(); }

  // The work of CountRange and RemoveRange (dbm/ordered_operations.h), which check the bounds.
  StatusOr<std::uint64_t> CountKeys(std::string_view from, std::optional<std::string_view> to) const HAKO_TRY {
    HAKO_RETURN_IF_ERROR(CheckOpen());
    return tree_.CountRange({from, to});
  }
  HAKO_OR_NO_MEMORY
  // See CountKeys.
  StatusOr<std::uint64_t> RemoveKeys(std::string_view from, std::optional<std::string_view> to) HAKO_TRY {
    WriterState* writer = writers_.Mine();
    if (writer == nullptr) return writers_.Refusal();
    HAKO_RETURN_IF_ERROR(self().MayRemove());
    HAKO_ASSIGN_OR_RETURN(const std::uint64_t removed, tree_.RemoveRange(*writer, {from, to}));
    if (removed > 0 && self().SyncsEachUpdate()) HAKO_RETURN_IF_ERROR(self().AfterUpdate());
    return removed;
  }
  HAKO_OR_NO_MEMORY

 protected:
  TreeOperations(std::unique_ptr<Space> space, unsigned page_size) : space_(std::move(space)), tree_(*space_, page_size) {}
  ~TreeOperations() = default;

  HAKO_INLINE static Status MayUpdate() { return absl::OkStatus(); }
  // MayUpdate for an update that only removes.
  static Status MayRemove() { return absl::OkStatus(); }
  // Whether to call AfterUpdate after each update.
  HAKO_INLINE static bool SyncsEachUpdate() { return false; }
  static Status AfterUpdate() { return absl::OkStatus(); }

  void Seal() {
    writers_.Close();
    tree_.Seal();
  }

  auto ForEachWriter() const {
    return [this](auto&& visit) { writers_.ForEach(visit); };
  }
  // Runs `body` with writers excluded.
  template <class Body>
  auto RunExclusive(Body&& body) {
    return space_->gate().RunExclusive(ForEachWriter(), body);
  }
  // REQUIRES: no writers
  Status RemoveAll(typename Space::Deferred& deferred) {
    HAKO_RETURN_IF_ERROR(tree_.RemoveAll(deferred));
    writers_.ForEach([](WriterState& writer) { writer.pending_count.store(0, std::memory_order_relaxed); });
    return absl::OkStatus();
  }

  std::unique_ptr<Space> space_;
  Tree tree_;
  mutable sync::WriterStates<WriterState> writers_;

 private:
  D& self() { return static_cast<D&>(*this); }

  Status ProcessDurably(WriterState& writer, std::string_view key, absl::FunctionRef<Action(std::optional<std::string_view>)> visitor) {
    bool updates = false;
    HAKO_RETURN_IF_ERROR((tree_.template Process<Action>(writer, key, [&updates, visitor](std::optional<std::string_view> value) {
      const Action action = visitor(value);
      updates = action.kind() != Action::Kind::kKeep;
      return action;
    })));
    return updates ? self().AfterUpdate() : absl::OkStatus();
  }
  Status ProcessDurably(WriterState& writer, std::string_view key, absl::FunctionRef<Action(bool)> visitor) {
    bool updates = false;
    HAKO_RETURN_IF_ERROR((tree_.template Process<Action>(writer, key, [&updates, visitor](bool exists) {
      const Action action = visitor(exists);
      updates = action.kind() != Action::Kind::kKeep;
      return action;
    })));
    return updates ? self().AfterUpdate() : absl::OkStatus();
  }
  // Runs an update while updates are refused but removals may be accepted. A visitor that decides
  // to set a value gets the refusal.
  template <class Seen>
  Status RemoveIfAccepted(WriterState& writer, std::string_view key, absl::FunctionRef<Action(Seen)> visitor, const Status& refusal) {
    HAKO_RETURN_IF_ERROR(self().MayRemove());
    Status status;
    bool removes = false;
    HAKO_RETURN_IF_ERROR((tree_.template Process<Action>(writer, key, [&](Seen seen) {
      const Action action = visitor(seen);
      removes = action.kind() == Action::Kind::kRemove;
      if (action.kind() != Action::Kind::kSet) return action;
      status = refusal;
      return Action::Keep();
    })));
    return removes && self().SyncsEachUpdate() ? self().AfterUpdate() : status;
  }
  [[gnu::cold]] Status ProcessRemoval(WriterState& writer, std::string_view key,
                                      absl::FunctionRef<Action(std::optional<std::string_view>)> visitor, const Status& refusal) {
    return RemoveIfAccepted(writer, key, visitor, refusal);
  }
  [[gnu::cold]] Status ProcessRemoval(WriterState& writer, std::string_view key, absl::FunctionRef<Action(bool)> visitor,
                                      const Status& refusal) {
    return RemoveIfAccepted(writer, key, visitor, refusal);
  }
  Status ProcessMultiRemoval(WriterState& writer, std::span<const std::string_view> keys,
                             absl::FunctionRef<std::optional<Action>(std::size_t, std::optional<std::string_view>)> visitor,
                             const Status& refusal) {
    HAKO_RETURN_IF_ERROR(self().MayRemove());
    bool sets = false;
    const auto remove_only = [&](std::size_t index, std::optional<std::string_view> value) {
      std::optional<Action> action = visitor(index, value);
      sets = sets || (action && action->kind() == Action::Kind::kSet);
      return sets ? std::nullopt : action;
    };
    const Status status = tree_.template ProcessMulti<Action>(writer, keys, remove_only);
    if (sets) return refusal;
    HAKO_RETURN_IF_ERROR(status);
    return self().SyncsEachUpdate() ? self().AfterUpdate() : absl::OkStatus();
  }
  Status ProcessMultiDurably(WriterState& writer, std::span<const std::string_view> keys,
                             absl::FunctionRef<std::optional<Action>(std::size_t, std::optional<std::string_view>)> visitor) {
    bool updates = false;
    HAKO_RETURN_IF_ERROR((tree_.template ProcessMulti<Action>(
        writer, keys, [&updates, visitor](std::size_t index, std::optional<std::string_view> value) -> std::optional<Action> {
          const std::optional<Action> action = visitor(index, value);
          updates = updates || (action && action->kind() != Action::Kind::kKeep);
          return action;
        })));
    return updates ? self().AfterUpdate() : absl::OkStatus();
  }

  // Scans each part of the key range in one thread: before the first bound, between bounds, after
  // the last.
  template <class V>
  Status ProcessParts(const std::vector<std::string>& bounds, V& visitor) {
    return sync::RunParts(bounds.size() + 1, [&](std::size_t part) -> Status {
      auto it = MakeIterator();
      for (part == 0 ? it.First() : it.Jump(bounds[part - 1]); it.Valid(); it.Next()) {
        if (part < bounds.size() && Compare::Compare(it.key(), bounds[part]) >= 0) break;
        visitor(it.key(), it.value());
      }
      return it.status();
    });
  }
};

}  // namespace hako
