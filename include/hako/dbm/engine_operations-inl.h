// Definitions of dbm/engine_operations.h. Not inline, so that the library can instantiate them once
// for its databases (src/dbm).
#pragma once

#include "hako/dbm/engine_operations.h"

namespace hako {

template <class D, class Space, class Engine>
Status EngineOperations<D, Space, Engine>::Process(std::string_view key, UpdateRef visitor) {
  if (!self().AcceptsUpdates() || self().HasAfterUpdate()) [[unlikely]]
    return ProcessChecked(key, visitor);
  return ProcessUnchecked<Action>(key, visitor);
}

template <class D, class Space, class Engine>
Status EngineOperations<D, Space, Engine>::Process(std::string_view key, BlindUpdateRef visitor) {
  if (!self().AcceptsUpdates() || self().HasAfterUpdate()) [[unlikely]]
    return ProcessChecked(key, visitor);
  return ProcessUnchecked<Action>(key, visitor);
}

template <class D, class Space, class Engine>
Status EngineOperations<D, Space, Engine>::Process(std::string_view key, ReadRef visitor) {
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
  return CheckAround<std::optional<std::string_view>>(key, visitor);
}

template <class D, class Space, class Engine>
Status EngineOperations<D, Space, Engine>::ProcessChecked(std::string_view key, BlindUpdateRef visitor) {
  return CheckAround<bool>(key, visitor);
}

template <class D, class Space, class Engine>
Status EngineOperations<D, Space, Engine>::ProcessChecked(std::string_view key, Action action) {
  return CheckAround<bool>(key, action);
}

namespace internal {
inline bool Changes(const Action& action, bool exists) {
  return action.kind() == Action::Kind::kSet || (action.kind() == Action::Kind::kRemove && exists);
}
}  // namespace internal

// While only removals are accepted, a visitor that decides to set a value gets the refusal.
template <class D, class Space, class Engine>
template <class Seen>
Status EngineOperations<D, Space, Engine>::CheckAround(std::string_view key, FunctionRef<Action(Seen)> visitor) {
  if (key.size() > D::kKeySizeMax) return RefuseKey(key);
  if (writers_.Mine() == nullptr) return writers_.Refusal();
  const Status refusal = self().MayUpdate();
  if (!refusal.ok()) HAKO_RETURN_IF_ERROR(self().MayRemove());
  bool updates = false, refuses = false;
  const auto check = [&](Seen seen) {
    const Action action = visitor(seen);
    refuses = action.kind() == Action::Kind::kSet && !refusal.ok();
    updates = !refuses && internal::Changes(action, static_cast<bool>(seen));
    return refuses ? Action::Keep() : action;
  };
  HAKO_RETURN_IF_ERROR(ProcessUnchecked<Action>(key, FunctionRef<Action(Seen)>(check)));
  if (refuses) return refusal;
  return updates && self().HasAfterUpdate() ? self().AfterUpdate() : absl::OkStatus();
}

template <class D, class Space, class Engine>
Status EngineOperations<D, Space, Engine>::ProcessMulti(std::span<const std::string_view> keys, MultiUpdateRef visitor,
                                                        const MultiExtras& extras) HAKO_TRY {
  HAKO_RETURN_IF_ERROR(CheckKeys(keys));
  WriterState* writer = writers_.Mine();
  if (writer == nullptr) return writers_.Refusal();
  if (!self().AcceptsUpdates() || self().HasAfterUpdate()) return ProcessMultiChecked(*writer, keys, visitor, extras);
  return self().ProcessMultiIn(*writer, keys, visitor, extras);
}
HAKO_OR_NO_MEMORY

template <class D, class Space, class Engine>
Status EngineOperations<D, Space, Engine>::ProcessMulti(std::span<const std::string_view> keys, MultiReadRef visitor) HAKO_TRY {
  HAKO_RETURN_IF_ERROR(CheckKeys(keys));
  WriterState* writer = writers_.Mine();
  if (writer == nullptr) return writers_.Refusal();
  const auto keep = [visitor](std::size_t index, std::optional<std::string_view> value) {
    visitor(index, value);
    return Action::Keep();
  };
  return self().ProcessMultiIn(*writer, keys, keep, {});
}
HAKO_OR_NO_MEMORY

template <class D, class Space, class Engine>
Status EngineOperations<D, Space, Engine>::ProcessMultiChecked(WriterState& writer, std::span<const std::string_view> keys,
                                                               MultiUpdateRef visitor, const MultiExtras& extras) {
  const Status refusal = self().MayUpdate();
  if (!refusal.ok()) HAKO_RETURN_IF_ERROR(self().MayRemove());
  bool updates = extras.applied_index.has_value(), refuses = false;
  const auto check = [&](std::size_t index, std::optional<std::string_view> value) {
    std::optional<Action> action = visitor(index, value);
    updates = updates || (action && internal::Changes(*action, value.has_value()));
    refuses = refuses || (action && action->kind() == Action::Kind::kSet && !refusal.ok());
    return refuses ? std::nullopt : action;
  };
  const Status status = self().ProcessMultiIn(writer, keys, check, extras);
  if (refuses) return refusal;
  HAKO_RETURN_IF_ERROR(status);
  return updates && self().HasAfterUpdate() ? self().AfterUpdate() : absl::OkStatus();
}

}  // namespace hako
