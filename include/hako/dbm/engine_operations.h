// The operations that the databases of all engines share. The class owns a space, the engine in it,
// and the states of the threads that use them.
//
// HashOperations, TreeOperations and ArrayOperations inherit EngineOperations<D, Space, Engine>, and a
// DBM class D one of these. D provides kKeySizeMax, and
//   ProcessIn<Action or void>(writer, key, visitor), ProcessMultiIn(writer, batch)
//                       the engine's operations
// and its home (dbm/database_home.h), or D itself,
//   AcceptsUpdates, MayUpdate, MayRemove
//                       whether updates are refused
//   AfterUpdate         called after each update if CallAfterUpdates was called; may synchronize it
//   KeepTime            keeps the time of records that expire, for the superblock and the log
//
// Threads: see dbm/dbm.h.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "hako/base/assert.h"
#include "hako/base/function_ref.h"
#include "hako/base/inline.h"
#include "hako/base/integer_arg.h"
#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/base/string_arg.h"
#include "hako/dbm/database_records.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/expiry.h"
#include "hako/dbm/operations.h"
#include "hako/sync/fork_call.h"
#include "hako/sync/writer_states.h"

namespace hako {

namespace internal {

// Wraps a visitor for a database that keeps no times: an Action with a time becomes Keep.
template <class V>
class TimelessVisitor {
  using Seen = std::conditional_t<UpdateVisitor<V>, std::optional<std::string_view>, bool>;

 public:
  HAKO_INLINE explicit TimelessVisitor(V& visitor) : visitor_(visitor) {}
  HAKO_INLINE Action operator()(Seen seen) {
    const Action action = visitor_(seen);
    if (!action.HasTime()) [[likely]]
      return action;
    refuses_ = true;
    return Action::Keep();
  }
  // Call after the operation. Replaces its status by an error if an Action was refused.
  HAKO_INLINE void CheckTime(Status* status) const {
    if (refuses_) [[unlikely]]
      *status = Expiry::NoTimesError();
  }

 private:
  V& visitor_;
  bool refuses_ = false;
};

}  // namespace internal

// Inherits
//   Operations (dbm/operations.h)  operations on one record, and its MultiOperations
template <class D, class Space, class Engine>
class EngineOperations : public Operations<D>, protected DatabaseRecords {
 protected:
  using WriterState = typename Space::WriterState;

 public:
  // Whether Process is compiled separately for Remove, CompareExchange and Increment, which saves a
  // call. For files that are read by system calls this is not worth the code.
  static constexpr bool kInlinesUpdates = !requires { requires Space::kReadsAhead; };

  // See dbm/dbm.h. OutOfRange for a key above D::kKeySizeMax bytes. Derived operations that set no
  // time skip the check of the time.
  template <bool kMaySetTime = true, Visitor V>
  HAKO_INLINE Status Process(StringArg key, V&& visitor) HAKO_TRY {
    if (key.size() > D::kKeySizeMax) [[unlikely]]
      return RefuseKey(key);
    WriterState* writer = writers_.Mine();
    if (writer == nullptr) [[unlikely]]
      return writers_.Refusal();
    if constexpr (ReadVisitor<std::remove_reference_t<V>>) {
      if (!reads_plainly_) [[unlikely]]
        return Process(key, ReadRef(visitor));
      return self().template ProcessIn<void>(*writer, key, visitor);
    } else {
      if (NeedsChecks()) [[unlikely]]
        return ProcessByReference(key, visitor);
      if constexpr (kMaySetTime)
        return ProcessWithoutTime(*writer, key, visitor);
      else
        return self().template ProcessIn<Action>(*writer, key, visitor);
    }
  }
  HAKO_OR_NO_MEMORY

  template <class V>
  requires(!Visitor<V>) Status Process(StringArg, V&&) { return internal::RefuseVisitor<V>(); }
  // As above, with the visitor by reference, so that it is compiled once. Operations derived from
  // Process use it.
  Status Process(StringArg key, UpdateRef visitor);
  Status Process(StringArg key, BlindUpdateRef visitor);
  Status Process(StringArg key, ReadRef visitor);

