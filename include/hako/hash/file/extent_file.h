// The file of a HashDBM as a sequence of extents after a superblock (format/hash_file_format.h):
// the state that the last user left, the commit protocol, and the allocation of space.
//
// Invariants
//   1. Bytes at and above tail() are zero, except a closing note and a saved index.
//   2. After Commit returns OK both slots have the same state, or the other slot is about to get
//      it. A crash at any moment leaves a valid slot, and the newer valid slot names a state that
//      was synced before the slot was written.
//   3. Before an open file is first changed, its superblock says durably that it is in use.
//
// Any thread may allocate and free extents, and use the index extents and the live state. One
// thread at a time commits and changes the tail.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "hako/base/random_seed.h"
#include "hako/base/status.h"
#include "hako/base/wall_clock.h"
#include "hako/file/file.h"
#include "hako/format/hash_file_format.h"
#include "hako/format/stamp.h"
#include "hako/hash/file/extent_list.h"
#include "hako/hash/file/left_state.h"
#include "hako/hash/file/live_state_file.h"
#include "hako/hash/lock_order.h"
#include "hako/log/update_log.h"
#include "hako/storage/superblock_slots.h"
#include "hako/sync/mutex.h"
#include "hako/sync/raise_to.h"

namespace hako::hash {

inline void NameLog(format::HashSuperBlock& super, const log::DatabaseId& id, log::Position from) {
  super.log_id = id;
  super.log_lsn = from.lsn;
  super.log_sequence = from.sequence;
}

enum class FoundState {
  kNew,      // just created
  kClean,    // closed cleanly by its last user
  kKilled,   // its last user died, but the page cache with its stores still exists
  kCrashed,  // anything else
};

// Which copy of the bytes a reader wants: the newer one in memory, or the one on the device.
enum class ReadsFrom { kMemory, kDevice };

template <File FileT>
class ExtentFile : public LiveStateFile<FileT> {
 public:
  using FileBytes<FileT>::kMapped;
  using FileBytes<FileT>::Read;
  using FileBytes<FileT>::Write;
  using FileBytes<FileT>::FillZero;
  using LiveStateFile<FileT>::StoreLive;
  using LiveStateFile<FileT>::StoreSealed;
  using LiveStateFile<FileT>::LoadSealed;
  static constexpr storage::FileKind kKind{"hash", format::kHashFileMagic, format::kHashFileOldest, format::kHashFileVersion};

  // `clock` is the clock of a new file: see format::HashSuperBlock.
  static StatusOr<std::unique_ptr<ExtentFile>> Open(FileT file, int align_pow, std::uint64_t hash_seed, std::uint64_t clock = 0,
                                                    UnprovenUpdates unproven = UnprovenUpdates::kRefuse) {
    std::unique_ptr<ExtentFile> self(new ExtentFile(std::move(file)));
    self->unproven_ = unproven;
    HAKO_ASSIGN_OR_RETURN(const bool blank, storage::IsBlankFile(self->file_, kKind));
    HAKO_RETURN_IF_ERROR(blank ? self->Initialize(align_pow, hash_seed, clock) : self->ReadSuperBlock());
    return self;
  }

  FoundState found() const { return found_; }
  // Whether the state that a killed process left was accepted (UnprovenUpdates).
  bool was_accepted() const { return was_accepted_; }
  const format::HashSuperBlock& super() const { return super_; }
  std::uint64_t tail() const { return tail_.load(std::memory_order_acquire); }

  // Withdraws the live state, and sets its fields that are used before it is published to those of
  // the superblock. The next superblock names the map. REQUIRES: if the file is writable, a
  // superblock is durable, because after a power cut a file without one must be blank (unchecked:
  // the device does not tell)
  void ResetLiveState() {
    NameMap();
    LiveStateFile<FileT>::ResetLiveState(super_.applied_index);
  }
  // From now on the live state counts if the process dies. Call this when everything that it names
  // exists.
  void PublishLiveState() {
    LiveStateFile<FileT>::PublishLiveState(tail());
    is_published_ = true;
  }

