// The operations that the databases of both engines share: a space, an engine in it, and the states
// of the threads that use them.
//
// HashOperations and TreeOperations inherit EngineOperations<D, Space, Engine>, and a DBM class D
// one of these two. D provides kKeySizeMax, and
//   ProcessIn<Action or void>(writer, key, visitor), ProcessMultiIn(writer, keys, visitor)
//                       the engine's operations
//   AcceptsUpdates, MayUpdate, MayRemove, HasAfterUpdate, AfterUpdate
//                       whether updates are refused, and whether each is followed by a call,
//                       which may synchronize it (dbm/file_operations.h, dbm/memory_operations.h)
//
// Threads: see dbm/dbm.h.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "absl/functional/function_ref.h"
#include "hako/base/inline.h"
#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/operations.h"
#include "hako/sync/writer_states.h"

namespace hako {

// Inherits
//   Operations (dbm/operations.h)  operations on one record, and its MultiOperations
template <class D, class Space, class Engine>
class EngineOperations : public Operations<D> {
 protected:
  using WriterState = typename Space::WriterState;

 public:
  // See dbm/dbm.h. OutOfRange for a key above D::kKeySizeMax bytes.
  template <Visitor V>
  HAKO_INLINE Status Process(std::string_view key, V&& visitor) HAKO_TRY {
    if (key.size() > D::kKeySizeMax) [[unlikely]]
      return RefuseKey(key);
    WriterState* writer = writers_.Mine();
    if (writer == nullptr) [[unlikely]]
      return writers_.Refusal();
    if constexpr (ReadVisitor<std::remove_reference_t<V>>) {
      return self().template ProcessIn<void>(*writer, key, visitor);
    } else {
      if (!self().AcceptsUpdates() || self().HasAfterUpdate()) [[unlikely]] {
        using Seen = std::conditional_t<UpdateVisitor<std::remove_reference_t<V>>, std::optional<std::string_view>, bool>;
        if constexpr (std::is_same_v<std::remove_cvref_t<V>, Action>)
          return ProcessChecked(*writer, key, visitor);
        else
          return ProcessChecked<Seen>(*writer, key, visitor);
      }
      return self().template ProcessIn<Action>(*writer, key, visitor);
    }
  }
  HAKO_OR_NO_MEMORY

  // See dbm/dbm.h.
  template <MultiVisitor V>
  Status ProcessMulti(std::span<const std::string_view> keys, V&& visitor) HAKO_TRY {
    HAKO_RETURN_IF_ERROR(CheckKeys(keys));
    WriterState* writer = writers_.Mine();
    if (writer == nullptr) return writers_.Refusal();
    if constexpr (MultiReadVisitor<std::remove_reference_t<V>>) {
      return self().ProcessMultiIn(*writer, keys, [&visitor](std::size_t index, std::optional<std::string_view> value) {
        visitor(index, value);
        return Action::Keep();
      });
    } else {
      if (!self().AcceptsUpdates() || self().HasAfterUpdate()) return ProcessMultiChecked(*writer, keys, visitor);
      return self().ProcessMultiIn(*writer, keys, visitor);
    }
  }
  HAKO_OR_NO_MEMORY

  // A hint that these keys will be used.
  void Prefetch(std::span<const std::string_view> keys) const {
    if (!IsClosed()) engine_.Prefetch(keys);
  }

  // OK, or FailedPrecondition if the database is closed or inherited by a fork. CheckIdle also
  // fails within a visitor of this database (sync/writer_states.h).
  Status CheckOpen() const { return writers_.CheckOpen(); }
  Status CheckIdle() const { return writers_.CheckIdle(); }
  // Whether Close was called.
  bool IsClosed() const { return writers_.IsClosed(); }

 protected:
  template <class... Rest>
  explicit EngineOperations(std::unique_ptr<Space> space, Rest... rest) : space_(std::move(space)), engine_(*space_, rest...) {}
  ~EngineOperations() = default;

