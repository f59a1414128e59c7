// The home of the databases whose pages are in a buffer pool over a file (tree/file/buffer_pool.h): TreeDBM
// and ArrayDBM. Its checkpoints, copies, rebuilds and checks do not depend on the content of the pages.
//
// Any number of processes may read the file while one writes it: a database that is opened by its path with
// OpenMode::kReadOnly shows one checkpoint, which its writer keeps for it (file/readers_file.h). It also has the
// updates since then if the log is not in use: the process that made them was killed. Refresh of the
// database class opens a newer one.
//
// A database class inherits PoolHome publicly, beside its engine's operations. It overrides
// DescribeTree, RemoveAll and VerifyPinned.
//
// Thread-safe, except Close.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hako/base/inline.h"
#include "hako/base/no_memory.h"
#include "hako/base/page_codec.h"
#include "hako/base/status.h"
#include "hako/dbm/common.h"
#include "hako/dbm/database_home.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/options.h"
#include "hako/file/read_only_view.h"
#include "hako/file/readers_file.h"
#include "hako/storage/scrub_progress.h"
#include "hako/sync/mutex.h"
#include "hako/sync/sticky_status.h"
#include "hako/sync/writer_states.h"
#include "hako/tree/file/buffer_pool.h"
#include "hako/tree/file/checkpointer.h"
#include "hako/tree/file/page_scrub.h"
#include "hako/tree/lock_order.h"

namespace hako {

// See the head of this header.
//
// Inherits DatabaseHome (dbm/database_home.h).
template <File FileT, PageCodec Codec = NoCodec>
class PoolHome : public DatabaseHome<log::LogFileOf<FileT>> {
  using Home = DatabaseHome<log::LogFileOf<FileT>>;

 public:
  // Removes all records, atomically across a crash: a checkpoint has all of it or nothing. Accepted
  // on a full device. Stops writers meanwhile.
  Status Clear();

  // Whether more than half of the file is free. False for files of up to 1 MiB.
  bool ShouldBeRebuilt();
  // Moves pages to the front of the file and truncates it, beside readers and writers. The next
  // checkpoint, such as that of Close, makes the file longer by the pages that it writes, because
  // it keeps the pages that they replace. An error leaves the database as usable as before.
  Status Rebuild();
  // Copies the state at the moment of the call into an empty file, beside readers and writers,
  // after a checkpoint if the database is writable. InvalidArgument if `empty_file` is not empty.
  Status CopyTo(FileT empty_file);
  // CopyTo into a new file, which replaces the one at `path` and appears whole and durable or not at all.
  Status CopyTo(const std::string& path) requires PathFile<FileT> { return this->template CopyToPath<FileT>(*this, path); }

  // Reads the whole file and checks its structure as of the moment of the call, beside readers and
  // writers, after a checkpoint if the database is writable. Takes 64 bytes of memory per page, the
  // inner pages, and at most kVerifyBytes more. DataLoss names the damage.
  Status Verify();
  // Checks the next part of the file on its device (file/file.h, DeviceFile): each page, long value
  // and node of the page map as of the last checkpoint, without a checkpoint. Call it from time to
  // time, so that damage is found while there is an undamaged copy elsewhere. Damage is listed, and
  // ends neither the call nor the pass. Checkpoints wait only while the part is chosen. The pages
  // that it reads do not enter the cache. Returns FailedPrecondition after a failed write or sync.
  // Only one call runs at a time; others wait.
  StatusOr<ScrubProgress> Scrub(const ScrubOptions& options = {});
  // Of a reader beside a writer (file/readers_file.h): returns true once the file has a newer checkpoint, which Refresh opens, or
  // the reader is cut off, or another file is at its path; false if there is none within `timeout`; 0 only looks. The writer wakes those
  // that wait. Where that is impossible, or the writer has opened the file by another name, they look ten times a second. Updates that are
  // only in the log of a killed writer are no checkpoint. FailedPrecondition if the database is no reader.
  StatusOr<bool> WaitForCheckpoint(std::chrono::milliseconds timeout) const;
  // Moves the clock of a copy forward to that of the original (dbm/expiry.h).
  void NoteClock(std::uint64_t latest) final { store().NoteClock(latest); }
  // num_records is current; the sizes are those of the last checkpoint. free_bytes is 0 until it is
  // determined by the first checkpoint, copy, Verify, ShouldBeRebuilt or Inspect since Open.
  Stats GetStats();

