// Definitions of dbm/operations.h. Not inline, so that the library can instantiate them once for its
// databases (src/dbm).
#pragma once

#include "hako/dbm/operations.h"

namespace hako {

template <class D>
Status Operations<D>::Set(StringArg key, StringArg value) & {
  return Update<Action>(key, Action::Set(value));
}

template <class D>
Status Operations<D>::Set(StringArg key, StringArg value, const SetOptions& options) & {
  HAKO_ASSIGN_OR_RETURN(const std::uint64_t time, TimeOf(options));
  const Action action = time == Expiry::kKeep ? Action::SetKeepingExpiry(value) : Action::Set(value, time);
  bool refused = false;
  const auto decide = [&](bool exists) {
    refused = exists && !options.overwrite;
    return refused ? Action::Keep() : action;
  };
  if (options.overwrite && options.old_value == nullptr) {
    HAKO_RETURN_IF_ERROR(self().Process(key, action));
  } else if (options.old_value == nullptr) {  // then the old value need not be read
    HAKO_RETURN_IF_ERROR(self().Process(key, BlindUpdateRef(decide)));
  } else {
    const auto copy_and_decide = [&](std::optional<std::string_view> found) {
      if (found) options.old_value->assign(*found);
      return decide(found.has_value());
    };
    HAKO_RETURN_IF_ERROR(self().Process(key, UpdateRef(copy_and_decide)));
  }
  if (refused) return PresentError();
  return options.durability == Durability::kPower ? self().WaitDurable(self().LastLsn()) : absl::OkStatus();
}

template <class D>
StatusOr<std::uint64_t> Operations<D>::TimeOf(const SetOptions& options) {
  if (options.keep_expiry) {
    if (options.ttl || options.expire_at != 0) return absl::InvalidArgumentError("SetOptions: keep_expiry and a time");
    return Expiry::kKeep;
  }
  if (!options.ttl && options.expire_at == 0) return Expiry::kNever;
  if (options.ttl && options.expire_at != 0) return absl::InvalidArgumentError("SetOptions: both ttl and expire_at");
  const Expiry* const expiry = self().expiry();
  if (expiry == nullptr) return Expiry::NoTimesError();
  if (options.ttl && options.ttl->count() <= 0)
    return absl::InvalidArgumentError("SetOptions::ttl is not positive; without a ttl the record never expires");
  const std::uint64_t ttl = options.ttl ? static_cast<std::uint64_t>(options.ttl->count()) : 0;
  const std::uint64_t from = options.ttl ? expiry->Now() : options.expire_at;
  if (from > Expiry::kTimeMax || ttl > Expiry::kTimeMax - from) return Expiry::OutOfRangeError();
  return from + ttl;
}

template <class D>
Status Operations<D>::Persist(StringArg key) & {
  return self().SetExpiry(key, Expiry::kNever);
}

template <class D>
Status Operations<D>::Replace(StringArg key, StringArg value) & {
  bool found = false;
  const auto replace = [&](bool exists) {
    found = exists;
    return exists ? Action::Set(value) : Action::Keep();
  };
  HAKO_RETURN_IF_ERROR(self().Process(key, BlindUpdateRef(replace)));
  return found ? absl::OkStatus() : AbsentError();
}

template <class D>
Status Operations<D>::Remove(StringArg key) & {
  bool found = false;
  const auto remove = [&found](bool exists) {
    found = exists;
    return exists ? Action::Remove() : Action::Keep();
  };
  HAKO_RETURN_IF_ERROR(Update<BlindUpdateRef>(key, remove));
  return found ? absl::OkStatus() : AbsentError();
}

template <class D>
Status Operations<D>::Remove(StringArg key, std::string* old_value) & {
  bool found = false;
  const auto copy_and_remove = [&](std::optional<std::string_view> value) {
    found = value.has_value();
    if (found && old_value != nullptr) old_value->assign(*value);
    return found ? Action::Remove() : Action::Keep();
  };
  HAKO_RETURN_IF_ERROR(self().Process(key, UpdateRef(copy_and_remove)));
  return found ? absl::OkStatus() : AbsentError();
}

template <class D>
Status Operations<D>::Append(StringArg key, StringArg value, StringArg delimiter) & {
  std::string joined;
  const auto join = [&](std::optional<std::string_view> found) {
    if (!found) return Action::Set(value);
    joined.reserve(found->size() + delimiter.size() + value.size());
    joined.append(*found).append(delimiter).append(value);
    return Action::SetKeepingExpiry(joined);
  };
  return Update<UpdateRef>(key, join);
}

template <class D>
Status Operations<D>::CompareExchange(StringArg key, Expect expected, Action desired, std::string* actual, bool* found) & {
  bool holds = false;
  const auto exchange = [&](std::optional<std::string_view> value) {
    holds = expected.Holds(value);
    if (actual != nullptr) actual->assign(value.value_or(std::string_view()));
    if (found != nullptr) *found = value.has_value();
    return holds ? desired : Action::Keep();
  };
  HAKO_RETURN_IF_ERROR(desired.HasTime() ? self().Process(key, UpdateRef(exchange)) : Update<UpdateRef>(key, exchange));
  return holds ? absl::OkStatus() : MismatchError();
}

template <class D>
StatusOr<std::int64_t> Operations<D>::Increment(StringArg key, IntegerArg<std::int64_t> delta, IntegerArg<std::int64_t> initial) & {
  std::int64_t number = initial;
  char stored[8];
  absl::StatusCode error = absl::StatusCode::kOk;
  const auto add = [&](std::optional<std::string_view> found) {
    if (found && found->size() != sizeof(stored)) {
      error = absl::StatusCode::kInvalidArgument;
      return Action::Keep();
    }
    if (found) number = static_cast<std::int64_t>(LoadBigEndian(found->data()));
    if (__builtin_add_overflow(number, std::int64_t{delta}, &number)) {
      error = absl::StatusCode::kOutOfRange;
      return Action::Keep();
    }
    StoreBigEndian(static_cast<std::uint64_t>(number), stored);
    return Action::SetKeepingExpiry(std::string_view(stored, sizeof(stored)));
  };
  HAKO_RETURN_IF_ERROR(Update<UpdateRef>(key, add));
  if (error == absl::StatusCode::kInvalidArgument) return absl::InvalidArgumentError("Increment: the value is not an 8-byte number");
  if (error == absl::StatusCode::kOutOfRange) return absl::OutOfRangeError("Increment: the sum does not fit 64 bits");
  return number;
}

}  // namespace hako