  // CheckOpen, and whether all keys have a size that is allowed.
  Status CheckKeys(std::span<const std::string_view> keys) const {
    HAKO_RETURN_IF_ERROR(CheckOpen());
    for (const std::string_view key : keys) {
      if (key.size() > D::kKeySizeMax) return RefuseKey(key);
    }
    return absl::OkStatus();
  }
  // The error of a key that is too long.
  [[gnu::cold]] Status RefuseKey(std::string_view key) const {
    HAKO_RETURN_IF_ERROR(CheckOpen());
    return TooLargeError("a key", key.size(), D::kKeySizeMax);
  }

  // Refuses all operations from now on.
  // REQUIRES: no other thread uses the database
  void Seal() {
    writers_.Close();
    engine_.Seal();
  }

  auto ForEachWriter() const {
    return [this](auto&& visit) { writers_.ForEach(visit); };
  }
  // Runs `body` with writers excluded.
  template <class Body>
  auto RunExclusive(Body&& body) {
    return space_->gate().RunExclusive(ForEachWriter(), body);
  }
  // After the removal of all records.
  // REQUIRES: no writers
  void ForgetCounts() {
    writers_.ForEach([](WriterState& writer) { writer.pending_count.store(0, std::memory_order_relaxed); });
  }

  std::unique_ptr<Space> space_;
  mutable Engine engine_;  // mutable because reads may flush pending Sets
  mutable sync::WriterStates<WriterState> writers_;

 private:
  D& self() { return static_cast<D&>(*this); }

  static bool Changes(const Action& action, bool exists) {
    return action.kind() == Action::Kind::kSet || (action.kind() == Action::Kind::kRemove && exists);
  }

  // Process where updates are refused, or followed by AfterUpdate. While only removals are
  // accepted, a visitor that decides to set a value gets the refusal.
  template <class Seen>
  Status ProcessChecked(WriterState& writer, std::string_view key, absl::FunctionRef<Action(Seen)> visitor) {
    const Status refusal = self().MayUpdate();
    if (!refusal.ok()) HAKO_RETURN_IF_ERROR(self().MayRemove());
    bool updates = false, refuses = false;
    HAKO_RETURN_IF_ERROR((self().template ProcessIn<Action>(writer, key, [&](Seen seen) {
      const Action action = visitor(seen);
      refuses = action.kind() == Action::Kind::kSet && !refusal.ok();
      updates = !refuses && Changes(action, static_cast<bool>(seen));
      return refuses ? Action::Keep() : action;
    })));
    if (refuses) return refusal;
    return updates && self().HasAfterUpdate() ? self().AfterUpdate() : absl::OkStatus();
  }
  // An engine may write the value of a given Action before it looks for the record.
  Status ProcessChecked(WriterState& writer, std::string_view key, Action action) {
    if (action.kind() != Action::Kind::kSet) return ProcessChecked<bool>(writer, key, action);
    HAKO_RETURN_IF_ERROR(self().MayUpdate());
    HAKO_RETURN_IF_ERROR((self().template ProcessIn<Action>(writer, key, action)));
    return self().HasAfterUpdate() ? self().AfterUpdate() : absl::OkStatus();
  }
  Status ProcessMultiChecked(WriterState& writer, std::span<const std::string_view> keys,
                             absl::FunctionRef<std::optional<Action>(std::size_t, std::optional<std::string_view>)> visitor) {
    const Status refusal = self().MayUpdate();
    if (!refusal.ok()) HAKO_RETURN_IF_ERROR(self().MayRemove());
    bool updates = false, refuses = false;
    const auto check = [&](std::size_t index, std::optional<std::string_view> value) {
      std::optional<Action> action = visitor(index, value);
      updates = updates || (action && Changes(*action, value.has_value()));
      refuses = refuses || (action && action->kind() == Action::Kind::kSet && !refusal.ok());
      return refuses ? std::nullopt : action;
    };
    const Status status = self().ProcessMultiIn(writer, keys, check);
    if (refuses) return refusal;
    HAKO_RETURN_IF_ERROR(status);
    return updates && self().HasAfterUpdate() ? self().AfterUpdate() : absl::OkStatus();
  }
};

}  // namespace hako
