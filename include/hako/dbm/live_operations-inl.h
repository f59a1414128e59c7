// Definitions of dbm/engine_operations.h: operations where values have the stored form
// (dbm/expiry.h), and an expired record is absent.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "hako/base/assert.h"
#include "hako/base/inline.h"
#include "hako/base/no_memory.h"
#include "hako/base/scratch_buffer.h"
#include "hako/dbm/engine_operations.h"
#include "hako/sync/atomic_bytes.h"

namespace hako {

namespace internal {

// One operation, on one record or, in one atomic step, on several. It shows the live values, and converts the value of the
// Action to the stored form, in a buffer of the thread.
class LiveCall {
 public:
  explicit LiveCall(const Expiry& expiry) : expiry_(expiry), use_(Buffer()) {}

  // Returns the value; nullopt if the record is absent or expired.
  std::optional<std::string_view> Show(std::optional<std::string_view> stored) {
    time_ = Expiry::kNever;
    if (!stored) return std::nullopt;
    const std::optional<Expiry::Record> record = Expiry::Split(*stored);
    if (!record) {
      status_ = Expiry::MalformedError();
      return std::nullopt;
    }
    if (IsPast(record->time)) return std::nullopt;
    time_ = record->time;
    return record->value;
  }
  // Whether a record with this time has expired, at the moment of the first question. The records are locked then.
  bool IsPast(std::uint64_t time) {
    if (time == Expiry::kNever) return false;
    if (!moment_) moment_ = expiry_.Now();
    return expiry_.WasPast(time, *moment_);
  }
  // The expiry time of the record shown last.
  std::uint64_t time() const { return time_; }

  // Returns the Action for the engine. A record that would already have expired is removed instead.
  Action Store(const Action& action) {
    if (!ok()) return Action::Keep();
    if (action.kind() != Action::Kind::kSet) return action;
    const std::optional<std::uint64_t> time = NoteSet(action);
    if (!ok()) return Action::Keep();
    if (!time) return Action::Remove();
    const std::size_t size = action.value().size() + Expiry::TailSize(*time);
    char* const out = Buffer().Take(size);
    if (out == nullptr) {
      status_ = NoMemoryError();
      return Action::Keep();
    }
    return Action::Set(Expiry::Join(action.value(), *time, out));
  }
  // Returns the expiry time of the record that the Action sets in place of the one shown last.
  // Returns nullopt if that time has passed, or if it cannot be stored, which is an error.
  // REQUIRES: its kind is kSet
  std::optional<std::uint64_t> NoteSet(const Action& action) {
    HAKO_DCHECK(action.kind() == Action::Kind::kSet);
    const std::uint64_t time = action.expire_at() == Expiry::kKeep ? time_ : action.expire_at();
    if (time > Expiry::kTimeMax) {
      status_ = Expiry::OutOfRangeError();
      return std::nullopt;
    }
    return expiry_.NoteSet(time) ? std::optional(time) : std::nullopt;
  }
  // Whether Show, Store and NoteSet have found no error.
  bool ok() const { return status_.ok(); }
  // Returns the error of Show, Store or NoteSet, or else the status of the operation.
  Status Result(Status status) const { return status_.ok() ? status : status_; }

 private:
  static ScratchBuffer& Buffer() { return ThreadScratch<LiveCall>::Get(); }

  const Expiry& expiry_;
  ScratchUse use_;
  std::uint64_t time_ = Expiry::kNever;
  std::optional<std::uint64_t> moment_;
  Status status_;
};

// Receives a stored value for the caller's sink S. If the engine shows the value in place, cuts off
// the tail before copying. Otherwise copies the whole stored value, to the caller's string or a
// buffer of the thread.
template <class S>
struct LiveSink {
  S* sink;
  std::string* string = nullptr;        // the caller's string, if S has one
  std::uint64_t time = Expiry::kNever;  // the time in the tail that was cut off
  bool is_cut = false, is_well_formed = false;
  char* bytes = nullptr;  // the whole stored value; nullptr if memory ran out
  std::size_t size = 0;

  static ScratchBuffer& Buffer() { return ThreadScratch<LiveCall>::Get(); }