  // The latest time that the file stores, if its records expire. NoteClock stores a later one in
  // the live state and in the next superblock; any thread may call it.
  std::uint64_t clock() const {
    return super_.clock != 0 && found_ == FoundState::kKilled
               ? std::max<std::uint64_t>(super_.clock, format::UnsealClock(this->LoadLive(&format::LiveState::clock)))
               : std::uint64_t{super_.clock};
  }
  // See format::HashSuperBlock. 0 unless the file was closed.
  std::uint64_t first_expiry() const { return found_ == FoundState::kClean ? std::uint64_t{super_.first_expiry} : 0; }
  // Sets the field of the superblocks that are written from now on, while the database is being
  // closed.
  void NoteFirstExpiry(std::uint64_t time) { first_expiry_ = time; }
  void NoteClock(std::uint64_t latest) {
    sync::RaiseTo(clock_, latest);
    this->RaiseLiveClock(latest);
  }

  // The log that the superblock names.
  log::NamedLog LogInFile() const { return log::NamedLogOf(super_); }

  // Marks the file durably as in use, with stamps of epochs up to `last_epoch`. Call before any other
  // change. The superblock does not name the map if the live state is that of an earlier boot.
  Status MarkInUse(std::uint64_t last_epoch) {
    if constexpr (!kMapped) HAKO_RETURN_IF_ERROR(this->ForgetLiveState());
    if (found_ == FoundState::kKilled) StoreLive(&format::LiveState::published, format::kPublished);  // of an older file
    if (found_ == FoundState::kCrashed) {
      super_.map_identity = 0;
      super_.map_boot = 0;
    } else {
      if (was_accepted_) this->NameLiveState();  // before a superblock says that it is of this file
      NameMap();
    }
    super_.clean = 0;
    super_.note_size = 0;
    super_.last_epoch = std::max<std::uint64_t>(super_.last_epoch, last_epoch);
    return found_ == FoundState::kKilled ? StoreSuper(&ExtentFile::SyncSlots) : Commit();
  }
  // No stamp on the device has a later epoch than this.
  std::uint64_t last_epoch() const {
    const std::uint64_t s = super_.epoch;
    return std::clamp<std::uint64_t>(super_.last_epoch, s + 2, s + format::kEpochsAhead - 1);
  }

  // Syncs the file. If that fails, the page cache may have dropped dirty pages, so the live state
  // no longer counts. A live state that does not count yet is not changed, because there may be no
  // durable superblock.
  Status Sync() { return NoteSync(file_.Sync()); }

  // Makes `change(superblock)` the file's durable state. REQUIRES: everything that the superblock
  // names is synced (unchecked: the device does not tell)
  template <class F>
  Status Commit(F&& change) {
    change(super_);
    return Commit();
  }

  // Allocates a zero-filled extent of `bytes`, a multiple of the extent unit. ResourceExhausted
  // leaves everything unchanged. Other threads can allocate while a large allocation is in
  // progress.
  StatusOr<std::uint64_t> Allocate(std::uint64_t bytes) {
    std::uint64_t offset;
    {
      sync::MutexLock lock(mutex_);
      while ((offset = free_.TakeFree(bytes)) == 0) {
        HAKO_ASSIGN_OR_RETURN(offset, Append(bytes));
        if (offset != 0) return offset;
        sync::MutexUnlock unlocked(mutex_);
        std::this_thread::yield();
      }
    }
    Status status = FillZero(offset, bytes);
    if (status.ok()) return offset;
    Free({offset, bytes});
    return status;
  }

  // Makes an allocated extent a part of the heap. After an error the extent is free.
  Status BeginHeapExtent(Extent extent) {
    format::HeapExtentHeader header{};
    header.magic = format::kHeapExtentMagic;
    header.bytes = extent.bytes;
    header.check = header.CheckAt(extent.offset, super_.secret);
    Status status = Write(extent.offset, {reinterpret_cast<const char*>(&header), sizeof(header)});
    if (!status.ok()) Free(extent);
    return status;
  }

