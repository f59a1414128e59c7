// The file of a HashDBM as a sequence of extents behind a superblock (format/hash_file_format.h):
// the state that the last user left, the commit protocol, and space.
//
// Invariants
//   1. Bytes at and above tail() are zero, except a closing note and a saved index.
//   2. After Commit returns OK both slots hold the same state, or the one that does not is about to
//      get it. A crash at any moment leaves a valid slot, and the newer valid slot names a state
//      that was synced before the slot was written.
//   3. Before the first change of an open file its superblock says durably that it is in use.
//
// Threads: allocating and freeing extents, the index extents and the live state from any; commits
// and changes of the tail by one thread at a time.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "hako/base/random_seed.h"
#include "hako/base/status.h"
#include "hako/base/wall_clock.h"
#include "hako/file/file.h"
#include "hako/format/hash_file_format.h"
#include "hako/format/stamp.h"
#include "hako/log/update_log.h"
#include "hako/storage/superblock_slots.h"
#include "hako/sync/atomic_bytes.h"
#include "hako/sync/mutex.h"

namespace hako::hash {

struct Extent {
  std::uint64_t offset;
  std::uint64_t bytes;
};

inline void NameLog(format::HashSuperBlock& super, const log::DatabaseId& id, log::Position from) {
  super.log_id = id;
  super.log_lsn = from.lsn;
  super.log_sequence = from.sequence;
}

enum class FoundState {
  kNew,      // just created
  kClean,    // closed cleanly by its last user
  kKilled,   // its last user died, but the page cache that it stored to still exists
  kCrashed,  // anything else
};

// Which copy of the bytes a reader wants: that in memory, which is the newer one, or the device's.
enum class ReadsFrom { kMemory, kDevice };

template <File FileT>
class ExtentFile {
 public:
  static constexpr bool kMapped = MappedFile<FileT>;
  static constexpr storage::FileKind kKind{"hash", format::kHashFileMagic, format::kHashFileOldest, format::kHashFileVersion};

  static StatusOr<std::unique_ptr<ExtentFile>> Open(FileT file, int align_pow, std::uint64_t hash_seed) {
    std::unique_ptr<ExtentFile> self(new ExtentFile(std::move(file)));
    HAKO_ASSIGN_OR_RETURN(const bool blank, storage::IsBlankFile(self->file_, kKind));
    HAKO_RETURN_IF_ERROR(blank ? self->Initialize(align_pow, hash_seed) : self->ReadSuperBlock());
    return self;
  }

  FileT& file() { return file_; }
  const FileT& file() const { return file_; }
  FoundState found() const { return found_; }
  const format::HashSuperBlock& super() const { return super_; }
  std::uint64_t tail() const { return tail_.load(std::memory_order_acquire); }
  // The first byte of the map. REQUIRES: kMapped
  std::byte* base() const { return base_; }

  // Stores or loads a field of the live state, which survives the process only if the kernel maps
  // the file.
  void StoreLive(std::uint64_t format::LiveState::*field, std::uint64_t value) {
    std::atomic_ref(live_->*field).store(value, std::memory_order_release);
  }
  std::uint64_t LoadLive(std::uint64_t format::LiveState::*field) const {
    return std::atomic_ref(live_->*field).load(std::memory_order_acquire);
  }
  // The same of a field that is sealed; a value that fails its check is loaded as all bits set.
  void StoreSealed(std::uint64_t format::LiveState::*field, std::uint64_t value) { StoreLive(field, format::SealLive(value)); }
  std::uint64_t LoadSealed(std::uint64_t format::LiveState::*field) const { return format::UnsealLive(LoadLive(field)); }
  std::uint32_t* index_extents() { return index_extents_; }
  // REQUIRES: kMapped
  std::atomic_ref<std::uint64_t> IntentWord(unsigned i) const {
    return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(base_ + format::kIntentsOffset + i * format::kIntentDistance));
  }

  // Whether the live state was left by a killed process, and counts.
  static bool IsOf(const format::LiveState& live, const FileIdentity& identity) {
    return live.in_use == 1 && live.boot_id == identity.boot_id && live.device == identity.device && live.inode == identity.inode &&
           live.poisoned == 0;
  }

