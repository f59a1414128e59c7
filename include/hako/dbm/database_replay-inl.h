// Definitions of dbm/database_home.h: the replay of updates when a database is opened.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "hako/dbm/database_home.h"
#include "hako/dbm/redo_queue.h"

namespace hako {

// Repeats the updates that the log has and the last checkpoint lacks. Checkpoints may run
// meanwhile: they name the position that the replay has reached, or an earlier one. With `has_all`
// the file already has all updates, and is changed only after the whole log was read.
template <File LogFileT>
auto DatabaseHome<LogFileT>::Replay(const log::NamedLog& named, bool has_all) -> StatusOr<std::unique_ptr<Log>> {
  HAKO_ASSIGN_OR_RETURN(LogFile file, log_place_.OpenExisting(writable_));
  HAKO_ASSIGN_OR_RETURN(auto log, Log::Open(std::move(file), named.id, named.secret));
  if (log->IsEmpty()) return absl::DataLossError("the log, which has the newest updates, is empty");
  HAKO_RETURN_IF_ERROR(records_.CheckIdle());
  if (writable_) HAKO_RETURN_IF_ERROR(log->Sync());  // before a checkpoint names a position in the log
  const auto queue = std::make_unique<RedoQueue>();
  if (has_all) {
    HAKO_RETURN_IF_ERROR(log->Replay(named.from, [](std::span<const format::LogEntry>, log::Position) { return absl::OkStatus(); }));
    BeginRedoOfAll();
  }
  std::uint64_t num_runs = 0;
  const auto redo = [&](std::span<const format::LogEntry> run, log::Position end) -> Status {
    const format::LogOp op = run.front().op;
    if (op == format::LogOp::kTime) return RedoTime(run);
    ++num_runs;
    const bool is_queued = run.size() == 1 && (op == format::LogOp::kSet || op == format::LogOp::kRemove);
    if (is_queued && queue->Push(run.front(), end)) return absl::OkStatus();
    HAKO_RETURN_IF_ERROR(RedoQueued(queue.get()));
    if (is_queued && queue->Push(run.front(), end)) return absl::OkStatus();
    HAKO_RETURN_IF_ERROR(MayReplay());
    HAKO_RETURN_IF_ERROR(records_.RedoRun(run));
    updates_.NoteReplayed(end);
    return absl::OkStatus();
  };
  HAKO_RETURN_IF_ERROR(log->Replay(named.from, redo));
  HAKO_RETURN_IF_ERROR(RedoQueued(queue.get()));
  updates_.NoteReplayed(log->position());
  if (num_runs > 0) RequestPass();
  return log;
}

// Makes the updates of an UpdateSource instead of those of a log. Meanwhile the database names no
// log.
template <File LogFileT>
Status DatabaseHome<LogFileT>::MakeRestored(UpdateSource& source) {
  HAKO_RETURN_IF_ERROR(records_.CheckIdle());
  updates_.Name({}, {});
  const auto redo = [&](std::span<const format::LogEntry> run) -> Status {
    if (run.front().op == format::LogOp::kTime) return RedoTime(run);
    HAKO_RETURN_IF_ERROR(MayReplay());
    return records_.RedoRun(run);
  };
  RequestPass();
  HAKO_RETURN_IF_ERROR(source.ForEach(redo));
  return Checkpoint();
}

// Asks the thread that removes expired records for a pass, because it has not seen the times of
// records that came from a log.
template <File LogFileT>
void DatabaseHome<LogFileT>::RequestPass() {
  if (const auto* const expiry = records_.expiry(); expiry != nullptr) expiry->schedule().RequestPass();
}

template <File LogFileT>
Status DatabaseHome<LogFileT>::RedoTime(std::span<const format::LogEntry> run) {
  const std::optional<std::uint64_t> time = run.size() == 1 ? format::TimeIn(run.front()) : std::nullopt;
  if (!time || records_.expiry() == nullptr) return absl::DataLossError("the log has a time that does not belong there");
  records_.expiry()->NoteTime(*time);
  return absl::OkStatus();
}

template <File LogFileT>
Status DatabaseHome<LogFileT>::RedoQueued(RedoQueue* queue) {
  static constexpr std::size_t kTogether = 32;
  if (queue->size() == 0) return absl::OkStatus();
  HAKO_RETURN_IF_ERROR(MayReplay());
  records_.LoadForRedo(queue->keys());
  for (std::size_t i = 0; i < queue->size(); ++i) {
    if (i % kTogether == 0) records_.PrefetchForRedo(queue->keys().subspan(i, std::min(kTogether, queue->size() - i)));
    HAKO_RETURN_IF_ERROR(records_.Redo(queue->entry(i)));
    updates_.NoteReplayed(queue->end(i));
  }
  queue->Clear();
  return absl::OkStatus();
}

}  // namespace hako
