// Definitions of dbm/memory_home.h: the snapshot of a database with a path.
#pragma once

#include "hako/base/random_seed.h"
#include "hako/dbm/memory_home.h"

namespace hako {

// Loads the snapshot, replays the log, and begins a log. Nothing is logged before that.
template <class D, File FileT, class Options>
Status MemoryHome<D, FileT, Options>::BeginAt(const Options& options) {
  HAKO_RETURN_IF_ERROR(self().CheckIdle());
  self().CallAfterUpdates();
  HAKO_RETURN_IF_ERROR(place_.Load([&](std::string_view key, std::string_view value) -> Status {
    const Action action = Action::Set(value);
    return self().template ProcessUnchecked<Action>(key, BlindUpdateRef(action));
  }));
  if (const std::uint64_t incomplete = place_.incomplete_end(); incomplete != 0) {
    HAKO_ASSIGN_OR_RETURN(const bool has_updates, this->log_place_.HasUpdatesOfOther(place_.end().log.id));
    if (has_updates) return DataLossError("the end block is damaged that names the log", incomplete);
  }
  if (this->writable_) HAKO_RETURN_IF_ERROR(place_.MakeDurable());
  const bool is_new = place_.IsToBeReplaced() && !place_.end().log.IsNeeded() && self().Count() == 0;
  HAKO_RETURN_IF_ERROR(BeginTimes(options, is_new ? Expiry::FirstClock(options) : std::uint64_t{place_.end().clock}));
  const auto keep = [](std::size_t, std::optional<std::string_view>) { return std::optional(Action::Keep()); };
  HAKO_RETURN_IF_ERROR(self().RedoMulti({.keys = {}, .visit = keep, .applied_index = place_.end().applied_index}));
  secret_ = place_.end().log.secret;
  while (secret_ == 0) secret_ = RandomSeed();
  HAKO_RETURN_IF_ERROR(this->StartThreads(kNoInterval));
  auto on_eviction = EvictionVisitorOf(options);
  HAKO_RETURN_IF_ERROR(this->OpenLog(options.durability != Durability::kNone, false, options));
  HAKO_RETURN_IF_ERROR(SaveEvictions());
  const auto soon = [](void* dbm) { return static_cast<MemoryHome*>(dbm)->SynchronizeSoon(); };
  self().space_->sync_progress().Start({soon, this});
  self().ShowEvictions(std::move(on_eviction));
  this->BeginThreads(kNoInterval);
  return absl::OkStatus();
}

// Makes the evictions durable that came before updates were logged, so that the records stay absent
// after the next opening. Does nothing if the snapshot that names the new log was written after
// them.
template <class D, File FileT, class Options>
Status MemoryHome<D, FileT, Options>::SaveEvictions() {
  if (!this->writable_) return absl::OkStatus();
  sync::MutexLock lock(this->maintenance_mutex_);
  if (self().NumEvictions() == saved_evictions_) return absl::OkStatus();
  changed_ = true;
  return SynchronizeLocked();
}

// Even if no record has changed, the snapshot may have to name another log, or store a later clock.
// If there is no space for only the clock, the snapshot keeps its old clock; all records are
// durable anyway.
template <class D, File FileT, class Options>
Status MemoryHome<D, FileT, Options>::SynchronizeLocked() {
  if (!place_.is_known()) return absl::OkStatus();
  auto& updates = self().space_->log();
  const Status failure = updates.Health();
  const format::SnapshotLog named =
      failure.ok() ? SnapshotLogOf({updates.id(), updates.position(), secret_}) : SnapshotLogOf({{}, {}, secret_});
  const std::uint64_t reported = self().expiry() != nullptr ? self().expiry()->reported() : 0;
  Status status = self().space_->damage();
  if (status.ok()) {
    if (changed_.load() || place_.IsToBeReplaced())
      status = WriteSnapshot(failure.ok());
    else if (const bool names_other = named.id != place_.end().log.id || named.HasEnded() != place_.end().log.HasEnded();
             names_other || reported > place_.end().clock) {
      status = CatchNoMemory([&] { return place_.NameLog(named, Clock(), reported); });
      if (!names_other && absl::IsResourceExhausted(status)) status = absl::OkStatus();
    }
  }
  if (!updates.Health().ok()) refusal_.Set(updates.Health());
  self().space_->sync_progress().NoteSynced(status.ok());
  return status;
}

// Follows the order that the head of dbm/memory_home.h describes.
template <class D, File FileT, class Options>
Status MemoryHome<D, FileT, Options>::WriteSnapshot(bool names_log) {
  auto& updates = self().space_->log();
  log::Position position;
  std::uint64_t evictions = 0;
  const auto note = [&](format::SnapshotEnd* end) {
    position = updates.BeginCheckpoint();
    end->log = names_log ? SnapshotLogOf({updates.id(), position, secret_}) : SnapshotLogOf({{}, {}, secret_});
    changed_.store(false);
    evictions = self().NumEvictions();
  };
  const auto save = [&](FileT& file, format::SnapshotEnd* end) -> StatusOr<std::uint64_t> {
    if (!names_log || !updates.is_on()) return SaveState(file, end, [&] { note(end); });
    self().RunExclusive([&] {
      note(end);
      end->applied_index = self().AppliedIndex();
      end->clock = Clock();
      return 0;
    });
    const auto show = [&](auto&& add) -> Status {
      auto it = self().MakeStoredIterator();
      for (it.First(); it.Valid(); it.Next()) HAKO_RETURN_IF_ERROR(add(it.key(), it.value()));
      return it.status();
    };
    HAKO_ASSIGN_OR_RETURN(const std::uint64_t id, storage::SaveSnapshot(file, HasClock(), end, show));
    HAKO_RETURN_IF_ERROR(updates.WaitDurable(~log::Lsn{0}));
    HAKO_RETURN_IF_ERROR(updates.PrepareCheckpoint(position));
    return id;
  };
  const Status status = CatchNoMemory([&] { return place_.Replace(save); });
  if (!status.ok()) {
    changed_.store(true);
    return status;
  }
  saved_evictions_ = evictions;
  if (names_log) updates.NoteCheckpoint(position);
  num_snapshots_.fetch_add(1, std::memory_order_relaxed);
  synced_at_.store(WallClock(), std::memory_order_relaxed);
  return absl::OkStatus();
}

// After a failure the log requests a snapshot again later. An immediate retry would not pay,
// because a snapshot takes long.
template <class D, File FileT, class Options>
void MemoryHome<D, FileT, Options>::SynchronizeInBackground() {
  if (!self().space_->sync_progress().TakeAsked() || std::chrono::steady_clock::now() < retry_at_) return;
  if (!this->Synchronize(SyncMode::kHard).ok()) retry_at_ = std::chrono::steady_clock::now() + kRetryDelay;
}

// The removal is logged before it begins. If it fails, opening the database again undoes it.
template <class D, File FileT, class Options>
template <class Remove>
Status MemoryHome<D, FileT, Options>::ClearBy(Remove&& remove) {
  HAKO_RETURN_IF_ERROR(self().CheckIdle());
  HAKO_RETURN_IF_ERROR(this->MayRemove());
  auto& updates = self().space_->log();
  auto* const writer = self().writers_.Mine();
  if (writer == nullptr) return self().writers_.Refusal();
  if (updates.is_on() && !updates.Reserve().ok()) HAKO_RETURN_IF_ERROR(this->Synchronize(SyncMode::kHard));
  const Status cleared = self().RunExclusive([&]() -> Status {
    if (updates.is_on()) HAKO_RETURN_IF_ERROR(updates.Append(format::LogEntry{format::LogOp::kClear, {}, {}}, &writer->lsn));
    const Status removed = remove(*writer);
    if (!removed.ok()) self().space_->Poison(removed);
    return removed;
  });
  return cleared.ok() && self().HasAfterUpdate() ? AfterUpdate() : cleared;
}

}  // namespace hako
