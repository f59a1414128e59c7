// Definitions of dbm/tree_dbm.h: what its log needs (dbm/log_operations.h).
#pragma once

#include "hako/dbm/tree_dbm.h"

namespace hako {

template <File FileT, Comparator Compare, PageCodec Codec>
log::NamedLog TreeDBM<FileT, Compare, Codec>::LogInFile() const {
  return log::NamedLogOf(space_->store().super());
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
  const log::NamedLog before = LogInFile(), now{space_->log().id(), space_->log().position()};
  const bool is_kept = now.id == before.id && !now.HasEnded();
  Status status;
  if (space_->IsDirty()) {
    status = SynchronizeLocked();
  } else if (!before.IsNone() && !is_kept) {
    status = store.SetLog(now.id, now.IsNone() ? log::Position{} : now.from);
  } else {
    status = store.Health();
  }
  return status.ok() ? store.CutFile() : status;
}

}  // namespace hako
