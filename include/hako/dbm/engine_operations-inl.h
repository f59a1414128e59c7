// Definitions of dbm/engine_operations.h. Not inline, so that the library can instantiate them once
// for its databases (src/dbm).
#pragma once

#include "hako/dbm/engine_operations.h"

namespace hako {

template <class D, class Space, class Engine>
Status EngineOperations<D, Space, Engine>::Process(StringArg key, UpdateRef visitor) {
  if (NeedsChecks()) [[unlikely]]
    return ProcessChecked(key, visitor);
  internal::TimelessVisitor<UpdateRef> timeless(visitor);
  Status status = ProcessUnchecked<Action>(key, UpdateRef(timeless));
  timeless.CheckTime(&status);
  return status;
}

template <class D, class Space, class Engine>
Status EngineOperations<D, Space, Engine>::Process(StringArg key, BlindUpdateRef visitor) {
  if (NeedsChecks()) [[unlikely]]
    return ProcessChecked(key, visitor);
  internal::TimelessVisitor<BlindUpdateRef> timeless(visitor);
  Status status = ProcessUnchecked<Action>(key, BlindUpdateRef(timeless));
  timeless.CheckTime(&status);
  return status;
}

template <class D, class Space, class Engine>
Status EngineOperations<D, Space, Engine>::Process(StringArg key, ReadRef visitor) {
  if (expiry_ != nullptr) return ProcessLive(key, visitor);
  return ProcessUnchecked<void>(key, visitor);
}

template <class D, class Space, class Engine>
template <class ActionT, class VisitorT>
Status EngineOperations<D, Space, Engine>::ProcessUnchecked(std::string_view key, VisitorT visitor) HAKO_TRY {
  if (key.size() > D::kKeySizeMax) [[unlikely]]
    return RefuseKey(key);
  WriterState* writer = writers_.Mine();
  if (writer == nullptr) [[unlikely]]
    return writers_.Refusal();
  return self().template ProcessIn<ActionT>(*writer, key, visitor);
}
HAKO_OR_NO_MEMORY

template <class D, class Space, class Engine>
Status EngineOperations<D, Space, Engine>::ProcessChecked(std::string_view key, UpdateRef visitor) {
  if (expiry_ != nullptr) return ProcessLive(key, visitor);
  return CheckAround<std::optional<std::string_view>>(key, visitor);
}

template <class D, class Space, class Engine>
Status EngineOperations<D, Space, Engine>::ProcessChecked(std::string_view key, BlindUpdateRef visitor) {
  if (expiry_ != nullptr) {
    const auto see = [visitor](std::optional<std::string_view> value) { return visitor(value.has_value()); };
    return ProcessLive(key, UpdateRef(see));
  }
  return CheckAround<bool>(key, visitor);
}

template <class D, class Space, class Engine>
Status EngineOperations<D, Space, Engine>::ProcessChecked(std::string_view key, Action action) {
  if (expiry_ != nullptr) return ProcessLive(key, action);
  return CheckAround<bool>(key, action);
}

namespace internal {
inline bool Changes(const Action& action, bool exists) {
  return action.kind() == Action::Kind::kSet || (action.kind() == Action::Kind::kRemove && exists);
}
}  // namespace internal

// Refuses an Action that sets a value while only removals are accepted, and an Action with a time.
// If the database keeps times, the time is already part of the value here.
template <class D, class Space, class Engine>
template <class Seen>
Status EngineOperations<D, Space, Engine>::CheckAround(std::string_view key, FunctionRef<Action(Seen)> visitor) {
  if (key.size() > D::kKeySizeMax) return RefuseKey(key);
  if (writers_.Mine() == nullptr) return writers_.Refusal();
  const Status refusal = self().MayUpdate();
  if (!refusal.ok()) HAKO_RETURN_IF_ERROR(self().MayRemove());
  bool updates = false, refuses = false, has_time = false;
  const auto check = [&](Seen seen) {
    const Action action = visitor(seen);
    has_time = action.HasTime();
    refuses = has_time || (action.kind() == Action::Kind::kSet && !refusal.ok());
    updates = !refuses && internal::Changes(action, static_cast<bool>(seen));
    return refuses ? Action::Keep() : action;
  };
  HAKO_RETURN_IF_ERROR(ProcessUnchecked<Action>(key, FunctionRef<Action(Seen)>(check)));
  if (refuses) return refusal.ok() ? Expiry::NoTimesError() : refusal;
  return updates && has_after_update_ ? self().AfterUpdate() : absl::OkStatus();
}

template <class D, class Space, class Engine>
Status EngineOperations<D, Space, Engine>::ProcessMulti(const Batch<Action>& batch, std::uint64_t* expiry_shown) HAKO_TRY {
  HAKO_RETURN_IF_ERROR(CheckKeys(batch.keys));
  WriterState* writer = writers_.Mine();
  if (writer == nullptr) return writers_.Refusal();
  if (batch.is_read_only)
    return expiry_ != nullptr ? ProcessMultiLive(*writer, batch, expiry_shown) : self().ProcessMultiIn(*writer, batch);
  if (NeedsChecks()) return ProcessMultiChecked(*writer, batch, expiry_shown);
  bool has_time = false;
  const auto check = [&](std::size_t index, std::optional<std::string_view> value) {
    const std::optional<Action> action = batch.visit(index, value);
    has_time = has_time || (action && action->HasTime());
    return has_time ? std::nullopt : action;
  };
  Batch<Action> checked = batch;
  if (!batch.is_checked) checked.visit = MultiUpdateRef(check);
  Status status = self().ProcessMultiIn(*writer, checked);
  return has_time ? Expiry::NoTimesError() : status;
}
HAKO_OR_NO_MEMORY

template <class D, class Space, class Engine>
Status EngineOperations<D, Space, Engine>::ProcessMulti(std::span<const std::string_view> keys, MultiReadRef visitor) {
  const auto keep = [visitor](std::size_t index, std::optional<std::string_view> value) {
    visitor(index, value);
    return Action::Keep();
  };
  Batch<Action> batch{keys, MultiUpdateRef(keep)};
  batch.is_read_only = true;
  return ProcessMulti(batch);
}

// While only removals are accepted, a batch may set values if all its records together become no larger.
template <class D, class Space, class Engine>
Status EngineOperations<D, Space, Engine>::ProcessMultiChecked(WriterState& writer, const Batch<Action>& batch,
                                                               std::uint64_t* expiry_shown) {
  const Status refusal = self().MayUpdate();
  if (!refusal.ok()) HAKO_RETURN_IF_ERROR(self().MayRemove());
  bool updates = batch.applied_index.has_value() || !batch.removed_ranges.empty(), refuses = false, lacks_times = false;
  std::uint64_t added = 0, removed = 0;  // bytes of records
  const auto check = [&](std::size_t index, std::optional<std::string_view> value) {
    std::optional<Action> action = batch.visit(index, value);
    updates = updates || (action && internal::Changes(*action, value.has_value() || index >= batch.num_shown));
    if (action && action->kind() != Action::Kind::kKeep) {
      if (action->kind() == Action::Kind::kSet) added += batch.keys[index].size() + action->value().size();
      if (value) removed += batch.keys[index].size() + value->size();
    }
    refuses = !refusal.ok() && index + 1 == batch.keys.size() && added > removed;
    lacks_times = lacks_times || (action && action->HasTime() && expiry_ == nullptr);
    return refuses || lacks_times ? std::nullopt : action;
  };
  Batch<Action> checked = batch;
  if (batch.is_checked && refusal.ok())
    updates = updates || batch.num_shown < batch.keys.size();
  else
    checked.visit = MultiUpdateRef(check);
  if (!refusal.ok()) checked.num_shown = batch.keys.size();
  const Status status = expiry_ != nullptr ? ProcessMultiLive(writer, checked, expiry_shown) : self().ProcessMultiIn(writer, checked);
  if (refuses) return refusal;
  if (lacks_times) return Expiry::NoTimesError();
  HAKO_RETURN_IF_ERROR(status);
  return updates && has_after_update_ ? self().AfterUpdate() : absl::OkStatus();
}

// A thread without a writer state may call this; Close does.
template <class D, class Space, class Engine>
Status EngineOperations<D, Space, Engine>::ProcessStoredState(FunctionRef<void()> note,
                                                              FunctionRef<Status(std::string_view key, std::string_view stored)> visitor,
                                                              const OnDamage& on_damage) {
  HAKO_RETURN_IF_ERROR(CheckOpen());
  auto scan = self().MakeStateScan();
  HAKO_RETURN_IF_ERROR(BeginCapture(&scan.capture(), note));
  struct End {
    ~End() { dbm.EndCapture(capture); }
    EngineOperations& dbm;
    typename Engine::Capture* capture;
  } end{*this, &scan.capture()};
  for (;;) {
    const StatusOr<bool> more = scan.Next();
    if (more.ok() && !*more) return absl::OkStatus();
    if (more.ok()) {
      HAKO_RETURN_IF_ERROR(visitor(scan.key(), scan.value()));
    } else {
      if (!on_damage || !absl::IsDataLoss(more.status())) return more.status();
      on_damage(more.status());
      if (!scan.SkipDamage()) return more.status();
    }
  }
}

// Which records have expired is also decided at the moment that is shown.
template <class D, class Space, class Engine>
Status EngineOperations<D, Space, Engine>::ProcessState(StateRef visitor, const OnDamage& on_damage) HAKO_TRY {
  HAKO_RETURN_IF_ERROR(self().CheckIdle());
  std::uint64_t now = 0;
  const auto note = [&] { now = expiry_ != nullptr ? expiry_->Now() : 0; };
  const auto show = [&](std::string_view key, std::string_view stored) -> Status {
    if (expiry_ == nullptr) return visitor(key, stored, Expiry::kNever);
    const std::optional<Expiry::Record> record = Expiry::Split(stored);
    if (!record) {
      if (!on_damage) return Expiry::MalformedError();
      return on_damage(Expiry::MalformedError()), absl::OkStatus();
    }
    return expiry_->WasPast(record->time, now) ? absl::OkStatus() : visitor(key, record->value, record->time);
  };
  return ProcessStoredState(note, show, on_damage);
}
HAKO_OR_NO_MEMORY

}  // namespace hako
