// Definitions of dbm/tree_dbm.h: the log.
//
// Crash order. A new log is durable before the superblock names it; from then on updates are logged.
// Close makes a checkpoint whose superblock names no log, and then removes the file.
#pragma once

#include <cstring>
#include <vector>

#include "hako/base/random_seed.h"
#include "hako/dbm/tree_dbm.h"

namespace hako {

template <File FileT, Comparator Compare, PageCodec Codec>
Status TreeDBM<FileT, Compare, Codec>::OpenLog(const TreeOptions& options, bool is_new) {
  const format::TreeSuperBlock& super = space_->store().super();
  auto& updates = space_->log();
  const bool logs = options.durability != Durability::kNone && log_place_.is_known();
  std::unique_ptr<Log> log;
  const log::Position keep = space_->store().log_position();
  // A killed process may have left it in the page cache only, and the device with one that needs an
  // older part of the log, or another one.
  if (writable_ && !is_new) HAKO_RETURN_IF_ERROR(space_->store().MakeSuperDurable());
  if (super.log_id != log::DatabaseId{}) {
    HAKO_ASSIGN_OR_RETURN(log, Replay());
  }
  if (!writable_) return log != nullptr ? log->Close() : absl::OkStatus();
  const bool begins_again = logs && log != nullptr;
  if (begins_again) {
    const Status begun = log->Begin(keep);
    if (!absl::IsResourceExhausted(begun)) {
      HAKO_RETURN_IF_ERROR(begun);
      updates.Start(std::move(log), options.log_bytes, keep);
      return absl::OkStatus();
    }
  }
  sync::MutexLock lock(maintenance_mutex_);
  updates.set_id({});
  if (log != nullptr) {  // it is not wanted any more, or has no space: a checkpoint replaces it
    HAKO_RETURN_IF_ERROR(SynchronizeLocked());
    HAKO_RETURN_IF_ERROR(log->Close());
    HAKO_RETURN_IF_ERROR(log_place_.Remove());
  }
  if (logs) {
    HAKO_ASSIGN_OR_RETURN(log, CreateLog());
    updates.NoteReplayed(log->position());
  }
  if (is_new) HAKO_RETURN_IF_ERROR(SynchronizeLocked());
  if (!logs) return absl::OkStatus();
  if (!is_new) HAKO_RETURN_IF_ERROR(space_->store().SetLog(updates.id(), log->position()));
  const log::Position begin = log->position();
  updates.Start(std::move(log), options.log_bytes, begin);
  return absl::OkStatus();
}

// Creates a log of a new id, which the superblock does not name yet.
template <File FileT, Comparator Compare, PageCodec Codec>
auto TreeDBM<FileT, Compare, Codec>::CreateLog() -> StatusOr<std::unique_ptr<Log>> {
  log::DatabaseId id;
  for (std::size_t i = 0; i < id.size(); i += sizeof(std::uint64_t)) {
    const std::uint64_t random = RandomSeed();
    std::memcpy(id.data() + i, &random, sizeof(random));
  }
  HAKO_ASSIGN_OR_RETURN(LogFile file, log_place_.Create());
  HAKO_ASSIGN_OR_RETURN(auto log, Log::Open(std::move(file), id, space_->store().super().secret));
  HAKO_RETURN_IF_ERROR(log->Begin({}));
  space_->log().set_id(id);
  return log;
}

// Makes the updates again that the log has and the last checkpoint lacks. Checkpoints may run
// meanwhile: they name the position that the replay has reached, or one before.
template <File FileT, Comparator Compare, PageCodec Codec>
auto TreeDBM<FileT, Compare, Codec>::Replay() -> StatusOr<std::unique_ptr<Log>> {
  const format::TreeSuperBlock super = space_->store().super();
  const log::Position from = space_->store().log_position();
  auto& updates = space_->log();
  HAKO_ASSIGN_OR_RETURN(LogFile file, log_place_.OpenExisting(writable_));
  HAKO_ASSIGN_OR_RETURN(auto log, Log::Open(std::move(file), super.log_id, super.secret));
  if (log->IsEmpty()) return absl::DataLossError("the log, which has the newest updates, is empty");
  if (!writable_) space_->progress().NoteFailure();  // no update waits for a checkpoint
  updates.set_id(super.log_id);
  updates.NoteReplayed(from);
  typename Base::WriterState* const writer = this->writers_.Mine();
  if (writer == nullptr) return this->writers_.Refusal();
  const auto redo = [&](std::span<const format::LogEntry> run, log::Position end) -> Status {
    HAKO_RETURN_IF_ERROR(run.size() == 1 ? Redo(*writer, run.front()) : RedoTogether(*writer, run));
    updates.NoteReplayed(end);
    return absl::OkStatus();
  };
  HAKO_RETURN_IF_ERROR(log->Replay(from, redo));
  return log;
}

template <File FileT, Comparator Compare, PageCodec Codec>
Status TreeDBM<FileT, Compare, Codec>::Redo(typename Base::WriterState& writer, const format::LogEntry& entry) {
  const auto process = [&](const Action& action) { return tree().template Process<Action>(writer, entry.key, action); };
  switch (entry.op) {
    case format::LogOp::kSet:
      return process(Action::Set(entry.value));
    case format::LogOp::kRemove:
      return process(Action::Remove());
    case format::LogOp::kRemoveRange:
      return tree().RemoveRange(writer, {entry.key, entry.value}).status();
    case format::LogOp::kRemoveFrom:
      return tree().RemoveRange(writer, {entry.key, std::nullopt}).status();
    case format::LogOp::kClear: {
      typename Space::Deferred deferred(*space_);
      return this->RunExclusive([&] { return this->RemoveAll(deferred); });
    }
    default:
      return RedoTogether(writer, std::span(&entry, 1));
  }
}

// Makes the updates of a run in one step, as they were made. A checkpoint that runs meanwhile may
// become durable while the rest of the log does not, so it has all of the run or nothing.
template <File FileT, Comparator Compare, PageCodec Codec>
Status TreeDBM<FileT, Compare, Codec>::RedoTogether(typename Base::WriterState& writer, std::span<const format::LogEntry> run) {
  std::vector<std::string_view> keys;
  std::vector<Action> actions;
  std::vector<KeyRange> ranges;
  MultiExtras extras{.applied_index = {}, .removed_ranges = {}, .num_shown = 0};
  bool is_valid = true;
  for (const format::LogEntry& entry : run) {
    const bool has_end = entry.op == format::LogOp::kRemoveRange;
    switch (entry.op) {
      case format::LogOp::kSet:
      case format::LogOp::kRemove:
        keys.push_back(entry.key);
        actions.push_back(entry.op == format::LogOp::kSet ? Action::Set(entry.value) : Action::Remove());
        break;
      case format::LogOp::kRemoveRange:
      case format::LogOp::kRemoveFrom:  // they come first, ascending
        is_valid = is_valid && keys.empty() && (!has_end || Compare::Compare(entry.key, entry.value) < 0) &&
                   (ranges.empty() || (ranges.back().to && Compare::Compare(*ranges.back().to, entry.key) <= 0));
        ranges.push_back({entry.key, has_end ? std::optional(entry.value) : std::nullopt});
        break;
      case format::LogOp::kAppliedIndex: {
        Le<std::uint64_t> index = 0;
        is_valid = is_valid && entry.value.size() == sizeof(index);
        if (is_valid) std::memcpy(static_cast<void*>(&index), entry.value.data(), sizeof(index));
        extras.applied_index = index;
        break;
      }
      default:
        is_valid = false;
    }
  }
  if (!is_valid) return absl::DataLossError("the log has a record that does not belong there");
  extras.removed_ranges = ranges;
  const auto action_of = [&actions](std::size_t i, std::optional<std::string_view>) { return std::optional(actions[i]); };
  return tree().template ProcessMulti<Action>(writer, keys, action_of, extras);
}

// Logs a Clear, with the writers stopped. If there is no room for it (`reserved`), the log refuses
// updates until a checkpoint has the Clear.
template <File FileT, Comparator Compare, PageCodec Codec>
Status TreeDBM<FileT, Compare, Codec>::LogClear(const Status& reserved) {
  auto& updates = space_->log();
  if (!updates.is_on()) return absl::OkStatus();
  if (!reserved.ok()) {
    updates.RefuseUntilCheckpoint(reserved);
    return reserved;
  }
  typename Base::WriterState* const writer = this->writers_.Mine();
  log::Lsn lsn = 0;
  const format::LogEntry clear{format::LogOp::kClear, {}, {}};
  const Status status = updates.Append(std::span(&clear, 1), writer != nullptr ? &writer->lsn : &lsn);
  if (!status.ok()) updates.RefuseUntilCheckpoint(status);
  return status;
}

template <File FileT, Comparator Compare, PageCodec Codec>
std::uint64_t TreeDBM<FileT, Compare, Codec>::LastLsn() {
  const typename Base::WriterState* const writer = this->writers_.Mine();
  return writer != nullptr ? writer->lsn : 0;
}

template <File FileT, Comparator Compare, PageCodec Codec>
Status TreeDBM<FileT, Compare, Codec>::WaitDurable(std::uint64_t lsn) HAKO_TRY {
  HAKO_RETURN_IF_ERROR(this->CheckIdle());
  if (!space_->log().is_on()) return Files::WaitDurable(lsn);
  Status status = space_->log().WaitDurable(lsn);
  if (!status.ok() && !space_->log().Health().ok()) refusal_.Set(space_->log().Health());
  return status;
}
HAKO_OR_NO_MEMORY

template <File FileT, Comparator Compare, PageCodec Codec>
Status TreeDBM<FileT, Compare, Codec>::CloseWritable() {
  sync::MutexLock lock(maintenance_mutex_);
  auto& updates = space_->log();
  const std::unique_ptr<Log> log = updates.Stop();
  updates.set_id({});
  Status status = space_->IsDirty() ? SynchronizeLocked() : log != nullptr ? space_->store().SetLog({}, {}) : space_->store().Health();
  if (status.ok()) status = space_->store().CutFile();
  if (log == nullptr) return status;
  status.Update(log->Close());
  if (status.ok()) status = log_place_.Remove();
  return status;
}

}  // namespace hako