 protected:
  using Home::maintenance_mutex_;
  using Home::writable_;
  using Space = tree::BufferPool<FileT, Codec>;
  using Writers = sync::WriterStates<typename Space::WriterState>;
  using Pinned = typename tree::PageStore<FileT>::Pinned;
  using Checkpointed = std::shared_ptr<std::atomic<PoolHome*>>;  // the home from which a buffer pool requests checkpoints

  // Returns the memory that the options allow, or InvalidArgument if it is too little.
  template <class Options>
  static StatusOr<tree::PoolLimits> LimitsOf(const Options& options);
  // Makes the space of a database.
  static StatusOr<std::unique_ptr<Space>> MakeSpace(std::unique_ptr<tree::PageStore<FileT>> store, const tree::PoolLimits& limits,
                                                    const Checkpointed& checkpointed) {
    return Space::Create(std::move(store), limits, [checkpointed] {
      if (PoolHome* const home = checkpointed->load()) home->CheckpointSoon();
    });
  }
  PoolHome(DatabaseRecords& records, Space& space, Writers& writers, Durability durability, Checkpointed checkpointed)
      : Home(records, space.log(), refused_, space.store().file().IsWritable(), durability, space.store().super().metadata,
             space.store().super().type),
        pool_(space),
        pool_writers_(writers),
        scrub_(space.store()),
        refused_(writable_ ? absl::OkStatus() : ReadOnlyError()),
        checkpointer_(space),
        checkpointed_(std::move(checkpointed)) {}
  ~PoolHome() = default;

  // ---- what depends on the pages ----

  // Sets the fields of the superblock that the engine knows: the root, the number of records, the
  // applied index.
  virtual void DescribeTree(format::TreeSuperBlock& super) const = 0;
  // Removes all records. REQUIRES: no writers
  virtual Status RemoveAll(typename Space::Deferred& deferred) = 0;
  // Checks the file at a pinned state: see OpenPinned.
  virtual Status VerifyPinned(const Pinned& pinned) = 0;

  // Opens a second, read-only space on the file at the pinned state.
  using PinnedSpace = tree::BufferPool<ReadOnlyView<FileT>, Codec>;
  StatusOr<std::unique_ptr<PinnedSpace>> OpenPinned(const Pinned& pinned) const;

  // CopyTo `path` of a snapshot: makes a database of class D with the properties of this one, whose records fill(D&) stores.
  // `now`: the time of its moment, by the clock of the database.
  template <class D, class Options, class Fill>
  Status CopyBy(const std::string& path, Options options, std::uint64_t now, Fill& fill) {
    struct Source {
      PoolHome& home;
      Options& options;
      std::uint64_t now;
      Fill& fill;
      Status CopyTo(FileT file) {
        const Expiry* const expiry = home.records().expiry();
        if constexpr (requires { options.page_size; }) options.page_size = home.store().super().page_size;
        options.durability = Durability::kNone;  // until it is closed
        if constexpr (requires { options.clock; }) {
          options.expiry = expiry != nullptr;
          options.clock = &Expiry::FirstTime;  // nothing expires in the copy while it is made
        }
        HAKO_ASSIGN_OR_RETURN(auto copy, D::Open(std::move(file), options));
        HAKO_RETURN_IF_ERROR(fill(*copy));
        HAKO_RETURN_IF_ERROR(copy->SetType(home.GetType()));
        HAKO_RETURN_IF_ERROR(copy->SetMetadata(home.GetMetadata()));
        if (expiry != nullptr) copy->NoteClock(now);
        return copy->Close();
      }
    };
    Source source{*this, options, now, fill};
    return this->template CopyToPath<FileT>(source, path);
  }

  // ---- readers beside a writer ----

  // Opens the database of class D at `path`, as DatabaseHome::OpenAt. With OpenMode::kReadOnly as a reader, or
  // without a writer if the file of the readers cannot be made.
  template <class D, class Options>
  static StatusOr<std::unique_ptr<D>> OpenPath(const std::string& path, const Options& options, FileOptions file_options,
                                               const Status& checked);
  // Whether this database shows a later state than `other`, or another file.
  bool IsNewerThan(const PoolHome& other) const;
  // Refresh (dbm/tree_dbm.h) of a database of class D, which `reopen` opens again; empty if it is not a reader.
  template <class D>
  static StatusOr<std::unique_ptr<D>> Refreshed(const D& database, const std::function<StatusOr<std::unique_ptr<D>>()>& reopen) {
    HAKO_RETURN_IF_ERROR(database.CheckOpen());
    if (!reopen) return absl::FailedPreconditionError("Refresh: the database was not opened by its path with OpenMode::kReadOnly");
    HAKO_ASSIGN_OR_RETURN(std::unique_ptr<D> newer, reopen());
    if (!newer->IsNewerThan(database) && database.store().CheckReader().ok()) {
      database.store().NoteNewest();
      newer = nullptr;
    }
    return newer;
  }