  // Frees an unused extent that the last synced state does not need. Ignores space that is already
  // free or belongs to the index, as in a damaged file.
  void Free(Extent extent) {
    sync::MutexLock lock(mutex_);
    if (!free_.Overlaps(extent) && !IndexHas(extent)) free_.AddFree(extent);
  }
  std::vector<Extent> free_extents() const {
    sync::MutexLock lock(mutex_);
    return free_.extents();
  }
  std::uint64_t free_extent_bytes() const {
    sync::MutexLock lock(mutex_);
    return free_.bytes();
  }

  bool EndsInFreeExtent() const {
    sync::MutexLock lock(mutex_);
    return free_.EndsAt(tail());
  }
  // Lowers the tail below free extents at the end. REQUIRES: no other thread uses the file; the
  // space above is zero or will be cut off. (unchecked: uses leave no trace)
  void LowerTail() {
    sync::MutexLock lock(mutex_);
    while (free_.EndsAt(tail())) SetTail(free_.PopLast());
  }
  void SetTail(std::uint64_t tail) {
    tail_.store(tail, std::memory_order_release);
    StoreSealed(&format::LiveState::tail, tail);
  }
  // Truncates the file at the tail, so that the space above is zero when it is used again.
  Status CutAtTail() { return file_.Size() == tail() ? absl::OkStatus() : file_.Resize(tail()); }

  // Registers an index extent, so that its space has no other use. Returns false if it overlaps
  // another one.
  bool AddIndexExtent(Extent extent) {
    sync::MutexLock lock(index_mutex_);
    if (index_.Overlaps(extent)) return false;
    index_.Insert(extent);
    return true;
  }
  void ForgetIndexExtents() {
    sync::MutexLock lock(index_mutex_);
    index_.Clear();
  }
  bool IndexHas(Extent extent) const {  // whether the index has the extent or a part of it
    sync::MutexLock lock(index_mutex_);
    return index_.Overlaps(extent);
  }

  // The size of the heap extent at `offset`; 0 if there is none.
  StatusOr<std::uint64_t> HeapExtentBytes(std::uint64_t offset) const {
    format::HeapExtentHeader header;
    HAKO_RETURN_IF_ERROR(Read(offset, reinterpret_cast<char*>(&header), sizeof(header)));
    return HeapExtentBytes(offset, header);
  }
  // As above, for a header that has been read.
  std::uint64_t HeapExtentBytes(std::uint64_t offset, const format::HeapExtentHeader& header) const {
    if (!IsHeader(offset, header)) return 0;
    const std::uint64_t bytes = header.bytes;
    const std::uint64_t end = tail();
    const bool fits = bytes % format::kExtentUnit == 0 && bytes != 0 && offset < end && bytes <= end - offset;
    return fits && !IndexHas({offset, bytes}) ? bytes : 0;
  }

  // Clears the header, so that no heap extent is found at `offset`.
  Status ForgetHeapExtent(std::uint64_t offset) {
    static constexpr std::array<char, sizeof(format::HeapExtentHeader)> kZeros{};
    return Write(offset, {kZeros.data(), kZeros.size()});
  }
  // Clears the header at `offset`, if there is one. It belongs to a former extent, whose space is
  // now part of another one.
  Status ForgetStaleHeader(std::uint64_t offset) {
    format::HeapExtentHeader header;
    HAKO_RETURN_IF_ERROR(Read(offset, reinterpret_cast<char*>(&header), sizeof(header)));
    return IsHeader(offset, header) ? ForgetHeapExtent(offset) : absl::OkStatus();
  }

 private:
  using FileBytes<FileT>::file_;
  using LiveStateFile<FileT>::live_;
  static constexpr std::uint64_t kGrowthStep = 8 << 20;     // most growth at once under mutex_
  static constexpr std::uint64_t kPrefaultMax = 256 << 10;  // the pages of longer extents are mapped at their first use

  bool IsHeader(std::uint64_t offset, const format::HeapExtentHeader& header) const {
    return header.magic == format::kHeapExtentMagic && header.check == header.CheckAt(offset, super_.secret);
  }

