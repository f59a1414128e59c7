// Definitions of dbm/hash_dbm.h: opening and recovery, records, then the whole database.
#pragma once

#include "hako/dbm/hash_dbm.h"

namespace hako {

// ---- opening ----

template <File FileT>
StatusOr<std::unique_ptr<HashDBM<FileT>>> HashDBM<FileT>::Open(FileT file, const HashOptions& options) {
  if (options.align_pow < 3 || options.align_pow > 6) return absl::InvalidArgumentError("HashOptions::align_pow must be 3 to 6");
  HAKO_ASSIGN_OR_RETURN(auto extents, storage::ExtentFile<FileT>::Open(std::move(file), options.align_pow, options.seed));
  HAKO_ASSIGN_OR_RETURN(auto heap, Space::Open(std::move(extents), options.min_read_size));
  std::unique_ptr<HashDBM> dbm(new HashDBM(std::move(heap), options));
  dbm->closed_ = true;  // not before recovery has succeeded may Close write anything
  Slot* mine = dbm->slots_.Mine();
  if (mine == nullptr) return TooManyThreads();
  HAKO_RETURN_IF_ERROR(dbm->Recover(*mine, options));
  dbm->closed_ = false;
  dbm->synced_at_ = dbm->heap_->extents().super().synced_at;
  if (options.sync_interval.count() > 0 && dbm->IsWritable()) {
    const auto synchronize = [self = dbm.get()] {
      if (!self->changed_.exchange(false)) return;
      if (!self->Synchronize(SyncMode::kHard).ok()) self->changed_ = true;  // a failed sync poisons the heap, which tells all
    };
    HAKO_ASSIGN_OR_RETURN(dbm->background_, sync::BackgroundThread::Start(options.sync_interval, synchronize));
  }
  return dbm;
}

template <File FileT>
StatusOr<std::unique_ptr<HashDBM<FileT>>> HashDBM<FileT>::Open(const std::string& path, const HashOptions& options,
                                                               const FileOptions& file_options) requires PathFile<FileT> {
  HAKO_ASSIGN_OR_RETURN(FileT file, FileT::Open(path, file_options));
  auto dbm = Open(std::move(file), options);
  if (dbm.ok()) return dbm;
  return Status(dbm.status().code(), absl::StrCat(path, ": ", dbm.status().message()));
}

template <File FileT>
Status HashDBM<FileT>::Recover(Slot& mine, const HashOptions& options) {
  auto& extents = heap_->extents();
  const bool writable = IsWritable();
  switch (extents.found()) {
    case storage::FoundState::kNew:
      HAKO_RETURN_IF_ERROR(index_.Create(options.num_records));
      break;
    case storage::FoundState::kKilled:
      heap_->set_num_index_extents(extents.LoadLive(&format::LiveState::index_extents));
      HAKO_RETURN_IF_ERROR(AdoptIndex(mine, extents.LoadLive(&format::LiveState::num_lines)));
      heap_->BeginHarvest(mine);
      if (extents.LoadLive(&format::LiveState::clearing) == format::kClearing) HAKO_RETURN_IF_ERROR(RemoveAllRecords(mine));
      if (!writable) return absl::OkStatus();
      HAKO_RETURN_IF_ERROR(extents.CutAtTail());
      HAKO_RETURN_IF_ERROR(extents.MarkInUse());
      break;
    case storage::FoundState::kClean: {
      const format::HashSuperBlock& super = extents.super();
      std::string note(super.note_size, '\0');
      HAKO_RETURN_IF_ERROR(extents.Read(super.tail, note.data(), note.size()));
      const bool note_holds = super.note_check == Hash64(note, super.secret);
      HAKO_ASSIGN_OR_RETURN(const bool has_index, note_holds ? FindIndex() : StatusOr<bool>(false));
      if (has_index) {
        HAKO_RETURN_IF_ERROR(AdoptIndex(mine, super.num_lines));
        if (Count() != super.num_records) return absl::DataLossError("the index does not hold as many records as the superblock says");
        if (writable) HAKO_RETURN_IF_ERROR(extents.MarkInUse());
        if (note.empty()) {
          heap_->BeginHarvest(mine);
        } else {
          HAKO_RETURN_IF_ERROR(heap_->ReadNote(mine, note));
        }
        if (!writable) return absl::OkStatus();
        HAKO_RETURN_IF_ERROR(extents.CutAtTail());
        break;
      }
      [[fallthrough]];  // the index can always be made anew
    }
    case storage::FoundState::kCrashed:
      if (writable) {  // the state to be recovered is made durable first: the sync that was to do it may have failed
        extents.WithdrawLiveState();
        HAKO_RETURN_IF_ERROR(extents.MarkInUse());
      }
      HAKO_RETURN_IF_ERROR(RecoverByScan(mine));
      if (!writable) return absl::OkStatus();
      HAKO_RETURN_IF_ERROR(SynchronizeLocked(mine));
      break;
  }
  if (!heap_->index_is_in_memory()) extents.PublishLiveState();
  return absl::OkStatus();
}

// The index that a clean close left: in place in a mapped file, or, for one that is not, as an image behind the note. False if there is
// none that holds.
template <File FileT>
StatusOr<bool> HashDBM<FileT>::FindIndex() {
  const format::HashSuperBlock& super = heap_->extents().super();
  if constexpr (Space::kMapped) {
    if (super.index_extents == 0) return false;
    heap_->set_num_index_extents(super.index_extents);
    return heap_->IndexTableIsInside() && heap_->IndexCheck() == super.index_check;
  } else {
    if (super.index_extents != 0 || super.index_check == 0) return false;
    return heap_->LoadIndex(super.tail + super.note_size, super.index_check);
  }
}

// Takes over the index that was found.
template <File FileT>
Status HashDBM<FileT>::AdoptIndex(Slot& mine, std::uint64_t num_lines) {
  auto& lines = index_.lines();
  if (!heap_->index_is_in_memory() && !heap_->IndexTableIsInside())
    return DataLossError("bad table of index extents", format::kIndexExtentsOffset);
  std::vector<format::IndexExtentEntry> overflow;
  for (const format::IndexExtentEntry& entry : heap_->IndexExtents()) {
    heap_->AddIndexBytes(entry.bytes);
    if (entry.overflow) {
      overflow.push_back(entry);
    } else if (!lines.AdoptHome(entry.offset, entry.bytes)) {
      return DataLossError("bad table of index extents, at the extent", entry.offset);
    }
  }
  std::unordered_set<std::uint32_t> used;
  HAKO_RETURN_IF_ERROR(index_.Recover(mine, num_lines, &used));
  for (const auto& entry : overflow) lines.AdoptOverflow(entry.offset, entry.bytes, used);
  return absl::OkStatus();
}

// Makes the index anew from the records that belong to the last synced state, and finds all free space. Writes nothing that the state
// needs, so it may be interrupted and begun again.
template <File FileT>
Status HashDBM<FileT>::RecoverByScan(Slot& mine) {
  auto& extents = heap_->extents();
  const std::uint64_t end = extents.super().tail;
  const std::uint64_t s = extents.super().epoch;
  extents.SetTail(end);
  if (IsWritable()) HAKO_RETURN_IF_ERROR(extents.CutAtTail());
  heap_->set_num_index_extents(0);
  if (!Space::kMapped || !IsWritable()) HAKO_RETURN_IF_ERROR(heap_->UseIndexArena());
  const std::uint64_t expected = std::min(extents.super().num_records.get(), end / 8);
  Status created = index_.Create(expected);
  if (absl::IsResourceExhausted(created)) {  // a full device: in memory, this time
    HAKO_RETURN_IF_ERROR(heap_->UseIndexArena());
    index_.Reset();
    created = index_.Create(expected);
  }
  HAKO_RETURN_IF_ERROR(created);
  std::vector<storage::Extent> others;
  HAKO_RETURN_IF_ERROR(heap_->Scan(
      format::kFirstExtent, end,
      [&](const typename Space::ScannedRecord& record) {
        if (record.stamp.BelongsTo(s)) {
          heap_->Revive(record.handle);
          heap_->RefreshStamp(record.handle, record.stamp);
          return index_.Adopt(mine, record.key_hash, record.handle);
        }
        heap_->FreeBlock(mine, record.handle, record.key.size(), record.value.size());
        return absl::OkStatus();
      },
      [&](std::uint64_t offset, std::uint64_t bytes) { heap_->FreeGap(mine, offset, bytes); },
      [&](storage::Extent extent) { others.push_back(extent); }));
  if (Count() != extents.super().num_records) {
    return absl::DataLossError(absl::StrCat("damaged records: the last synced state has ", std::uint64_t{extents.super().num_records},
                                            " records, ", Count(), " of them can be read"));
  }
  for (const storage::Extent& extent : others) {
    // A heap extent whose header the crash lost may hold records of the epoch that was lost with it. A later crash must not bring them back
    // under the header of another one.
    if (IsWritable()) HAKO_RETURN_IF_ERROR(extents.FillZero(extent.offset, extent.bytes));
    extents.Free(extent);
  }
  return absl::OkStatus();
}

// ---- records ----

template <File FileT>
template <Visitor V>
Status HashDBM<FileT>::Process(std::string_view key, V&& visitor) {
  HAKO_RETURN_IF_ERROR(CheckKey(key, kKeySizeMax));
  Slot* slot = slots_.Mine();
  if (slot == nullptr) [[unlikely]]
    return TooManyThreads();
  const std::uint64_t hash = heap_->KeyHash(key);
  if constexpr (Space::kReadsAhead && std::is_same_v<std::remove_cvref_t<V>, Action>) {
    if (pending_ != nullptr && visitor.kind() == Action::Kind::kSet && key.size() <= PendingSets::kKeyMax &&
        (pending_->MayHold(hash) || index_.MayHold(hash)))
      return SetLater(*slot, hash, key, visitor.value());
  }
  HAKO_RETURN_IF_ERROR(EnterPending(hash));
  if constexpr (ReadVisitor<std::remove_reference_t<V>>) {
    return index_.template Process<void>(*slot, hash, key, visitor);
  } else {
    if (!heap_->AcceptsWrites()) [[unlikely]]
      return RefuseWrites();
    if (notes_updates_) [[unlikely]]
      return ProcessNoting(*slot, key, visitor);
    return index_.template Process<Action>(*slot, hash, key, visitor);
  }
}

template <File FileT>
Status HashDBM<FileT>::ProcessNoting(Slot& slot, std::string_view key, absl::FunctionRef<Action(std::optional<std::string_view>)> visitor) {
  bool updates = false;
  HAKO_RETURN_IF_ERROR(
      index_.template Process<Action>(slot, heap_->KeyHash(key), key, [&updates, visitor](std::optional<std::string_view> value) {
        const Action action = visitor(value);
        updates = action.kind() != Action::Kind::kKeep;
        return action;
      }));
  return updates ? NoteUpdate() : absl::OkStatus();
}

template <File FileT>
Status HashDBM<FileT>::ProcessNoting(Slot& slot, std::string_view key, absl::FunctionRef<Action(bool)> visitor) {
  bool updates = false;
  HAKO_RETURN_IF_ERROR(index_.template Process<Action>(slot, heap_->KeyHash(key), key, [&updates, visitor](bool exists) {
    const Action action = visitor(exists);
    updates = action.kind() != Action::Kind::kKeep;
    return action;
  }));
  return updates ? NoteUpdate() : absl::OkStatus();
}

template <File FileT>
Status HashDBM<FileT>::ProcessMultiNoting(Slot& slot, std::span<const std::string_view> keys,
                                          absl::FunctionRef<std::optional<Action>(std::size_t, std::optional<std::string_view>)> visitor) {
  bool updates = false;
  HAKO_RETURN_IF_ERROR(index_.template ProcessMulti<Action>(
      slot, keys, [&updates, visitor](std::size_t index, std::optional<std::string_view> value) -> std::optional<Action> {
        const std::optional<Action> action = visitor(index, value);
        updates = updates || (action && action->kind() != Action::Kind::kKeep);
        return action;
      }));
  return updates ? NoteUpdate() : absl::OkStatus();
}

// Who finds the list full enters it first, so that an error is not of what has been taken.
template <File FileT>
Status HashDBM<FileT>::SetLater(Slot& slot, std::uint64_t hash, std::string_view key, std::string_view value) {
  std::lock_guard lock(pending_->mutex());
  if (!heap_->AcceptsWrites()) return RefuseWrites();
  Status status = pending_->IsFull() ? EnterLocked(&slot) : absl::OkStatus();
  if (pending_->IsFull()) return status;
  status = absl::OkStatus();
  AsWriter(slot, [&] {
    const std::uint32_t handle = heap_->Write(slot, hash, key, value, &status);
    if (handle == 0) return;
    const PendingSets::Record before = pending_->Put(hash, key, {handle, value.size()});
    if (before.handle != 0) heap_->GiveBack(slot, before.handle, key.size(), before.value_size);
  });
  return status;
}

template <File FileT>
Status HashDBM<FileT>::EnterPendingSlowly() const {
  std::lock_guard lock(pending_->mutex());
  return EnterLocked(slots_.Mine());
}

// If not all can be entered together, then those that can be alone.
template <File FileT>
Status HashDBM<FileT>::EnterLocked(Slot* slot) const {
  if (pending_->IsEmpty()) return absl::OkStatus();
  if (slot == nullptr) return TooManyThreads();
  Status status = index_.EnterMulti(*slot, pending_->keys(), pending_->handles());
  const bool all = status.ok();
  pending_->Retain([&](std::size_t i) {
    return !all && !index_.EnterMulti(*slot, pending_->keys().subspan(i, 1), pending_->handles().subspan(i, 1)).ok();
  });
  return pending_->IsEmpty() ? absl::OkStatus() : status;
}

template <File FileT>
template <class Body>
Status HashDBM<FileT>::AloneAndEntered(Body&& body) {
  std::unique_lock<std::mutex> lock;
  if (pending_ != nullptr) {
    lock = std::unique_lock(pending_->mutex());
    HAKO_RETURN_IF_ERROR(EnterLocked(slots_.Mine()));
  }
  return Alone(body);
}

template <File FileT>
Status HashDBM<FileT>::NoteUpdate() {
  if (durability_ == Durability::kPower) return Synchronize(SyncMode::kHard);
  if (!changed_.load(std::memory_order_relaxed)) changed_.store(true);
  return absl::OkStatus();
}

template <File FileT>
template <MultiVisitor V>
Status HashDBM<FileT>::ProcessMulti(std::span<const std::string_view> keys, V&& visitor) {
  for (const std::string_view key : keys) HAKO_RETURN_IF_ERROR(CheckKey(key, kKeySizeMax));
  Slot* slot = slots_.Mine();
  if (slot == nullptr) return TooManyThreads();
  HAKO_RETURN_IF_ERROR(EnterPending());
  if constexpr (MultiReadVisitor<std::remove_reference_t<V>>) {
    return index_.template ProcessMulti<Action>(*slot, keys, KeepAll(visitor));
  } else {
    if (!heap_->AcceptsWrites()) return RefuseWrites();
    if (notes_updates_) return ProcessMultiNoting(*slot, keys, visitor);
    return index_.template ProcessMulti<Action>(*slot, keys, visitor);
  }
}

template <File FileT>
template <Sink S>
HAKO_INLINE Status HashDBM<FileT>::Fetch(std::string_view key, S&& sink) {
  const std::uint64_t hash = heap_->KeyHash(key);
  HAKO_RETURN_IF_ERROR(EnterPending(hash));
  return index_.Fetch([this] { return slots_.Mine(); }, hash, key, sink);
}

template <File FileT>
template <class V>
Status HashDBM<FileT>::ProcessEach(V&& visitor) {
  if constexpr (!Space::kMapped) {
    if (HashWalk<Index, Space> walk(index_, *heap_); walk.Claim()) {
      HAKO_RETURN_IF_ERROR(AloneAndEntered([&] {
        walk.Start(CountEntered());
        return absl::OkStatus();
      }));
      return walk.Run(visitor);
    }
  }
  HAKO_RETURN_IF_ERROR(EnterPending());
  return index_.ForEach(visitor);
}

template <File FileT>
Status HashDBM<FileT>::RefuseWrites() const {
  return writable_ ? heap_->Health() : absl::FailedPreconditionError("the database is open for reading only");
}

// ---- the whole database ----

template <File FileT>
Status HashDBM<FileT>::Clear() {
  if (!IsWritable()) return RefuseWrites();
  Slot* mine = slots_.Mine();
  if (mine == nullptr) return TooManyThreads();
  HAKO_RETURN_IF_ERROR(heap_->Health());
  HAKO_RETURN_IF_ERROR(AloneAndEntered([&] {
    heap_->extents().StoreLive(&format::LiveState::clearing, format::kClearing);
    return RemoveAllRecords(*mine);
  }));
  return notes_updates_ ? NoteUpdate() : absl::OkStatus();
}

template <File FileT>
Status HashDBM<FileT>::RemoveAllRecords(Slot& mine) {
  Status status = index_.RemoveAll([&](std::uint32_t handle) { heap_->Retire(mine, handle); });
  if (status.ok()) {
    slots_.ForEach([](Slot& slot) { slot.pending_count.store(0, std::memory_order_relaxed); });
    heap_->moves().ForgetAll();
  }
  heap_->extents().StoreLive(&format::LiveState::clearing, 0);  // after an error too: what is written from now on is not to be removed
  return status;
}

template <File FileT>
Status HashDBM<FileT>::Synchronize(SyncMode mode) {
  if (!IsWritable()) return RefuseWrites();
  if (mode == SyncMode::kSoft && !heap_->index_is_in_memory()) return heap_->Health();
  Slot* mine = slots_.Mine();
  if (mine == nullptr) return TooManyThreads();
  const std::uint64_t call = sync_calls_.fetch_add(1, std::memory_order_acq_rel) + 1;
  std::lock_guard lock(maintenance_mutex_);
  if (call <= synced_calls_) return heap_->Health();  // one that began after this call has covered it
  const std::uint64_t covered = sync_calls_.load(std::memory_order_acquire);
  HAKO_RETURN_IF_ERROR(SynchronizeLocked(*mine));
  synced_calls_ = covered;
  return absl::OkStatus();
}

template <File FileT>
Status HashDBM<FileT>::SynchronizeLocked(Slot& mine) {
  return SynchronizeSlots(mine, ForEachSlot());
}

template <File FileT>
template <class Slots>
Status HashDBM<FileT>::SynchronizeSlots(Slot& mine, Slots&& for_each_slot) {
  HAKO_RETURN_IF_ERROR(heap_->Health());
  const Status refreshed = RefreshSomeStamps(mine);  // damage that it meets is no reason to give up what is sound
  std::uint64_t count = 0;
  typename Space::ClosedEpoch closed{};
  HAKO_RETURN_IF_ERROR(AloneAndEntered([&] {
    count = CountEntered();
    closed = heap_->CloseEpoch(for_each_slot);
    return absl::OkStatus();
  }));
  HAKO_RETURN_IF_ERROR(heap_->CommitEpoch(closed, count));
  synced_at_ = heap_->extents().super().synced_at;
  AsWriter(mine, [&] { heap_->ReleaseWaiting(mine, closed); });
  return refreshed;
}

// Before an epoch ends, the records of some lines more, for each epoch since the last durable one: within 512 epochs of all lines, in
// whatever lives of the file, and within the next 512 of a record that a split takes along behind the sweep. So no stamp is still there
// when epochs wrap.
template <File FileT>
Status HashDBM<FileT>::RefreshSomeStamps(Slot& mine) {
  static constexpr std::uint64_t kParts = 512;
  const std::uint64_t lines = index_.num_lines(), to = heap_->epoch(), from = heap_->extents().super().epoch;
  if (to <= Space::kStampAgeMax) return absl::OkStatus();  // none is that old
  for (std::uint64_t epoch = to - std::min(to - from, kParts); epoch < to; ++epoch) {
    const std::uint64_t part = epoch % kParts;
    HAKO_RETURN_IF_ERROR(
        index_.ForEachLocked(mine, lines * part / kParts, lines * (part + 1) / kParts, [this](std::uint32_t handle, auto&&) {
          heap_->RefreshStamp(handle);
          return absl::OkStatus();
        }));
  }
  return absl::OkStatus();
}

template <File FileT>
Status HashDBM<FileT>::CopyTo(FileT empty_file) {
  if (empty_file.Size() != 0) return absl::InvalidArgumentError("CopyTo wants an empty file");
  Slot* mine = slots_.Mine();
  if (mine == nullptr) return TooManyThreads();
  std::lock_guard lock(maintenance_mutex_);  // no block of the copied state is reused before the next synchronization
  if (IsWritable()) HAKO_RETURN_IF_ERROR(SynchronizeLocked(*mine));
  const std::uint64_t s = heap_->extents().super().epoch;
  HashOptions options;
  options.num_records = heap_->extents().super().num_records;
  options.align_pow = static_cast<int>(std::uint32_t{heap_->extents().super().align_pow});
  HAKO_ASSIGN_OR_RETURN(auto copy, Open(std::move(empty_file), options));
  HAKO_RETURN_IF_ERROR(heap_->Scan(
      format::kFirstExtent, heap_->extents().super().tail,
      [&](const typename Space::ScannedRecord& record) {
        return record.stamp.BelongsTo(s) ? copy->Set(record.key, record.value) : absl::OkStatus();
      },
      [](std::uint64_t, std::uint64_t) {}, [](storage::Extent) {}));
  if (copy->Count() != options.num_records) return absl::DataLossError("damaged records were found while copying; Verify names them");
  HAKO_RETURN_IF_ERROR(copy->SetType(GetType()));
  HAKO_RETURN_IF_ERROR(copy->SetMetadata(GetMetadata()));
  return copy->Close();
}

template <File FileT>
Status HashDBM<FileT>::CopyTo(const std::string& path) requires PathFile<FileT> {
  return ReplaceFileByClosed<FileT>(path, [this](FileT file) { return CopyTo(std::move(file)); });
}

template <File FileT>
bool HashDBM<FileT>::ShouldBeRebuilt() {
  const Stats stats = GetStats();
  const std::uint64_t scattered = stats.free_bytes - std::min(stats.free_bytes, heap_->extents().free_extent_bytes());
  return stats.total_bytes > (1 << 20) && scattered > stats.total_bytes / 2;
}

template <File FileT>
Status HashDBM<FileT>::Verify() {
  Slot* mine = slots_.Mine();
  if (mine == nullptr) return TooManyThreads();
  std::lock_guard lock(maintenance_mutex_);
  return AloneAndEntered([&]() -> Status {
    const std::uint64_t count = CountEntered();
    HAKO_RETURN_IF_ERROR(index_.Verify(*mine, count));
    std::uint64_t live = 0;
    HAKO_RETURN_IF_ERROR(heap_->Scan(
        format::kFirstExtent, heap_->extents().tail(),
        [&](const typename Space::ScannedRecord& record) {
          live += record.stamp.state() == format::BlockState::kLive;
          return absl::OkStatus();
        },
        [](std::uint64_t, std::uint64_t) {}, [](storage::Extent) {}));
    if (live == count) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat("the heap holds ", live, " live records, the index ", count));
  });
}