  // See dbm/dbm.h.
  template <MultiVisitor V>
  Status ProcessMulti(std::span<const std::string_view> keys, V&& visitor) {
    if constexpr (MultiReadVisitor<std::remove_reference_t<V>>)
      return ProcessMulti(keys, MultiReadRef(visitor));
    else
      return ProcessMulti(keys, MultiUpdateRef(visitor));
  }
  template <class V>
  requires(!MultiVisitor<V>) Status ProcessMulti(std::span<const std::string_view>, V&&) { return internal::RefuseMultiVisitor<V>(); }
  // Before each call of the visitor, *expiry_shown receives the expiry time of the record shown
  // (dbm/expiry.h).
  Status ProcessMulti(std::span<const std::string_view> keys, MultiUpdateRef visitor, std::uint64_t* expiry_shown = nullptr) {
    return ProcessMulti(Batch<Action>{keys, visitor}, expiry_shown);
  }
  Status ProcessMulti(const Batch<Action>& batch, std::uint64_t* expiry_shown = nullptr);
  Status ProcessMulti(std::span<const std::string_view> keys, MultiReadRef visitor);

  template <class V>
  requires(!EachVisitor<V>) Status ProcessEach(V&&) { return internal::RefuseEachVisitor<V>(); }
  template <class V>
  requires(!EachVisitor<V>) Status ProcessEachParallel(unsigned, V&&) { return internal::RefuseEachVisitor<V>(); }

  // ---- records that expire (dbm/expiry.h) ----

  // The clock of records that expire; nullptr if the database keeps no times.
  const Expiry* expiry() const final { return expiry_.get(); }
  // Sets when the record of `key` expires, in milliseconds since 1970; 0 = never. A time that has
  // passed removes the record; otherwise its value is stored again. Returns NotFound if the record
  // is absent, FailedPrecondition if the database keeps no times, InvalidArgument for a time beyond
  // Expiry::kTimeMax.
  Status SetExpiry(StringArg key, IntegerArg<std::uint64_t> expire_at);
  // Returns when the record of `key` expires; 0 = never, or the database keeps no times. Returns
  // NotFound if the record is absent.
  StatusOr<std::uint64_t> GetExpiry(StringArg key);
  // Removes the expired records now, beside readers and writers, and returns their number. A
  // background thread does the same from time to time.
  StatusOr<std::uint64_t> RemoveExpired() {
    return RemoveExpired([] { return true; });
  }

  // See dbm/dbm.h. Writers are stopped only for the moment that is shown. The records of buckets or
  // leaves that they change later are kept in memory until they are shown.
  Status ProcessState(StateRef visitor, const OnDamage& on_damage = {});

  // For snapshots (dbm/snapshot.h): between the two calls, writers pass each leaf or bucket to `capture` before they
  // change it. BeginCapture calls note() at the moment, while the writers are stopped.
  template <class CaptureT>
  Status BeginCapture(CaptureT* capture, FunctionRef<void()> note) {
    return self().RunExclusiveFlushed([&] {
      engine_.BeginCapture(capture);
      note();
      return absl::OkStatus();
    });
  }
  template <class CaptureT>
  void EndCapture(CaptureT* capture) {
    RunExclusive([&] { return engine_.EndCapture(capture), 0; });
  }

  // Set and fetch values in their stored form, for copies of the database. After SetStored call
  // expiry()->schedule().RequestPass(), unless this database is a copy that is being made.
  Status SetStored(std::string_view key, std::string_view stored);
  Status GetStored(std::string_view key, std::string* stored);

  // See dbm/multi_operations.h.
  void Prefetch(std::span<const std::string_view> keys) const {
    if (CheckOpen().ok()) engine_.Prefetch(keys);
  }
  bool PrefetchReads() const {
    if constexpr (requires { engine_.PrefetchReads(); }) return engine_.PrefetchReads();
    return false;
  }

