// Definitions of dbm/hash_dbm.h: operations on the whole database.
#pragma once

#include "hako/dbm/hash_dbm.h"

namespace hako {

template <File FileT>
HashDBM<FileT>::~HashDBM() {
  (void)this->Close();
  if (writers_.IsInherited()) (void)space_.release();  // the file and the locks of the space belong to the parent process
}

// ---- background synchronization ----

// Synchronizes the update if every update must be; otherwise marks the change for the background
// thread.
template <File FileT>
Status HashDBM<FileT>::AfterUpdate() {
  if (!this->SyncsEachUpdate() && !changed_.load(std::memory_order_relaxed)) changed_.store(true);
  space_->PauseIfLogIsLong();
  return Home::AfterUpdate();
}

template <File FileT>
void HashDBM<FileT>::SynchronizeInBackground() {
  bool ok = true;
  const bool is_asked = space_->sync_progress().TakeAsked();
  for (bool due = changed_.exchange(false) || is_asked; ok && (due || space_->NeedsReclaim()); due = false) {
    ok = this->Synchronize(SyncMode::kHard).ok();
    own_syncs_.fetch_add(ok, std::memory_order_relaxed);
  }
  if (!ok) changed_ = true;  // later calls return the error of a failed sync from the heap
  space_->EndReclaim();
}

// Called by an update that has a bucket locked. If no thread can be started, the file grows, and
// later calls try again.
template <File FileT>
bool HashDBM<FileT>::ReclaimSoon() {
  return !this->closed_ && !writers_.IsInherited() && this->WakeBackground().ok();
}

template <File FileT>
Status HashDBM<FileT>::ProcessEach(EachRef visitor) HAKO_TRY {
  HAKO_RETURN_IF_ERROR(this->CheckIdle());
  if constexpr (!Space::kMapped) {
    if (hash::FileOrderScan<Index, Space> scan(index(), *space_); scan.Claim()) {
      HAKO_RETURN_IF_ERROR(RunExclusiveFlushed([&] {
        scan.Start(CountFlushed());
        return absl::OkStatus();
      }));
      return this->ShowLive(visitor, [&scan](EachRef shown) { return scan.Run(shown); });
    }
  }
  HAKO_RETURN_IF_ERROR(this->FlushPending());
  return this->ShowLive(visitor, [this](EachRef shown) { return index().ForEach(shown); });
}
HAKO_OR_NO_MEMORY

// ---- the whole database ----

template <File FileT>
Status HashDBM<FileT>::Clear() HAKO_TRY {
  HAKO_RETURN_IF_ERROR(this->CheckIdle());
  HAKO_RETURN_IF_ERROR(space_->Refusal());
  WriterState* mine = writers_.Mine();
  if (mine == nullptr) return writers_.Refusal();
  if (space_->log().is_on() && !space_->log().Reserve().ok()) HAKO_RETURN_IF_ERROR(this->Synchronize(SyncMode::kHard));
  const sync::NoHolds no_holds(space_->gate());
  Status cleared = RunExclusiveFlushed([&]() -> Status {
    if (!update::LogUpdate(*space_, *mine, format::LogOp::kClear, {})) return mine->error;
    space_->extents().StoreLive(&format::LiveState::clearing, format::kClearing);
    const Status removed = RemoveAllRecords(*mine);
    if (!removed.ok() && space_->log().is_on()) space_->log().Fail(removed);  // the log has an update that the table lacks
    return removed;
  });
  return cleared.ok() && this->HasAfterUpdate() ? AfterUpdate() : cleared;
}
HAKO_OR_NO_MEMORY

template <File FileT>
Status HashDBM<FileT>::RemoveAllRecords(WriterState& mine) {
  const Status status = this->RemoveAll(mine);
  space_->ReleaseFreed(mine);
  if (status.ok()) space_->ForgetMoves();
  // Even after an error, so that the next Open does not remove records that are set later.
  space_->extents().StoreLive(&format::LiveState::clearing, 0);
  return status;
}

template <File FileT>
Status HashDBM<FileT>::SynchronizeLocked() {
  WriterState* mine = writers_.Mine();
  return mine != nullptr ? SynchronizeSlots(*mine, ForEachWriter()) : writers_.Refusal();
}

// Succeeds once the superblock is durable. Other errors of the synchronization do no harm: damage
// that it finds is also reported by reads and later synchronizations, and blocks that it could not
// free for lack of memory cost only space.
template <File FileT>
Status HashDBM<FileT>::NameLog(const log::DatabaseId& id, log::Position) {
  const Status status = CatchNoMemory([this] { return this->Checkpoint(); });
  return MayName(id, false) && space_->Health().ok() ? absl::OkStatus() : status;
}

// Ends the epoch and makes it durable. Calls at_end(number of records) at the end of the epoch,
// while writers are excluded.
template <File FileT>
template <class Writers, class AtEnd>
Status HashDBM<FileT>::SynchronizeSlots(WriterState& mine, Writers&& for_each_writer, AtEnd&& at_end) {
  HAKO_RETURN_IF_ERROR(space_->Health());
  if (this->expiry() != nullptr) NoteClock(this->expiry()->latest());
  const Status refreshed = RefreshSomeStamps(mine);  // damage that it finds does not stop the synchronization
  std::uint64_t count = 0;
  typename Space::ClosedEpoch closed{};
  const Status ended = RunExclusiveFlushed([&]() -> Status {
    count = CountFlushed();
    HAKO_RETURN_IF_ERROR(at_end(count));
    closed = space_->CloseEpoch(for_each_writer);
    return absl::OkStatus();
  });
  HAKO_RETURN_IF_ERROR(ended);
  HAKO_RETURN_IF_ERROR(space_->CommitEpoch(closed, count));
  synced_at_ = space_->extents().super().synced_at;
  space_->ReleaseWaiting(mine, closed, InStepsOf(mine));
  return refreshed;
}

// Synchronizes, then runs `body`. Until `body` ends, no block of the synchronized state is reused.
// See SynchronizeSlots for at_end.
template <File FileT>
template <class AtEnd, class Body>
Status HashDBM<FileT>::WithPinnedState(WriterState& mine, AtEnd&& at_end, Body&& body) {
  space_->HarvestAll(mine, InStepsOf(mine));
  const auto pin = [&](std::uint64_t count) {
    HAKO_RETURN_IF_ERROR(at_end(count));
    return space_->PinState(ForEachWriter());
  };
  Status status;
  {
    const typename hash::HeapExtents<FileT>::Pin extents(space_->heap_extents());
    status = CatchNoMemory([&] {
      sync::MutexLock lock(maintenance_mutex_);
      return SynchronizeSlots(mine, ForEachWriter(), pin);
    });
    if (status.ok()) status = CatchNoMemory(body);
  }
  sync::MutexLock lock(maintenance_mutex_);
  space_->UnpinState(mine, InStepsOf(mine));
  return status;
}

template <File FileT>
Status HashDBM<FileT>::RefreshSomeStamps(WriterState& mine) {
  using Record = typename Space::Sweep::Record;
  struct Named {
    bool Has(const Record& record) const { return index.Names(record.key_hash, record.handle); }
    void Prefetch(const std::vector<Record>& records) const {
      for (const Record& record : records) index.PrefetchHome(record.key_hash);
    }
    void RunLocked(std::span<const Record> records, FunctionRef<void(std::uint64_t)> body) const { index.RunLocked(writer, records, body); }
    WriterState& writer;
    Index& index;
  };
  return space_->sweep().Advance(Named{mine, index()});
}

template <File FileT>
Status HashDBM<FileT>::CopyTo(FileT empty_file) HAKO_TRY {
  HAKO_RETURN_IF_ERROR(this->CheckIdle());
  if (empty_file.Size() != 0) return absl::InvalidArgumentError("CopyTo: the target file is not empty");
  WriterState* mine = writers_.Mine();
  if (mine == nullptr) return writers_.Refusal();
  HashOptions options;
  options.align_pow = static_cast<int>(std::uint32_t{space_->extents().super().align_pow});
  options.expiry = this->expiry() != nullptr;
  options.clock = &Expiry::FirstTime;  // nothing expires in the copy while it is made
  const auto open = [&] { return Open(std::move(empty_file), options); };
  if (!writable_) {  // the state includes unsynchronized updates of a dead process
    options.num_records = CountFlushed();
    HAKO_ASSIGN_OR_RETURN(auto copy, open());
    Status status;
    auto it = this->MakeStoredIterator();
    for (it.First(); it.Valid(); it.Next()) HAKO_RETURN_IF_ERROR(copy->SetStored(it.key(), it.value()));
    HAKO_RETURN_IF_ERROR(it.status());
    return FinishCopy(*copy, options.num_records, this->AppliedIndex(), space_->log().NameForCopy(space_->log().position()));
  }
  sync::MutexLock lock(reorganizing_mutex_);
  std::uint64_t applied_index = 0;
  log::NamedLog named;
  const auto note_count = [&](std::uint64_t count) {
    options.num_records = count;
    applied_index = this->AppliedIndex();
    named = space_->log().NameForCopy(space_->log().TakePosition());
    return absl::OkStatus();
  };
  return WithPinnedState(*mine, note_count, [&]() -> Status {
    HAKO_ASSIGN_OR_RETURN(auto copy, open());
    const auto set = [&](const typename Space::ScannedRecord& record) -> Status {
      if (record.bytes != nullptr) return copy->SetStored(record.key(), record.value());
      HAKO_ASSIGN_OR_RETURN(auto found, space_->FindLong(record.handle));
      return copy->AddLong(found);
    };
    HAKO_RETURN_IF_ERROR(space_->ScanPinned(set));
    return FinishCopy(*copy, options.num_records, applied_index, named);
  });
}
HAKO_OR_NO_MEMORY

// Adds a record of another database, whose key must be new. REQUIRES: no other thread uses this
// database. A copy that is being made also has no thread that removes expired records.
template <File FileT>
Status HashDBM<FileT>::AddLong(typename Space::LongRecord& record) {
  this->AssertNoWriters();
  WriterState* mine = writers_.Mine();
  if (mine == nullptr) return writers_.Refusal();
  Status status;
  const std::uint64_t hash = space_->KeyHash(record.key);
  const std::uint32_t handle = space_->WriteAhead(*mine, hash, record.key, record.value, &status);
  if (handle == 0) return status;
  AsWriter(*mine, [&] { status = space_->EndAhead(*mine, handle); });
  return status.ok() ? index().Adopt(*mine, hash, handle) : status;
}

template <File FileT>
Status HashDBM<FileT>::FinishCopy(HashDBM& copy, std::uint64_t num_records, std::uint64_t applied_index, const log::NamedLog& named) {
  if (copy.Count() != num_records) return absl::DataLossError("damaged records found while copying; Verify names them");
  copy.space_->StoreAppliedIndex(applied_index);
  if (this->expiry() != nullptr) copy.NoteClock(this->expiry()->Now());
  HAKO_RETURN_IF_ERROR(copy.SetType(this->GetType()));
  HAKO_RETURN_IF_ERROR(copy.SetMetadata(this->GetMetadata()));
  if (!named.IsNone()) copy.space_->log().Name(named.id, named.from);  // the superblock of the copy names the end of the history
  return copy.Close();
}

template <File FileT>
bool HashDBM<FileT>::ShouldBeRebuilt() {
  if (!this->CheckIdle().ok()) return false;
  const Stats stats = GetStats();
  const std::uint64_t scattered = stats.free_bytes - std::min(stats.free_bytes, space_->extents().free_extent_bytes());
  return stats.total_bytes > (1 << 20) && scattered > stats.total_bytes / 2;
}

template <File FileT>
Stats HashDBM<FileT>::GetStats() {
  Stats stats;
  if (!this->CheckIdle().ok()) return stats;
  stats.num_records = this->Count();
  stats.index_bytes = space_->index_bytes();
  RunExclusive([&] {
    stats.free_bytes = space_->FreeBytes(ForEachWriter());
    stats.waiting_bytes = space_->WaitingBytes(ForEachWriter());
    stats.total_bytes = space_->extents().tail() + (space_->index_is_in_memory() ? stats.index_bytes : 0);
    return 0;
  });
  stats.record_bytes = stats.total_bytes - stats.index_bytes - stats.free_bytes;
  stats.num_buckets = index().num_lines();
  stats.num_overflow = index().lines().num_overflow();
  stats.epoch = space_->epoch();
  stats.synced_at = synced_at_;
  stats.own_syncs = own_syncs_.load(std::memory_order_relaxed);
  AddDeviceCounters(space_->extents().file(), &stats);
  stats.second_reads = space_->second_reads();
  return stats;
}

template <File FileT>
Inspection HashDBM<FileT>::Inspect() HAKO_TRY {
  Inspection pairs = InspectionOf("HashDBM", GetStats());
  pairs.emplace_back("type", absl::StrCat(this->GetType()));
  return pairs;
}
HAKO_CATCH_NO_MEMORY(return {};)

template <File FileT>
Status HashDBM<FileT>::StoreMetadata() {
  sync::MutexLock lock(maintenance_mutex_);
  HAKO_RETURN_IF_ERROR(space_->Health());
  const Status status = space_->extents().Commit([this](format::HashSuperBlock& super) { this->Describe(super); });
  if (!status.ok()) space_->Poison(status);
  return status;
}

template <File FileT>
Status HashDBM<FileT>::CloseFile() {
  auto& extents = space_->extents();
  if (this->expiry() != nullptr) {
    NoteClock(this->expiry()->latest());
    extents.NoteFirstExpiry(this->expiry()->schedule().FirstExpiry());
  }
  HAKO_RETURN_IF_ERROR(space_->Health());  // after a failed write, the next Open recovers the last synchronized state
  HAKO_RETURN_IF_ERROR(this->FlushPending());
  if (WriterState* mine = writers_.Mine(); mine != nullptr) {
    if (rebuilt_ && Space::kMapped && index().WouldShrinkTo(this->Count())) HAKO_RETURN_IF_ERROR(RebuildIndex(*mine));
    (void)RefreshSomeStamps(*mine);
  }
  const std::uint64_t count = this->Count();
  WriterState last;  // not that of the thread, which may have none
  const auto with_last = [&](auto&& visit) {
    this->ForEachWriter()(visit);
    visit(last);
  };
  const auto closed = space_->CloseEpoch(with_last);
  space_->ReleaseUnstamped(last, closed, [](auto&& step) { step(); });
  space_->GatherFree(with_last);
  space_->heap_extents().ReturnAllFree();
  HAKO_RETURN_IF_ERROR(space_->Health());  // if a stamp could not be written, the next Open recovers too
  if (extents.EndsInFreeExtent()) {        // truncate only once the durable state no longer needs the end of the file
    HAKO_RETURN_IF_ERROR(space_->CommitEpoch(closed, count));
    extents.WithdrawLiveState();
    extents.LowerTail();
    HAKO_RETURN_IF_ERROR(extents.Commit([&](format::HashSuperBlock& super) { super.tail = extents.tail(); }));
  }
  std::string note = space_->TakeNote(with_last, closed);
  HAKO_RETURN_IF_ERROR(extents.CutAtTail());
  if (Status resized = extents.file().Resize(extents.tail() + note.size()); absl::IsResourceExhausted(resized)) {
    note.clear();  // the device is full: the next Open finds the free space piece by piece
  } else {
    HAKO_RETURN_IF_ERROR(resized);
    HAKO_RETURN_IF_ERROR(extents.Write(extents.tail(), note));
  }
  std::uint64_t index_check = 0;
  if constexpr (Space::kMapped) {
    index_check = space_->IndexCheck();
  } else {
    HAKO_ASSIGN_OR_RETURN(index_check, space_->SaveIndex(extents.tail() + note.size()));
  }
  HAKO_RETURN_IF_ERROR(extents.Sync());
  HAKO_RETURN_IF_ERROR(extents.Commit([&](format::HashSuperBlock& super) {
    super.epoch = closed.epoch;
    super.tail = extents.tail();
    super.num_records = count;
    super.applied_index = closed.applied_index;
    super.synced_at = WallClock();
    hash::NameLog(super, space_->log().id(), closed.log_end);
    super.clean = 1;
    super.num_lines = index().num_lines();
    super.index_extents = space_->num_index_extents();
    super.index_check = index_check;
    super.note_size = note.size();
    super.note_check = Hash64(note, super.secret);
  }));
  extents.WithdrawLiveState();
  return absl::OkStatus();
}

}  // namespace hako