  // The identity as the superblock names it.
  static std::uint64_t CheckOf(const FileIdentity& identity) {
    return Hash64(&identity.boot_id, sizeof(identity.boot_id), MixBits(identity.device) ^ identity.inode) | 1;
  }
  // The field of the live state that is damaged, nullptr if there is none. Only known if the process
  // that mapped the file last did so in this boot: otherwise the device may have any of its states.
  // REQUIRES: the file was not closed
  static const char* DamagedField(const format::LiveState& live, const format::HashSuperBlock& super, const FileIdentity& identity,
                                  std::uint64_t size) {
    const bool is_here = super.map_identity == CheckOf(identity);
    const bool is_published = live.published == format::kPublished, is_withdrawn = live.published == format::kWithdrawn;
    const bool is_new = super.sequence == 1 && live.in_use == 0 && live.published == 0;  // nothing is stored yet
    if (is_here && !is_published && !is_withdrawn && !is_new) return "published";
    if (is_here && live.in_use != 1 && (is_published || live.in_use != 0)) return "in_use";
    if (live.in_use != 1) return nullptr;
    const bool is_of = live.boot_id == identity.boot_id && live.device == identity.device && live.inode == identity.inode;
    if (is_here && !is_of) return "identity";
    if (is_here && live.poisoned != 0 && live.poisoned != format::kPoisoned) return "poisoned";
    if (!IsOf(live, identity)) return nullptr;
    const std::uint64_t tail = format::UnsealLive(live.tail),
                        tail_max = std::uint64_t{1} << (32 + std::min<std::uint32_t>(super.align_pow, 6));
    if (tail < super.tail || tail % format::kExtentUnit != 0 || tail > std::min(size, tail_max)) return "tail";
    if (format::UnsealLive(live.index_extents) > format::kIndexExtentsMax) return "index_extents";
    if (format::UnsealLive(live.num_lines) == ~std::uint64_t{0}) return "num_lines";
    if (format::UnsealLive(live.epoch) == ~std::uint64_t{0}) return "epoch";
    if (format::UnsealLive(live.oldest_retired_epoch) == ~std::uint64_t{0}) return "oldest_retired_epoch";
    return live.clearing != 0 && live.clearing != format::kClearing ? "clearing" : nullptr;
  }

  // Withdraws the live state, and makes it that of the superblock, as far as it is used before it is
  // published. The next superblock names the map. REQUIRES: a superblock is durable, if the file is
  // writable, because after a power cut a file without one must be blank
  void ResetLiveState() {
    NameMap();
    WithdrawLiveState();
    if constexpr (kMapped) {
      for (unsigned i = 0; i < format::kIntentWords; ++i) IntentWord(i).store(0, std::memory_order_release);
    }
    StoreLive(&format::LiveState::applied_index, super_.applied_index);
  }

  // The log that the superblock names.
  log::NamedLog LogInFile() const { return {super_.log_id, {super_.log_lsn, super_.log_sequence}, super_.secret}; }

  // Marks the file durably as in use, with stamps of epochs up to `last_epoch`. Call before any other
  // change. The superblock does not name the map if the live state is that of an earlier boot.
  Status MarkInUse(std::uint64_t last_epoch) {
    if constexpr (!kMapped) HAKO_RETURN_IF_ERROR(ForgetLiveState());
    if (found_ == FoundState::kKilled) StoreLive(&format::LiveState::published, format::kPublished);  // of an older file
    if (found_ == FoundState::kCrashed) {
      super_.map_identity = 0;
    } else {
      NameMap();
    }
    super_.clean = 0;
    super_.note_size = 0;
    super_.last_epoch = std::max<std::uint64_t>(super_.last_epoch, last_epoch);
    return Commit();
  }
  // No stamp on the device is of a later epoch.
  std::uint64_t last_epoch() const {
    const std::uint64_t s = super_.epoch;
    return std::clamp<std::uint64_t>(super_.last_epoch, s + 2, s + format::kEpochsAhead - 1);
  }