template <File FileT>
Stats HashDBM<FileT>::GetStats() {
  Stats stats;
  stats.num_records = Count();
  stats.index_bytes = heap_->index_bytes();
  Alone([&] {
    stats.free_bytes = heap_->FreeBytes(ForEachSlot());
    stats.total_bytes = heap_->extents().tail() + (heap_->index_is_in_memory() ? stats.index_bytes : 0);
    return 0;
  });
  stats.record_bytes = stats.total_bytes - stats.index_bytes - stats.free_bytes;
  stats.num_buckets = index_.num_lines();
  stats.num_overflow = index_.lines().num_overflow();
  stats.epoch = heap_->epoch();
  stats.synced_at = synced_at_;
  AddDeviceCounters(heap_->extents().file(), &stats);
  stats.second_reads = heap_->second_reads();
  return stats;
}

template <File FileT>
Inspection HashDBM<FileT>::Inspect() {
  Inspection pairs = InspectionOf("HashDBM", GetStats());
  pairs.emplace_back("type", absl::StrCat(GetType()));
  return pairs;
}

template <File FileT>
std::uint32_t HashDBM<FileT>::GetType() const {
  std::lock_guard lock(metadata_mutex_);
  return type_;
}

template <File FileT>
Status HashDBM<FileT>::SetType(std::uint32_t type) {
  return ChangeSuperBlock([type](format::HashSuperBlock& super) { super.type = type; });
}