  // Returns the position in the log after the last update of the calling thread; 0 without a log.
  std::uint64_t LastLsn() {
    const WriterState* const writer = writers_.Mine();
    return writer != nullptr ? writer->lsn : 0;
  }

  // Returns OK, or FailedPrecondition if the database is closed or inherited by a fork. CheckReads
  // and CheckIdle also fail within a visitor of this database (sync/writer_states.h).
  Status CheckOpen() const final { return writers_.CheckOpen(); }
  Status CheckReads() const { return writers_.CheckReads(); }
  Status CheckIdle() const final { return writers_.CheckIdle(); }
  // Whether Close was called.
  bool IsClosed() const { return writers_.IsClosed(); }

 protected:
  // ---- for the home of the database: see DatabaseRecords ----
  std::uint64_t* LsnOfThread() final {
    WriterState* const writer = writers_.Mine();
    return writer != nullptr ? &writer->lsn : nullptr;
  }
  void AddSnapshotStats(Stats* stats) const final {
    if constexpr (requires { engine_.captures(); }) {
      stats->num_snapshots = engine_.captures().num_bounded();
      stats->snapshot_bytes = engine_.captures().bytes();
    }
  }
  void LoadForRedo(std::span<const std::string_view> keys) override {
    if constexpr (requires { engine_.LoadLeaves(keys); }) engine_.LoadLeaves(keys);
  }
  void PrefetchForRedo(std::span<const std::string_view> keys) const override { engine_.Prefetch(keys); }
  void SweepInBackground(const std::atomic<bool>& stops) final;
  // Takes no lock, because a forked child also calls it. In the child, writers of the parent may
  // seem busy forever.
  void Seal() override {
    AssertNoWriters();
    writers_.Close();
    engine_.Seal();
  }

  template <class... Rest>
  explicit EngineOperations(std::unique_ptr<Space> space, Rest... rest) : space_(std::move(space)), engine_(*space_, rest...) {}
  ~EngineOperations() = default;

  // As CheckReads; also checks the sizes of the keys.
  Status CheckKeys(std::span<const std::string_view> keys) const {
    HAKO_RETURN_IF_ERROR(CheckReads());
    for (const std::string_view key : keys) {
      if (key.size() > D::kKeySizeMax) return RefuseKey(key);
    }
    return absl::OkStatus();
  }
  // Checks the argument of ProcessEachParallel.
  static Status CheckThreads(unsigned num_threads) {
    if (num_threads <= kThreadsMax) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("ProcessEachParallel: ", num_threads, " threads exceed the limit of ", kThreadsMax));
  }
  // Returns the error for a key that is too long.
  [[gnu::cold]] Status RefuseKey(std::string_view key) const {
    HAKO_RETURN_IF_ERROR(CheckOpen());
    return TooLargeError("a key", key.size(), D::kKeySizeMax);
  }

  // ProcessState of records in their stored form, including expired ones. Calls note() at the
  // moment that is shown, while the writers are stopped.
  Status ProcessStoredState(FunctionRef<void()> note, FunctionRef<Status(std::string_view key, std::string_view stored)> visitor,
                            const OnDamage& on_damage = {});
  // RunExclusive while no update is pending.
  template <class Body>
  Status RunExclusiveFlushed(Body&& body) {
    return RunExclusive(body);
  }

  // Process without the check whether updates are refused, compiled once.
  template <class ActionT, class VisitorT>
  [[gnu::noinline]] Status ProcessUnchecked(std::string_view key, VisitorT visitor);

