// Definitions of dbm/tree_dbm.h.
#pragma once

#include "hako/dbm/tree_dbm.h"

namespace hako {

template <File FileT, Comparator Compare, PageCodec Codec>
TreeDBM<FileT, Compare, Codec>::~TreeDBM() {
  (void)this->Close();
  if (this->writers_.IsInherited()) (void)space_.release();  // its threads and locks belong to the parent process
}

template <File FileT, Comparator Compare, PageCodec Codec>
auto TreeDBM<FileT, Compare, Codec>::Open(FileT file, LogPlace<typename Files::LogFile> log, const TreeOptions& options)
    -> StatusOr<std::unique_ptr<TreeDBM>> HAKO_TRY {
  static_assert(Compare::kName.size() <= format::kComparatorNameMax, "the file has no room for the comparator's name");
  static_assert(Codec::kName.size() <= format::kCodecNameMax, "the file has no room for the codec's name");
  if (options.page_size < 128 || options.page_size > 8192) return absl::InvalidArgumentError("TreeOptions::page_size must be 128 to 8192");
  if (options.cache_bytes < (1 << 20)) return absl::InvalidArgumentError("TreeOptions::cache_bytes must be at least 1 MiB");
  HAKO_ASSIGN_OR_RETURN(auto store, tree::PageStore<FileT>::Open(std::move(file), Compare::kName, Codec::kName, options.page_size));
  const bool is_new = store->super().root == 0;
  tree::PoolLimits limits;
  limits.memory_bytes = options.cache_bytes;
  limits.dirty_bytes = options.cache_bytes / 2;
  if (options.checkpoint_bytes != 0) limits.dirty_bytes = std::min(limits.dirty_bytes, options.checkpoint_bytes);
  limits.order = tree::PageView<Compare>::kOrder;
  auto checkpointed = std::make_shared<std::atomic<TreeDBM*>>(nullptr);
  HAKO_ASSIGN_OR_RETURN(auto space, Space::Create(std::move(store), limits, [checkpointed] {
                          if (TreeDBM* const dbm = checkpointed->load()) dbm->CheckpointSoon();
                        }));
  const std::uint32_t page_size = space->store().super().page_size;
  std::unique_ptr<TreeDBM> dbm(new TreeDBM(std::move(space), page_size, options));
  dbm->log_place_ = std::move(log);
  dbm->checkpointed_ = checkpointed;
  if (dbm->IsWritable()) checkpointed->store(dbm.get());
  if (is_new) {
    HAKO_RETURN_IF_ERROR(dbm->tree().Create());
    dbm->space_->SetRoot(dbm->tree().root_id());
  } else {
    const format::TreeSuperBlock& super = dbm->space_->store().super();
    dbm->tree().Attach(super.root, super.num_records, super.applied_index);
  }
  Status opened = CatchNoMemory([&] { return dbm->Begin(options, is_new); });
  if (opened.ok() && dbm->IsWritable() && options.sync_interval.count() > 0) opened = dbm->StartBackground(options.sync_interval);
  if (!opened.ok()) {
    dbm->StopThreads();
    return opened;
  }
  dbm->closed_ = false;
  return dbm;
}
HAKO_OR_NO_MEMORY

template <File FileT, Comparator Compare, PageCodec Codec>
Status TreeDBM<FileT, Compare, Codec>::Begin(const TreeOptions& options, bool is_new) {
  // A killed process may have left the superblock in the page cache only, and the device with one
  // that needs an older part of the log, or another one.
  if (writable_ && !is_new) HAKO_RETURN_IF_ERROR(space_->store().MakeSuperDurable());
  HAKO_RETURN_IF_ERROR(this->OpenLog(options.durability != Durability::kNone, false, options));
  if (!writable_ || !is_new || space_->log().is_on()) return absl::OkStatus();
  sync::MutexLock lock(maintenance_mutex_);
  return SynchronizeLocked();
}

template <File FileT, Comparator Compare, PageCodec Codec>
Status TreeDBM<FileT, Compare, Codec>::SynchronizeLocked() {
  const auto describe = [this](format::TreeSuperBlock& super) {
    super.num_records = this->Count();
    super.root = tree().root_id();
    super.applied_index = tree().applied_index();
    this->Describe(super);
  };
  const auto checkpoint = [&] {
    return CatchNoMemory([&] {
      maintenance_mutex_.AssertHeld();
      return checkpointer_.Checkpoint(this->ForEachWriter(), describe);
    });
  };
  const bool was_short = space_->store().is_short();
  Status status = checkpoint();
  if (absl::IsResourceExhausted(status) && !was_short && space_->store().is_short())
    status = checkpoint();  // a second try may use the reserve
  NoteHealth(status);
  return status;
}

template <File FileT, Comparator Compare, PageCodec Codec>
void TreeDBM<FileT, Compare, Codec>::NoteHealth(const Status& status) {
  Status failure = space_->store().Health();
  if (failure.ok()) failure = space_->log().Health();
  Status health = failure.ok() ? status : failure;
  if (health.ok() && space_->store().is_short()) {
    health = CatchNoMemory([&]() -> Status {
      return absl::ResourceExhaustedError(absl::StrCat("the device is full: only removals are accepted until space is available",
                                                       status.ok() ? "" : "; ", status.message()));
    });
  }
  refusal_.Assign(health);
  static constexpr std::chrono::milliseconds kFirstDelay{10}, kDelayMax{1000};
  sync::MutexLock lock(retry_mutex_);
  retry_delay_ = absl::IsResourceExhausted(health) ? std::clamp(2 * retry_delay_, kFirstDelay, kDelayMax) : std::chrono::milliseconds{0};
  retry_at_ = std::chrono::steady_clock::now() + retry_delay_;
}

template <File FileT, Comparator Compare, PageCodec Codec>
void TreeDBM<FileT, Compare, Codec>::SynchronizeInBackground() {
  const bool is_due = space_->IsDirty() || !refusal_.IsOk();
  if (is_due && IsTimeToRetry()) (void)this->Synchronize(SyncMode::kHard);  // refusal_ keeps a failure
}

// Between two steps of a longer operation: if threads wait for a checkpoint, lets one of them make
// it first.
template <File FileT, Comparator Compare, PageCodec Codec>
void TreeDBM<FileT, Compare, Codec>::YieldToCheckpoints() {
  const std::uint64_t commits = space_->store().num_commits();
  sync::MutexUnlock unlocked(maintenance_mutex_);
  for (sync::Backoff backoff; this->IsSynchronizeWaiting() && space_->store().num_commits() == commits;) backoff.Pause();
}

template <File FileT, Comparator Compare, PageCodec Codec>
Status TreeDBM<FileT, Compare, Codec>::Clear() HAKO_TRY {
  HAKO_RETURN_IF_ERROR(this->CheckIdle());
  HAKO_RETURN_IF_ERROR(this->MayRemove());
  Status logged;
  {
    typename Space::Deferred deferred(*space_);  // ends once writers are admitted again
    const Status cleared = this->RunExclusive([&] {
      const Status reserved = space_->log().is_on() ? space_->log().Reserve() : absl::OkStatus();
      Status removed = this->RemoveAll(deferred);
      if (removed.ok()) logged = LogClear(reserved);
      return removed;
    });
    if (!cleared.ok() && !space_->store().Health().ok()) NoteHealth(cleared);  // removed in part
    HAKO_RETURN_IF_ERROR(cleared);
  }
  if (!logged.ok()) return this->Synchronize(SyncMode::kHard);  // the log has no room for it
  return this->HasAfterUpdate() ? this->AfterUpdate() : absl::OkStatus();
}
HAKO_OR_NO_MEMORY

template <File FileT, Comparator Compare, PageCodec Codec>
bool TreeDBM<FileT, Compare, Codec>::ShouldBeRebuilt() {
  if (!CountFree().ok()) return false;
  const Stats stats = GetStats();
  return stats.total_bytes > (1 << 20) && stats.free_bytes > stats.total_bytes / 2;
}

template <File FileT, Comparator Compare, PageCodec Codec>
Status TreeDBM<FileT, Compare, Codec>::Rebuild() HAKO_TRY {
  HAKO_RETURN_IF_ERROR(this->CheckIdle());
  if (!writable_) return refusal_.Get();
  static constexpr std::uint64_t kStepMin = 256 << 10, kStepMax = 8 << 20;  // bytes to move per step, while checkpoints wait
  static constexpr int kRoundsMax = 8;                                      // moved pages leave space for others
  sync::MutexLock lock(maintenance_mutex_);
  HAKO_RETURN_IF_ERROR(this->SynchronizeNow());
  auto& store = space_->store();
  std::uint64_t moved = 1;  // in this round
  for (int round = 0; round < kRoundsMax && moved != 0; ++round) {
    HAKO_ASSIGN_OR_RETURN(auto moving, store.BeginMoving());
    moved = moving.num_nodes;
    do {
      const StatusOr<std::uint64_t> now = store.MoveForward(&moving, std::clamp(store.file_bytes() / 64, kStepMin, kStepMax));
      if (!now.ok()) NoteHealth(absl::OkStatus());  // the store decides whether the error is permanent
      HAKO_RETURN_IF_ERROR(now.status());
      moved += *now;
      if (moved == 0) break;
      HAKO_RETURN_IF_ERROR(this->SynchronizeNow());
      YieldToCheckpoints();
    } while (moving.next < moving.images.size());
  }
  return space_->store().CutFile();
}
HAKO_OR_NO_MEMORY

template <File FileT, Comparator Compare, PageCodec Codec>
auto TreeDBM<FileT, Compare, Codec>::PinNewest() -> StatusOr<typename tree::PageStore<FileT>::Pinned> {
  sync::MutexLock lock(maintenance_mutex_);
  if (writable_) HAKO_RETURN_IF_ERROR(this->SynchronizeNow());
  return space_->store().Pin(space_->log().NameForCopy(space_->store().log_position()));
}

template <File FileT, Comparator Compare, PageCodec Codec>
void TreeDBM<FileT, Compare, Codec>::Unpin() {
  sync::MutexLock lock(maintenance_mutex_);
  space_->store().Unpin();
}

template <File FileT, Comparator Compare, PageCodec Codec>
Status TreeDBM<FileT, Compare, Codec>::CopyTo(FileT empty_file) HAKO_TRY {
  HAKO_RETURN_IF_ERROR(this->CheckIdle());
  if (!writable_ && space_->log().position().lsn != space_->store().super().log_lsn) {
    return absl::FailedPreconditionError(
        "CopyTo: the newest updates are in the log of a killed process only; open the database for writing, and close it");
  }
  if (empty_file.Size() != 0) return absl::InvalidArgumentError("CopyTo: the target file is not empty");
  HAKO_ASSIGN_OR_RETURN(const auto pinned, PinNewest());
  const Status status = CatchNoMemory([&] { return space_->store().Copy(pinned, empty_file); });
  Unpin();
  return status.ok() ? empty_file.Close() : status;
}
HAKO_OR_NO_MEMORY

template <File FileT, Comparator Compare, PageCodec Codec>
Status TreeDBM<FileT, Compare, Codec>::Verify() HAKO_TRY {
  HAKO_RETURN_IF_ERROR(this->CheckIdle());
  HAKO_ASSIGN_OR_RETURN(const auto pinned, PinNewest());
  const Status status = CatchNoMemory([&] { return VerifyPinned(pinned); });
  Unpin();
  return status;
}
HAKO_OR_NO_MEMORY

// Opens a second, read-only tree on the file at the pinned state.
template <File FileT, Comparator Compare, PageCodec Codec>
Status TreeDBM<FileT, Compare, Codec>::VerifyPinned(const typename tree::PageStore<FileT>::Pinned& pinned) {
  using View = ReadOnlyView<FileT>;
  using ViewSpace = tree::BufferPool<View, Codec>;
  HAKO_ASSIGN_OR_RETURN(auto store, tree::PageStore<View>::OpenAt(View(space_->store().file()), pinned.super));
  tree::PoolLimits limits = space_->limits();
  limits.memory_bytes = std::min(limits.memory_bytes, kVerifyBytes);
  HAKO_ASSIGN_OR_RETURN(auto space, ViewSpace::Create(std::move(store), limits, [] {}));
  tree::PageTree<ViewSpace, Compare> view(*space, pinned.super.page_size);
  view.Attach(pinned.super.root, pinned.super.num_records);
  return view.Verify(pinned.super.num_records);
}

template <File FileT, Comparator Compare, PageCodec Codec>
StatusOr<ScrubProgress> TreeDBM<FileT, Compare, Codec>::Scrub(const ScrubOptions& options) HAKO_TRY {
  HAKO_RETURN_IF_ERROR(this->CheckIdle());
  const std::lock_guard scrub_lock(scrub_mutex_);
  ScrubProgress progress;
  {
    sync::MutexLock lock(maintenance_mutex_);
    HAKO_RETURN_IF_ERROR(space_->store().Health());  // the map may name images that a failed sync has lost
    HAKO_RETURN_IF_ERROR(scrub_.Choose(options.max_bytes, &progress));
    space_->store().PinSpace();
  }
  const Status checked = CatchNoMemory([&] { return scrub_.Check(&progress); });
  Unpin();
  HAKO_RETURN_IF_ERROR(checked);
  return progress;
}
HAKO_OR_NO_MEMORY

template <File FileT, Comparator Compare, PageCodec Codec>
Stats TreeDBM<FileT, Compare, Codec>::GetStats() {
  Stats stats;
  if (this->IsClosed()) return stats;
  stats.num_records = this->Count();
  const auto& store = space_->store();
  stats.total_bytes = store.file_bytes();
  stats.free_bytes = store.free_bytes();
  const std::uint64_t used_bytes = stats.total_bytes - stats.free_bytes;
  stats.index_bytes = std::min(store.pages().bytes(), used_bytes);  // nodes may exist in memory only
  stats.record_bytes = used_bytes - stats.index_bytes;
  stats.num_buckets = space_->num_pages();
  stats.epoch = store.num_commits();
  stats.synced_at = store.synced_at();
  AddDeviceCounters(space_->store().file(), &stats);
  return stats;
}

template <File FileT, Comparator Compare, PageCodec Codec>
Status TreeDBM<FileT, Compare, Codec>::CountFree() HAKO_TRY {
  HAKO_RETURN_IF_ERROR(this->CheckOpen());
  sync::MutexLock lock(maintenance_mutex_);
  return space_->store().CountFree();
}
HAKO_OR_NO_MEMORY

template <File FileT, Comparator Compare, PageCodec Codec>
Inspection TreeDBM<FileT, Compare, Codec>::Inspect() HAKO_TRY {
  const Status counted = CountFree();
  if (this->IsClosed()) return InspectionOf("TreeDBM", {});
  Inspection pairs = InspectionOf("TreeDBM", GetStats());
  const auto add = [&](const char* name, std::uint64_t number) { pairs.emplace_back(name, absl::StrCat(number)); };
  const FileCounters counters = space_->store().counters();
  add("memory_bytes", space_->memory_bytes());
  add("file_reads", counters.reads);
  add("file_read_bytes", counters.read_bytes);
  add("file_writes", counters.writes);
  add("file_written_bytes", counters.written_bytes);
  add("type", this->GetType());
  pairs.emplace_back("comparator", std::string(Compare::kName));
  pairs.emplace_back("codec", std::string(Codec::kName));
  if (!counted.ok()) pairs.emplace_back("damage", std::string(counted.message()));
  return pairs;
}
HAKO_CATCH_NO_MEMORY(return {};)

template <File FileT, Comparator Compare, PageCodec Codec>
void TreeDBM<FileT, Compare, Codec>::StopThreads() {
  checkpointed_->store(nullptr);
  Files::StopThreads();
  space_->StopReadingAhead();
}

}  // namespace hako
