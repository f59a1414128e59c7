// Definitions of dbm/multi_operations.h.
#pragma once

#include "hako/dbm/multi_operations.h"

namespace hako {

template <class D>
Status MultiOperations<D>::SetMulti(std::span<const KeyValue> records, bool overwrite) & {
  bool refused = false;
  HAKO_RETURN_IF_ERROR(ForEachKey(
      records.size(), [records](std::size_t i) { return records[i].key; },
      [&](std::size_t i) {
        const KeyValue& record = records[i];
        if (overwrite && record.expire_at == Expiry::kNever) return self().Set(record.key, record.value);
        const Status status = self().Set(record.key, record.value, {.overwrite = overwrite, .expire_at = record.expire_at});
        return NoteIf(absl::StatusCode::kAlreadyExists, status, &refused);
      }));
  return refused ? PresentError() : absl::OkStatus();
}

template <class D>
Status MultiOperations<D>::RemoveMulti(std::span<const std::string_view> keys) & {
  bool missed = false;
  HAKO_RETURN_IF_ERROR(ForEachKey(
      keys.size(), [keys](std::size_t i) { return keys[i]; },
      [&](std::size_t i) { return NoteIf(absl::StatusCode::kNotFound, self().Remove(keys[i]), &missed); }));
  return missed ? AbsentError() : absl::OkStatus();
}

template <class D>
Status MultiOperations<D>::AppendMulti(std::span<const KeyValue> records, StringArg delimiter) & {
  return ForEachKey(
      records.size(), [records](std::size_t i) { return records[i].key; },
      [&](std::size_t i) { return self().Append(records[i].key, records[i].value, delimiter); });
}

template <class D>
    Status MultiOperations<D>::CompareExchangeMulti(std::span<const Exchange> exchanges) & HAKO_TRY {
  absl::InlinedVector<std::string_view, 16> keys;
  for (const Exchange& exchange : exchanges) keys.push_back(exchange.key);
  return self().ProcessMulti(keys, [exchanges](std::size_t i, std::optional<std::string_view> value) {
    return exchanges[i].expected.Holds(value) ? std::optional(exchanges[i].desired) : std::nullopt;
  });
}
HAKO_OR_NO_MEMORY

template <class D>
    Status MultiOperations<D>::Write(const WriteBatch& batch, const WriteOptions& options) & HAKO_TRY {
  internal::BatchCall call(batch);
  if (call.HasTimes() && self().expiry() == nullptr) return Expiry::NoTimesError();
  if constexpr (requires { &D::CompareKeys; })
    HAKO_RETURN_IF_ERROR(call.Prepare(&D::CompareKeys));
  else if constexpr (requires { self().KeyOrder(); })
    HAKO_RETURN_IF_ERROR(call.Prepare(self().KeyOrder()));
  else
    HAKO_RETURN_IF_ERROR(call.Prepare(nullptr));
  if (call.IsSingle()) {  // atomic by itself, and faster
    HAKO_RETURN_IF_ERROR(self().CheckOpen());
    HAKO_RETURN_IF_ERROR(self().Process(call.keys().front(), *call(0, std::nullopt)));
  } else {
    HAKO_RETURN_IF_ERROR(self().ProcessMulti(call.batch()));
  }
  return options.durability == Durability::kPower ? self().WaitDurable(self().LastLsn()) : absl::OkStatus();
}
HAKO_OR_NO_MEMORY

template <class D>
bool MultiOperations<D>::IsSameKey(std::string_view a, std::string_view b) {
  if constexpr (requires { D::CompareKeys(a, b); })
    return D::CompareKeys(a, b) == 0;
  else if constexpr (requires { self().KeyOrder(); })
    return self().KeyOrder() == nullptr ? a == b : self().KeyOrder()(a, b) == 0;
  else
    return a == b;
}

template <class D>
Status MultiOperations<D>::Rekey(StringArg old_key, StringArg new_key, const RekeyOptions& options) & {
  const std::string_view keys[] = {old_key, new_key};
  const bool moves = !options.copying && !IsSameKey(old_key, new_key);  // if false, the record is not removed
  std::string own_value;
  std::string& moved = options.value != nullptr ? *options.value : own_value;
  bool found = false;
  std::uint64_t shown = Expiry::kNever, time = Expiry::kNever;
  const auto move = [&](std::size_t i, std::optional<std::string_view> value) -> std::optional<Action> {
    if (i == 0) {
      found = value.has_value();
      if (!found) return std::nullopt;
      moved.assign(*value);
      time = shown;
      return moves ? Action::Remove() : Action::Keep();
    }
    if (value && !options.overwrite && (moves || options.copying)) return std::nullopt;
    return Action::Set(moved, time);
  };
  const Status status = self().ProcessMulti(keys, MultiUpdateRef(move), &shown);
  const bool is_refused = absl::IsAborted(status) && status.message().empty();  // else a reader is cut off
  if (!is_refused) return status;
  return found ? PresentError() : AbsentError();
}

template <class D>
Status MultiOperations<D>::PopFirst(std::string* key, std::string* value) & {
  return ProcessFirst([&](std::string_view first_key, std::string_view first_value) {
    if (key != nullptr) key->assign(first_key);
    if (value != nullptr) value->assign(first_value);
    return Action::Remove();
  });
}

template <class D>
    Status MultiOperations<D>::PushLast(StringArg value, double wtime, std::string* key) & HAKO_TRY {
  using Seconds = std::chrono::duration<double>;
  if (wtime < 0) wtime = Seconds(std::chrono::system_clock::now().time_since_epoch()).count();
  if (!(wtime < 1e11)) return absl::InvalidArgumentError("PushLast: the time is out of range");
  char bytes[8];
  for (auto time = static_cast<std::uint64_t>(wtime * 1e8);; ++time) {
    StoreBigEndian(time, bytes);
    const Status status = self().Set(std::string_view(bytes, sizeof(bytes)), value, {.overwrite = false});
    if (absl::IsAlreadyExists(status)) continue;
    if (status.ok() && key != nullptr) key->assign(bytes, sizeof(bytes));
    return status;
  }
}
HAKO_OR_NO_MEMORY

}  // namespace hako
