// Definitions of server/keyspace.h.
#include "server/keyspace.h"

#include <cstring>
#include <vector>

#include "hako/base/wall_clock.h"

namespace hako::server {

std::uint64_t Keyspace::Now() const {
  if (is_pending_) return began_at_;
  return KeepsTimes() ? database_.expiry()->Now() : CoarseWallMilliseconds();
}

Status Keyspace::Show(std::string_view key, ReadRef visitor) {
  if (!is_pending_) return database_.Process(key, visitor);
  HAKO_ASSIGN_OR_RETURN(Pending* const record, Load(key));
  visitor(record->view());
  return absl::OkStatus();
}

Status Keyspace::UpdateTimed(std::string_view key, TimedUpdate visitor) {
  if (is_pending_) return UpdatePending(key, visitor);
  std::uint64_t time = Expiry::kNever;
  bool changes = false;
  const auto visit = [&](std::size_t, Value value) -> std::optional<Action> {
    const Action action = visitor(value, value ? time : Expiry::kNever);
    changes = action.kind() == Action::Kind::kSet || (action.kind() == Action::Kind::kRemove && value);
    return action;
  };
  Status status = database_.ProcessMulti(Keys(&key, 1), MultiUpdateRef(visit), &time);
  if (changes) NoteChange(key);
  return status;
}

StatusOr<std::uint64_t> Keyspace::GetExpiry(std::string_view key) {
  if (!is_pending_) return database_.GetExpiry(key);
  HAKO_ASSIGN_OR_RETURN(Pending* const record, Load(key));
  if (!record->value) return AbsentError();
  return record->time;
}

StatusOr<bool> Keyspace::Contains(std::string_view key) {
  if (!is_pending_) return database_.Contains(key);
  HAKO_ASSIGN_OR_RETURN(Pending* const record, Load(key));
  return record->value.has_value();
}

Status Keyspace::ShowMulti(Keys keys, MultiReadRef visitor) {
  if (!is_pending_) return database_.ProcessMulti(keys, visitor);
  for (std::size_t i = 0; i < keys.size(); ++i) HAKO_RETURN_IF_ERROR(Show(keys[i], [&](Value value) { visitor(i, value); }));
  return absl::OkStatus();
}

StatusOr<std::int64_t> Keyspace::RemoveMulti(Keys keys) {
  std::int64_t removed = 0;
  const auto remove = [&](Value value) {
    removed += value ? 1 : 0;
    return Action::Remove();
  };
  if (is_pending_ || keys.size() == 1) {
    for (const std::string_view key : keys) HAKO_RETURN_IF_ERROR(Update(key, remove));
    return removed;
  }
  std::vector<std::size_t> present;
  present.reserve(keys.size());
  HAKO_RETURN_IF_ERROR(database_.ProcessMulti(keys, [&](std::size_t i, Value value) -> std::optional<Action> {
    if (value) present.push_back(i);
    return remove(value);
  }));
  for (const std::size_t i : present) NoteChange(keys[i]);
  return removed;
}

Status Keyspace::SetMulti(Keys keys_and_values, bool if_absent) {
  if (is_pending_) {
    for (std::size_t i = 0; if_absent && i < keys_and_values.size(); i += 2) {
      HAKO_ASSIGN_OR_RETURN(const bool exists, Contains(keys_and_values[i]));
      if (exists) return MismatchError();
    }
    for (std::size_t i = 0; i < keys_and_values.size(); i += 2) HAKO_RETURN_IF_ERROR(Set(keys_and_values[i], keys_and_values[i + 1]));
    return absl::OkStatus();
  }
  batch_.Clear();
  for (std::size_t i = 0; i < keys_and_values.size(); i += 2) {
    if (if_absent) batch_.Expect(keys_and_values[i], Expect::Absent());
    batch_.Set(keys_and_values[i], keys_and_values[i + 1]);
  }
  HAKO_RETURN_IF_ERROR(database_.Write(batch_));
  for (std::size_t i = 0; i < keys_and_values.size(); i += 2) NoteChange(keys_and_values[i]);
  return absl::OkStatus();
}

Status Keyspace::Rekey(std::string_view from, std::string_view to, bool overwrite, bool copies) {
  if (is_pending_) return RekeyPending(from, to, overwrite, copies);
  HAKO_RETURN_IF_ERROR(database_.Rekey(from, to, {.overwrite = overwrite, .copying = copies}));
  if (!copies) NoteChange(from);
  NoteChange(to);
  return absl::OkStatus();
}

Status Keyspace::RekeyPending(std::string_view from, std::string_view to, bool overwrite, bool copies) {
  HAKO_ASSIGN_OR_RETURN(Pending* const source, Load(from));
  HAKO_ASSIGN_OR_RETURN(Pending* const target, Load(to));
  if (!source->value) return AbsentError();
  if (target->value && !overwrite) return PresentError();
  if (source == target) return absl::OkStatus();
  HAKO_RETURN_IF_ERROR(Replace(target, source->view()));
  target->time = source->time;
  target->is_changed = true;
  if (copies) return absl::OkStatus();
  source->time = Expiry::kNever;
  source->is_changed = true;
  return Replace(source, std::nullopt);
  return absl::OkStatus();
}

std::uint64_t Keyspace::Count() {
  pending_status_.Update(WritePending());
  return database_.Count();
}

AnyDBM::Iterator Keyspace::MakeIterator() {
  pending_status_.Update(WritePending());
  return database_.MakeIterator();
}

Status Keyspace::Clear() {
  pending_.clear();
  watches_.TouchAll([this](std::string_view key) { return database_.Contains(key).value_or(true); });
  has_changed_ = true;
  num_changes_.Add(1);
  return database_.Clear();
}

Status Keyspace::Commit() {
  Status status = std::exchange(pending_status_, absl::OkStatus());
  if (status.ok()) status = WritePending();
  Abandon();
  return status;
}

void Keyspace::Abandon() {
  pending_status_ = absl::OkStatus();
  pending_.clear();
  is_pending_ = false;
}

// Returns the record as the transaction sees it.
StatusOr<Keyspace::Pending*> Keyspace::Load(std::string_view key) {
  auto found = pending_.find(key);
  if (found == pending_.end()) {
    Pending record;
    Status copied;
    const auto copy = [&](std::size_t, Value value) -> std::optional<Action> {
      copied = Replace(&record, value);
      return Action::Keep();
    };
    HAKO_RETURN_IF_ERROR(database_.ProcessMulti(Keys(&key, 1), MultiUpdateRef(copy), &record.time));
    HAKO_RETURN_IF_ERROR(copied);
    if (!record.value) record.time = Expiry::kNever;
    found = pending_.emplace(std::string(key), std::move(record)).first;
  }
  Pending& record = found->second;
  if (record.time != Expiry::kNever && record.time <= Now()) {
    record.value.reset();
    record.time = Expiry::kNever;
  }
  return &record;
}

Status Keyspace::Replace(Pending* record, Value value) {
  static constexpr std::size_t kEach = 128;  // bytes of a record without its value
  const std::size_t old = record->value ? record->value->size() + kEach : 0;
  const std::size_t size = value ? value->size() + kEach : 0;
  if (size > old && size - old > pending_left_) {
    Status status = absl::ResourceExhaustedError("the records of the transaction exceed client-query-buffer-limit");
    pending_status_.Update(status);
    return status;
  }
  if (value)
    record->value = std::string(*value);  // assign a copy, because `value` may be a view of the old value
  else
    record->value.reset();
  pending_left_ = pending_left_ + old - size;
  return absl::OkStatus();
}

Status Keyspace::FetchPending(std::string_view key, SinkRef sink) {
  HAKO_ASSIGN_OR_RETURN(Pending* const record, Load(key));
  if (!record->value) return AbsentError();
  if (char* const out = sink(record->value->size()); out != nullptr) std::memcpy(out, record->value->data(), record->value->size());
  return absl::OkStatus();
}

Status Keyspace::UpdatePending(std::string_view key, TimedUpdate visitor) {
  HAKO_ASSIGN_OR_RETURN(Pending* const record, Load(key));
  const Action action = visitor(record->view(), record->time);
  if (action.kind() == Action::Kind::kKeep) return absl::OkStatus();
  const bool sets = action.kind() == Action::Kind::kSet;
  if (!sets && !record->value) return absl::OkStatus();
  HAKO_RETURN_IF_ERROR(Replace(record, sets ? Value(action.value()) : std::nullopt));
  if (sets && action.expire_at() != Expiry::kKeep) record->time = action.expire_at();
  record->is_changed = true;
  return absl::OkStatus();
}

Status Keyspace::WritePending() {
  if (pending_.empty()) return absl::OkStatus();
  batch_.Clear();
  for (const auto& [key, record] : pending_) {
    if (!record.is_changed) continue;
    if (record.value)
      batch_.Set(key, *record.value, record.time);
    else
      batch_.Remove(key);
  }
  if (!batch_.IsEmpty()) HAKO_RETURN_IF_ERROR(database_.Write(batch_));
  // Keep records that were read, because they do not expire during the transaction.
  for (auto& [key, record] : pending_) {
    if (std::exchange(record.is_changed, false)) NoteChange(key);
  }
  return absl::OkStatus();
}

}  // namespace hako::server
