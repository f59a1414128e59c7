// The operations that the DBMs in files share beside those of every DBM: synchronization, the data
// of the application in the file, and Close.
//
// Such a class D inherits FileOperations<D, FileT, Options> publicly (CRTP) through LogOperations
// (dbm/log_operations.h), beside HashOperations or TreeOperations. It provides CopyTo of a FileT, and
//   file()               the file
//   refusal()            the sync::StickyStatus that says why updates are refused: opened
//                        read-only, a failed write or sync, or a full device, which may pass
//   SynchronizeLocked()  makes the records durable; SynchronizeInBackground, as the thread calls it
//   StoreMetadata()      makes the metadata durable
//   StopThreads(), CloseWritable(), Seal()  the steps of Close
//
// Synchronize is coalesced: a call that waits while another one synchronizes is served by the next
// one, together with all others that wait.
//
// Threads: any, except Close.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hako/base/inline.h"
#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/dbm/common.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/log_place.h"
#include "hako/dbm/options.h"
#include "hako/file/file.h"
#include "hako/file/replace_file.h"
#include "hako/sync/background_thread.h"
#include "hako/sync/mutex.h"
#include "hako/sync/sticky_status.h"

namespace hako {

// The operations: see the head of this header.
template <class D, File FileT, class Options>
class FileOperations {
 public:
  // Makes acknowledged updates durable: two flushes of the device, shared by concurrent callers;
  // writers are stopped for microseconds. Soft: free on a mapped HashDBM, elsewhere the same as
  // hard. After a failure updates are refused: see GetHealth. An error of the log archive is returned,
  // too, although the state is durable then.
  Status Synchronize(SyncMode mode) HAKO_TRY {
    HAKO_RETURN_IF_ERROR(self().CheckIdle());
    if (!writable_ || (mode == SyncMode::kSoft && self().SurvivesProcess())) return self().refusal().Get();
    const std::uint64_t call = sync_calls_.fetch_add(1, std::memory_order_acq_rel) + 1;
    num_waiting_.fetch_add(1, std::memory_order_relaxed);
    sync::MutexLock lock(maintenance_mutex_);
    num_waiting_.fetch_sub(1, std::memory_order_relaxed);
    if (call > synced_calls_) HAKO_RETURN_IF_ERROR(SynchronizeNow());  // else one that began after this call covered it
    return self().RetryArchive();
  }
  HAKO_OR_NO_MEMORY

  // CopyTo of the class into a new file, which replaces the one at `path` and appears whole and
  // durable or not at all. FailedPrecondition if beside it is a log with updates, of a database that was not closed.
  Status CopyTo(const std::string& path) requires PathFile<FileT> HAKO_TRY {
    HAKO_RETURN_IF_ERROR(self().CheckIdle());  // before creating a file
    FileOptions options;
    options.huge_pages = false;  // each would be filled with zeros first, and nobody reads the copy's map
    return ReplaceFile<FileT>(
        path,
        [this, &path](FileT file) -> Status {
          HAKO_RETURN_IF_ERROR(RefuseLogBeside(path));
          return self().CopyTo(std::move(file));
        },
        options);
  }
  HAKO_OR_NO_MEMORY

  // Data of the application in the file beside the records: a number for the type of the content,
  // and UserMetadata. Initially zero. The setters are durable when they return.
  std::uint32_t GetType() const {
    sync::MutexLock lock(metadata_mutex_);
    return type_;
  }
  Status SetType(std::uint32_t type) { return ChangeMetadata(&FileOperations::type_, type); }
  UserMetadata GetMetadata() const {
    sync::MutexLock lock(metadata_mutex_);
    return metadata_;
  }
  Status SetMetadata(const UserMetadata& metadata) { return ChangeMetadata(&FileOperations::metadata_, metadata); }

  // False if the file was opened read-only.
  bool IsWritable() const { return writable_; }
  // OK, or why updates are refused. After a failed write or sync: FailedPrecondition, until the
  // database is opened again. While the device of a TreeDBM is full: ResourceExhausted; removals
  // are accepted, and all updates again once there is space. Reads go on in both cases. While the log
  // archive cannot be written: why; updates are accepted as long as the log can grow.
  Status GetHealth() const {
    HAKO_RETURN_IF_ERROR(self().CheckOpen());
    if (!writable_) return absl::OkStatus();
    HAKO_RETURN_IF_ERROR(self().refusal().Get());
    return self().ArchiveHealth();
  }

  // Synchronizes and closes the file. The destructor calls it if the application has not. Returns
  // the first error; the file is closed in any case.
  // REQUIRES: no other thread uses the database
  Status Close() {
    if (closed_.exchange(true)) return absl::OkStatus();
    if (Status inherited = self().CheckOpen(); !inherited.ok()) {
      self().Seal();
      return inherited;
    }
    self().StopThreads();
    Status status = writable_ ? CatchNoMemory([this] { return self().CloseWritable(); }) : absl::OkStatus();
    self().Seal();
    status.Update(self().file().Close());
    return status;
  }

 protected:
  // `marks_updates`: AfterUpdate is called even if it need not synchronize.
  template <class SuperBlock>
  FileOperations(bool writable, Durability durability, bool marks_updates, const SuperBlock& super)
      : writable_(writable),
        durability_(durability),
        has_after_update_(durability == Durability::kPower || marks_updates),
        metadata_(super.metadata),
        type_(super.type) {}
  ~FileOperations() = default;

