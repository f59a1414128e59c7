// TreeDBM: a B+ tree in a file, on the page engine that BabyDBM uses too.
//
// Records lie in the order of their keys, which Compare decides; the file knows the order's name and is refused under another. The pages
// that are in use lie in memory, within TreeOptions::cache_bytes; the others in the file (tree/buffer_pool.h). About 17 bytes of the file
// for a record of 8 + 8 bytes loaded in order; less if Codec compresses pages (base/page_codec.h). Keys are at most kTreeKeySizeMax bytes.
//
// What survives. Updates are made in memory, and checkpoints bring them to the file: when so much has changed (checkpoint_bytes), at
// intervals if that is wanted, at Synchronize and at Close. Whatever happens to the process or the machine, the file is exactly as of the
// last checkpoint, and opens at once: there is nothing to recover. Synchronize, soft or hard, returns after a checkpoint.
//
// Threads: see dbm/dbm.h. Synchronize, CopyTo, Rebuild and Verify run beside readers and writers, and checkpoints beside the other three. A
// visitor runs with its leaf locked. A value of more than a quarter of a page is copied, read and written while nothing is locked, and read
// again if it is replaced meanwhile; a visitor that only looks at one sees a copy, with nothing locked. ProcessMulti has all those of its
// keys in memory until it returns.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "hako/base/comparator.h"
#include "hako/base/no_memory.h"
#include "hako/base/page_codec.h"
#include "hako/base/status.h"
#include "hako/dbm/common.h"
#include "hako/dbm/dbm.h"
#include "hako/dbm/options.h"
#include "hako/dbm/tree_operations.h"
#include "hako/file/memory_map_parallel_file.h"
#include "hako/file/read_only_view.h"
#include "hako/file/replace_file.h"
#include "hako/sync/background_thread.h"
#include "hako/sync/sticky_status.h"
#include "hako/tree/buffer_pool.h"

namespace hako {

template <File FileT = MemoryMapParallelFile, Comparator Compare = BytewiseComparator, PageCodec Codec = NoCodec>
class TreeDBM : public TreeOperations<TreeDBM<FileT, Compare, Codec>, tree::BufferPool<FileT, Codec>, Compare> {
  using Space = tree::BufferPool<FileT, Codec>;
  using Base = TreeOperations<TreeDBM, Space, Compare>;
  friend Base;

 public:
  // Opens the database in `file`; an empty file is made one. Options that are fixed at creation count only there.
  static StatusOr<std::unique_ptr<TreeDBM>> Open(FileT file, const TreeOptions& options = {});
  static StatusOr<std::unique_ptr<TreeDBM>> Open(const std::string& path, const TreeOptions& options = {},
                                                 const FileOptions& file_options = {}) requires PathFile<FileT> HAKO_TRY {
    HAKO_ASSIGN_OR_RETURN(FileT file, FileT::Open(path, FileOptionsFor(options, file_options)));
    auto dbm = Open(std::move(file), options);
    if (dbm.ok()) return dbm;
    return Status(dbm.status().code(), absl::StrCat(path, ": ", dbm.status().message()));
  }
  HAKO_OR_NO_MEMORY

  ~TreeDBM() {
    (void)Close();
    if (this->writers_.IsInherited()) (void)space_.release();  // its threads and locks are the other process's
  }

  // A checkpoint: two flushes of the device, shared by all threads that wait for them; writers are stopped for microseconds.
  Status Synchronize(SyncMode mode);
  // Atomic to a crash like everything else: it is in the next checkpoint or not.
  Status Clear();

  // Whether more than half of the file is free.
  bool ShouldBeRebuilt();
  // Moves pages to the file's front and gives back its end, beside readers and writers. On error the database is as good as before.
  Status Rebuild();
  // Copies the state at the moment of the call into an empty file, beside readers and writers; or into a new file at `path`, which appears
  // there whole and synced or not at all.
  Status CopyTo(FileT empty_file);
  Status CopyTo(const std::string& path) requires PathFile<FileT>;

  // Reads the whole file and proves its structure, as of the moment of the call; beside readers and writers. Takes some memory: a page's
  // line, 64 bytes, for each page, the inner pages, and at most kVerifyBytes more.
  Status Verify();
  // Of the file, as of the last checkpoint. What is free in it is 0 before the first checkpoint of an open database, or the first
  // ShouldBeRebuilt or Inspect, which look for it.
  Stats GetStats();
  Inspection Inspect();