  template <class Options>
  static ReadersClock ClockOf(const Options& options) {
    if constexpr (requires { options.clock; }) return options.clock;
    return nullptr;
  }
  // Call in Open, before MakeSpace: no space is reused that readers need.
  template <class Options>
  static void WatchReaders(tree::PageStore<FileT>& store, const LogPlace<log::LogFileOf<FileT>>& log, const Options& options) {
    if (!store.file().IsWritable() || log.database().empty()) return;
    store.WatchReaders(log.database(), {options.reader_bytes, static_cast<std::uint64_t>(options.reader_age.count()), ClockOf(options)});
  }

  // Call at the end of Open: replays the log, and begins a new one. REQUIRES: the engine has its
  // root
  Status Begin(const LogOptions& options, std::chrono::milliseconds sync_interval, bool is_new);
  // Returns GetStats, GetType, the cache's memory and the file's transfers, for people to read.
  Inspection InspectAs(std::string_view name);

  // For EngineOperations.
  HAKO_INLINE bool AcceptsUpdates() const { return refused_.IsOk(); }

 private:
  static constexpr std::uint64_t kVerifyBytes = 8 << 20;

  // ---- for DatabaseHome ----
  Status SynchronizeLocked() final;
  void SynchronizeInBackground() final;
  void NoteRefused(const Status& refusal) final {
    if (absl::IsResourceExhausted(refusal) && IsTimeToRetry()) CheckpointSoon();  // because there may be space by now
  }
  log::NamedLog LogInFile() const final { return log::NamedLogOf(store().super()); }
  Status NameLog(const log::DatabaseId& id, log::Position from) final;
  bool MayName(const log::DatabaseId& id, bool has_ended) const final {
    const log::NamedLog named = LogInFile();
    return (named.id == id && named.HasEnded() == has_ended) || !store().Health().ok();
  }
  Status MayReplay() final;
  Status CloseFile() final;
  void StopThreads() final;
  Status CloseDevice() final {
    Status status = store().file().Close();
    store().LeaveReaders();
    return status;
  }
  void SetTakeBack(TakeBack what) final {
    if constexpr (UndoableFile<FileT>) store().file().SetTakeBack(what);
  }

  Space& space() const { return pool_; }
  tree::PageStore<FileT>& store() const { return pool_.store(); }
  auto EachWriter() const {
    return [this](auto&& visit) { pool_writers_.ForEach(visit); };
  }
  // Requests a checkpoint. If no thread can be started, updates do not wait for checkpoints, and
  // memory for pages may run out.
  void CheckpointSoon() {
    if (!this->WakeBackground().ok()) space().progress().NoteFailure();
  }
  // Whether the database has updates of the log that the last checkpoint lacks.
  bool HasReplayed() const { return LogInFile().IsNeeded() && ShownLsn() != LogInFile().from.lsn; }
  // The place in the log up to which this database shows its updates.
  log::Lsn ShownLsn() const { return space().log().position().lsn; }
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

  Space& pool_;
  Writers& pool_writers_;
  sync::Mutex scrub_mutex_;  // one Scrub at a time; locked before maintenance_mutex_
  tree::PageScrub<FileT> scrub_;
  sync::StickyStatus refused_;
  mutable sync::Mutex retry_mutex_ ABSL_ACQUIRED_AFTER(tree::kPoolLocks);
  std::chrono::milliseconds retry_delay_ ABSL_GUARDED_BY(retry_mutex_){0};
  std::chrono::steady_clock::time_point retry_at_ ABSL_GUARDED_BY(retry_mutex_);
  tree::Checkpointer<FileT, Codec> checkpointer_ ABSL_GUARDED_BY(maintenance_mutex_);
  const Checkpointed checkpointed_;
};

}  // namespace hako

#include "hako/dbm/pool_home-inl.h"
