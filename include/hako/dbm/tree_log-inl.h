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
  const auto& log = space_->log();
  const bool is_kept = log.id() == store.super().log_id && !log::NamedLog{log.id(), log.position()}.HasEnded();
  const Status status = space_->IsDirty()       ? SynchronizeLocked()
                        : names_log && !is_kept ? store.SetLog(log.id(), log.id() == log::DatabaseId{} ? log::Position{} : log.position())
                                                : store.Health();
  return status.ok() ? store.CutFile() : status;
}

}  // namespace hako