template <File FileT>
UserMetadata HashDBM<FileT>::GetMetadata() const {
  std::lock_guard lock(metadata_mutex_);
  return metadata_;
}

template <File FileT>
Status HashDBM<FileT>::SetMetadata(const UserMetadata& metadata) {
  return ChangeSuperBlock([&metadata](format::HashSuperBlock& super) { super.metadata = metadata; });
}

template <File FileT>
template <class F>
Status HashDBM<FileT>::ChangeSuperBlock(F&& change) {
  if (!IsWritable()) return RefuseWrites();
  std::lock_guard lock(maintenance_mutex_);
  HAKO_RETURN_IF_ERROR(heap_->Health());
  if (Status status = heap_->extents().Commit(change); !status.ok()) {
    heap_->Poison(status);
    return status;
  }
  std::lock_guard metadata_lock(metadata_mutex_);
  metadata_ = heap_->extents().super().metadata;
  type_ = heap_->extents().super().type;
  return absl::OkStatus();
}

template <File FileT>
Status HashDBM<FileT>::Close() {
  if (closed_) return absl::OkStatus();
  closed_ = true;
  background_.reset();
  Status status = IsWritable() ? CloseWritable() : absl::OkStatus();
  status.Update(heap_->extents().file().Close());
  return status;
}