  // From now on the live state counts if the process dies. Call when everything it names exists.
  void PublishLiveState() {
    StoreLive(&format::LiveState::clearing, 0);  // a Clear that an earlier process did not finish
    if constexpr (KernelBackedFile<FileT>) {
      const FileIdentity identity = file_.Identity();
      live_->boot_id = identity.boot_id;
      StoreLive(&format::LiveState::device, identity.device);
      StoreLive(&format::LiveState::inode, identity.inode);
    }
    StoreSealed(&format::LiveState::tail, tail());
    StoreLive(&format::LiveState::poisoned, 0);
    StoreLive(&format::LiveState::in_use, 1);
    StoreLive(&format::LiveState::published, format::kPublished);
  }

  // From now on the last synced state counts if the process dies.
  void WithdrawLiveState() {
    StoreLive(&format::LiveState::published, format::kWithdrawn);
    StoreLive(&format::LiveState::in_use, 0);
  }

  // After a failed sync the page cache may have dropped dirty pages, so the live state no longer
  // counts. One that does not count yet is left alone: perhaps no superblock is durable.
  Status Sync() {
    Status status = file_.Sync();
    if (!status.ok() && LoadLive(&format::LiveState::in_use) != 0) StoreLive(&format::LiveState::poisoned, format::kPoisoned);
    return status;
  }

  // Makes `change(superblock)` the file's durable state. REQUIRES: everything that the superblock
  // names is synced
  template <class F>
  Status Commit(F&& change) {
    change(super_);
    return Commit();
  }

