// Definitions of dbm/log_operations.h: updates that are made again when a database is opened.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "hako/dbm/log_operations.h"
#include "hako/dbm/redo_queue.h"

namespace hako {

// Makes the updates again that the log has and the last checkpoint lacks. Checkpoints may run
// meanwhile: they name the position that the replay has reached, or one before. If the file has_all, it
// is not given up before the whole log was read.
template <class D, File FileT, class Options>
auto LogOperations<D, FileT, Options>::Replay(const log::NamedLog& named, bool has_all) -> StatusOr<std::unique_ptr<Log>> {
  HAKO_ASSIGN_OR_RETURN(LogFile file, log_place_.OpenExisting(writable_));
  HAKO_ASSIGN_OR_RETURN(auto log, Log::Open(std::move(file), named.id, named.secret));
  if (log->IsEmpty()) return absl::DataLossError("the log, which has the newest updates, is empty");
  auto* const writer = self().writers_.Mine();
  if (writer == nullptr) return self().writers_.Refusal();
  if (writable_) HAKO_RETURN_IF_ERROR(log->Sync());  // before a checkpoint names a position in it
  const auto queue = std::make_unique<RedoQueue>();
  if constexpr (requires { self().BeginRedoOfAll(); }) {
    if (has_all) {
      HAKO_RETURN_IF_ERROR(log->Replay(named.from, [](std::span<const format::LogEntry>, log::Position) { return absl::OkStatus(); }));
      self().BeginRedoOfAll();
    }
  }
  std::uint64_t num_runs = 0;
  const auto redo = [&](std::span<const format::LogEntry> run, log::Position end) -> Status {
    const format::LogOp op = run.front().op;
    if (op == format::LogOp::kTime) return RedoTime(run);
    ++num_runs;
    const bool is_queued = run.size() == 1 && (op == format::LogOp::kSet || op == format::LogOp::kRemove);
    if (is_queued && queue->Push(run.front(), end)) return absl::OkStatus();
    HAKO_RETURN_IF_ERROR(RedoQueued(*writer, queue.get()));
    if (is_queued && queue->Push(run.front(), end)) return absl::OkStatus();
    HAKO_RETURN_IF_ERROR(self().MayReplay());
    HAKO_RETURN_IF_ERROR(RedoRun(*writer, run));
    updates().NoteReplayed(end);
    return absl::OkStatus();
  };
  HAKO_RETURN_IF_ERROR(log->Replay(named.from, redo));
  HAKO_RETURN_IF_ERROR(RedoQueued(*writer, queue.get()));
  updates().NoteReplayed(log->position());
  if (num_runs > 0) RequestPass();
  return log;
}

// Makes updates that do not come from the log: the database names none then.
template <class D, File FileT, class Options>
Status LogOperations<D, FileT, Options>::MakeRestored(UpdateSource& source) {
  auto* const writer = self().writers_.Mine();
  if (writer == nullptr) return self().writers_.Refusal();
  updates().Name({}, {});
  const auto redo = [&](std::span<const format::LogEntry> run) -> Status {
    if (run.front().op == format::LogOp::kTime) return RedoTime(run);
    HAKO_RETURN_IF_ERROR(self().MayReplay());
    return RedoRun(*writer, run);
  };
  RequestPass();
  HAKO_RETURN_IF_ERROR(source.ForEach(redo));
  return Checkpoint();
}

// Of the thread that removes expired records: it does not know the times of those that come from a log.
template <class D, File FileT, class Options>
void LogOperations<D, FileT, Options>::RequestPass() {
  if (const auto* const expiry = self().expiry(); expiry != nullptr) expiry->schedule().RequestPass();
}

template <class D, File FileT, class Options>
Status LogOperations<D, FileT, Options>::RedoTime(std::span<const format::LogEntry> run) {
  const std::optional<std::uint64_t> time = run.size() == 1 ? format::TimeIn(run.front()) : std::nullopt;
  if (!time || self().expiry() == nullptr) return absl::DataLossError("the log has a time that does not belong there");
  self().expiry()->NoteTime(*time);
  return absl::OkStatus();
}

template <class D, File FileT, class Options>
template <class WriterState>
Status LogOperations<D, FileT, Options>::RedoQueued(WriterState& writer, RedoQueue* queue) {
  static constexpr std::size_t kTogether = 32;
  if (queue->size() == 0) return absl::OkStatus();
  HAKO_RETURN_IF_ERROR(self().MayReplay());
  self().LoadForRedo(queue->keys());
  for (std::size_t i = 0; i < queue->size(); ++i) {
    if (i % kTogether == 0) self().PrefetchForRedo(queue->keys().subspan(i, std::min(kTogether, queue->size() - i)));
    HAKO_RETURN_IF_ERROR(self().Redo(writer, queue->entry(i)));
    updates().NoteReplayed(queue->end(i));
  }
  queue->Clear();
  return absl::OkStatus();
}

template <class D, File FileT, class Options>
template <class WriterState>
Status LogOperations<D, FileT, Options>::RedoTogether(WriterState& writer, std::span<const format::LogEntry> run) {
  std::vector<std::string_view> keys;
  std::vector<Action> actions;
  std::vector<KeyRange> ranges;
  MultiExtras extras{.applied_index = {}, .removed_ranges = {}, .num_shown = 0};
  bool is_valid = true;
  for (const format::LogEntry& entry : run) {
    switch (entry.op) {
      case format::LogOp::kSet:
      case format::LogOp::kRemove:
        keys.push_back(entry.key);
        actions.push_back(entry.op == format::LogOp::kSet ? Action::Set(entry.value) : Action::Remove());
        break;
      case format::LogOp::kRemoveRange:
      case format::LogOp::kRemoveFrom:  // they come first
        is_valid = is_valid && keys.empty();
        ranges.push_back({entry.key, entry.op == format::LogOp::kRemoveRange ? std::optional(entry.value) : std::nullopt});
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
  return self().RedoMulti(writer, keys, MultiUpdateRef(action_of), extras);
}

}  // namespace hako