  // Call in Open. If `clock` is not 0, values have the stored form, and the clock of the database
  // begins at `clock`. Returns FailedPrecondition if `clock` is 0 but the options request expiry.
  // REQUIRES: no other thread uses the database
  template <class Options>
  Status KeepTimes(const Options& options, std::uint64_t clock, std::uint64_t first_expiry = 0) {
    AssertNoWriters();
    if constexpr (requires { options.expiry; }) {
      if (clock != 0) expiry_ = std::make_unique<Expiry>(options.clock, clock);
      if (clock != 0 && first_expiry != 0) expiry_->schedule().ExpectNone(expiry_->Now(), first_expiry);
      reads_plainly_ = reads_plainly_ && clock == 0;
      if (clock == 0 && options.expiry) return Expiry::NoTimesError();
    }
    return absl::OkStatus();
  }
  // The last part of Verify: checks that each value has the stored form.
  Status VerifyTimes();
  // Fetch in a database whose values have the stored form.
  template <class S>
  Status FetchLive(std::string_view key, S& sink);
  // Runs shows(visitor) with a visitor that passes on only records that have not expired.
  template <class F>
  Status ShowLive(EachRef visitor, F&& shows);
  // RemoveExpired that calls go_on() from time to time and stops when it returns false. Counts the
  // records that it sees in *seen. Skips damage, and returns the first DataLoss after it has
  // removed all other expired records.
  StatusOr<std::uint64_t> RemoveExpired(FunctionRef<bool()> go_on, ExpirySurvey* seen = nullptr);

  bool HasLimit() const {
    if constexpr (requires { space_->limit(); })
      return space_->limit() != nullptr;
    else
      return false;
  }
  // Call at the end of Open. From now on `visitor` is shown evicted records, without their times.
  // Needs no memory.
  // REQUIRES: no other thread uses the database
  void ShowEvictions(OwnedFunction<void(std::string_view, std::string_view)> visitor) {
    AssertNoWriters();
    if constexpr (requires { space_->limit(); }) {
      if (!HasLimit() || !visitor) return;
      on_eviction_ = std::move(visitor);
      space_->limit()->Show({this, [](void* self, std::string_view key, std::string_view value) {
                               static_cast<EngineOperations*>(self)->ShowEvicted(key, value);
                             }});
    }
  }
  // Returns the number of records evicted since Open.
  std::uint64_t NumEvictions() const {
    std::uint64_t count = 0;
    if constexpr (requires(WriterState & writer) { writer.evictions; })
      writers_.ForEach([&](const WriterState& writer) { count += writer.evictions.load(std::memory_order_relaxed); });
    return count;
  }
  void AddEvictionStats(Stats* stats) const {
    if constexpr (requires { space_->limit(); }) {
      auto* const limit = space_->limit();
      if (limit == nullptr) return;
      stats->capacity_bytes = limit->capacity().bytes;
      stats->capacity_records = limit->capacity().records;
      stats->hits = limit->counts().hits();
      stats->misses = limit->counts().misses();
      stats->evictions = NumEvictions();
    }
  }

  // REQUIRES: the calling thread is in the body of RunExclusive, or no thread of this process changes records
  void AssertNoWriters() const { HAKO_DCHECK(space_->gate().IsExclusive() || writers_.IsIdle()); }

  auto ForEachWriter() const {
    return [this](auto&& visit) { writers_.ForEach(visit); };
  }
  // Runs `body` with writers excluded.
  template <class Body>
  auto RunExclusive(Body&& body) {
    return space_->gate().RunExclusive(ForEachWriter(), body);
  }
  // Call after the removal of all records.
  // REQUIRES: no writers
  void ForgetCounts() {
    AssertNoWriters();
    writers_.ForEach([](WriterState& writer) { writer.pending_count.store(0, std::memory_order_relaxed); });
  }

