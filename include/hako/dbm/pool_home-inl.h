// Definitions of dbm/pool_home.h.
#pragma once

#include "hako/dbm/pool_home.h"

namespace hako {

template <File FileT, PageCodec Codec>
template <class Options>
StatusOr<tree::PoolLimits> PoolHome<FileT, Codec>::LimitsOf(const Options& options) {
  if (options.cache_bytes < (1 << 20)) return absl::InvalidArgumentError("cache_bytes must be at least 1 MiB");
  if (options.reader_age.count() < 0) return absl::InvalidArgumentError("reader_age is negative");
  HAKO_RETURN_IF_ERROR(CheckSharedOptions(options));
  tree::PoolLimits limits{};
  limits.memory_bytes = options.cache_bytes;
  limits.dirty_bytes = options.cache_bytes / 2;
  if (options.checkpoint_bytes != 0) limits.dirty_bytes = std::min(limits.dirty_bytes, options.checkpoint_bytes);
  return limits;
}

template <File FileT, PageCodec Codec>
template <class D, class Options>
StatusOr<std::unique_ptr<D>> PoolHome<FileT, Codec>::OpenPath(const std::string& path, const Options& options, FileOptions file_options,
                                                              const Status& checked) {
  file_options.beside_readers = true;
  if (file_options.mode != OpenMode::kReadOnly || !checked.ok())
    return Home::template OpenAt<D, FileT>(path, options, file_options, checked);
  // A writer may change the superblock, the size of the file and the log while they are read here one after the
  // other; then the next try finds them in agreement.
  static constexpr int kTries = 4;
  for (int tries = 1;; ++tries) {
    StatusOr<std::unique_ptr<ReaderSlot>> slot = ReaderSlot::Take(path, ClockOf(options));
    file_options.beside_readers = slot.ok();
    StatusOr<std::unique_ptr<D>> dbm = Home::template OpenAt<D, FileT>(path, options, file_options, checked);
    if (!slot.ok()) {
      if (!absl::IsUnavailable(dbm.status())) return dbm;
      return absl::UnavailableError(absl::StrCat(dbm.status().message(), "; to read it beside its writer: ", slot.status().message()));
    }
    const bool may_be_early = absl::IsDataLoss(dbm.status()) || absl::IsInvalidArgument(dbm.status());
    if (may_be_early && (*slot)->IsBeingCreated())
      return absl::UnavailableError(absl::StrCat(path, " is being created by another process"));
    PoolHome* const home = dbm.ok() ? dbm->get() : nullptr;
    if (home != nullptr) {
      HAKO_RETURN_IF_ERROR(home->store().SetReader(*std::move(slot)));
      if (home->store().CheckReader().ok() || tries == kTries) return dbm;
    } else if (!absl::IsDataLoss(dbm.status()) || tries == kTries) {
      return dbm;
    }
  }
}

template <File FileT, PageCodec Codec>
bool PoolHome<FileT, Codec>::IsNewerThan(const PoolHome& other) const {
  return tree::PageStore<FileT>::IsNewer(store().super(), ShownLsn(), other.store().super(), other.ShownLsn());
}

template <File FileT, PageCodec Codec>
StatusOr<bool> PoolHome<FileT, Codec>::WaitForCheckpoint(std::chrono::milliseconds timeout) const HAKO_TRY {
  HAKO_RETURN_IF_ERROR(this->records().CheckOpen());
  if (!store().has_reader())
    return absl::FailedPreconditionError("WaitForCheckpoint: the database was not opened by its path with OpenMode::kReadOnly");
  const auto most = std::chrono::hours(24 * 365);  // so that the deadline does not overflow the clock
  return store().AwaitNewer(ShownLsn(), std::chrono::steady_clock::now() + std::min<std::chrono::milliseconds>(timeout, most));
}
HAKO_OR_NO_MEMORY

template <File FileT, PageCodec Codec>
Status PoolHome<FileT, Codec>::Begin(const LogOptions& options, std::chrono::milliseconds sync_interval, bool is_new) {
  const auto begin = [&]() -> Status {
    // A killed process may have left the superblock only in the page cache, while the device has
    // one that needs an older part of the log, or another log.
    if (writable_ && !is_new) HAKO_RETURN_IF_ERROR(store().MakeSuperDurable());
    HAKO_RETURN_IF_ERROR(this->StartThreads(sync_interval));
    HAKO_RETURN_IF_ERROR(this->OpenLog(options.durability != Durability::kNone, false, options));
    if (!writable_ || !is_new || space().log().is_on()) return absl::OkStatus();
    sync::MutexLock lock(maintenance_mutex_);
    return SynchronizeLocked();
  };
  if (writable_) checkpointed_->store(this);
  const Status opened = CatchNoMemory(begin);
  opened.ok() ? this->BeginThreads(sync_interval) : StopThreads();
  return opened;
}

template <File FileT, PageCodec Codec>
Status PoolHome<FileT, Codec>::SynchronizeLocked() {
  if (const Expiry* const expiry = this->records().expiry(); expiry != nullptr) NoteClock(expiry->latest());
  const auto describe = [this](format::TreeSuperBlock& super) {
    DescribeTree(super);
    this->Describe(super);
  };
  const auto checkpoint = [&] {
    return CatchNoMemory([&] {
      maintenance_mutex_.AssertHeld();
      return checkpointer_.Checkpoint(EachWriter(), describe);
    });
  };
  const bool was_short = store().is_short();
  Status status = checkpoint();
  if (absl::IsResourceExhausted(status) && !was_short && store().is_short()) status = checkpoint();  // it may now use the reserve
  NoteHealth(status);
  return status;
}

template <File FileT, PageCodec Codec>
void PoolHome<FileT, Codec>::NoteHealth(const Status& status) {
  Status failure = store().Health();
  if (failure.ok()) failure = space().log().Health();
  Status health = failure.ok() ? status : failure;
  if (health.ok() && store().is_short()) {
    health = CatchNoMemory([&]() -> Status {
      return absl::ResourceExhaustedError(absl::StrCat("the device is full: only removals are accepted until space is available",
                                                       status.ok() ? "" : "; ", status.message()));
    });
  }
  refused_.Assign(health);
  static constexpr std::chrono::milliseconds kFirstDelay{10}, kDelayMax{1000};
  sync::MutexLock lock(retry_mutex_);
  retry_delay_ = absl::IsResourceExhausted(health) ? std::clamp(2 * retry_delay_, kFirstDelay, kDelayMax) : std::chrono::milliseconds{0};
  retry_at_ = std::chrono::steady_clock::now() + retry_delay_;
}

template <File FileT, PageCodec Codec>
void PoolHome<FileT, Codec>::SynchronizeInBackground() {
  const bool is_due = space().IsDirty() || !refused_.IsOk();
  if (is_due && IsTimeToRetry()) (void)this->Synchronize(SyncMode::kHard);  // a failure is stored in refused_
}

// Call between two steps of a longer operation. If threads wait for a checkpoint, lets one of them
// make it first.
template <File FileT, PageCodec Codec>
void PoolHome<FileT, Codec>::YieldToCheckpoints() {
  const std::uint64_t commits = store().num_commits();
  sync::MutexUnlock unlocked(maintenance_mutex_);
  for (sync::Backoff backoff; this->IsSynchronizeWaiting() && store().num_commits() == commits;) backoff.Pause();
}

template <File FileT, PageCodec Codec>
Status PoolHome<FileT, Codec>::Clear() HAKO_TRY {
  HAKO_RETURN_IF_ERROR(this->records().CheckIdle());
  HAKO_RETURN_IF_ERROR(this->MayRemove());
  Status logged;
  {
    typename Space::Deferred deferred(space());  // ends once writers are admitted again
    const Status cleared = space().gate().RunExclusive(EachWriter(), [&] {
      const Status reserved = space().log().is_on() ? space().log().Reserve() : absl::OkStatus();
      Status removed = RemoveAll(deferred);
      if (removed.ok()) logged = LogClear(reserved);
      return removed;
    });
    if (!cleared.ok() && !store().Health().ok()) NoteHealth(cleared);  // only a part was removed
    HAKO_RETURN_IF_ERROR(cleared);
  }
  if (!logged.ok()) return this->Synchronize(SyncMode::kHard);  // the log has no room for the Clear
  return this->AfterUpdate();
}
HAKO_OR_NO_MEMORY

template <File FileT, PageCodec Codec>
bool PoolHome<FileT, Codec>::ShouldBeRebuilt() {
  if (!CountFree().ok()) return false;
  const Stats stats = GetStats();
  return stats.total_bytes > (1 << 20) && stats.free_bytes > stats.total_bytes / 2;
}

template <File FileT, PageCodec Codec>
Status PoolHome<FileT, Codec>::Rebuild() HAKO_TRY {
  HAKO_RETURN_IF_ERROR(this->records().CheckIdle());
  if (!writable_) return refused_.Get();
  static constexpr std::uint64_t kStepMin = 256 << 10, kStepMax = 8 << 20;  // bytes to move per step, during which checkpoints wait
  static constexpr int kRoundsMax = 8;                                      // the space that moved pages leave behind allows more moves
  sync::MutexLock lock(maintenance_mutex_);
  HAKO_RETURN_IF_ERROR(this->SynchronizeNow());
  std::uint64_t moved = 1;  // bytes moved in this round
  for (int round = 0; round < kRoundsMax && moved != 0; ++round) {
    HAKO_ASSIGN_OR_RETURN(auto mover, store().BeginMoving());
    moved = mover.num_nodes();
    do {
      const StatusOr<std::uint64_t> now = mover.Move(std::clamp(store().file_bytes() / 64, kStepMin, kStepMax));
      if (!now.ok()) NoteHealth(absl::OkStatus());  // the store decides whether the error is permanent
      HAKO_RETURN_IF_ERROR(now.status());
      moved += *now;
      if (moved == 0) break;
      HAKO_RETURN_IF_ERROR(this->SynchronizeNow());
      YieldToCheckpoints();
    } while (!mover.is_done());
  }
  return store().CutFile();
}
HAKO_OR_NO_MEMORY

template <File FileT, PageCodec Codec>
auto PoolHome<FileT, Codec>::PinNewest() -> StatusOr<typename tree::PageStore<FileT>::Pinned> {
  sync::MutexLock lock(maintenance_mutex_);
  if (writable_) HAKO_RETURN_IF_ERROR(this->SynchronizeNow());
  auto pinned = store().Pin(space().log().NameForCopy(store().log_position()));
  return pinned.ok() ? std::move(pinned) : store().Explain(pinned.status());
}

template <File FileT, PageCodec Codec>
void PoolHome<FileT, Codec>::Unpin() {
  sync::MutexLock lock(maintenance_mutex_);
  store().Unpin();
}

template <File FileT, PageCodec Codec>
Status PoolHome<FileT, Codec>::CopyTo(FileT empty_file) HAKO_TRY {
  HAKO_RETURN_IF_ERROR(this->records().CheckIdle());
  if (!writable_) {  // no checkpoint replaces the superblock meanwhile
    if (HasReplayed())
      return absl::FailedPreconditionError(
          "CopyTo: the newest updates are in the log of a killed process only; open the database for writing, and close it");
  }
  if (empty_file.Size() != 0) return absl::InvalidArgumentError("CopyTo: the target file is not empty");
  HAKO_ASSIGN_OR_RETURN(const auto pinned, PinNewest());
  const Status status = CatchNoMemory([&] { return store().Copy(pinned, empty_file); });
  Unpin();
  return status.ok() ? empty_file.Close() : store().Explain(status);
}
HAKO_OR_NO_MEMORY

template <File FileT, PageCodec Codec>
auto PoolHome<FileT, Codec>::OpenPinned(const Pinned& pinned) const -> StatusOr<std::unique_ptr<PinnedSpace>> {
  using View = ReadOnlyView<FileT>;
  HAKO_ASSIGN_OR_RETURN(auto pinned_store, tree::PageStore<View>::OpenAt(View(store().file()), pinned.super));
  tree::PoolLimits limits = space().limits();
  limits.memory_bytes = std::min(limits.memory_bytes, kVerifyBytes);
  return PinnedSpace::Create(std::move(pinned_store), limits, [] {});
}

template <File FileT, PageCodec Codec>
Status PoolHome<FileT, Codec>::Verify() HAKO_TRY {
  HAKO_RETURN_IF_ERROR(this->records().CheckIdle());
  HAKO_ASSIGN_OR_RETURN(const auto pinned, PinNewest());
  Status status = CatchNoMemory([&] { return VerifyPinned(pinned); });
  Unpin();
  return store().Explain(std::move(status));
}
HAKO_OR_NO_MEMORY

template <File FileT, PageCodec Codec>
StatusOr<ScrubProgress> PoolHome<FileT, Codec>::Scrub(const ScrubOptions& options) HAKO_TRY {
  HAKO_RETURN_IF_ERROR(this->records().CheckIdle());
  const sync::MutexLock scrub_lock(scrub_mutex_);
  ScrubProgress progress;
  {
    sync::MutexLock lock(maintenance_mutex_);
    HAKO_RETURN_IF_ERROR(store().Health());  // the page map may name images that a failed sync has lost
    HAKO_RETURN_IF_ERROR(store().Explain(scrub_.Choose(options.max_bytes, &progress)));
    store().PinSpace();
  }
  const Status checked = CatchNoMemory([&] { return scrub_.Check(&progress); });
  Unpin();
  HAKO_RETURN_IF_ERROR(checked);
  HAKO_RETURN_IF_ERROR(store().CheckReader());  // else the damage would be that of another checkpoint
  return progress;
}
HAKO_OR_NO_MEMORY

template <File FileT, PageCodec Codec>
Stats PoolHome<FileT, Codec>::GetStats() {
  Stats stats;
  if (!this->records().CheckOpen().ok()) return stats;
  stats.num_records = this->records().Count();
  stats.total_bytes = store().file_bytes();
  stats.free_bytes = std::min(store().free_bytes(), stats.total_bytes);  // the file may have grown meanwhile
  const std::uint64_t used_bytes = stats.total_bytes - stats.free_bytes;
  stats.index_bytes = std::min(store().pages().bytes(), used_bytes);  // nodes may exist in memory only
  stats.record_bytes = used_bytes - stats.index_bytes;
  stats.num_buckets = space().num_pages();
  stats.epoch = store().num_commits();
  stats.synced_at = store().synced_at();
  const auto readers = store().reader_counts();
  stats.num_readers = readers.num_readers;
  stats.oldest_reader = readers.oldest;
  stats.reader_bytes = readers.bytes;
  AddDeviceCounters(store().file(), &stats);
  this->records().AddSnapshotStats(&stats);
  return stats;
}

template <File FileT, PageCodec Codec>
Status PoolHome<FileT, Codec>::CountFree() HAKO_TRY {
  HAKO_RETURN_IF_ERROR(this->records().CheckOpen());
  sync::MutexLock lock(maintenance_mutex_);
  return store().Explain(store().CountFree());
}
HAKO_OR_NO_MEMORY

template <File FileT, PageCodec Codec>
void PoolHome<FileT, Codec>::StopThreads() {
  checkpointed_->store(nullptr);
  Home::StopThreads();
  space().StopReadingAhead();
}

template <File FileT, PageCodec Codec>
Inspection PoolHome<FileT, Codec>::InspectAs(std::string_view name) {
  const Status counted = CountFree();
  if (!this->records().CheckOpen().ok()) return InspectionOf(name, {});
  Inspection pairs = InspectionOf(name, GetStats());
  const auto add = [&](const char* of, std::uint64_t number) { pairs.emplace_back(of, absl::StrCat(number)); };
  const FileCounters counters = store().counters();
  add("memory_bytes", space().memory_bytes());
  add("file_reads", counters.reads);
  add("file_read_bytes", counters.read_bytes);
  add("file_writes", counters.writes);
  add("file_written_bytes", counters.written_bytes);
  add("type", this->GetType());
  if (!counted.ok()) pairs.emplace_back("damage", std::string(counted.message()));
  if (const Status status = store().readers_status(); !status.ok()) pairs.emplace_back("readers", std::string(status.message()));
  return pairs;
}

// ---- for DatabaseHome ----

// Does nothing for a new file, which has no superblock yet.
template <File FileT, PageCodec Codec>
Status PoolHome<FileT, Codec>::NameLog(const log::DatabaseId& id, log::Position from) {
  sync::MutexLock lock(maintenance_mutex_);
  return store().super().root == 0 ? SynchronizeLocked() : store().SetLog(id, from);
}

// A replay of a database that is open read-only changes pages in memory only.
template <File FileT, PageCodec Codec>
Status PoolHome<FileT, Codec>::MayReplay() {
  if (!writable_) space().progress().NoteFailure();  // no update waits for a checkpoint
  return absl::OkStatus();
}

// Logs a Clear while the writers are stopped. If `reserved` is an error, the log has no room for
// the entry, and refuses updates until a checkpoint has the Clear.
template <File FileT, PageCodec Codec>
Status PoolHome<FileT, Codec>::LogClear(const Status& reserved) {
  auto& updates = space().log();
  if (!updates.is_on()) return absl::OkStatus();
  if (!reserved.ok()) {
    updates.RefuseUntilCheckpoint(reserved);
    return reserved;
  }
  std::uint64_t* const mine = this->records().LsnOfThread();
  log::Lsn lsn = 0;
  const format::LogEntry clear{format::LogOp::kClear, {}, {}};
  const Status status = updates.Append(std::span(&clear, 1), mine != nullptr ? mine : &lsn);
  if (!status.ok()) updates.RefuseUntilCheckpoint(status);
  return status;
}

template <File FileT, PageCodec Codec>
Status PoolHome<FileT, Codec>::CloseFile() {
  sync::MutexLock lock(maintenance_mutex_);
  const log::NamedLog before = LogInFile(), now{space().log().id(), space().log().position()};
  const bool is_kept = now.id == before.id && !now.HasEnded();
  Status status;
  const Expiry* const expiry = this->records().expiry();
  if (expiry != nullptr) store().NoteFirstExpiry(expiry->schedule().FirstExpiry());
  if (space().IsDirty() || expiry != nullptr) {  // a checkpoint stores the latest time in the superblock
    status = SynchronizeLocked();
  } else if (!before.IsNone() && !is_kept) {
    status = store().SetLog(now.id, now.IsNone() ? log::Position{} : now.from);
  } else {
    status = store().Health();
  }
  return status.ok() ? store().CutFile() : status;
}

}  // namespace hako