template <File FileT>
Status HashDBM<FileT>::CloseWritable() {
  auto& extents = heap_->extents();
  HAKO_RETURN_IF_ERROR(heap_->Health());  // after a failed write the next Open recovers the last synced state
  HAKO_RETURN_IF_ERROR(EnterPending());
  if (Slot* mine = slots_.Mine(); mine != nullptr) {
    if (rebuilt_ && Space::kMapped) HAKO_RETURN_IF_ERROR(MakeIndexAnew(*mine));
    (void)RefreshSomeStamps(*mine);
  }
  const std::uint64_t count = Count();
  const auto closed = heap_->CloseEpoch(ForEachSlot());
  if (extents.EndsInFreeExtent()) {  // the file is cut only when its durable state does not need what is cut off
    HAKO_RETURN_IF_ERROR(heap_->CommitEpoch(closed, count));
    extents.WithdrawLiveState();
    extents.LowerTail();
    HAKO_RETURN_IF_ERROR(extents.Commit([&](format::HashSuperBlock& super) { super.tail = extents.tail(); }));
  }
  std::string note = heap_->TakeNote(ForEachSlot(), closed.waiting);
  HAKO_RETURN_IF_ERROR(extents.CutAtTail());
  if (Status resized = extents.file().Resize(extents.tail() + note.size()); absl::IsResourceExhausted(resized)) {
    note.clear();  // a full device: the next opener finds the free space piece by piece
  } else {
    HAKO_RETURN_IF_ERROR(resized);
    HAKO_RETURN_IF_ERROR(extents.Write(extents.tail(), note));
  }
  std::uint64_t index_check = 0;
  if constexpr (Space::kMapped) {
    index_check = heap_->IndexCheck();
  } else {
    HAKO_ASSIGN_OR_RETURN(index_check, heap_->SaveIndex(extents.tail() + note.size()));
  }
  HAKO_RETURN_IF_ERROR(extents.Sync());
  HAKO_RETURN_IF_ERROR(extents.Commit([&](format::HashSuperBlock& super) {
    super.epoch = closed.epoch;
    super.tail = extents.tail();
    super.num_records = count;
    super.synced_at = WallClock();
    super.clean = 1;
    super.num_lines = index_.num_lines();
    super.index_extents = heap_->num_index_extents();
    super.index_check = index_check;
    super.note_size = note.size();
    super.note_check = Hash64(note, super.secret);
  }));
  extents.WithdrawLiveState();
  return absl::OkStatus();
}