  // See CuttingSink.
  HAKO_INLINE char* Cut(const char* shared, std::size_t* found) {
    is_cut = true;
    time = Expiry::kNever;
    if (*found >= Expiry::kTailMax) [[likely]] {
      const std::uint64_t tail = sync::LoadSharedWord(shared + *found - Expiry::kTailMax);
      if (Expiry::IsTimed(tail)) {
        time = Expiry::TimeIn(tail);
        is_well_formed = true;
        return (*sink)(*found -= Expiry::kTailMax);
      }
      is_well_formed = Expiry::IsPlain(tail);
      return (*sink)(*found -= 1);
    }
    is_well_formed = *found != 0 && Expiry::IsPlain(shared[*found - 1]);
    return (*sink)(*found -= *found != 0 ? 1 : 0);
  }
  // See Sink.
  [[gnu::noinline]] char* operator()(std::size_t found) {
    is_cut = false;
    size = found;
    if (string == nullptr) return bytes = Buffer().Take(found);
    return bytes = string->size() == found || TryResize(*string, found) ? string->data() : nullptr;
  }
};

}  // namespace internal

template <class D, class Space, class Engine>
Status EngineOperations<D, Space, Engine>::ProcessLive(std::string_view key, ReadRef visitor) {
  internal::LiveCall call(*expiry_);
  const auto see = [&](std::optional<std::string_view> stored) { visitor(call.Show(stored)); };
  return call.Result(ProcessUnchecked<void>(key, ReadRef(see)));
}

template <class D, class Space, class Engine>
Status EngineOperations<D, Space, Engine>::ProcessLive(std::string_view key, UpdateRef visitor) {
  bool is_expired = false;
  {
    internal::LiveCall call(*expiry_);
    const auto decide = [&](std::optional<std::string_view> stored) {
      const std::optional<std::string_view> shown = call.Show(stored);
      is_expired = stored.has_value() && !shown.has_value();
      if (kHasSpellings && is_expired) return Action::Keep();
      return call.Store(call.ok() ? visitor(shown) : Action::Keep());
    };
    HAKO_RETURN_IF_ERROR(call.Result(CheckAround<std::optional<std::string_view>>(key, UpdateRef(decide))));
  }
  return kHasSpellings && is_expired ? ProcessExpired(key, visitor) : absl::OkStatus();
}

// An expired record is absent, so a record that replaces it must get the spelling of the call's
// key.
template <class D, class Space, class Engine>
Status EngineOperations<D, Space, Engine>::ProcessExpired(std::string_view key, UpdateRef visitor) HAKO_TRY {
  WriterState* const writer = writers_.Mine();
  if (writer == nullptr) return writers_.Refusal();
  const auto decide = [visitor](std::size_t, std::optional<std::string_view> value) { return std::optional(visitor(value)); };
  return ProcessMultiChecked(*writer, {{&key, 1}, MultiUpdateRef(decide)}, nullptr);
}
HAKO_OR_NO_MEMORY

template <class D, class Space, class Engine>
Status EngineOperations<D, Space, Engine>::ProcessLive(std::string_view key, Action action) {
  static constexpr std::size_t kUsual = 256;
  const bool sets = action.kind() == Action::Kind::kSet;
  if (sets && (kHasSpellings || action.expire_at() > Expiry::kTimeMax)) [[unlikely]] {
    if (action.expire_at() > Expiry::kTimeMax && action.expire_at() != Expiry::kKeep) return Expiry::OutOfRangeError();
    const auto decide = [action](std::optional<std::string_view>) { return action; };
    return ProcessLive(key, UpdateRef(decide));
  }
  if (sets && action.value().size() <= kUsual && self().AcceptsUpdates()) [[likely]] {
    char stored[kUsual + Expiry::kTailMax];
    Action made = Action::Remove();
    if (expiry_->NoteSet(action.expire_at())) made = Action::Set(Expiry::Join(action.value(), action.expire_at(), stored));
    // With a log or a limit an engine takes visitors by reference only.
    if (space_->log().is_on() || HasLimit()) {
      HAKO_RETURN_IF_ERROR(ProcessUnchecked<Action>(key, BlindUpdateRef(made)));
    } else {
      HAKO_RETURN_IF_ERROR(ProcessUnchecked<Action>(key, made));
    }
    return has_after_update_ ? self().AfterUpdate() : absl::OkStatus();
  }
  internal::LiveCall call(*expiry_);
  const Action stored = call.Store(action);
  return call.Result(CheckAround<bool>(key, stored));
}

// A value set for one occurrence of a key may be shown to a later one, so all values are kept until
// the end. If equal keys may differ in their bytes, the engine gets each key twice: to replace an
// expired record, the first occurrence removes it and the second stores the new one.
template <class D, class Space, class Engine>
Status EngineOperations<D, Space, Engine>::ProcessMultiLive(WriterState& writer, const Batch<Action>& batch, std::uint64_t* expiry_shown) {
  internal::LiveCall call(*expiry_);  // shows nothing before all records are locked
  StoredValues values;
  bool is_expired = false, is_malformed = false;
  const auto decide = [&](std::size_t index, std::optional<std::string_view> stored) -> std::optional<Action> {
    const std::optional<std::string_view> shown = call.Show(stored);
    is_expired = stored.has_value() && !shown.has_value();
    if (!call.ok() || is_malformed) return std::nullopt;
    if (expiry_shown != nullptr) *expiry_shown = call.time();
    const std::optional<Action> action = batch.visit(index, shown);
    if (!action || action->kind() != Action::Kind::kSet) return action;
    const std::optional<std::uint64_t> time = call.NoteSet(*action);
    if (!call.ok()) return std::nullopt;
    if (!time) return Action::Remove();
    return Action::Set(values.Add(action->value(), *time));
  };
  Batch<Action> stored_batch = batch;
  const auto show = [&](std::string_view key, std::string_view stored) {
    const std::optional<Expiry::Record> record = Expiry::Split(stored);
    is_malformed = is_malformed || !record;
    if (record && !call.IsPast(record->time)) (*batch.show)(key, record->value);
  };
  const EachRef shows(show);
  stored_batch.show = &shows;
  if constexpr (kHasSpellings) {
    std::vector<std::string_view> twice;
    for (const std::string_view key : batch.keys) twice.insert(twice.end(), 2, key);
    Action next = Action::Keep();
    const auto decide_twice = [&](std::size_t index, std::optional<std::string_view> stored) -> std::optional<Action> {
      if (index % 2 != 0) return std::exchange(next, Action::Keep());
      const std::optional<Action> action = decide(index / 2, stored);
      if (!action || action->kind() != Action::Kind::kSet || !is_expired) return action;
      next = *action;
      return Action::Remove();
    };
    stored_batch.keys = twice;
    stored_batch.visit = MultiUpdateRef(decide_twice);
    stored_batch.num_shown = twice.size();
    Status status = call.Result(self().ProcessMultiIn(writer, stored_batch));
    return is_malformed ? Expiry::MalformedError() : status;
  }
  stored_batch.visit = MultiUpdateRef(decide);
  Status status = call.Result(self().ProcessMultiIn(writer, stored_batch));
  return is_malformed ? Expiry::MalformedError() : status;
}

template <class D, class Space, class Engine>
template <class S>
[[gnu::noinline]] Status EngineOperations<D, Space, Engine>::FetchLive(std::string_view key, S& sink) {
  internal::LiveSink<S> live{&sink};
  if constexpr (std::is_same_v<S, internal::StringSink>) live.string = sink.value;
  HAKO_RETURN_IF_ERROR(self().FetchStored(key, live));
  if (live.is_cut) [[likely]] {
    if (!live.is_well_formed) [[unlikely]]
      return Expiry::MalformedError();
    return expiry_->IsPast(live.time) ? AbsentError() : absl::OkStatus();
  }
  const ScratchUse use(live.Buffer());
  if (live.bytes == nullptr) return NoMemoryError();
  const std::optional<Expiry::Record> record = Expiry::Split({live.bytes, live.size});
  if (!record) return Expiry::MalformedError();
  if (expiry_->IsPast(record->time)) return AbsentError();
  if constexpr (std::is_same_v<S, internal::StringSink>) {
    sink.value->resize(record->value.size());
  } else if (char* const out = sink(record->value.size()); out != nullptr && !record->value.empty()) {
    std::memcpy(out, record->value.data(), record->value.size());
  }
  return absl::OkStatus();
}

template <class D, class Space, class Engine>
Status EngineOperations<D, Space, Engine>::SetStored(std::string_view key, std::string_view stored) {
  const Action action = Action::Set(stored);
  return CheckAround<bool>(key, BlindUpdateRef(action));
}

template <class D, class Space, class Engine>
Status EngineOperations<D, Space, Engine>::GetStored(std::string_view key, std::string* stored) {
  internal::StringSink sink{stored};
  Status status = self().FetchStored(key, sink);
  return sink.has_room ? status : NoMemoryError();
}

template <class D, class Space, class Engine>
template <class F>
Status EngineOperations<D, Space, Engine>::ShowLive(EachRef visitor, F&& shows) {
  if (expiry_ == nullptr) return shows(visitor);
  std::atomic<bool> is_malformed{false};  // atomic, because several threads may show records
  const auto show = [&](std::string_view key, std::string_view stored) {
    const std::optional<Expiry::Record> record = Expiry::Split(stored);
    if (!record) {
      is_malformed = true;
    } else if (!expiry_->IsPast(record->time)) {
      visitor(key, record->value);
    }
  };
  HAKO_RETURN_IF_ERROR(shows(EachRef(show)));
  return is_malformed ? Expiry::MalformedError() : absl::OkStatus();
}

template <class D, class Space, class Engine>
Status EngineOperations<D, Space, Engine>::VerifyTimes() {
  if (expiry_ == nullptr) return absl::OkStatus();
  auto it = self().MakeStoredIterator();
  for (it.First(); it.Valid(); it.Next()) {
    if (!Expiry::Split(it.value())) return Expiry::MalformedError();
  }
  return it.status();
}

template <class D, class Space, class Engine>
Status EngineOperations<D, Space, Engine>::SetExpiry(StringArg key, IntegerArg<std::uint64_t> expire_at) {
  if (expiry_ == nullptr) return Expiry::NoTimesError();
  if (expire_at > Expiry::kTimeMax) return Expiry::OutOfRangeError();
  internal::LiveCall call(*expiry_);
  bool found = false;
  const auto change = [&](std::optional<std::string_view> stored) {
    const std::optional<std::string_view> value = call.Show(stored);
    found = value.has_value();
    return found ? call.Store(Action::Set(*value, expire_at)) : Action::Keep();
  };
  HAKO_RETURN_IF_ERROR(call.Result(CheckAround<std::optional<std::string_view>>(key, UpdateRef(change))));
  return found ? absl::OkStatus() : AbsentError();
}

template <class D, class Space, class Engine>
StatusOr<std::uint64_t> EngineOperations<D, Space, Engine>::GetExpiry(StringArg key) {
  bool found = false;
  std::uint64_t time = Expiry::kNever;
  Status malformed;
  const auto see = [&](std::optional<std::string_view> stored) {
    found = stored.has_value();
    if (!found || expiry_ == nullptr) return;
    const std::optional<Expiry::Record> record = Expiry::Split(*stored);
    if (!record) {
      malformed = Expiry::MalformedError();
      return;
    }
    time = record->time;
    found = !expiry_->IsPast(time);
  };
  HAKO_RETURN_IF_ERROR(ProcessUnchecked<void>(key, ReadRef(see)));
  HAKO_RETURN_IF_ERROR(malformed);
  if (!found) return AbsentError();
  return time;
}

// Collects the keys of some expired records, then removes those records that are still expired.
template <class D, class Space, class Engine>
StatusOr<std::uint64_t> EngineOperations<D, Space, Engine>::RemoveExpired(FunctionRef<bool()> go_on, ExpirySurvey* seen) HAKO_TRY {
  HAKO_RETURN_IF_ERROR(self().CheckIdle());
  if (expiry_ == nullptr) return std::uint64_t{0};
  std::vector<std::string> keys(kSweptTogether);
  std::uint64_t removed = 0;
  std::size_t count = 0, passed = 0;
  Status damage;
  const auto note_damage = [&damage](const Status& status) { damage.Update(status); };
  auto it = self().MakeStoredIterator();
  for (it.First(); it.Valid() || it.PassDamage(note_damage); it.Next()) {
    if (const std::optional<Expiry::Record> record = Expiry::Split(it.value()); record && record->time != Expiry::kNever) {
      const std::uint64_t now = expiry_->Now();
      if (seen != nullptr) seen->Count(record->time, now);
      if (record->time <= now) keys[count++].assign(it.key());
    }
    const bool ends = ++passed % kSweptTogether == 0 && !go_on();
    if (count == kSweptTogether || ends) {
      HAKO_RETURN_IF_ERROR(RemoveIfExpired(std::span(keys).first(count), note_damage, &removed));
      count = 0;
    }
    if (ends) return removed;
  }
  HAKO_RETURN_IF_ERROR(RemoveIfExpired(std::span(keys).first(count), note_damage, &removed));
  HAKO_RETURN_IF_ERROR(it.status());
  HAKO_RETURN_IF_ERROR(damage);
  return removed;
}
HAKO_OR_NO_MEMORY

// A removal does not wait for the device, because a crash that undoes it loses nothing.
template <class D, class Space, class Engine>
Status EngineOperations<D, Space, Engine>::RemoveIfExpired(std::span<const std::string> keys, FunctionRef<void(const Status&)> on_damage,
                                                           std::uint64_t* removed) {
  HAKO_RETURN_IF_ERROR(self().MayRemove());
  const std::uint64_t before = *removed;
  for (const std::string& key : keys) {
    bool removes = false;
    const auto decide = [&](std::optional<std::string_view> stored) {
      const std::optional<Expiry::Record> record = stored ? Expiry::Split(*stored) : std::nullopt;
      removes = record && expiry_->HasPassed(record->time);
      return removes ? Action::Remove() : Action::Keep();
    };
    const Status processed = ProcessUnchecked<Action>(key, UpdateRef(decide));
    if (absl::IsDataLoss(processed))
      on_damage(processed);
    else
      HAKO_RETURN_IF_ERROR(processed);
    if (removes && processed.ok()) ++*removed;
  }
  return *removed > before && has_after_update_ ? self().AfterUpdate() : absl::OkStatus();
}

// A pass takes a quarter of the thread's time, or more if it would otherwise take longer than
// ExpirySchedule::BeginPass returns. During a pass, calls KeepTime ten times a second.
template <class D, class Space, class Engine>
void EngineOperations<D, Space, Engine>::SweepInBackground(const std::atomic<bool>& stops) {
  HAKO_DCHECK(expiry() != nullptr);
  using SteadyClock = std::chrono::steady_clock;
  static constexpr auto kPauseAfter = std::chrono::milliseconds(1), kPauseMax = std::chrono::milliseconds(20),
                        kKeepAfter = std::chrono::milliseconds(100);
  ExpirySchedule& schedule = expiry_->schedule();
  self().KeepTime();
  const std::uint64_t count = self().Count();
  if (!schedule.IsDue(expiry_->Now(), count) || !self().MayRemove().ok()) return;
  const auto time_of_pass = schedule.BeginPass(expiry_->Now());
  const auto began = SteadyClock::now();
  auto worked_from = began, kept_at = began;
  std::uint64_t groups = 0;
  const auto go_on = [&] {
    const auto now = SteadyClock::now();
    const auto worked = now - worked_from;
    const double done = static_cast<double>(++groups * kSweptTogether) / static_cast<double>(std::max<std::uint64_t>(count, 1));
    if (now - kept_at >= kKeepAfter) {
      self().KeepTime();
      kept_at = now;
    }
    if (worked >= kPauseAfter && time_of_pass * done > now - began) {
      std::this_thread::sleep_for(std::min<SteadyClock::duration>(3 * worked, kPauseMax));
      worked_from = SteadyClock::now();
    }
    return !stops.load(std::memory_order_relaxed);
  };
  ExpirySurvey survey;
  const Status removed = RemoveExpired(go_on, &survey).status();
  if (!stops.load(std::memory_order_relaxed) && (removed.ok() || absl::IsDataLoss(removed)))
    schedule.EndPass(survey);
  else
    schedule.FailPass();
}

}  // namespace hako
