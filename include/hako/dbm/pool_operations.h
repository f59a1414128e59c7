// The operations of the DBMs whose pages are in a buffer pool over a file (tree/buffer_pool.h): TreeDBM
// and ArrayDBM. These are checkpoints, copies, rebuilds and checks, which do not depend on the
// content of the pages.
//
// Such a class D inherits PoolOperations<D, FileT, Codec, Options> publicly, beside its engine's operations.
// Options has cache_bytes, checkpoint_bytes, durability, log_bytes, log_archive and sync_interval. D
// provides what LogOperations asks for beside that which is here: Redo and RedoMulti. And
//   engine()               root_id(), applied_index()
//   RemoveAll(deferred)    removes all records, with the writers stopped
//   VerifyPinned(pinned)   checks the file at a pinned state
//
// Threads: any, except Close.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hako/base/no_memory.h"
#include "hako/base/page_codec.h"
#include "hako/base/status.h"
#include "hako/dbm/common.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/log_operations.h"
#include "hako/dbm/options.h"
#include "hako/file/read_only_view.h"
#include "hako/storage/scrub_progress.h"
#include "hako/sync/background_thread.h"
#include "hako/sync/mutex.h"
#include "hako/sync/sticky_status.h"
#include "hako/tree/buffer_pool.h"
#include "hako/tree/checkpointer.h"
#include "hako/tree/lock_order.h"
#include "hako/tree/page_scrub.h"

namespace hako {

// The operations: see the head of this header.
//
// Inherits LogOperations (dbm/log_operations.h), FileOperations (dbm/file_operations.h).
template <class D, File FileT, PageCodec Codec, class Options>
class PoolOperations : public LogOperations<D, FileT, Options> {
  using Files = LogOperations<D, FileT, Options>;
  using Space = tree::BufferPool<FileT, Codec>;
  using Pinned = typename tree::PageStore<FileT>::Pinned;
  friend Files;
  friend FileOperations<D, FileT, Options>;

 public:
  // Removes all records, atomically across a crash: a checkpoint has all of it or nothing. Accepted
  // on a full device. Stops writers meanwhile.
  Status Clear();

  // Whether more than half of the file is free. False for files of up to 1 MiB.
  bool ShouldBeRebuilt();
  // Moves pages to the front of the file and truncates it, beside readers and writers. An error
  // leaves the database as usable as before.
  Status Rebuild();
  // Copies the state at the moment of the call into an empty file, beside readers and writers,
  // after a checkpoint if the database is writable. InvalidArgument if `empty_file` is not empty.
  Status CopyTo(FileT empty_file);
  using Files::CopyTo;

  // Reads the whole file and checks its structure as of the moment of the call, beside readers and
  // writers, after a checkpoint if the database is writable. Takes 64 bytes of memory per page, the
  // inner pages, and at most kVerifyBytes more. DataLoss names the damage.
  Status Verify();
  // Checks the next part of the file on its device (file/file.h, DeviceFile): each page, long value
  // and node of the page map as of the last checkpoint, without a checkpoint. Call it from time to
  // time, so that damage is found while there is an undamaged copy elsewhere. Damage is listed, and
  // ends neither the call nor the pass. Checkpoints wait only while the part is chosen; nothing that
  // it reads gets into the cache. FailedPrecondition after a failed write or sync. Calls take turns.
  StatusOr<ScrubProgress> Scrub(const ScrubOptions& options = {});
  // The database has seen this time (dbm/expiry.h); for copies of it.
  void NoteClock(std::uint64_t latest) { space().store().NoteClock(latest); }
  // num_records is current, the sizes are those of the last checkpoint. free_bytes is 0 until the
  // first checkpoint, pin, ShouldBeRebuilt or Inspect since Open, which determine it.
  Stats GetStats();

 protected:
  using Files::maintenance_mutex_;
  using Files::writable_;
  using Checkpointed = std::shared_ptr<std::atomic<D*>>;  // whose checkpoints a buffer pool requests