// First the extents that are no more than three quarters full, into fresh ones; then, from the file's end, whatever finds free extents
// below it. In batches, so that the extents which one batch empties take the records of the next.
template <File FileT>
Status HashDBM<FileT>::Rebuild() {
  if (!IsWritable()) return RefuseWrites();
  Slot* mine = slots_.Mine();
  if (mine == nullptr) return TooManyThreads();
  std::lock_guard lock(maintenance_mutex_);
  HAKO_RETURN_IF_ERROR(SynchronizeLocked(*mine));
  auto& extents = heap_->extents();
  AsWriter(*mine, [&] { heap_->HarvestAll(*mine); });
  Slot mover;
  const auto survey = [&](auto&& take) -> Status {
    for (std::uint64_t at = format::kFirstExtent; at < extents.tail();) {
      HAKO_ASSIGN_OR_RETURN(const std::uint64_t bytes, extents.HeapExtentBytes(at));
      const storage::Extent extent{at, bytes};
      at += std::max(bytes, format::kExtentUnit);
      if (bytes == 0) continue;
      HAKO_ASSIGN_OR_RETURN(const std::uint64_t live, heap_->LiveBytes(extent));
      take(extent, live);
    }
    return absl::OkStatus();
  };
  const std::uint64_t batch = std::max<std::uint64_t>(8 << 20, extents.tail() / 16);
  Status status = [&]() -> Status {
    std::vector<storage::Extent> victims;
    std::vector<std::vector<storage::Extent>> batches;
    std::uint64_t live_in_batch = 0;
    HAKO_RETURN_IF_ERROR(survey([&](storage::Extent extent, std::uint64_t live) {
      if (live > extent.bytes / 4 * 3) return;
      if (batches.empty() || live_in_batch + live > batch) batches.emplace_back(), live_in_batch = 0;
      batches.back().push_back(extent);
      live_in_batch += live;
    }));
    for (const auto& sparse : batches) HAKO_RETURN_IF_ERROR(Evacuate(*mine, mover, sparse));

    AsWriter(*mine, [&] { heap_->ReleaseChunk(*mine, mover); });  // the next one lies lower
    std::vector<storage::Extent> all;
    HAKO_RETURN_IF_ERROR(survey([&](storage::Extent extent, std::uint64_t) { all.push_back(extent); }));
    while (!all.empty()) {
      std::uint64_t room = 0;
      for (const storage::Extent& free : extents.free_extents()) room += free.offset < all.back().offset ? free.bytes : 0;
      room = std::min(room, batch);
      for (victims.clear(); !all.empty() && all.back().bytes <= room; all.pop_back()) {
        room -= all.back().bytes;
        victims.push_back(all.back());
      }
      if (victims.empty()) break;
      HAKO_RETURN_IF_ERROR(Evacuate(*mine, mover, victims));
    }
    return absl::OkStatus();
  }();
  AsWriter(*mine, [&] { heap_->ReleaseMover(*mine, mover); });
  rebuilt_ = true;
  return status;
}