  // Allocates an extent of `bytes`, a multiple of the extent unit, all zero. ResourceExhausted leaves
  // everything unchanged. Other threads can allocate while a large one is in progress.
  StatusOr<std::uint64_t> Allocate(std::uint64_t bytes) {
    std::uint64_t offset;
    {
      sync::MutexLock lock(mutex_);
      while ((offset = TakeFree(bytes)) == 0) {
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

  StatusOr<std::uint64_t> AllocateHeapExtent(std::uint64_t bytes) {
    HAKO_ASSIGN_OR_RETURN(const std::uint64_t offset, Allocate(bytes));
    format::HeapExtentHeader header{};
    header.magic = format::kHeapExtentMagic;
    header.bytes = bytes;
    header.check = header.CheckAt(offset, super_.secret);
    Status status = Write(offset, {reinterpret_cast<const char*>(&header), sizeof(header)});
    if (!status.ok()) {
      Free({offset, bytes});
      return status;
    }
    return offset;
  }

  // Frees an unused extent that the last synced state does not need. Ignores space that is
  // already free or of the index: the file is damaged.
  void Free(Extent extent) {
    sync::MutexLock lock(mutex_);
    if (!Overlaps(free_extents_, extent) && !IndexHas(extent)) AddFree(extent);
  }
  std::vector<Extent> free_extents() const {
    sync::MutexLock lock(mutex_);
    return free_extents_;
  }
  std::uint64_t free_extent_bytes() const {
    sync::MutexLock lock(mutex_);
    std::uint64_t bytes = 0;
    for (const Extent& extent : free_extents_) bytes += extent.bytes;
    return bytes;
  }

  bool EndsInFreeExtent() const {
    sync::MutexLock lock(mutex_);
    return !free_extents_.empty() && free_extents_.back().offset + free_extents_.back().bytes == tail();
  }
  // Lowers the tail below free extents at the end. REQUIRES: no other thread uses the file; the
  // space above is zero or will be cut off.
  void LowerTail() {
    sync::MutexLock lock(mutex_);
    while (!free_extents_.empty() && free_extents_.back().offset + free_extents_.back().bytes == tail()) {
      SetTail(free_extents_.back().offset);
      free_extents_.pop_back();
    }
  }
  void SetTail(std::uint64_t tail) {
    tail_.store(tail, std::memory_order_release);
    StoreSealed(&format::LiveState::tail, tail);
  }
  // Truncates the file at the tail, so that the space above is zero when it is used again.
  Status CutAtTail() { return file_.Size() == tail() ? absl::OkStatus() : file_.Resize(tail()); }

  // Registers an index extent, so that its space has no other use. False if it overlaps another
  // one.
  bool AddIndexExtent(Extent extent) {
    sync::MutexLock lock(index_mutex_);
    if (Overlaps(index_, extent)) return false;
    index_.insert(After(index_, extent.offset), extent);
    return true;
  }
  void ForgetIndexExtents() {
    sync::MutexLock lock(index_mutex_);
    index_.clear();
  }
  bool IndexHas(Extent extent) const {  // or a part of it
    sync::MutexLock lock(index_mutex_);
    return Overlaps(index_, extent);
  }

  // The size of the heap extent at `offset`; 0 if there is none.
  StatusOr<std::uint64_t> HeapExtentBytes(std::uint64_t offset) const {
    format::HeapExtentHeader header;
    HAKO_RETURN_IF_ERROR(Read(offset, reinterpret_cast<char*>(&header), sizeof(header)));
    return HeapExtentBytes(offset, header);
  }
  // The same, of a header that has been read.
  std::uint64_t HeapExtentBytes(std::uint64_t offset, const format::HeapExtentHeader& header) const {
    if (!IsHeader(offset, header)) return 0;
    const std::uint64_t bytes = header.bytes;
    const std::uint64_t end = tail();
    const bool fits = bytes % format::kExtentUnit == 0 && bytes != 0 && offset < end && bytes <= end - offset;
    return fits && !IndexHas({offset, bytes}) ? bytes : 0;
  }

  // Makes the range read as zero.
  Status FillZero(std::uint64_t offset, std::uint64_t bytes) {
    static constexpr std::array<char, 4096> kZeros{};
    for (std::uint64_t at = offset; at < offset + bytes; at += kZeros.size()) {
      HAKO_RETURN_IF_ERROR(Write(at, {kZeros.data(), kZeros.size()}));
    }
    return absl::OkStatus();
  }

  // Clears the header, so that no heap extent is found at `offset`.
  Status ForgetHeapExtent(std::uint64_t offset) {
    static constexpr std::array<char, sizeof(format::HeapExtentHeader)> kZeros{};
    return Write(offset, {kZeros.data(), kZeros.size()});
  }
  // Clears the header at `offset`, if there is one, of an extent that is no more: another one has the
  // space.
  Status ForgetStaleHeader(std::uint64_t offset) {
    format::HeapExtentHeader header;
    HAKO_RETURN_IF_ERROR(Read(offset, reinterpret_cast<char*>(&header), sizeof(header)));
    return IsHeader(offset, header) ? ForgetHeapExtent(offset) : absl::OkStatus();
  }

  Status Read(std::uint64_t offset, char* out, std::uint64_t size) const {
    if constexpr (kMapped) {
      if (offset > file_.Size() || size > file_.Size() - offset)
        return absl::OutOfRangeError(absl::StrCat("a read beyond the end of the file at offset ", offset));
      if constexpr (requires { file_.Prefetch(offset, size); }) {
        if (size >= format::kExtentAlignment) file_.Prefetch(offset, size);
      }
      sync::LoadShared(out, reinterpret_cast<const char*>(base_) + offset, size);
      return absl::OkStatus();
    } else {
      return file_.ReadAt(offset, {reinterpret_cast<std::byte*>(out), size});
    }
  }
  // The same from the device, where the file can (file/file.h).
  Status ReadDevice(std::uint64_t offset, char* out, std::uint64_t size) const {
    if constexpr (DeviceFile<FileT>) {
      return file_.ReadDevice(offset, {reinterpret_cast<std::byte*>(out), size});
    } else {
      return Read(offset, out, size);
    }
  }
  Status Write(std::uint64_t offset, std::string_view bytes) {
    if constexpr (kMapped) {
      sync::StoreShared(reinterpret_cast<char*>(base_) + offset, bytes.data(), bytes.size());
      return absl::OkStatus();
    } else {
      return file_.WriteAt(offset, {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()});
    }
  }

 private:
  static constexpr std::uint64_t kGrowthStep = 8 << 20;  // most growth at once under mutex_

  bool IsHeader(std::uint64_t offset, const format::HeapExtentHeader& header) const {
    return header.magic == format::kHeapExtentMagic && header.check == header.CheckAt(offset, super_.secret);
  }

  // For lists sorted by offset without overlaps.
  static std::vector<Extent>::const_iterator After(const std::vector<Extent>& extents, std::uint64_t offset) {
    return std::ranges::upper_bound(extents, offset, {}, &Extent::offset);
  }
  static bool Overlaps(const std::vector<Extent>& extents, Extent extent) {
    const auto next = After(extents, extent.offset);
    if (next != extents.end() && next->offset - extent.offset < extent.bytes) return true;
    return next != extents.begin() && (next - 1)->bytes > extent.offset - (next - 1)->offset;
  }

  // Appends an extent at the tail, and grows the file for it. Returns 0 after a step of that, if it
  // needs several: other threads can allocate between two steps.
  StatusOr<std::uint64_t> Append(std::uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const std::uint64_t before = tail(), size = file_.Size();
    const std::uint64_t offset = before == format::kFirstExtent ? before : AlignFor(bytes, before);
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
      if (bytes <= kGrowthStep) file_.Prefault(offset, bytes);
    }
    AddFree({before, offset - before});
    SetTail(offset + bytes);
    return offset;
  }
  static std::uint64_t AlignFor(std::uint64_t bytes, std::uint64_t offset) {
    const std::uint64_t alignment = bytes < format::kExtentAlignment ? format::kExtentUnit : format::kExtentAlignment;
    return (offset + alignment - 1) & ~(alignment - 1);
  }
  void AddFree(Extent extent) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (extent.bytes == 0) return;
    auto here = free_extents_.insert(After(free_extents_, extent.offset), extent);
    if (const auto after = here + 1; after != free_extents_.end() && here->offset + here->bytes == after->offset) {
      here->bytes += after->bytes;
      free_extents_.erase(after);
    }
    if (here != free_extents_.begin() && (here - 1)->offset + (here - 1)->bytes == here->offset) {
      (here - 1)->bytes += here->bytes;
      free_extents_.erase(here);
    }
  }
  // Takes the lowest free extent that is large enough, or a part of it; 0 if there is none.
  std::uint64_t TakeFree(std::uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    free_extents_.reserve(free_extents_.size() + 1);  // now, as a part must not get lost
    const auto fits = [bytes](const Extent& e) { return AlignFor(bytes, e.offset) + bytes <= e.offset + e.bytes; };
    const auto found = std::ranges::find_if(free_extents_, fits);
    if (found == free_extents_.end()) return 0;
    const Extent extent = *found;
    const std::uint64_t offset = AlignFor(bytes, extent.offset), end = offset + bytes;
    free_extents_.erase(found);
    AddFree({extent.offset, offset - extent.offset});
    AddFree({end, extent.offset + extent.bytes - end});
    return offset;
  }

  explicit ExtentFile(FileT file) : file_(std::move(file)) {
    if constexpr (kMapped) base_ = file_.MutableView(0, 0).data();
  }

  // Names the page cache that the live state is stored to.
  void NameMap() {
    super_.map_identity = 0;
    if constexpr (kMapped && KernelBackedFile<FileT>) super_.map_identity = CheckOf(file_.Identity());
  }

  Status Initialize(int align_pow, std::uint64_t hash_seed) {
    found_ = FoundState::kNew;
    HAKO_RETURN_IF_ERROR(file_.Resize(format::kFirstExtent));
    Attach();
    super_ = {};
    super_.magic = format::kHashFileMagic;
    super_.version = format::kHashFileVersion;
    super_.align_pow = static_cast<std::uint32_t>(align_pow);
    super_.hash_seed = hash_seed != 0 ? hash_seed : RandomSeed();
    super_.secret = hash_seed != 0 ? MixBits(hash_seed) : RandomSeed();
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
    if (super_.index_extents > format::kIndexExtentsMax) return bad("index extents", offsetof(format::HashSuperBlock, index_extents));
    Attach();
    tail_.store(super_.tail);
    found_ = FoundState::kCrashed;
    if (super_.clean == 1) {
      // The note is optional; it is cut off before the file is marked as in use.
      if (super_.note_size <= size - super_.tail) found_ = FoundState::kClean;
    } else if constexpr (requires { file_.MapIdentity(); }) {
      format::LiveState left;
      HAKO_RETURN_IF_ERROR(Read(format::kLiveStateOffset, reinterpret_cast<char*>(&left), sizeof(left)));
      HAKO_RETURN_IF_ERROR(CheckLiveState(left, file_.MapIdentity()));
      if (IsOf(left, file_.MapIdentity())) {
        return absl::FailedPreconditionError(
            "a killed process had the file mapped, and its updates may be in memory only: open it as a MemoryMapParallelFile, and close "
            "it");
      }
    } else if constexpr (kMapped && KernelBackedFile<FileT>) {
      HAKO_RETURN_IF_ERROR(CheckLiveState(*live_, file_.Identity()));
      if (IsOf(*live_, file_.Identity())) {
        tail_.store(LoadSealed(&format::LiveState::tail));
        found_ = FoundState::kKilled;
      }
    }
    return absl::OkStatus();
  }

  // A damaged live state is not taken for none: updates that were acknowledged would be dropped.
  Status CheckLiveState(const format::LiveState& live, const FileIdentity& identity) const {
    const char* const field = DamagedField(live, super_, identity, file_.Size());
    if (field == nullptr) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat("the live state at offset ", format::kLiveStateOffset,
                                            ", which a killed process has left, is damaged: ", field,
                                            "; hako salvage finds the records of the last synchronization"));
  }