  // Appends an extent at the tail, for which the file grows. If this takes several steps, returns 0
  // after each step except the last, so that other threads can allocate in between.
  StatusOr<std::uint64_t> Append(std::uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const std::uint64_t before = tail(), size = file_.Size();
    const std::uint64_t offset = before == format::kFirstExtent ? before : ExtentList::AlignFor(bytes, before);
    const std::uint64_t limit = std::uint64_t{1} << (32 + super_.align_pow);
    if (offset > limit || bytes > limit - offset)
      return absl::ResourceExhaustedError(absl::StrCat("the file has reached its limit of ", limit, " bytes (HashOptions::align_pow)"));
    if (size < offset + bytes) {
      const std::uint64_t step = std::min(offset + bytes, std::max(size, offset) + kGrowthStep);
      if (Status status = file_.Resize(step); !status.ok()) {
        if (size > before) (void)file_.Resize(before);
        return status;
      }
      if (step < offset + bytes) return 0;
    }
    if constexpr (requires { file_.Prefault(offset, bytes); }) {
      if (bytes <= kPrefaultMax) file_.Prefault(offset, bytes);
    }
    free_.AddFree({before, offset - before});
    SetTail(offset + bytes);
    return offset;
  }
  explicit ExtentFile(FileT file) : LiveStateFile<FileT>(std::move(file)) {}

  // Makes the superblock name the page cache that has the live state.
  void NameMap() {
    super_.map_identity = 0;
    super_.map_boot = 0;
    if constexpr (kMapped && KernelBackedFile<FileT>) {
      const FileIdentity identity = file_.Identity();
      super_.map_identity = CheckOf(identity);
      super_.map_boot = identity.boot;
    }
  }

  Status Initialize(int align_pow, std::uint64_t hash_seed, std::uint64_t clock) {
    found_ = FoundState::kNew;
    HAKO_RETURN_IF_ERROR(file_.Resize(format::kFirstExtent));
    this->AttachLiveState();
    super_ = {};
    super_.magic = format::kHashFileMagic;
    super_.clock = clock;
    super_.align_pow = static_cast<std::uint32_t>(align_pow);
    super_.hash_seed = hash_seed != 0 ? hash_seed : RandomSeed();
    super_.secret = hash_seed != 0 ? MixBits(hash_seed) : RandomSeed();
    super_.file_id = RandomSeed();
    super_.epoch = 1;
    super_.tail = format::kFirstExtent;
    super_.synced_at = WallClock();
    tail_.store(format::kFirstExtent);
    NameMap();
    return Commit();
  }

  Status ReadSuperBlock() {
    HAKO_ASSIGN_OR_RETURN(super_, storage::ReadNewerSlot<format::HashSuperBlock>(file_, kKind, format::kFirstExtent));
    return Validate();
  }

