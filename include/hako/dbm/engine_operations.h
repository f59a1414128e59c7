// The operations that the databases of both engines share: a space, an engine in it, and the states
// of the threads that use them.
//
// HashOperations and TreeOperations inherit EngineOperations<D, Space, Engine>, and a DBM class D
// one of these two. D provides kKeySizeMax, and
//   ProcessIn<Action or void>(writer, key, visitor), ProcessMultiIn(writer, keys, visitor, extras)
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
  // Whether Remove, CompareExchange and Increment have their own compiled Process, which saves a
  // call. Where a file is read by calls of the system that is not worth the code.
  static constexpr bool kInlinesUpdates = !requires { requires Space::kReadsAhead; };

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
        if constexpr (std::is_same_v<std::remove_cvref_t<V>, Action>)
          return ProcessChecked(key, Action(visitor));  // a copy, so that the visitor stays in registers
        else if constexpr (UpdateVisitor<std::remove_reference_t<V>>)
          return ProcessChecked(key, UpdateRef(visitor));
        else
          return ProcessChecked(key, BlindUpdateRef(visitor));
      }
      return self().template ProcessIn<Action>(*writer, key, visitor);
    }
  }
  HAKO_OR_NO_MEMORY

  // The same, compiled once. Operations that the database derives from Process use these.
  Status Process(std::string_view key, UpdateRef visitor);
  Status Process(std::string_view key, BlindUpdateRef visitor);
  Status Process(std::string_view key, ReadRef visitor);

  // See dbm/dbm.h.
  template <MultiVisitor V>
  Status ProcessMulti(std::span<const std::string_view> keys, V&& visitor) {
    if constexpr (MultiReadVisitor<std::remove_reference_t<V>>)
      return ProcessMulti(keys, MultiReadRef(visitor));
    else
      return ProcessMulti(keys, MultiUpdateRef(visitor));
  }
  Status ProcessMulti(std::span<const std::string_view> keys, MultiUpdateRef visitor, const MultiExtras& extras = {});
  Status ProcessMulti(std::span<const std::string_view> keys, MultiReadRef visitor);

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
  // Before this thread changes these keys: loads their evicted pages.
  void LoadForRedo(std::span<const std::string_view> keys) {
    if constexpr (requires { engine_.LoadLeaves(keys); }) engine_.LoadLeaves(keys);
  }
  // Before it changes the next few of them: prefetches their memory.
  void PrefetchForRedo(std::span<const std::string_view> keys) const { engine_.Prefetch(keys); }

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

  // Process, whether updates are refused or not, compiled once.
  template <class ActionT, class VisitorT>
  [[gnu::noinline]] Status ProcessUnchecked(std::string_view key, VisitorT visitor);

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

  // Process where updates are refused, or followed by AfterUpdate.
  [[gnu::cold, gnu::noinline]] Status ProcessChecked(std::string_view key, UpdateRef visitor);
  [[gnu::cold, gnu::noinline]] Status ProcessChecked(std::string_view key, BlindUpdateRef visitor);
  [[gnu::cold, gnu::noinline]] Status ProcessChecked(std::string_view key, Action action);
  template <class Seen>
  Status CheckAround(std::string_view key, FunctionRef<Action(Seen)> visitor);
  Status ProcessMultiChecked(WriterState& writer, std::span<const std::string_view> keys, MultiUpdateRef visitor,
                             const MultiExtras& extras);
};

}  // namespace hako

#include "hako/dbm/engine_operations-inl.h"
