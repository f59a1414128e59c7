// Definitions of dbm/tree_dbm.h: what its log needs (dbm/log_operations.h).
#pragma once

#include "hako/dbm/tree_dbm.h"

namespace hako {

template <File FileT, Comparator Compare, PageCodec Codec>
log::NamedLog TreeDBM<FileT, Compare, Codec>::LogInFile() const {
  const format::TreeSuperBlock& super = space_->store().super();
  return {super.log_id, space_->store().log_position(), super.secret};
}

// A new file has no superblock yet that it could change.
template <File FileT, Comparator Compare, PageCodec Codec>
Status TreeDBM<FileT, Compare, Codec>::NameLog(const log::DatabaseId& id, log::Position from) {
  sync::MutexLock lock(maintenance_mutex_);
  return space_->store().super().root == 0 ? SynchronizeLocked() : space_->store().SetLog(id, from);
}

// A tree that is open for reading is changed in memory.
template <File FileT, Comparator Compare, PageCodec Codec>
Status TreeDBM<FileT, Compare, Codec>::MayReplay() {
  if (!writable_) space_->progress().NoteFailure();  // no update waits for a checkpoint
  return absl::OkStatus();
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
      return this->RedoTogether(writer, std::span(&entry, 1));
  }
}

template <File FileT, Comparator Compare, PageCodec Codec>
Status TreeDBM<FileT, Compare, Codec>::RedoMulti(typename Base::WriterState& writer, std::span<const std::string_view> keys,
                                                 MultiUpdateRef visitor, const MultiExtras& extras) {
  const KeyRange* before = nullptr;
  for (const KeyRange& range : extras.removed_ranges) {
    const bool is_valid = (!range.to || Compare::Compare(range.from, *range.to) < 0) &&
                          (before == nullptr || (before->to && Compare::Compare(*before->to, range.from) <= 0));
    if (!is_valid) return absl::DataLossError("the log has ranges that do not ascend");
    before = &range;
  }
  return tree().template ProcessMulti<Action>(writer, keys, visitor, extras);
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
Status TreeDBM<FileT, Compare, Codec>::CloseFile() {
  sync::MutexLock lock(maintenance_mutex_);
  auto& store = space_->store();
  const bool names_log = store.super().log_id != log::DatabaseId{};
  const Status status = space_->IsDirty() ? SynchronizeLocked() : names_log ? store.SetLog({}, {}) : store.Health();
  return status.ok() ? store.CutFile() : status;
}

}  // namespace hako