  Status Validate() {
    const std::uint64_t size = file_.Size();
    const auto bad = [](const char* what, std::size_t field) {
      return DataLossError(absl::StrCat("bad superblock: ", what).c_str(), field);
    };
    if (super_.align_pow < 3 || super_.align_pow > 6) return bad("alignment", offsetof(format::HashSuperBlock, align_pow));
    const std::uint64_t tail_max = std::uint64_t{1} << (32 + super_.align_pow);  // handles are 32 bits
    if (super_.tail < format::kFirstExtent || super_.tail % format::kExtentUnit != 0 || super_.tail > tail_max)
      return bad("tail", offsetof(format::HashSuperBlock, tail));
    if (super_.tail > size) return DataLossError("the file is truncated: its records extend beyond its end", size);
    if (super_.epoch >= (std::uint64_t{1} << format::kLiveBits) - format::kEpochsAhead)
      return bad("epoch", offsetof(format::HashSuperBlock, epoch));
    if (super_.index_extents > format::kIndexExtentsMax) return bad("index extents", offsetof(format::HashSuperBlock, index_extents));
    this->AttachLiveState();
    tail_.store(super_.tail);
    found_ = FoundState::kCrashed;
    if (super_.clean == 1) {
      // The note is optional; it is cut off before the file is marked as in use.
      if (super_.note_size <= size - super_.tail) found_ = FoundState::kClean;
    } else if constexpr (requires { file_.MapIdentity(); }) {
      format::LiveState left;
      HAKO_RETURN_IF_ERROR(Read(format::kLiveStateOffset, reinterpret_cast<char*>(&left), sizeof(left)));
      HAKO_RETURN_IF_ERROR(CheckLiveState(left, super_, file_.MapIdentity(), size));
      if (IsOf(left, file_.MapIdentity())) {
        return absl::FailedPreconditionError(
            "a killed process had the file mapped, and its updates may be in memory only: open it as a MemoryMapParallelFile, and close "
            "it");
      }
      if (IsUnproven(left, super_, file_.MapIdentity()) && unproven_ != UnprovenUpdates::kDrop) return UnprovenError();
    } else if constexpr (kMapped && KernelBackedFile<FileT>) {
      HAKO_RETURN_IF_ERROR(CheckLiveState(*live_, super_, file_.Identity(), size));
      if (IsOf(*live_, file_.Identity())) {
        tail_.store(LoadSealed(&format::LiveState::tail));
        found_ = FoundState::kKilled;
      } else if (IsUnproven(*live_, super_, file_.Identity()) && unproven_ != UnprovenUpdates::kDrop) {
        if (unproven_ == UnprovenUpdates::kRefuse) return UnprovenError();
        HAKO_ASSIGN_OR_RETURN(was_accepted_, MayAccept(*live_, super_, size));
        if (was_accepted_) {
          tail_.store(LoadSealed(&format::LiveState::tail));
          found_ = FoundState::kKilled;
        }
      }
    }
    return absl::OkStatus();
  }

  // An open database refuses updates after a failed sync, so its user knows. One that is being opened
  // after a kill must not drop updates silently.
  Status NoteSync(Status status) {
    const bool is_opening = found_ == FoundState::kKilled && !is_published_;
    if (!status.ok() && this->LoadLive(&format::LiveState::in_use) != 0)
      StoreLive(&format::LiveState::poisoned, is_opening ? format::kDoubtful : format::kPoisoned);
    return status;
  }
  // Makes the superblocks durable, but not the updates of a killed process, which may be gigabytes.
  // The state that a superblock names was synced before the superblock was written.
  Status SyncSlots() { return NoteSync(SyncPart(file_, 0, storage::kSlotDistance + sizeof(super_))); }

  Status Commit() { return StoreSuper(&ExtentFile::Sync); }
  Status StoreSuper(Status (ExtentFile::*sync)()) {
    if (super_.clock != 0) super_.clock = std::max<std::uint64_t>(super_.clock, clock_.load(std::memory_order_relaxed));
    super_.first_expiry = first_expiry_;
    super_.version = super_.clock != 0 ? format::kHashFileVersion : format::kHashFilePlainVersion;  // the clock is zero in an older file
    super_.sequence = super_.sequence + 1;
    super_.check = format::CheckOf(super_);
    const std::string_view bytes(reinterpret_cast<const char*>(&super_), sizeof(super_));
    HAKO_RETURN_IF_ERROR(Write(super_.sequence % 2 * storage::kSlotDistance, bytes));
    HAKO_RETURN_IF_ERROR((this->*sync)());
    return Write((super_.sequence + 1) % 2 * storage::kSlotDistance, bytes);
  }

  FoundState found_ = FoundState::kNew;
  UnprovenUpdates unproven_ = UnprovenUpdates::kRefuse;
  bool was_accepted_ = false, is_published_ = false;
  format::HashSuperBlock super_;
  std::atomic<std::uint64_t> clock_{0};
  std::uint64_t first_expiry_ = 0;
  std::atomic<std::uint64_t> tail_{0};
  mutable sync::Mutex mutex_ ABSL_ACQUIRED_AFTER(kFileLocks) ABSL_ACQUIRED_BEFORE(kInnermostLocks);
  ExtentList free_ ABSL_GUARDED_BY(mutex_);
  mutable sync::Mutex index_mutex_ ABSL_ACQUIRED_AFTER(kInnermostLocks);
  ExtentList index_ ABSL_GUARDED_BY(index_mutex_);  // index extents of a mapped file
};

}  // namespace hako::hash