  HAKO_INLINE bool AcceptsUpdates() const { return self().refusal().IsOk(); }
  Status MayUpdate() const { return self().refusal().Get(); }
  // Removals are accepted while only space is lacking, because they free space.
  Status MayRemove() {
    const Status refusal = self().MayUpdate();
    return absl::IsResourceExhausted(refusal) ? absl::OkStatus() : refusal;
  }
  // The type of a new file. REQUIRES: no other thread uses the database
  void BeginType(std::uint32_t type) {
    sync::MutexLock lock(metadata_mutex_);
    type_ = type;
  }
  // Whether AfterUpdate must be called after each update.
  HAKO_INLINE bool HasAfterUpdate() const { return has_after_update_; }
  void CallAfterUpdates() { has_after_update_ = true; }  // REQUIRES: no other thread uses the database
  Status AfterUpdate() { return SyncsEachUpdate() ? self().WaitDurable(self().LastLsn()) : absl::OkStatus(); }
  bool SyncsEachUpdate() const { return durability_ == Durability::kPower; }
  // Whether each update survives the death of the process without a synchronization.
  bool SurvivesProcess() const { return false; }

  // Synchronizes for all callers of Synchronize that have begun.
  Status SynchronizeNow() ABSL_EXCLUSIVE_LOCKS_REQUIRED(maintenance_mutex_) {
    const std::uint64_t covered = sync_calls_.load(std::memory_order_acquire);
    HAKO_RETURN_IF_ERROR(self().SynchronizeLocked());
    synced_calls_ = covered;
    return absl::OkStatus();
  }
  bool IsSynchronizeWaiting() const { return num_waiting_.load(std::memory_order_relaxed) != 0; }

  // Stores type and metadata in a superblock.
  template <class SuperBlock>
  void Describe(SuperBlock& super) const {
    sync::MutexLock lock(metadata_mutex_);
    super.metadata = metadata_;
    super.type = type_;
  }

  // An interval of 0 means: only when woken.
  Status StartBackground(std::chrono::milliseconds interval) {
    HAKO_ASSIGN_OR_RETURN(background_, sync::BackgroundThread::Start(interval, [this] { self().SynchronizeInBackground(); }));
    return absl::OkStatus();
  }
  // Wakes the background thread, which the first call starts, from any thread. ResourceExhausted if
  // the system has none; later calls try again.
  Status WakeBackground() {
    sync::MutexLock lock(background_mutex_);
    if (stops_threads_) return absl::OkStatus();
    if (background_ == nullptr) HAKO_RETURN_IF_ERROR(CatchNoMemory([this] { return StartBackground(std::chrono::milliseconds{0}); }));
    background_->Wake();
    return absl::OkStatus();
  }
  // Starts the thread that removes expired records, if any may expire.
  Status StartSweeper() {
    if (self().expiry() == nullptr || self().expiry()->IsOfCopy() || !writable_) return absl::OkStatus();
    HAKO_ASSIGN_OR_RETURN(sweeper_, sync::BackgroundThread::Start(kSweepInterval, [this] { self().SweepInBackground(stops_sweeper_); }));
    return absl::OkStatus();
  }
  void StopThreads() {
    stops_sweeper_ = true;
    sweeper_ = nullptr;
    sync::BackgroundThread::Pointer stopping;
    sync::MutexLock lock(background_mutex_);
    stops_threads_ = true;
    stopping.swap(background_);  // it ends after the mutex is unlocked
  }

  const bool writable_;
  std::atomic<bool> closed_{true};  // Close writes nothing unless Open has succeeded
  // Held by the one user of the superblock: a synchronization, a pin, a step of a rebuild.
  sync::Mutex maintenance_mutex_;

 private:
  D& self() { return static_cast<D&>(*this); }
  const D& self() const { return static_cast<const D&>(*this); }

  // One setter at a time, so that one that fails takes back no other's value.
  template <class T>
  Status ChangeMetadata(T FileOperations::*field, const T& value) HAKO_TRY {
    HAKO_RETURN_IF_ERROR(self().CheckIdle());
    HAKO_RETURN_IF_ERROR(self().MayUpdate());
    const auto exchange = [&](const T& with) {
      sync::MutexLock lock(metadata_mutex_);
      return std::exchange(this->*field, with);
    };
    sync::MutexLock setter_lock(setter_mutex_);
    const T before = exchange(value);
    Status status = self().StoreMetadata();
    if (!status.ok()) exchange(before);
    return status;
  }
  HAKO_OR_NO_MEMORY

  static constexpr std::chrono::milliseconds kSweepInterval{100};

  const Durability durability_;
  bool has_after_update_;
  std::atomic<bool> stops_sweeper_{false};
  sync::BackgroundThread::Pointer sweeper_;
  sync::Mutex background_mutex_;
  sync::BackgroundThread::Pointer background_;
  bool stops_threads_ ABSL_GUARDED_BY(background_mutex_) = false;
  sync::Mutex setter_mutex_ ABSL_ACQUIRED_BEFORE(maintenance_mutex_);
  mutable sync::Mutex metadata_mutex_ ABSL_ACQUIRED_AFTER(maintenance_mutex_);
  UserMetadata metadata_ ABSL_GUARDED_BY(metadata_mutex_);
  std::uint32_t type_ ABSL_GUARDED_BY(metadata_mutex_);
  std::atomic<std::uint64_t> sync_calls_{0};                            // calls of Synchronize that have begun
  std::uint64_t synced_calls_ ABSL_GUARDED_BY(maintenance_mutex_) = 0;  // number of the last call already served
  std::atomic<int> num_waiting_{0};                                     // callers that wait for maintenance_mutex_
};

}  // namespace hako