// Moves every record out of the victims, makes that durable, and frees them.
template <File FileT>
Status HashDBM<FileT>::Evacuate(Slot& mine, Slot& mover, const std::vector<storage::Extent>& victims) {
  const auto with_mover = [&](auto&& visit) {  // whose free blocks may lie in victims, and what it retires waits with what the others do
    ForEachSlot()(visit);
    visit(mover);
  };
  HAKO_RETURN_IF_ERROR(AloneAndEntered([&] {
    heap_->BeginEvacuation(victims, with_mover);
    return absl::OkStatus();
  }));
  Status status = index_.ForEachLocked(mine, 0, ~std::uint64_t{0}, [&](std::uint32_t handle, auto&& replace) -> Status {
    if (!heap_->IsVictim(handle)) return absl::OkStatus();
    HAKO_ASSIGN_OR_RETURN(const std::uint32_t copy, heap_->Relocate(mover, handle));
    heap_->NoteMove(handle, copy);
    heap_->Retire(mover, handle);
    replace(copy);
    heap_->Commit(copy);
    return absl::OkStatus();
  });
  if (status.ok()) status = SynchronizeSlots(mine, with_mover);
  Alone([&] {
    heap_->EndEvacuation(victims, status.ok());
    return 0;
  });
  return status;
}