  // The memory that the options allow; InvalidArgument if it is too little.
  static StatusOr<tree::PoolLimits> LimitsOf(const Options& options);
  // Makes the space of D.
  static StatusOr<std::unique_ptr<Space>> MakeSpace(std::unique_ptr<tree::PageStore<FileT>> store, const tree::PoolLimits& limits,
                                                    const Checkpointed& checkpointed) {
    return Space::Create(std::move(store), limits, [checkpointed] {
      if (D* const dbm = checkpointed->load()) dbm->CheckpointSoon();
    });
  }
  PoolOperations(Space& space, const Options& options, Checkpointed checkpointed)
      : Files(space.store().file().IsWritable(), options.durability, false, space.store().super()),
        scrub_(space.store()),
        refusal_(writable_ ? absl::OkStatus() : ReadOnlyError()),
        checkpointer_(space),
        checkpointed_(std::move(checkpointed)) {}
  ~PoolOperations() = default;

  // Opens a second, read-only space on the file at the pinned state.
  using PinnedSpace = tree::BufferPool<ReadOnlyView<FileT>, Codec>;
  StatusOr<std::unique_ptr<PinnedSpace>> OpenPinned(const Pinned& pinned) const;

  // The end of Open: replays the log, and begins a new one. REQUIRES: the engine has its root
  Status Begin(const Options& options, bool is_new);
  // GetStats, GetType, the cache's memory and the file's transfers, for people to read.
  Inspection InspectAs(std::string_view name);

  // ---- for FileOperations ----
  auto& file() const { return self().space_->store().file(); }
  const sync::StickyStatus& refusal() const { return refusal_; }
  Status MayUpdate() {
    const Status refusal = refusal_.Get();
    if (absl::IsResourceExhausted(refusal) && IsTimeToRetry()) CheckpointSoon();  // there may be space by now
    return refusal;
  }
  // Without a thread no update waits for a checkpoint, and memory for pages may run out.
  void CheckpointSoon() {
    if (!this->WakeBackground().ok()) space().progress().NoteFailure();
  }
  Status SynchronizeLocked();
  void SynchronizeInBackground();
  Status StoreMetadata() { return this->Synchronize(SyncMode::kHard); }
  void StopThreads();

  // ---- for LogOperations ----
  log::NamedLog LogInFile() const;
  Status NameLog(const log::DatabaseId& id, log::Position from);
  bool MayName(const log::DatabaseId& id, bool has_ended) const {
    const log::NamedLog named = LogInFile();
    return (named.id == id && named.HasEnded() == has_ended) || !space().store().Health().ok();
  }
  Status MayReplay();
  void RefuseUpdates(const Status& why) { refusal_.Set(why); }
  Status CloseFile();

 private:
  static constexpr std::uint64_t kVerifyBytes = 8 << 20;

  D& self() { return static_cast<D&>(*this); }
  const D& self() const { return static_cast<const D&>(*this); }
  Space& space() const { return *self().space_; }

  Status LogClear(const Status& reserved);
  StatusOr<Pinned> PinNewest();
  void Unpin();
  void YieldToCheckpoints() ABSL_EXCLUSIVE_LOCKS_REQUIRED(maintenance_mutex_);
  void NoteHealth(const Status& status);  // `status` of the store's last operation
  // While space is lacking, background checkpoints are retried at growing intervals.
  bool IsTimeToRetry() const {
    sync::MutexLock lock(retry_mutex_);
    return std::chrono::steady_clock::now() >= retry_at_;
  }
  Status CountFree();

  std::mutex scrub_mutex_;  // one Scrub at a time; locked before maintenance_mutex_
  tree::PageScrub<FileT> scrub_;
  sync::StickyStatus refusal_;
  mutable sync::Mutex retry_mutex_ ABSL_ACQUIRED_AFTER(tree::kPoolLocks);
  std::chrono::milliseconds retry_delay_ ABSL_GUARDED_BY(retry_mutex_){0};
  std::chrono::steady_clock::time_point retry_at_ ABSL_GUARDED_BY(retry_mutex_);
  tree::Checkpointer<FileT, Codec> checkpointer_ ABSL_GUARDED_BY(maintenance_mutex_);
  const Checkpointed checkpointed_;
};

}  // namespace hako

#include "hako/dbm/pool_operations-inl.h"