  // What a process has left that had the file mapped counts no more.
  Status ForgetLiveState() {
    static constexpr format::LiveState kNone = [] {
      format::LiveState none{};
      none.published = format::kWithdrawn;
      return none;
    }();
    format::LiveState left;
    HAKO_RETURN_IF_ERROR(Read(format::kLiveStateOffset, reinterpret_cast<char*>(&left), sizeof(left)));
    if (left.in_use == 0 && left.published != format::kPublished) return absl::OkStatus();
    return Write(format::kLiveStateOffset, {reinterpret_cast<const char*>(&kNone), sizeof(kNone)});
  }

  // The live state and the table of index extents are used in place if the file is mapped.
  void Attach() {
    if constexpr (kMapped) {
      live_ = reinterpret_cast<format::LiveState*>(base_ + format::kLiveStateOffset);
      index_extents_ = reinterpret_cast<std::uint32_t*>(base_ + format::kIndexExtentsOffset);
    } else {
      own_live_ = std::make_unique<OwnLive>();
      live_ = &own_live_->state;
      index_extents_ = own_live_->index_extents.data();
    }
  }

  Status Commit() {
    super_.version = format::kHashFileVersion;  // of an older file too: its new fields are zero
    super_.sequence = super_.sequence + 1;
    super_.check = format::CheckOf(super_);
    const std::string_view bytes(reinterpret_cast<const char*>(&super_), sizeof(super_));
    HAKO_RETURN_IF_ERROR(Write(super_.sequence % 2 * storage::kSlotDistance, bytes));
    HAKO_RETURN_IF_ERROR(Sync());
    return Write((super_.sequence + 1) % 2 * storage::kSlotDistance, bytes);
  }

  struct OwnLive {
    format::LiveState state{};
    std::array<std::uint32_t, format::kIndexExtentsMax> index_extents{};
  };

  FileT file_;
  std::byte* base_ = nullptr;
  FoundState found_ = FoundState::kNew;
  format::HashSuperBlock super_;
  format::LiveState* live_ = nullptr;
  std::uint32_t* index_extents_ = nullptr;
  std::unique_ptr<OwnLive> own_live_;
  std::atomic<std::uint64_t> tail_{0};
  mutable sync::Mutex mutex_;
  std::vector<Extent> free_extents_ ABSL_GUARDED_BY(mutex_);  // by offset, none adjacent
  mutable sync::Mutex index_mutex_ ABSL_ACQUIRED_AFTER(mutex_);
  std::vector<Extent> index_ ABSL_GUARDED_BY(index_mutex_);  // index extents of a mapped file, by offset
};

}  // namespace hako::hash