// After a Rebuild: an index of the size that the records need, in the lowest free extents. REQUIRES: nobody else uses the database
template <File FileT>
Status HashDBM<FileT>::MakeIndexAnew(Slot& mine) {
  auto& extents = heap_->extents();
  HAKO_RETURN_IF_ERROR(SynchronizeLocked(mine));
  extents.WithdrawLiveState();
  const std::uint64_t count = Count();
  for (const storage::Extent& extent : heap_->TakeIndexExtents()) extents.Free(extent);
  index_.Reset();
  slots_.ForEach([](Slot& slot) { slot.pending_count.store(0, std::memory_order_relaxed); });
  HAKO_RETURN_IF_ERROR(index_.Create(count));
  HAKO_RETURN_IF_ERROR(heap_->Scan(
      format::kFirstExtent, extents.tail(),
      [&](const typename Space::ScannedRecord& record) {
        if (record.stamp.state() != format::BlockState::kLive) return absl::OkStatus();
        heap_->RefreshStamp(record.handle, record.stamp);
        return index_.Adopt(mine, record.key_hash, record.handle);
      },
      [](std::uint64_t, std::uint64_t) {}, [](storage::Extent) {}));
  return Count() == count ? absl::OkStatus() : absl::DataLossError("damaged records were found while making the index anew");
}

}  // namespace hako