  std::unique_ptr<Space> space_;
  mutable Engine engine_;  // mutable because reads may flush pending Sets
  mutable sync::WriterStates<WriterState> writers_;
  std::unique_ptr<Expiry> expiry_;
  // Whether reads take the shortest path: values have no times, and uses of records are not tracked
  // (base/capacity.h). One condition instead of two.
  bool reads_plainly_ = true;
  bool has_after_update_ = false;
  // An update in a database that keeps no times: refuses an Action with a time.
  template <class Key, class V>
  HAKO_INLINE Status ProcessWithoutTime(WriterState& writer, Key key, V& visitor) {
    if constexpr (std::is_same_v<std::remove_cv_t<V>, Action>) {
      if (visitor.HasTime()) [[unlikely]]
        return Expiry::NoTimesError();
      return self().template ProcessIn<Action>(writer, key, visitor);
    } else {
      internal::TimelessVisitor<V> timeless(visitor);
      Status status = self().template ProcessIn<Action>(writer, key, timeless);
      timeless.CheckTime(&status);
      return status;
    }
  }
  // Whether updates may be refused, or must be followed by AfterUpdate.
  HAKO_INLINE bool NeedsChecks() { return !self().AcceptsUpdates() || has_after_update_; }
  HAKO_INLINE bool HasAfterUpdate() const { return has_after_update_; }
  // From now on each update is followed by AfterUpdate.
  // REQUIRES: no other thread uses the database (unchecked: Open has not returned it yet)
  void CallAfterUpdates() { has_after_update_ = true; }

 private:
  OwnedFunction<void(std::string_view, std::string_view)> on_eviction_;
  const sync::ForkCall on_fork_{this, [](void* self) { static_cast<EngineOperations*>(self)->EngineOperations::Seal(); }};
  static constexpr std::size_t kSweptTogether = 256;
  static constexpr bool kHasSpellings = requires { requires Engine::kHasSpellings; };  // see PageTree

  D& self() { return static_cast<D&>(*this); }

  // Shows an evicted record, unless it has expired and so was already absent.
  void ShowEvicted(std::string_view key, std::string_view value) const {
    if (expiry_ == nullptr) return on_eviction_(key, value);
    const std::optional<Expiry::Record> record = Expiry::Split(value);
    if (record && !expiry_->IsPast(record->time)) on_eviction_(key, record->value);
  }
  // Process and ProcessMulti in a database whose values have the stored form.
  Status ProcessLive(std::string_view key, ReadRef visitor);
  Status ProcessLive(std::string_view key, UpdateRef visitor);
  Status ProcessLive(std::string_view key, Action action);
  Status ProcessExpired(std::string_view key, UpdateRef visitor);
  // Removes those of the records that have expired. Calls on_damage(status) for records that cannot
  // be read.
  Status RemoveIfExpired(std::span<const std::string> keys, FunctionRef<void(const Status&)> on_damage, std::uint64_t* removed);
  Status ProcessMultiLive(WriterState& writer, const Batch<Action>& batch, std::uint64_t* expiry_shown);

  template <class V>
  HAKO_INLINE Status ProcessByReference(std::string_view key, V&& visitor) {
    if constexpr (std::is_same_v<std::remove_cvref_t<V>, Action>)
      return ProcessChecked(key, Action(visitor));  // a copy, so that the visitor stays in registers
    else if constexpr (UpdateVisitor<std::remove_reference_t<V>>)
      return ProcessChecked(key, UpdateRef(visitor));
    else
      return ProcessChecked(key, BlindUpdateRef(visitor));
  }

  // Process if NeedsChecks().
  [[gnu::cold, gnu::noinline]] Status ProcessChecked(std::string_view key, UpdateRef visitor);
  [[gnu::cold, gnu::noinline]] Status ProcessChecked(std::string_view key, BlindUpdateRef visitor);
  [[gnu::cold, gnu::noinline]] Status ProcessChecked(std::string_view key, Action action);
  template <class Seen>
  Status CheckAround(std::string_view key, FunctionRef<Action(Seen)> visitor);
  Status ProcessMultiChecked(WriterState& writer, const Batch<Action>& batch, std::uint64_t* expiry_shown);
};

}  // namespace hako

#include "hako/dbm/engine_operations-inl.h"
#include "hako/dbm/live_operations-inl.h"