  // What the user keeps in the file beside the records: a number that says what kind of data they are, and some bytes; zero at first.
  // Durable when the call returns.
  std::uint32_t GetType() const {
    std::lock_guard lock(metadata_mutex_);
    return type_;
  }
  Status SetType(std::uint32_t type) {
    return ChangeMetadata([&] { type_ = type; });
  }
  UserMetadata GetMetadata() const {
    std::lock_guard lock(metadata_mutex_);
    return metadata_;
  }
  Status SetMetadata(const UserMetadata& metadata) {
    return ChangeMetadata([&] { metadata_ = metadata; });
  }

  bool IsWritable() const { return writable_; }
  // OK, or why updates are refused. After a failed write or sync they are refused until the database is opened again, with
  // FailedPrecondition. While the device is full, with ResourceExhausted: then removals are accepted, and updates again once there is
  // space.
  Status GetHealth() const {
    HAKO_RETURN_IF_ERROR(this->CheckOpen());
    return writable_ ? refusal_.Get() : absl::OkStatus();
  }

  // A checkpoint, and closes the file. The destructor calls it where the user did not. No other thread may use the database any more.
  Status Close();

 private:
  using Base::space_;
  using Base::tree_;

  TreeDBM(std::unique_ptr<Space> space, unsigned page_size, const TreeOptions& options)
      : Base(std::move(space), page_size),
        writable_(space_->store().file().IsWritable()),
        durability_(options.durability),
        metadata_(space_->store().super().metadata),
        type_(space_->store().super().type),
        refusal_(writable_ ? absl::OkStatus() : ReadOnlyError()) {}

  HAKO_INLINE Status MayUpdate() const {
    if (!refusal_.IsOk()) [[unlikely]]
      return RefuseUpdate();
    return absl::OkStatus();
  }
  // Removals are accepted where only space lacks: they make room.
  Status MayRemove() const {
    const Status may = MayUpdate();
    return absl::IsResourceExhausted(may) ? absl::OkStatus() : may;
  }
  HAKO_INLINE bool SyncsEachUpdate() const { return durability_ == Durability::kPower; }
  Status NoteUpdate() { return Synchronize(SyncMode::kHard); }
  [[gnu::cold]] Status RefuseUpdate() const {
    const Status refusal = refusal_.Get();
    if (absl::IsResourceExhausted(refusal) && IsTimeToRetry()) background_->Wake();  // there may be space again
    return refusal;
  }
  static constexpr std::uint64_t kVerifyBytes = 8 << 20;
  Status CheckpointLocked();
  Status VerifyPinned(const typename tree::PageStore<FileT>::Pinned& pinned);
  StatusOr<typename tree::PageStore<FileT>::Pinned> PinNewest();
  void Unpin();
  void YieldToCheckpoints(std::unique_lock<std::mutex>& lock);
  void NoteHealth(const Status& status);  // of what the store was last asked for
  // While space lacks, checkpoints that nobody asked for are tried less and less often.
  bool IsTimeToRetry() const {
    std::lock_guard lock(metadata_mutex_);
    return std::chrono::steady_clock::now() >= retry_at_;
  }
  Status CountFree();
  template <class F>
  Status ChangeMetadata(F&& change);

  const bool writable_;
  const Durability durability_;
  std::mutex maintenance_mutex_;  // of the store's one thread: checkpoints, steps of Rebuild, Pin and Unpin
  mutable std::mutex metadata_mutex_;
  UserMetadata metadata_;
  std::uint32_t type_;
  sync::StickyStatus refusal_;  // why updates are refused: opened read-only, a failure, or a full device, which may pass
  std::chrono::milliseconds retry_delay_{0};
  std::chrono::steady_clock::time_point retry_at_;
  std::atomic<std::uint64_t> sync_calls_{0};  // of Synchronize, that have begun
  std::atomic<int> num_waiting_{0};           // of its callers, for maintenance_mutex_
  std::uint64_t synced_calls_ = 0;            // of these, the first so many are served
  bool closed_ = true;
  std::shared_ptr<std::atomic<sync::BackgroundThread*>> waker_;  // what the cache wakes
  sync::BackgroundThread::Pointer background_;
};

}  // namespace hako

#include "hako/dbm/tree_dbm-inl.h"

namespace hako {

// The library has these compiled: a program that uses them takes a third of the time to compile.
// PageTree is not among them: compiled in the program, a Set of an existing key takes 10 to 20 % less time.
extern template class TreeDBM<>;
extern template class OrderedOperations<TreeDBM<>, BytewiseComparator>;
extern template class TreeOperations<TreeDBM<>, tree::BufferPool<MemoryMapParallelFile>, BytewiseComparator>;
extern template class tree::BufferPool<MemoryMapParallelFile>;

}  // namespace hako
