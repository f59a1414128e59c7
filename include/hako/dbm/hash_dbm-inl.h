// Definitions of dbm/hash_dbm.h: operations on records, then on the whole database.
#pragma once

#include "hako/dbm/hash_dbm.h"

namespace hako {

// ---- records ----

template <File FileT>
template <Visitor V>
Status HashDBM<FileT>::Process(std::string_view key, V&& visitor) HAKO_TRY {
  HAKO_RETURN_IF_ERROR(CheckKey(key, kKeySizeMax));
  WriterState* writer = writers_.Mine();
  if (writer == nullptr) [[unlikely]]
    return writers_.Refusal();
  const std::uint64_t hash = heap_->KeyHash(key);
  if constexpr (Space::kReadsAhead && std::is_same_v<std::remove_cvref_t<V>, Action>) {
    if (pending_ != nullptr && visitor.kind() == Action::Kind::kSet && key.size() <= hash::PendingSets::kKeyMax &&
        !heap_->gate().IsHeld(hash) && (pending_->MayHold(hash) || index_.MayHold(hash)))
      return SetLater(*writer, hash, key, visitor.value());
  }
  HAKO_RETURN_IF_ERROR(FlushPending(hash));
  if constexpr (ReadVisitor<std::remove_reference_t<V>>) {
    return index_.template Process<void>(*writer, hash, key, visitor);
  } else {
    if (!heap_->AcceptsWrites()) [[unlikely]]
      return heap_->Refusal();
    if (tracks_updates_) [[unlikely]] {
      if constexpr (!std::is_same_v<std::remove_cvref_t<V>, Action>) return ProcessDurably(*writer, key, visitor);
      HAKO_RETURN_IF_ERROR(index_.template Process<Action>(*writer, hash, key, visitor));
      return AfterUpdate();
    }
    return index_.template Process<Action>(*writer, hash, key, visitor);
  }
}
HAKO_OR_NO_MEMORY

template <File FileT>
Status HashDBM<FileT>::ProcessDurably(WriterState& writer, std::string_view key,
                                      absl::FunctionRef<Action(std::optional<std::string_view>)> visitor) {
  bool updates = false;
  HAKO_RETURN_IF_ERROR(
      index_.template Process<Action>(writer, heap_->KeyHash(key), key, [&updates, visitor](std::optional<std::string_view> value) {
        const Action action = visitor(value);
        updates = action.kind() != Action::Kind::kKeep;
        return action;
      }));
  return updates ? AfterUpdate() : absl::OkStatus();
}

template <File FileT>
Status HashDBM<FileT>::ProcessDurably(WriterState& writer, std::string_view key, absl::FunctionRef<Action(bool)> visitor) {
  bool updates = false;
  HAKO_RETURN_IF_ERROR(index_.template Process<Action>(writer, heap_->KeyHash(key), key, [&updates, visitor](bool exists) {
    const Action action = visitor(exists);
    updates = action.kind() != Action::Kind::kKeep;
    return action;
  }));
  return updates ? AfterUpdate() : absl::OkStatus();
}

template <File FileT>
Status HashDBM<FileT>::ProcessMultiDurably(WriterState& writer, std::span<const std::string_view> keys,
                                           absl::FunctionRef<std::optional<Action>(std::size_t, std::optional<std::string_view>)> visitor) {
  bool updates = false;
  HAKO_RETURN_IF_ERROR(index_.template ProcessMulti<Action>(
      writer, keys, [&updates, visitor](std::size_t index, std::optional<std::string_view> value) -> std::optional<Action> {
        const std::optional<Action> action = visitor(index, value);
        updates = updates || (action && action->kind() != Action::Kind::kKeep);
        return action;
      }));
  return updates ? AfterUpdate() : absl::OkStatus();
}

// Makes a Set pending. A thread that finds the list full flushes it first, so that an error does
// not concern its own Set. Starts again if another thread holds the key once it is in the list.
template <File FileT>
Status HashDBM<FileT>::SetLater(WriterState& writer, std::uint64_t hash, std::string_view key, std::string_view value) {
  for (;; heap_->gate().WaitUntilReleased(hash)) {
    std::lock_guard lock(pending_->mutex());
    if (!heap_->AcceptsWrites()) return heap_->Refusal();
    static_assert(hash::PendingSets::kMax > sync::WriteGate::kHoldsMax);  // so that not all pending Sets can wait for held keys
    while (pending_->IsFull()) {
      if (Status entered = FlushLocked(&writer); !entered.ok() && pending_->IsFull()) return entered;
    }
    Status status;
    bool held = false;
    AsWriter(writer, [&] {
      const std::uint32_t handle = heap_->Write(writer, hash, key, value, &status);
      if (handle == 0) return;
      hash::PendingSets::Record old = pending_->Put(hash, key, {handle, value.size()});
      held = old.handle == 0 && heap_->gate().IsHeld(hash);
      if (held) {
        pending_->TakeBack();
        old = {handle, value.size()};
      }
      if (old.handle != 0) heap_->GiveBack(writer, old.handle, key.size(), old.value_size);
      heap_->ReleaseFreed(writer);
    });
    if (!held) return status;
  }
}

template <File FileT>
Status HashDBM<FileT>::FlushPendingSlowly(std::optional<std::uint64_t> hash) const HAKO_TRY {
  std::unique_lock lock(pending_->mutex());
  return FlushUntilNone(lock, hash);
}
HAKO_OR_NO_MEMORY

// Flushes until no Set is pending, or none with that hash. The mutex is released while another
// thread holds a key that matters.
template <File FileT>
Status HashDBM<FileT>::FlushUntilNone(std::unique_lock<std::mutex>& lock, std::optional<std::uint64_t> hash) const {
  for (;;) {
    Status status = FlushLocked(writers_.Mine());
    if (hash ? !pending_->MayHold(*hash) : pending_->IsEmpty()) return absl::OkStatus();
    if (!status.ok()) return status;
    const std::uint64_t held = hash ? *hash : pending_->first_hash();
    lock.unlock();
    heap_->gate().WaitUntilReleased(held);
    lock.lock();
  }
}

// Flushes pending Sets together, or, if that fails, one by one. Those whose key another thread
// holds stay pending without an error.
template <File FileT>
Status HashDBM<FileT>::FlushLocked(WriterState* writer) const {
  if (pending_->IsEmpty()) return absl::OkStatus();
  if (writer == nullptr) return writers_.Refusal();
  const auto enter = [&](std::size_t from, std::size_t count) {
    return index_.template PublishMulti<Action>(*writer, pending_->keys().subspan(from, count), pending_->handles().subspan(from, count));
  };
  const StatusOr<bool> together = enter(0, pending_->keys().size());
  const bool all = together.ok() && *together;
  Status status;
  pending_->Retain([&](std::size_t i) {
    if (all) return false;
    const StatusOr<bool> alone = enter(i, 1);
    if (!alone.ok()) status = alone.status();
    return !alone.ok() || !*alone;
  });
  return status;
}

// A Set may become pending before the buckets are locked, and a later one may be entered at once.
// So the list is checked under the locks.
template <File FileT>
template <class V>
Status HashDBM<FileT>::ProcessMultiFlushed(WriterState& writer, std::span<const std::string_view> keys, V&& visitor) {
  if constexpr (Space::kReadsAhead) {
    const auto is_pending = [this](std::uint64_t hash) { return pending_ != nullptr && pending_->MayHold(hash); };
    for (;;) {
      HAKO_ASSIGN_OR_RETURN(const bool done, index_.template TryProcessMulti<Action>(writer, keys, visitor, is_pending));
      if (done) return absl::OkStatus();
      HAKO_RETURN_IF_ERROR(FlushPending());
    }
  } else {
    return index_.template ProcessMulti<Action>(writer, keys, visitor);
  }
}

template <File FileT>
template <class Body>
Status HashDBM<FileT>::RunExclusiveFlushed(Body&& body) {
  std::unique_lock<std::mutex> lock;
  if (pending_ != nullptr) {
    lock = std::unique_lock(pending_->mutex());
    HAKO_RETURN_IF_ERROR(FlushUntilNone(lock, {}));
  }
  return RunExclusive(body);
}

template <File FileT>
Status HashDBM<FileT>::AfterUpdate() {
  if (durability_ == Durability::kPower) return Synchronize(SyncMode::kHard);
  if (!changed_.load(std::memory_order_relaxed)) changed_.store(true);
  return absl::OkStatus();
}

// ---- background synchronization ----

template <File FileT>
Status HashDBM<FileT>::StartBackground() {
  HAKO_ASSIGN_OR_RETURN(background_, sync::BackgroundThread::Start(sync_interval_, [this] { SynchronizeInBackground(); }));
  return absl::OkStatus();
}

template <File FileT>
void HashDBM<FileT>::SynchronizeInBackground() {
  bool ok = true;
  for (bool due = changed_.exchange(false); ok && (due || heap_->NeedsReclaim()); due = false) {
    ok = Synchronize(SyncMode::kHard).ok();
    own_syncs_.fetch_add(ok, std::memory_order_relaxed);
  }
  if (!ok) changed_ = true;  // a failed sync poisons the heap, so later calls return the error
  heap_->EndReclaim();
}

// Called by an update that has a bucket locked. Wakes the background thread, which the first call
// starts. If the system has no thread, the file grows and later calls try again.
template <File FileT>
bool HashDBM<FileT>::ReclaimSoon() {
  if (closed_ || writers_.IsInherited()) return false;
  if (background_ == nullptr && !CatchNoMemory([this] { return StartBackground(); }).ok()) return false;
  background_->Wake();
  return true;
}

template <File FileT>
template <MultiVisitor V>
Status HashDBM<FileT>::ProcessMulti(std::span<const std::string_view> keys, V&& visitor) HAKO_TRY {
  for (const std::string_view key : keys) HAKO_RETURN_IF_ERROR(CheckKey(key, kKeySizeMax));
  WriterState* writer = writers_.Mine();
  if (writer == nullptr) return writers_.Refusal();
  HAKO_RETURN_IF_ERROR(FlushPending());
  if constexpr (MultiReadVisitor<std::remove_reference_t<V>>) {
    return ProcessMultiFlushed(*writer, keys, KeepAll(visitor));
  } else {
    if (!heap_->AcceptsWrites()) return heap_->Refusal();
    if (tracks_updates_) return ProcessMultiDurably(*writer, keys, visitor);
    return ProcessMultiFlushed(*writer, keys, visitor);
  }
}
HAKO_OR_NO_MEMORY

template <File FileT>
template <Sink S>
HAKO_INLINE Status HashDBM<FileT>::Fetch(std::string_view key, S&& sink) {
  const std::uint64_t hash = heap_->KeyHash(key);
  HAKO_RETURN_IF_ERROR(FlushPending(hash));
  return index_.Fetch(writers_, hash, key, sink);
}

template <File FileT>
template <class V>
Status HashDBM<FileT>::ProcessEach(V&& visitor) HAKO_TRY {
  HAKO_RETURN_IF_ERROR(CheckIdle());
  if constexpr (!Space::kMapped) {
    if (hash::FileOrderScan<Index, Space> scan(index_, *heap_); scan.Claim()) {
      HAKO_RETURN_IF_ERROR(RunExclusiveFlushed([&] {
        scan.Start(CountFlushed());
        return absl::OkStatus();
      }));
      return scan.Run(visitor);
    }
  }
  HAKO_RETURN_IF_ERROR(FlushPending());
  return index_.ForEach(visitor);
}
HAKO_OR_NO_MEMORY

// ---- the whole database ----

template <File FileT>
Status HashDBM<FileT>::Clear() HAKO_TRY {
  HAKO_RETURN_IF_ERROR(CheckIdle());
  HAKO_RETURN_IF_ERROR(heap_->Refusal());
  WriterState* mine = writers_.Mine();
  if (mine == nullptr) return writers_.Refusal();
  const sync::NoHolds no_holds(heap_->gate());
  HAKO_RETURN_IF_ERROR(RunExclusiveFlushed([&] {
    heap_->extents().StoreLive(&format::LiveState::clearing, format::kClearing);
    return RemoveAllRecords(*mine);
  }));
  return tracks_updates_ ? AfterUpdate() : absl::OkStatus();
}
HAKO_OR_NO_MEMORY

template <File FileT>
Status HashDBM<FileT>::RemoveAllRecords(WriterState& mine) {
  Status status = index_.RemoveAll([&](std::uint32_t handle) { heap_->Retire(mine, handle); });
  heap_->ReleaseFreed(mine);
  if (status.ok()) {
    writers_.ForEach([](WriterState& writer) { writer.pending_count.store(0, std::memory_order_relaxed); });
    heap_->move_tracker().ForgetAll();
  }
  heap_->extents().StoreLive(&format::LiveState::clearing, 0);  // after an error too: later records must not be removed
  return status;
}

template <File FileT>
Status HashDBM<FileT>::Synchronize(SyncMode mode) HAKO_TRY {
  HAKO_RETURN_IF_ERROR(CheckIdle());
  HAKO_RETURN_IF_ERROR(heap_->Refusal());
  if (mode == SyncMode::kSoft && !heap_->index_is_in_memory()) return absl::OkStatus();
  WriterState* mine = writers_.Mine();
  if (mine == nullptr) return writers_.Refusal();
  const std::uint64_t call = sync_calls_.fetch_add(1, std::memory_order_acq_rel) + 1;
  std::lock_guard lock(maintenance_mutex_);
  if (call <= synced_calls_) return heap_->Health();  // a synchronization that began after this call covered it
  const std::uint64_t covered = sync_calls_.load(std::memory_order_acquire);
  HAKO_RETURN_IF_ERROR(SynchronizeLocked(*mine));
  synced_calls_ = covered;
  return absl::OkStatus();
}
HAKO_OR_NO_MEMORY

template <File FileT>
Status HashDBM<FileT>::SynchronizeLocked(WriterState& mine) {
  return SynchronizeSlots(mine, ForEachWriter());
}

// at_end(number of records) runs at the end of the epoch, with writers excluded.
template <File FileT>
template <class Writers, class AtEnd>
Status HashDBM<FileT>::SynchronizeSlots(WriterState& mine, Writers&& for_each_writer, AtEnd&& at_end) {
  HAKO_RETURN_IF_ERROR(heap_->Health());
  const Status refreshed = RefreshSomeStamps(mine);  // damage found here does not stop the synchronization
  std::uint64_t count = 0;
  typename Space::ClosedEpoch closed{};
  const Status ended = RunExclusiveFlushed([&]() -> Status {
    count = CountFlushed();
    HAKO_RETURN_IF_ERROR(at_end(count));
    closed = heap_->CloseEpoch(for_each_writer);
    return absl::OkStatus();
  });
  HAKO_RETURN_IF_ERROR(ended);
  HAKO_RETURN_IF_ERROR(heap_->CommitEpoch(closed, count));
  synced_at_ = heap_->extents().super().synced_at;
  heap_->ReleaseWaiting(mine, closed, InStepsOf(mine));
  return refreshed;
}

// Synchronizes, then runs `body` while the blocks of that state are not reused. See
// SynchronizeSlots for at_end.
// REQUIRES: reorganizing_mutex_ is held
template <File FileT>
template <class AtEnd, class Body>
Status HashDBM<FileT>::WithPinnedState(WriterState& mine, AtEnd&& at_end, Body&& body) {
  heap_->HarvestAll(mine, InStepsOf(mine));
  const auto pin = [&](std::uint64_t count) {
    HAKO_RETURN_IF_ERROR(at_end(count));
    return heap_->PinState(ForEachWriter());
  };
  Status status;
  {
    const typename Space::ExtentPin extents(*heap_);
    status = CatchNoMemory([&] {
      std::lock_guard lock(maintenance_mutex_);
      return SynchronizeSlots(mine, ForEachWriter(), pin);
    });
    if (status.ok()) status = CatchNoMemory(body);
  }
  std::lock_guard lock(maintenance_mutex_);
  heap_->UnpinState(mine, InStepsOf(mine));
  return status;
}

template <File FileT>
Status HashDBM<FileT>::RefreshSomeStamps(WriterState& mine) {
  using Record = typename Space::SweptRecord;
  struct Named {
    bool Has(const Record& record) const { return index.Names(record.key_hash, record.handle); }
    void Prefetch(const std::vector<Record>& records) const {
      for (const Record& record : records) index.PrefetchHome(record.key_hash);
    }
    void RunLocked(std::span<const Record> records, absl::FunctionRef<void(std::uint64_t)> body) const {
      index.RunLocked(writer, records, body);
    }
    WriterState& writer;
    Index& index;
  };
  return heap_->Sweep(Named{mine, index_});
}

template <File FileT>
Status HashDBM<FileT>::CopyTo(FileT empty_file) HAKO_TRY {
  HAKO_RETURN_IF_ERROR(CheckIdle());
  if (empty_file.Size() != 0) return absl::InvalidArgumentError("CopyTo: the target file is not empty");
  WriterState* mine = writers_.Mine();
  if (mine == nullptr) return writers_.Refusal();
  HashOptions options;
  options.align_pow = static_cast<int>(std::uint32_t{heap_->extents().super().align_pow});
  const auto open = [&] { return Open(std::move(empty_file), options); };
  if (!IsWritable()) {  // the state includes the unsynchronized updates of a process that died
    options.num_records = CountFlushed();
    HAKO_ASSIGN_OR_RETURN(auto copy, open());
    Status status;
    HAKO_RETURN_IF_ERROR(ProcessEach([&](std::string_view key, std::string_view value) { status.Update(copy->Set(key, value)); }));
    HAKO_RETURN_IF_ERROR(status);
    return FinishCopy(*copy, options.num_records);
  }
  std::lock_guard lock(reorganizing_mutex_);
  const auto note_count = [&](std::uint64_t count) {
    options.num_records = count;
    return absl::OkStatus();
  };
  return WithPinnedState(*mine, note_count, [&]() -> Status {
    HAKO_ASSIGN_OR_RETURN(auto copy, open());
    const auto set = [&](const typename Space::ScannedRecord& record) { return copy->Set(record.key, record.value); };
    HAKO_RETURN_IF_ERROR(heap_->ScanPinned(set));
    return FinishCopy(*copy, options.num_records);
  });
}
HAKO_OR_NO_MEMORY

template <File FileT>
Status HashDBM<FileT>::FinishCopy(HashDBM& copy, std::uint64_t num_records) {
  if (copy.Count() != num_records) return absl::DataLossError("damaged records found while copying; Verify names them");
  HAKO_RETURN_IF_ERROR(copy.SetType(GetType()));
  HAKO_RETURN_IF_ERROR(copy.SetMetadata(GetMetadata()));
  return copy.Close();
}

template <File FileT>
Status HashDBM<FileT>::CopyTo(const std::string& path) requires PathFile<FileT> HAKO_TRY {
  HAKO_RETURN_IF_ERROR(CheckIdle());  // before creating a file
  return ReplaceFile<FileT>(path, [this](FileT file) { return CopyTo(std::move(file)); });
}
HAKO_OR_NO_MEMORY

template <File FileT>
bool HashDBM<FileT>::ShouldBeRebuilt() {
  if (!CheckIdle().ok()) return false;
  const Stats stats = GetStats();
  const std::uint64_t scattered = stats.free_bytes - std::min(stats.free_bytes, heap_->extents().free_extent_bytes());
  return stats.total_bytes > (1 << 20) && scattered > stats.total_bytes / 2;
}

// Index and heap verify each other: there are as many entries as records, and each record has an
// entry.
template <File FileT>
Status HashDBM<FileT>::Verify() HAKO_TRY {
  HAKO_RETURN_IF_ERROR(CheckIdle());
  WriterState* mine = writers_.Mine();
  if (mine == nullptr) return writers_.Refusal();
  std::lock_guard lock(reorganizing_mutex_);
  std::uint64_t count = 0, live = 0;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> twins;
  const auto verify_lines = [&](std::uint64_t num_records) {
    count = num_records;
    return index_.VerifyLines(count, [&](std::uint32_t a, std::uint32_t b) { twins.emplace_back(a, b); });
  };
  const auto visit = [&](const typename Space::ScannedRecord& record) {
    ++live;
    return VerifyEntry(record);
  };
  const auto finish = [&]() -> Status {
    for (const auto& [a, b] : twins) HAKO_RETURN_IF_ERROR(VerifyDiffer(*mine, a, b));
    return live == count ? absl::OkStatus() : FindDamage(live, count);
  };
  if (heap_->AcceptsWrites()) {
    return WithPinnedState(*mine, verify_lines, [&]() -> Status {
      HAKO_RETURN_IF_ERROR(heap_->ScanPinned(visit));
      return finish();
    });
  }
  return RunExclusiveFlushed([&]() -> Status {
    HAKO_RETURN_IF_ERROR(verify_lines(CountFlushed()));
    HAKO_RETURN_IF_ERROR(heap_->Scan(format::kFirstExtent, heap_->extents().tail(), [&](const typename Space::ScannedRecord& record) {
      return heap_->IsNamed(record.stamp) ? visit(record) : absl::OkStatus();
    }));
    return finish();
  });
}
HAKO_OR_NO_MEMORY

// Checks that a record of the state has an entry with its tag, unless it was retired since.
template <File FileT>
Status HashDBM<FileT>::VerifyEntry(const typename Space::ScannedRecord& record) const {
  const typename Index::Naming naming = index_.NamingOf(record.key_hash, record.handle);
  if (naming == Index::Naming::kRight || (naming == Index::Naming::kNone && !heap_->IsNamed(record.handle))) return absl::OkStatus();
  return DataLossError(naming == Index::Naming::kNone ? "no bucket has the record" : "a bucket has a wrong tag for the record",
                       heap_->OffsetOf(record.handle));
}

// Checks that two records whose entries have the same tag have different keys.
template <File FileT>
Status HashDBM<FileT>::VerifyDiffer(WriterState& mine, std::uint32_t a, std::uint32_t b) const {
  const auto key_of = [&](std::uint32_t handle) -> StatusOr<std::string> {
    HAKO_ASSIGN_OR_RETURN(const hash::RecordView record, heap_->View(mine, handle));
    return std::string(record.key);
  };
  const StatusOr<std::string> first = key_of(a), second = key_of(b);
  if (!first.ok() || !second.ok() || *first != *second) return absl::OkStatus();  // a damaged one is missing among the records
  if (!heap_->IsNamed(a) || !heap_->IsNamed(b)) return absl::OkStatus();
  return DataLossError("duplicate key in a bucket: its second record", heap_->OffsetOf(b));
}

// The heap has fewer or more live records than the index: finds the damage.
template <File FileT>
Status HashDBM<FileT>::FindDamage(std::uint64_t live, std::uint64_t count) const {
  const auto pass = [](std::string_view, std::string_view) {};
  HAKO_RETURN_IF_ERROR(index_.ForEach(pass));
  return absl::DataLossError(absl::StrCat("the heap holds ", live, " live records, the index ", count));
}

template <File FileT>
Stats HashDBM<FileT>::GetStats() {
  Stats stats;
  if (!CheckIdle().ok()) return stats;
  stats.num_records = Count();
  stats.index_bytes = heap_->index_bytes();
  RunExclusive([&] {
    stats.free_bytes = heap_->FreeBytes(ForEachWriter());
    stats.waiting_bytes = heap_->WaitingBytes(ForEachWriter());
    stats.total_bytes = heap_->extents().tail() + (heap_->index_is_in_memory() ? stats.index_bytes : 0);
    return 0;
  });
  stats.record_bytes = stats.total_bytes - stats.index_bytes - stats.free_bytes;
  stats.num_buckets = index_.num_lines();
  stats.num_overflow = index_.lines().num_overflow();
  stats.epoch = heap_->epoch();
  stats.synced_at = synced_at_;
  stats.own_syncs = own_syncs_.load(std::memory_order_relaxed);
  AddDeviceCounters(heap_->extents().file(), &stats);
  stats.second_reads = heap_->second_reads();
  return stats;
}

template <File FileT>
Inspection HashDBM<FileT>::Inspect() HAKO_TRY {
  Inspection pairs = InspectionOf("HashDBM", GetStats());
  pairs.emplace_back("type", absl::StrCat(GetType()));
  return pairs;
}
HAKO_CATCH_NO_MEMORY(return {};)

template <File FileT>
std::uint32_t HashDBM<FileT>::GetType() const {
  std::lock_guard lock(metadata_mutex_);
  return type_;
}

template <File FileT>
Status HashDBM<FileT>::SetType(std::uint32_t type) HAKO_TRY {
  return ChangeSuperBlock([type](format::HashSuperBlock& super) { super.type = type; });
}
HAKO_OR_NO_MEMORY

template <File FileT>
UserMetadata HashDBM<FileT>::GetMetadata() const {
  std::lock_guard lock(metadata_mutex_);
  return metadata_;
}

template <File FileT>
Status HashDBM<FileT>::SetMetadata(const UserMetadata& metadata) HAKO_TRY {
  return ChangeSuperBlock([&metadata](format::HashSuperBlock& super) { super.metadata = metadata; });
}
HAKO_OR_NO_MEMORY

template <File FileT>
template <class F>
Status HashDBM<FileT>::ChangeSuperBlock(F&& change) {
  HAKO_RETURN_IF_ERROR(CheckOpen());
  HAKO_RETURN_IF_ERROR(heap_->Refusal());
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
  if (Status inherited = CheckOpen(); !inherited.ok()) {
    writers_.Close();
    return inherited;
  }
  background_.reset();
  Status status = IsWritable() ? CatchNoMemory([this] { return CloseWritable(); }) : absl::OkStatus();
  writers_.Close();
  index_.Seal();
  status.Update(heap_->extents().file().Close());
  return status;
}

template <File FileT>
Status HashDBM<FileT>::CloseWritable() {
  auto& extents = heap_->extents();
  HAKO_RETURN_IF_ERROR(heap_->Health());  // after a failed write, the next Open recovers the last synchronized state
  HAKO_RETURN_IF_ERROR(FlushPending());
  if (WriterState* mine = writers_.Mine(); mine != nullptr) {
    if (rebuilt_ && Space::kMapped) {
      HAKO_RETURN_IF_ERROR(RebuildIndex(*mine));
      // Moves records to where the old index was. It is not an error if there is no space for a
      // batch.
      (void)WithMover(*mine, [&](WriterState& mover, std::uint64_t batch) { return MoveDown(*mine, mover, batch); });
      HAKO_RETURN_IF_ERROR(heap_->Health());
    }
    (void)RefreshSomeStamps(*mine);
  }
  const std::uint64_t count = Count();
  WriterState last;  // this thread may have no state
  const auto with_last = [&](auto&& visit) {
    ForEachWriter()(visit);
    visit(last);
  };
  const auto closed = heap_->CloseEpoch(with_last);
  heap_->ReleaseUnstamped(last, closed, [](auto&& step) { step(); });
  heap_->GatherFree(with_last);
  heap_->ReleaseExtents();
  HAKO_RETURN_IF_ERROR(heap_->Health());  // if a stamp could not be written, the next Open recovers too
  if (extents.EndsInFreeExtent()) {       // truncate only once the durable state does not need the rest
    HAKO_RETURN_IF_ERROR(heap_->CommitEpoch(closed, count));
    extents.WithdrawLiveState();
    extents.LowerTail();
    HAKO_RETURN_IF_ERROR(extents.Commit([&](format::HashSuperBlock& super) { super.tail = extents.tail(); }));
  }
  std::string note = heap_->TakeNote(with_last, closed);
  HAKO_RETURN_IF_ERROR(extents.CutAtTail());
  if (Status resized = extents.file().Resize(extents.tail() + note.size()); absl::IsResourceExhausted(resized)) {
    note.clear();  // the device is full: the next Open finds the free space piece by piece
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

}  // namespace hako
