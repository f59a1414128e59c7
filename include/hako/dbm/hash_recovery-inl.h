// Definitions of dbm/hash_dbm.h: Open, and recovery of the state to continue from.
#pragma once

#include "hako/dbm/hash_dbm.h"

namespace hako {

template <File FileT>
auto HashDBM<FileT>::Open(const std::string& path, const HashOptions& options, const FileOptions& file_options)
    -> StatusOr<std::unique_ptr<HashDBM>>
requires PathFile<FileT> HAKO_TRY {
  Status checked = CheckOptions(options);
  if (checked.ok()) checked = CheckAccepted(path, options, file_options);
  FileOptions alone = file_options;
  alone.beside_readers = false;  // a hash table has no checkpoints apart
  return Home::template OpenAt<HashDBM, FileT>(path, options, alone, std::move(checked));
}
HAKO_OR_NO_MEMORY

template <File FileT>
auto HashDBM<FileT>::Open(FileT file, LogPlace<LogFile> log, const HashOptions& options) -> StatusOr<std::unique_ptr<HashDBM>> HAKO_TRY {
  HAKO_RETURN_IF_ERROR(CheckOptions(options));
  HAKO_ASSIGN_OR_RETURN(auto extents, hash::ExtentFile<FileT>::Open(std::move(file), options.align_pow, options.seed,
                                                                    Expiry::FirstClock(options), options.unproven_updates));
  HAKO_ASSIGN_OR_RETURN(auto heap, Space::Open(std::move(extents), options.min_read_size));
  std::unique_ptr<HashDBM> dbm(new HashDBM(std::move(heap), options));
  WriterState* mine = dbm->writers_.Mine();
  if (mine == nullptr) return dbm->writers_.Refusal();
  HAKO_RETURN_IF_ERROR(dbm->KeepTimes(options, dbm->space_->extents().clock(), dbm->space_->extents().first_expiry()));
  const log::NamedLog named = dbm->LogInFile();
  dbm->log_place_ = std::move(log);
  dbm->space_->log().Name(named.id, named.from);
  const bool has_all = dbm->space_->extents().found() == hash::FoundState::kKilled;  // whether the file has all acknowledged updates
  HAKO_RETURN_IF_ERROR(dbm->Recover(*mine, options));
  const bool logs = options.durability == Durability::kPower ||
                    (options.durability == Durability::kProcess && (options.keep_log || dbm->space_->index_is_in_memory()));
  HAKO_RETURN_IF_ERROR(dbm->StartThreads(options.sync_interval));
  HAKO_RETURN_IF_ERROR(dbm->OpenLog(logs, has_all, options));
  // Publish only now, because before the replay the file may lack updates that the log has.
  if (dbm->IsWritable() && !dbm->space_->index_is_in_memory()) dbm->space_->extents().PublishLiveState();
  if (dbm->space_->log().is_on() || dbm->expiry() != nullptr) dbm->CallAfterUpdates();
  if (dbm->IsWritable() && !dbm->HasAfterUpdate() && dbm->space_->IsDirect()) dbm->UsePendingSets();
  dbm->synced_at_ = dbm->space_->extents().super().synced_at;
  if (dbm->IsWritable()) {
    const hash::Reclaimer::Call reclaim{[](void* self) { return static_cast<HashDBM*>(self)->ReclaimSoon(); }, dbm.get()};
    dbm->space_->ReclaimFrom(options.reclaim_bytes, reclaim);
    dbm->space_->sync_progress().Start({reclaim.ask, reclaim.context});
  }
  dbm->BeginThreads(options.sync_interval);
  return dbm;
}
HAKO_OR_NO_MEMORY

template <File FileT>
Status HashDBM<FileT>::CheckOptions(const HashOptions& options) {
  if (options.align_pow < 3 || options.align_pow > 6) return absl::InvalidArgumentError("HashOptions::align_pow must be 3 to 6");
  return CheckSharedOptions(options);
}

// Checks a file like Verify before its unproven updates are accepted and anything is changed.
template <File FileT>
Status HashDBM<FileT>::CheckAccepted(const std::string& path, const HashOptions& options, FileOptions file_options) {
  if constexpr (PathFile<FileT>) {
    if (options.unproven_updates != UnprovenUpdates::kAccept || file_options.mode == OpenMode::kTruncate) return absl::OkStatus();
    file_options.mode = OpenMode::kReadOnly;
    file_options.beside_readers = false;
    StatusOr<FileT> file = FileT::Open(path, file_options);
    if (absl::IsNotFound(file.status())) return absl::OkStatus();
    HAKO_RETURN_IF_ERROR(file.status());
    HAKO_ASSIGN_OR_RETURN(const bool is_blank, storage::HasOnlyZeros(*file));
    if (is_blank) return absl::OkStatus();
    HAKO_ASSIGN_OR_RETURN(const auto dbm, Open(*std::move(file), LogPlace<LogFile>(path, file_options), options));
    return dbm->space_->extents().was_accepted() ? dbm->Verify() : absl::OkStatus();
  } else {
    return absl::OkStatus();
  }
}

template <File FileT>
Status HashDBM<FileT>::MayReplay() {
  if (writable_) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the newest updates are in the log of a killed process only; open the database for writing, and close it");
}

// Calls redo(). If there is no space, synchronizes and calls it again, because replaced records
// take space until a synchronization.
template <File FileT>
template <class F>
Status HashDBM<FileT>::RedoWithSpace(F&& redo) {
  Status status = redo();
  if (!absl::IsResourceExhausted(status)) return status;
  {
    sync::MutexLock lock(maintenance_mutex_);
    HAKO_RETURN_IF_ERROR(SynchronizeLocked());
  }
  return redo();
}

template <File FileT>
Status HashDBM<FileT>::Redo(const format::LogEntry& entry) {
  WriterState* const mine = writers_.Mine();
  if (mine == nullptr) return writers_.Refusal();
  switch (entry.op) {
    case format::LogOp::kSet:
    case format::LogOp::kRemove: {
      const Action action = entry.op == format::LogOp::kSet ? Action::Set(entry.value) : Action::Remove();
      return RedoWithSpace([&] { return this->template ProcessIn<Action>(*mine, entry.key, action); });
    }
    case format::LogOp::kClear:
      return RunExclusive([&] { return RemoveAllRecords(*mine); });
    default:
      return this->RedoTogether(std::span(&entry, 1));
  }
}

template <File FileT>
Status HashDBM<FileT>::RedoMulti(const Batch<Action>& batch) {
  if (!batch.removed_ranges.empty()) return absl::DataLossError("the log of a hash table has a range");
  WriterState* const mine = writers_.Mine();
  if (mine == nullptr) return writers_.Refusal();
  return RedoWithSpace([&] { return this->ProcessMultiIn(*mine, batch); });
}

template <File FileT>
Status HashDBM<FileT>::Recover(WriterState& mine, const HashOptions& options) {
  auto& extents = space_->extents();
  if (extents.found() == hash::FoundState::kNew || extents.found() == hash::FoundState::kClean) extents.ResetLiveState();
  switch (extents.found()) {
    case hash::FoundState::kNew:
      HAKO_RETURN_IF_ERROR(index().Create(options.num_records));
      break;
    case hash::FoundState::kKilled:
      // First make the epoch that the superblock names durable, because stamps depend on it, and
      // the process may have died before it was. The updates of the process stay in the page cache.
      if (writable_) {
        HAKO_RETURN_IF_ERROR(extents.MarkInUse(space_->epoch() + 1));
        space_->PublishEpoch();
      }
      space_->set_num_index_extents(extents.LoadSealed(&format::LiveState::index_extents));
      HAKO_RETURN_IF_ERROR(AdoptIndex(mine, extents.LoadSealed(&format::LiveState::num_lines)));
      HAKO_RETURN_IF_ERROR(CompleteIntents(mine));
      space_->BeginHarvest(mine, this->Count());
      if (extents.LoadLive(&format::LiveState::clearing) == format::kClearing) HAKO_RETURN_IF_ERROR(RemoveAllRecords(mine));
      if (!writable_) return absl::OkStatus();
      HAKO_RETURN_IF_ERROR(extents.CutAtTail());
      if (space_->IsFarAhead()) {
        // Sync the log first: a power cut must not leave updates in the file that the log lacks,
        // because the log is replayed after it.
        if (LogInFile().IsNeeded()) HAKO_RETURN_IF_ERROR(this->log_place_.Sync());
        HAKO_RETURN_IF_ERROR(SynchronizeLocked());
      }
      break;
    case hash::FoundState::kClean: {
      const format::HashSuperBlock& super = extents.super();
      std::string note(super.note_size, '\0');
      HAKO_RETURN_IF_ERROR(extents.Read(super.tail, note.data(), note.size()));
      const bool note_holds = super.note_check == Hash64(note, super.secret);
      HAKO_ASSIGN_OR_RETURN(const bool has_index, note_holds ? FindIndex() : StatusOr<bool>(false));
      if (has_index) {
        HAKO_RETURN_IF_ERROR(AdoptIndex(mine, super.num_lines));
        if (this->Count() != super.num_records)
          return absl::DataLossError("the number of records in the index does not match the superblock");
        if (writable_) HAKO_RETURN_IF_ERROR(extents.MarkInUse(space_->epoch() + 1));
        if (note.empty()) {
          space_->BeginHarvest(mine, this->Count());
        } else {
          HAKO_RETURN_IF_ERROR(space_->ReadNote(mine, note));
        }
        if (!writable_) return absl::OkStatus();
        HAKO_RETURN_IF_ERROR(extents.CutAtTail());
        break;
      }
      [[fallthrough]];  // the index can always be rebuilt
    }
    case hash::FoundState::kCrashed:
      // First make the superblock of the recovered state durable, because its own sync may have
      // failed.
      if (writable_) HAKO_RETURN_IF_ERROR(extents.MarkInUse(space_->epoch() + 1));
      extents.ResetLiveState();
      HAKO_RETURN_IF_ERROR(RecoverByScan(mine));
      if (!writable_) return absl::OkStatus();
      HAKO_RETURN_IF_ERROR(SynchronizeLocked());
      break;
  }
  space_->PublishEpoch();
  return absl::OkStatus();
}

// Completes the calls of ProcessMulti that the dead process had published. Call before the harvest,
// while the blocks that they name are as the dead process left them.
template <File FileT>
Status HashDBM<FileT>::CompleteIntents(WriterState& mine) {
  return space_->CompleteIntents([&](std::span<const format::IntentEntry> entries) -> Status {
    HAKO_RETURN_IF_ERROR(index().Redo(mine, entries));
    const auto note = space_->NamedNoter();
    for (const format::IntentEntry& entry : entries) note(entry.fresh);
    if (const auto& last = entries.back(); last.handle == 0 && last.fresh == 0) space_->StoreAppliedIndex(last.key_hash);
    return absl::OkStatus();
  });
}

// Finds the index that a clean close left: in place in a mapped file, otherwise as an image after
// the note. Returns false if there is no valid index.
template <File FileT>
StatusOr<bool> HashDBM<FileT>::FindIndex() {
  const format::HashSuperBlock& super = space_->extents().super();
  if constexpr (Space::kMapped) {
    if (super.index_extents == 0) return false;
    space_->set_num_index_extents(super.index_extents);
    return space_->IndexTableIsInside() && space_->IndexCheck() == super.index_check;
  } else {
    if (super.index_extents != 0 || super.index_check == 0) return false;
    return space_->LoadIndex(super.tail + super.note_size, super.index_check);
  }
}

// Adopts the index that was found.
template <File FileT>
Status HashDBM<FileT>::AdoptIndex(WriterState& mine, std::uint64_t num_lines) {
  auto& lines = index().lines();
  if (!space_->index_is_in_memory() && !space_->IndexTableIsInside())
    return DataLossError("bad table of index extents", format::kIndexExtentsOffset);
  std::vector<format::IndexExtentEntry> overflow;
  for (const format::IndexExtentEntry& entry : space_->IndexExtents()) {
    space_->AddIndexBytes(entry.bytes);
    const bool is_new = space_->index_is_in_memory() || space_->extents().AddIndexExtent({entry.offset, entry.bytes});
    if (!is_new) return DataLossError("bad table of index extents: duplicate extent", entry.offset);
    if (entry.overflow) {
      overflow.push_back(entry);
    } else if (!lines.AdoptHome(entry.offset, entry.bytes)) {
      return DataLossError("bad table of index extents: invalid extent", entry.offset);
    }
  }
  hash::OverflowIds used;
  HAKO_RETURN_IF_ERROR(index().Recover(mine, num_lines, &used, space_->NamedNoter()));
  for (const auto& entry : overflow) lines.AdoptOverflow(entry.offset, entry.bytes, used);
  if (lines.num_overflow() != used.size()) return absl::DataLossError("a bucket links to an overflow bucket outside the index");
  return absl::OkStatus();
}

// Rebuilds the index from the records of the last synchronized state, and finds all free space. It
// overwrites nothing that the state needs, so it can be interrupted and repeated.
template <File FileT>
Status HashDBM<FileT>::RecoverByScan(WriterState& mine) {
  auto& extents = space_->extents();
  const std::uint64_t end = extents.super().tail;
  const std::uint64_t s = extents.super().epoch;
  extents.SetTail(end);
  if (writable_) HAKO_RETURN_IF_ERROR(extents.CutAtTail());
  space_->set_num_index_extents(0);
  if (!Space::kMapped || !writable_) HAKO_RETURN_IF_ERROR(space_->UseIndexArena());
  const std::uint64_t expected = std::min(extents.super().num_records.get(), end / 8);
  Status created = index().Create(expected);
  if (absl::IsResourceExhausted(created)) {  // the device is full: keep the index in memory until the next Open
    HAKO_RETURN_IF_ERROR(space_->UseIndexArena());
    index().Reset();
    created = index().Create(expected);
  }
  HAKO_RETURN_IF_ERROR(created);
  std::vector<hash::Extent> others;
  // The places of records of a lost epoch that may be torn. If the same record were written there
  // again with a later stamp and torn in the opposite way, the two halves would form a whole record
  // with the present stamp.
  std::vector<std::uint32_t> torn;
  // The places inside extents at which the header of an earlier extent may still lie: the zeros
  // with which an extent begins may have been lost although its header was not.
  std::vector<std::uint64_t> stale;
  hash::KeptBlocks kept([&](std::uint64_t offset, std::uint64_t bytes, bool) { space_->FreeGap(mine, offset, bytes); });
  HAKO_RETURN_IF_ERROR(space_->Scan(
      format::kFirstExtent, end,
      [&](const typename Space::ScannedRecord& record) {
        if (!record.stamp.BelongsTo(s)) {
          space_->Bury(record.handle);
          return absl::OkStatus();
        }
        kept.Keep(space_->OffsetOf(record.handle), space_->BlockBytes(record));
        space_->Revive(record.handle, record.stamp);
        space_->RefreshStamp(record.handle, record.stamp);
        return index().Adopt(mine, record.key_hash, record.handle);
      },
      [&](hash::Extent extent) { kept.Enter(extent); }, [&](hash::Extent extent) { others.push_back(extent); },
      [&](std::uint32_t handle, format::Stamp stamp) {
        const std::uint64_t offset = space_->OffsetOf(handle);
        if (offset % format::kExtentUnit == 0) stale.push_back(offset);
        if (stamp.BelongsLater(s, extents.last_epoch())) torn.push_back(handle);
      }));
  kept.Leave();
  if (this->Count() != extents.super().num_records) {
    return absl::DataLossError(absl::StrCat("damaged records: the last synced state has ", std::uint64_t{extents.super().num_records},
                                            " records, ", this->Count(), " of which are readable"));
  }
  for (const std::uint32_t handle : torn) space_->Bury(handle);
  for (const std::uint64_t offset : stale) {
    if (writable_) HAKO_RETURN_IF_ERROR(extents.ForgetStaleHeader(offset));
  }
  for (const hash::Extent& extent : others) {
    // A heap extent whose header was lost in the crash may have records of the lost epoch. They
    // must not reappear under the header of another extent after a later crash.
    if (writable_) HAKO_RETURN_IF_ERROR(extents.FillZero(extent.offset, extent.bytes));
    extents.Free(extent);
  }
  return absl::OkStatus();
}

}  // namespace hako
