// Records in a file: the space of HashDBM (hash/record_space.h).
//
// A record is written once and never changed. An update writes a new record, publishes it and
// retires the old block. Stamps (format/stamp.h) decide which blocks are free after a crash. In a
// mapped file the index is in the file too, and every access is a memory access. For any other file
// the index is in memory, and records are read with ReadAt and written with WriteAt.
//
// Invariants
//   1. The sync rule: a block of the last synced state is neither written (except its stamp) nor
//      handed out before the next synchronization is durable. Until then it waits.
//   2. A block born in the current epoch is free as soon as it is retired.
//   3. A record's check is keyed by its key, lengths, place and file (format/record_format.h).
//      Every read of a value verifies it.
//   4. After a failed write or sync, or a failed read of a stamp that had to be changed, the heap
//      refuses writes. Its records can still be read.
//   5. The stamp of a retired block is replaced long before epochs wrap and it would mean a later
//      epoch. In a mapped file: at the next synchronization, at the next Open, or, after a process
//      kill, by the harvest, which each synchronization advances. In any other file a stamp costs a
//      device access and most small blocks are soon written again, so a small block is stamped only
//      if it is still free, within 256 synchronizations.
//   6. While a state is pinned (hash/pinned_state.h), none of its blocks is written, except its
//      stamp, or handed out.
//
// Thread-safe for the engine's calls. Writers are kept out while an epoch is closed.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "hako/base/aligned_buffer.h"
#include "hako/base/hash.h"
#include "hako/base/inline.h"
#include "hako/base/no_memory.h"
#include "hako/base/prefetch.h"
#include "hako/base/scratch_buffer.h"
#include "hako/base/status.h"
#include "hako/base/wall_clock.h"
#include "hako/file/memory_map_parallel_file.h"
#include "hako/format/record_format.h"
#include "hako/format/size_class.h"
#include "hako/format/stamp.h"
#include "hako/hash/chunk.h"
#include "hako/hash/extent_file.h"
#include "hako/hash/free_block_pool.h"
#include "hako/hash/index_arena.h"
#include "hako/hash/kept_blocks.h"
#include "hako/hash/pinned_state.h"
#include "hako/hash/read_ahead.h"
#include "hako/hash/record_space.h"
#include "hako/hash/record_view.h"
#include "hako/hash/scan_tracker.h"
#include "hako/hash/size_guess.h"
#include "hako/sync/atomic_bytes.h"
#include "hako/sync/sticky_status.h"
#include "hako/sync/write_gate.h"

namespace hako::hash {

template <File FileT>
class RecordHeap {
 public:
  static constexpr bool kMapped = MappedFile<FileT>;
  static constexpr bool kOverwrites = false;
  static constexpr bool kReadsAhead = BatchFile<FileT> && !kMapped;
  struct NoReadAhead {};
  using Ahead = std::conditional_t<kReadsAhead, ReadAhead, NoReadAhead>;

  struct WriterState : sync::WriterState {
    FreeBlockPool::Cache free;
    ChunkRest chunk;
    // Bytes of the blocks that it retired in this epoch, which wait for the epoch's end.
    std::uint64_t waiting_bytes = 0;
    // Where a record is assembled for a file that is not mapped.
    OwnedScratch write_buffer;
    std::uint32_t freed = 0;  // a large block that ReleaseFreed makes free
    unsigned freed_class = 0;
    Run ahead;  // the block of a WriteAhead in progress
  };

  // A record as a scan finds it; the views point into the scan's buffer.
  struct ScannedRecord {
    std::uint32_t handle;
    format::Stamp stamp;
    std::uint64_t key_hash;
    std::string_view key;
    std::string_view value;
  };

  // min_read_size: see HashOptions.
  static StatusOr<std::unique_ptr<RecordHeap>> Open(std::unique_ptr<ExtentFile<FileT>> extents, std::uint64_t min_read_size);

  ExtentFile<FileT>& extents() { return *extents_; }
  sync::WriteGate& gate() { return gate_; }
  HAKO_INLINE std::uint64_t KeyHash(std::string_view key) const { return Hash64(key, hash_seed_); }
  std::uint64_t epoch() const { return epoch_.load(std::memory_order_relaxed); }
  // Stores the epoch for the process that opens the file if this one is killed. REQUIRES: the
  // superblock durably says that the file is in use. Before that only superblocks are stored, so
  // that a file without a durable superblock is blank after a power cut.
  void PublishEpoch() { extents_->StoreLive(&format::LiveState::epoch, epoch()); }
  // Whether a synchronization is due before epochs wrap: many processes may have died without one.
  bool IsFarAhead() const { return epochs().now - epochs().durable > format::kEpochsAhead / 4; }
  format::Epochs epochs() const { return {durable_epoch_.load(std::memory_order_relaxed), epoch()}; }

  // ---- for the engine: the index ----
  StatusOr<std::uint64_t> AllocateIndexExtent(std::uint64_t bytes, IndexExtent kind);
  std::byte* index_base() const { return index_arena_ != nullptr ? index_arena_->base() : extents_->base(); }
  std::uint64_t index_end() const { return index_arena_ != nullptr ? index_arena_->end() : extents_->tail(); }
  void StoreLineCount(std::uint64_t n) { extents_->StoreLive(&format::LiveState::num_lines, n); }

  // ---- for the engine: records ----
  HAKO_INLINE void Prefetch(std::uint32_t handle) const {
    if constexpr (kMapped) {
      hako::Prefetch(base_ + OffsetOf(handle));
      hako::Prefetch(base_ + OffsetOf(handle) + 31);  // often the next cache line
    }
  }
  HAKO_INLINE void PrefetchRest(std::uint32_t handle) const {
    if constexpr (kMapped) {
      if (!IsPlace(OffsetOf(handle))) return;
      const char* at = base_ + OffsetOf(handle);
      const std::uint64_t size = std::min<std::uint64_t>(HeadOf(OffsetOf(handle)).size(), 512);
      for (std::uint64_t last = size; last > 32; last -= std::min<std::uint64_t>(last, 64)) hako::Prefetch(at + last - 1);
    }
  }
  // Adds the record to those that Read(ahead) will read.
  void Want(Ahead& ahead, std::uint32_t handle) const {
    if constexpr (kReadsAhead) {
      if (IsPlace(OffsetOf(handle))) ahead.Want(handle, OffsetOf(handle), FirstRead(OffsetOf(handle)));
    }
  }
  void Read(Ahead& ahead) const {
    if constexpr (kReadsAhead) ahead.Read(extents_->file());
  }
  bool IsDirect() const { return block_ > 1; }
  // Whether records read together stay cached, so that later single reads are cheap.
  bool HasCache() const {
    if constexpr (requires { extents_->file().has_cache(); }) return extents_->file().has_cache();
    return false;
  }
  template <class S>
  HAKO_INLINE bool TryFetchShort(std::uint32_t handle, std::uint64_t key_hash, std::string_view key, S& sink) const;
  template <class S, class C>
  Match TryFetch(std::uint32_t handle, std::string_view key, S& sink, const C& is_current, FetchedCopy& copy) const;
  template <class C, class B>
  HAKO_INLINE Match CopyRecord(std::uint32_t handle, const C& is_current, B& buffer, RecordCopy* copy) const;
  HAKO_INLINE bool CopyIsIntact(const FetchedCopy& copy, std::uint64_t key_hash) const {
    return copy.value == nullptr || copy.check == CheckOf({copy.value, copy.value_size}, key_hash, copy.place);
  }
  Status DamageAt(std::uint32_t handle) const;
  Match MatchKey(std::uint32_t handle, std::string_view key, format::Lengths* lengths) const;
  StatusOr<RecordView> View(WriterState& writer, std::uint32_t handle) const;
  HAKO_INLINE void NoteMove([[maybe_unused]] std::uint32_t old, [[maybe_unused]] std::uint32_t fresh) {
    if constexpr (!kMapped) move_tracker_.Note(old, fresh);
  }
  std::uint32_t Write(WriterState& writer, std::uint64_t key_hash, std::string_view key, std::string_view value, Status* error);
  // Write for a long value, while the caller is no writer (sync/write_gate.h) and holds no lock:
  // epochs may close and other threads continue meanwhile. The record is unborn until EndAhead,
  // which the caller calls as a writer before it publishes the record or gives it back.
  std::uint32_t WriteAhead(WriterState& writer, std::uint64_t key_hash, std::string_view key, std::string_view value, Status* error);
  // Fails if the record could not be made live; then the heap refuses writes and no entry may name
  // the record.
  Status EndAhead(WriterState& writer, std::uint32_t handle) {
    writer.ahead = {};
    if constexpr (kMapped) return absl::OkStatus();
    StoreStamp(handle, stamps().live);
    return Health();
  }
  bool Overwrite(std::uint32_t, const format::Lengths&, std::string_view, std::string_view) { return false; }
  HAKO_INLINE void Commit(std::uint32_t handle) {
    if constexpr (kMapped) StoreStamp(handle, stamps().live);  // else Put has stored it
  }
  // An entry names the block, or will: makes it live, regardless of the stamp that a dead process
  // left.
  void Revive(std::uint32_t handle);
  void Revive(std::uint32_t handle, format::Stamp stamp);
  // A small block that becomes free stays with the thread. A large one is shared at once, but only
  // after no entry names it: if the process is killed before that, the record is live again. So the
  // engine calls ReleaseFreed after it has changed the entry.
  void Retire(WriterState& writer, std::uint32_t handle, const format::Lengths& lengths);
  HAKO_INLINE void ReleaseFreed(WriterState& writer) {
    if (writer.freed != 0) [[unlikely]]
      FreeStamped(writer, std::exchange(writer.freed, 0), writer.freed_class);
  }
  void Retire(WriterState& writer, std::uint32_t handle);

  // ---- for the engine: short records ----
  HAKO_INLINE bool MatchShort(std::uint32_t handle, std::string_view key, std::uint64_t* head) const;
  HAKO_INLINE std::optional<std::string_view> ViewShort(std::uint32_t handle, std::uint64_t head, std::uint64_t key_hash) const;
  [[gnu::noinline]] std::uint32_t WriteShort(WriterState& writer, std::uint64_t key_hash, std::string_view key, std::string_view value);
  void GiveBack(WriterState& writer, std::uint32_t handle, std::uint64_t key_size, std::uint64_t value_size) {
    FreeBlock(writer, handle, key_size, value_size);
  }
  bool OverwriteShort(std::uint32_t, std::uint64_t, std::string_view) { return false; }
  HAKO_INLINE void RetireShort(WriterState& writer, std::uint32_t handle, std::uint64_t head);

  // ---- epochs; REQUIRES: writers kept out, except for CommitEpoch and ReleaseWaiting ----
  struct ClosedEpoch {
    std::uint64_t epoch;
    std::uint64_t tail;
    FreeBlockPool::Chains waiting;  // free once the epoch is durable, by size class
    std::uint32_t unstamped;        // a chain of free blocks, see ReleaseUnstamped
    bool has_all_retired;           // `waiting` has every block that was retired up to its end
  };
  template <class ForEachWriter>
  ClosedEpoch CloseEpoch(ForEachWriter&& for_each_writer);
  Status CommitEpoch(const ClosedEpoch& closed, std::uint64_t num_records);
  // Frees the blocks that waited for the end of the epoch, in steps: as_writer(step) runs each step
  // as a writer with this state.
  template <class AsWriter>
  void ReleaseWaiting(WriterState& writer, ClosedEpoch& closed, AsWriter&& as_writer);
  // Stamps the free blocks of one size class that were not stamped when released; each epoch takes
  // the next class.
  template <class AsWriter>
  void ReleaseUnstamped(WriterState& writer, const ClosedEpoch& closed, AsWriter&& as_writer);

  // Calls `ask` once large blocks of at least `bytes` bytes, and of at least an eighth of the live
  // bytes, wait for the end of the epoch; 0 = never. `ask` arranges a synchronization followed by
  // EndReclaim and returns true, or returns false. The caller holds a bucket's lock, so `ask` must
  // neither wait nor retire blocks. Small blocks do not count: after a synchronization the first
  // store to each page takes microseconds, which is little for a large record but ten times the
  // update of a small one.
  struct ReclaimCall {
    bool (*ask)(void* context) = nullptr;
    void* context = nullptr;
  };
  void ReclaimFrom(std::uint64_t bytes, ReclaimCall call) {
    reclaim_bytes_ = bytes;
    reclaim_call_ = call;
  }
  bool NeedsReclaim() const;
  void EndReclaim() { is_reclaiming_.store(false, std::memory_order_release); }
  template <class ForEachWriter>
  std::uint64_t WaitingBytes(ForEachWriter&& for_each_writer) const {
    std::uint64_t bytes = 0;
    for_each_writer([&](const WriterState& writer) { bytes += writer.waiting_bytes; });
    return bytes;
  }
  // Refreshes some more records before an epoch ends: old stamps become ancient before epochs wrap.
  // `named` asks the index:
  //   bool Has(SweptRecord)   whether an entry names the record
  //   void Prefetch(records)  not mapped: these will be refreshed
  //   void RunLocked(span of at most 64 records, body)  not mapped: calls body(mask) with their
  //                           buckets locked; bit i is set if an entry names record i
  struct SweptRecord {
    std::uint64_t key_hash;
    std::uint32_t handle;
    std::uint32_t block_bytes;  // 0 if it is long: its bytes have not been read
  };
  template <class Named>
  Status Sweep(Named&& named);
  void RefreshStamp(std::uint32_t handle, format::Stamp stamp);

  // ---- scans of the whole file ----
  // Calls enter(Extent) for each heap extent in [from, to) and then Status visit(ScannedRecord) for
  // its records; other(Extent) gets space that is no heap. Bytes that do not validate are skipped.
  // A record that validates may be long dead, anywhere outside other records: check its stamp and
  // the index. May run beside writers.
  template <class Visit, class Enter, class Other>
  Status Scan(std::uint64_t from, std::uint64_t to, Visit&& visit, Enter&& enter, Other&& other) const;
  template <class Visit>
  Status Scan(std::uint64_t from, std::uint64_t to, Visit&& visit) const {
    return Scan(
        from, to, visit, [](Extent) {}, [](Extent) {});
  }
  // Scans one extent that has been read, or whose bytes change only in stamps. Calls doubt() at
  // bytes that are neither zero nor a record.
  // kLiveHeads: the value of a long live record is not hashed if its head is intact.
  enum class Trust { kNothing, kLiveHeads };
  template <Trust kTrust = Trust::kNothing, class Visit, class Doubt>
  Status ScanExtent(Extent extent, const char* bytes, Visit&& visit, Doubt&& doubt) const;
  // For a scan in file order.
  ScanTracker& move_tracker() { return move_tracker_; }
  HAKO_INLINE std::uint64_t OffsetOf(std::uint32_t handle) const { return std::uint64_t{handle} << shift_; }
  std::uint64_t BlockBytes(const ScannedRecord& record) const { return BytesOf(ClassOf(record.key.size(), record.value.size())); }
  // Stamps a dead record as free, so that no later recovery restores it.
  void Bury(std::uint32_t handle) { StoreStamp(handle, stamps().free); }
  // At the file's end, one more than any record's handle.
  std::uint64_t HandleAt(std::uint64_t offset) const { return offset >> shift_; }
  // Whether an entry may name a record with this stamp.
  HAKO_INLINE bool MayBeNamed(format::Stamp stamp) const { return stamp.IsLive() || KeepsStamps(); }
  // Whether an entry names it.
  bool IsNamed(std::uint32_t handle) const { return IsNamed(LoadStamp(handle)); }
  bool IsNamed(format::Stamp stamp) const { return KeepsStamps() ? stamp.BelongsTo(extents_->super().epoch) : stamp.IsLive(); }
  HAKO_INLINE void FreeBlock(WriterState& writer, std::uint32_t handle, std::uint64_t key_size, std::uint64_t value_size);
  // Frees bytes of a heap extent that no block has, in whole units.
  void FreeGap(WriterState& writer, std::uint64_t offset, std::uint64_t bytes) { pool_->FreeGap(writer.free, {offset, offset + bytes}); }
  // After a process kill, finds the space that the dead process had free or waiting, extent by
  // extent: whenever space is needed, a part with each synchronization, or all at once if the
  // stamps that it left are old. Until then an extent is frozen: none of its blocks is handed out,
  // so only stamps are written there. `num_records` are live.
  void BeginHarvest(WriterState& writer, std::uint64_t num_records);
  template <class AsWriter>
  void HarvestAll(WriterState& writer, AsWriter&& as_writer) {
    while (!HarvestIsOver()) as_writer([&] { HarvestFor(writer, 1); });
  }

  // ---- a state that stays readable across epochs (hash/pinned_state.h); one at a time, and no
  // evacuation meanwhile ----
  // Pins the state of the epoch that is closed next. REQUIRES: writers kept out, harvest over,
  // extents pinned
  template <class ForEachWriter>
  Status PinState(ForEachWriter&& for_each_writer);
  // Visits the records of the pinned state.
  template <class Visit>
  Status ScanPinned(Visit&& visit) const;
  // REQUIRES: no epoch is closed meanwhile, extents no longer pinned
  template <class AsWriter>
  void UnpinState(WriterState& writer, AsWriter&& as_writer);

  // ---- moving records together; one evacuation at a time ----
  // Marks heap extents as victims: none of their blocks is handed out any more, and blocks that
  // become free are forgotten. Removes from the list the extents to which a long record is being
  // written. REQUIRES: writers kept out
  template <class ForEachWriter>
  void BeginEvacuation(std::vector<Extent>& victims, ForEachWriter&& for_each_writer);
  bool IsVictim(std::uint32_t handle) const {
    const std::uint64_t unit = OffsetOf(handle) / format::kExtentUnit;
    return unit < victims_.size() && victims_[unit];
  }
  // Whether copying the record would keep others waiting; such a record is moved by WriteAhead,
  // before its bucket is locked.
  bool IsLong(std::uint32_t handle) const;
  // Copies the record into a chunk of the mover; the copy is to be published in its place.
  StatusOr<std::uint32_t> Relocate(WriterState& mover, std::uint32_t handle);
  // Frees the victims' extents if they are `emptied`, that is, hold no record of the last synced
  // state nor any other; otherwise frees only the forgotten blocks. REQUIRES: writers kept out
  void EndEvacuation(WriterState& writer, const std::vector<Extent>& victims, bool emptied);
  void ReleaseChunk(WriterState& mover) { pool_->FreeRun(Rest(std::exchange(mover.chunk, {}))); }
  // The mover's retired blocks wait with those of writers; its unused ones become free.
  void ReleaseMover(WriterState& mover) {
    ReleaseChunk(mover);
    pool_->Flush(mover.free, 0, FreeBlockPool::kLists);
  }
  // The bytes of the blocks that live and unborn records occupy in a heap extent.
  StatusOr<std::uint64_t> LiveBytes(Extent extent) const;

  // Returns wholly free heap extents to the file, for any use. Does nothing while extents are
  // pinned.
  void ReleaseExtents();
  // While a pin exists no heap extent is returned to the file, so a list of them stays valid.
  class ExtentPin {
   public:
    explicit ExtentPin(RecordHeap& heap) : heap_(heap) { Add(1); }
    ExtentPin(const ExtentPin&) = delete;
    ~ExtentPin() { Add(-1); }

   private:
    void Add(int n) {
      std::lock_guard lock(heap_.extents_mutex_);
      heap_.extent_pins_ += n;
    }
    RecordHeap& heap_;
  };
  // Moves the threads' free blocks and chunks to the shared pool. REQUIRES: writers kept out
  template <class ForEachWriter>
  void GatherFree(ForEachWriter&& for_each_writer);

  // The free space, as a clean close stores it; and the reverse.
  template <class ForEachWriter>
  std::string TakeNote(ForEachWriter&& for_each_writer, const ClosedEpoch& closed);
  Status ReadNote(WriterState& writer, std::string_view note);

  template <class ForEachWriter>
  std::uint64_t FreeBytes(ForEachWriter&& for_each_writer) const;
  std::uint64_t index_bytes() const { return index_bytes_.load(std::memory_order_relaxed); }
  void AddIndexBytes(std::uint64_t bytes) { index_bytes_.fetch_add(bytes, std::memory_order_relaxed); }
  // From now on the index is in memory, not in the file.
  Status UseIndexArena();
  // The extents of the index, in the file or in memory.
  std::vector<format::IndexExtentEntry> IndexExtents() const;
  // At a clean close, writes an index that is in memory behind `end`, the end of everything else;
  // returns the check of the written bytes, 0 if none were written.
  StatusOr<std::uint64_t> SaveIndex(std::uint64_t end) { return index_arena_->Save(*extents_, end, secret_); }
  StatusOr<bool> LoadIndex(std::uint64_t end, std::uint64_t check) { return index_arena_->Load(*extents_, end, secret_, check); }
  // Records that needed a second read because the first was too short.
  std::uint64_t second_reads() const { return second_reads_.load(std::memory_order_relaxed); }
  std::uint64_t num_index_extents() const { return num_index_extents_; }
  void set_num_index_extents(std::uint64_t n) {
    num_index_extents_ = n;
    extents_->StoreLive(&format::LiveState::index_extents, n);
  }
  // Forgets the index extents and returns them; the caller frees them.
  std::vector<Extent> TakeIndexExtents();
  bool index_is_in_memory() const { return index_arena_ != nullptr; }
  // Whether all extents in the table lie inside the file.
  bool IndexTableIsInside() const;
  // XXH3 over the index extents and their table. REQUIRES: kMapped, writers kept out.
  std::uint64_t IndexCheck() const;

  // OK, or the failure after which the heap refuses writes. Also OK for a file that is open for
  // reading, which accepts no writes.
  Status Health() const { return extents_->file().IsWritable() ? refusal_.Get() : absl::OkStatus(); }
  Status Refusal() const { return refusal_.Get(); }
  const sync::StickyStatus& refusal() const { return refusal_; }
  bool AcceptsWrites() const { return refusal_.IsOk(); }
  void Poison(const Status& why);

 private:
  // A record's header, decoded.
  struct Head {
    std::uint32_t check = 0;
    format::Stamp stamp;
    format::Lengths lengths;

    std::uint64_t key_at() const { return format::RecordHeadSize(lengths.header); }  // from the record's start
    std::uint64_t size() const { return key_at() + lengths.key_size + lengths.value_size; }
  };
  static constexpr std::uint64_t kFixed = 6;  // check and stamp
  // The bits of a short live record's first 8 bytes that identify it: of its stamp, and the high
  // bits of its lengths.
  static constexpr std::uint64_t kShortLiveMask = std::uint64_t{0x8080'0000'0000'0000} | std::uint64_t{format::Stamp::kLiveMask} << 32;
  static constexpr std::uint64_t kShortLiveWord = std::uint64_t{format::Stamp::kLiveBits} << 32;
  static constexpr std::uint64_t kHeadMax = 16;               // without the head check
  static constexpr std::uint64_t kOptimisticValueMax = 4096;  // longer ones need a current version
  static constexpr std::uint64_t kReclaimShare = 8;           // 1/8 of the live bytes
  static constexpr int kPauses = 10;                          // of 1 ms each, in PaceLongWrite
  static constexpr std::uint64_t kHarvestParts = 512;
  static constexpr std::uint64_t kSweepEpochs = 14'000;
  static constexpr std::uint64_t kSweepPiece = 256 << 10;
  static constexpr std::size_t kStampedAtOnce = 64;       // records, in one write
  static constexpr std::uint64_t kLongRecord = 8192;      // bytes
  static constexpr int kHarvestsAtOnce = 2;               // extents, usually of 1 MiB
  static constexpr unsigned kReleasesAtOnce = 16;         // magazines
  static constexpr std::uint64_t kLarge = 1 << 20;        // bytes; its extent is returned once free
  static constexpr std::uint64_t kDevicePage = 4096;      // what most devices read at once
  static constexpr std::uint64_t kDirectChunk = 1 << 20;  // least extent in direct I/O
  // Stamps of this age make a harvest run at once: it must end before kOtherAgeMax.
  static constexpr std::uint64_t kRetiredAgeMax = format::kOtherAgeMax / 2;

  RecordHeap(std::unique_ptr<ExtentFile<FileT>> extents, std::uint64_t min_read_size);

  // The stamps of the current epoch, precomputed.
  struct EpochStamps {
    format::Stamp unborn, live, free;
  };
  EpochStamps stamps() const {
    const std::uint64_t bits = stamps_.load(std::memory_order_relaxed);
    const auto at = [bits](int i) { return format::Stamp(static_cast<std::uint16_t>(bits >> (16 * i))); };
    return {at(0), at(1), at(2)};
  }
  void UseEpoch(std::uint64_t epoch);

  std::uint32_t HandleOf(std::uint64_t offset) const { return static_cast<std::uint32_t>(HandleAt(offset)); }
  HAKO_INLINE std::uint32_t CheckOf(std::string_view value, std::uint64_t key_hash, std::uint64_t offset) const {
    return format::RecordCheck(value, key_hash, offset, secret_);
  }
  static std::uint64_t KeySizeOf(std::uint64_t short_head) { return short_head >> 48 & 127; }
  static std::uint64_t ValueSizeOf(std::uint64_t short_head) { return short_head >> 56; }
  HAKO_INLINE unsigned ShortClassOf(std::uint64_t key_size, std::uint64_t value_size) const {
    const std::uint64_t bytes = format::kShortHead + key_size + value_size;
    return format::SizeClassOf((bytes + (std::uint64_t{1} << shift_) - 1) >> shift_);
  }
  unsigned ClassOf(std::uint64_t key_size, std::uint64_t value_size) const {
    const std::uint64_t bytes = format::RecordHeadSize(format::LengthsSize(key_size, value_size)) + key_size + value_size;
    return format::SizeClassOf((bytes + (std::uint64_t{1} << shift_) - 1) >> shift_);
  }
  std::uint64_t BytesOf(unsigned size_class) const { return format::UnitsOf(size_class) << shift_; }

  // Loads the first 8 bytes of a mapped record. False unless it is short, live, not at the file's
  // very end, and has a key of this size.
  HAKO_INLINE bool LoadShortHead(std::uint64_t offset, std::size_t key_size, std::uint64_t* word) const {
    if (key_size >= format::kShortLength || offset + format::kShortRecordMax > extents_->tail()) [[unlikely]]
      return false;
    constexpr std::uint64_t kMask = kShortLiveMask | std::uint64_t{0xff} << 48;
    *word = sync::LoadSharedWord(base_ + offset);
    return ((*word ^ (kShortLiveWord | key_size << 48)) & kMask) == 0;
  }
  // The same for any key size.
  HAKO_INLINE bool LoadShortHead(std::uint64_t offset, std::uint64_t* word) const {
    if (offset + format::kShortRecordMax > extents_->tail()) [[unlikely]]
      return false;
    *word = sync::LoadSharedWord(base_ + offset);
    return (*word & kShortLiveMask) == kShortLiveWord;
  }
  template <class C, class B>
  [[gnu::noinline]] Match CopyAnyRecord(std::uint32_t handle, const C& is_current, B& buffer, RecordCopy* copy) const;

  // Whether stamps stay as a crash left them: the file is neither mapped nor writable.
  HAKO_INLINE bool KeepsStamps() const { return !kMapped && !extents_->file().IsWritable(); }
  static Head DecodeHead(const char* bytes, std::size_t size);
  bool DecodeWholeHead(const char* shared, std::uint64_t size, std::uint64_t offset, Head* head) const;
  Head HeadOf(std::uint64_t offset) const;  // mapped
  // Whether the record lies inside the file.
  HAKO_INLINE bool IsInside(std::uint64_t offset, const Head& head) const {
    return head.lengths.header != 0 && head.size() <= extents_->tail() - offset;
  }
  // Entries name live records only; a damaged entry may name an old version.
  HAKO_INLINE bool IsAlive(const Head& head) const { return MayBeNamed(head.stamp); }
  HAKO_INLINE bool IsPlace(std::uint64_t offset) const { return offset >= format::kFirstExtent && offset + 8 <= extents_->tail(); }
  // Not mapped: how many bytes to read of a record of unknown size. Too many cost little; too few
  // cost a second access.
  std::uint64_t FirstRead(std::uint64_t offset) const {
    const std::uint64_t end = offset + (min_read_size_ != 0 ? min_read_size_ : guess_.Get());
    return std::min((end + block_ - 1) & ~(block_ - 1), extents_->tail()) - offset;
  }
  // Where in the rest of a chunk a block of `bytes` goes. In direct I/O a block that fits into one
  // place unit does not cross the end of one; a larger one starts at a boundary.
  std::uint64_t PlaceIn(const ChunkRest& chunk, std::uint64_t bytes) const {
    const std::uint64_t within = chunk.next & (place_unit_ - 1);
    const bool fits = within == 0 || within + bytes <= place_unit_;
    return fits ? chunk.next : chunk.next - within + place_unit_;
  }
  // Not mapped: reads the whole record, into this thread's buffer until the next call.
  Match ReadRecord(std::uint32_t handle, Head* head, const char** bytes, Status* status) const;
  // Finds the record in the map, or reads it. Unless its bucket is locked, the caller validates the
  // result.
  Match Load(std::uint32_t handle, Head* head, const char** bytes) const;

  // Whether the record is live and matches its check.
  bool IsIntact(std::uint32_t handle, RecordView* record) const;
  HAKO_INLINE format::Stamp LoadStamp(std::uint32_t handle, Status* status = nullptr) const;
  HAKO_INLINE void StoreStamp(std::uint32_t handle, format::Stamp stamp);

  // Writes a record into a block that no entry names yet.
  Status Put(WriterState& writer, std::uint32_t handle, format::Stamp stamp, std::uint64_t key_hash, std::string_view key,
             std::string_view value);
  // The stamp of a record that is written under its bucket's lock. In a file that is not mapped,
  // writes of a killed process do not count, so the record need not be unborn until it is
  // published.
  format::Stamp fresh_stamp() const { return kMapped ? stamps().unborn : stamps().live; }
  // Takes a small block of the thread's own, free or from its chunk; 0 if there is none.
  HAKO_INLINE std::uint32_t TakeSmall(WriterState& writer, unsigned size_class);
  // Takes a small block from the thread's chunk; 0 if it does not fit.
  HAKO_INLINE std::uint32_t Carve(WriterState& writer, unsigned size_class);
  // Takes a block of any size from free space, else from a new extent; 0 with an error.
  [[gnu::noinline]] std::uint32_t CarveSlowly(WriterState& writer, unsigned size_class, Status* error);
  // Whether the run overlaps the index. A record with a damaged length can make index bytes look
  // free.
  bool IndexHas(Run run) const { return run.bytes() != 0 && extents_->IndexHas({run.begin, run.bytes()}); }
  std::uint32_t CutSmall(WriterState& writer, unsigned size_class);
  // Allocates a heap extent with room for a block.
  Status Grow(std::uint64_t bytes, std::uint64_t most);
  // The size of an extent to allocate for a block of `bytes`; `most` bytes are enough at any
  // alignment.
  std::uint64_t ExtentSize(std::uint64_t bytes, std::uint64_t most) const;
  // Whether the run is the whole record space of a heap extent.
  bool IsHeapExtent(Run run) const;
  void ReleaseIfExtent(Run run);
  void ReleaseExtent(Run run);
  void HarvestFor(WriterState& writer, std::uint64_t bytes);
  bool HarvestSome(WriterState& writer);
  void HarvestUntil(WriterState& writer, std::uint64_t end);  // REQUIRES: harvest_mutex_ held
  void HarvestExtent(WriterState& writer, Extent extent);
  // Whether the harvest has yet to visit the block. REQUIRES: harvest_mutex_ held, or the harvest
  // is over
  bool IsFrozen(std::uint32_t handle) const {
    return OffsetOf(handle) >= harvest_next_.load(std::memory_order_relaxed) && OffsetOf(handle) < harvest_end_;
  }
  bool HarvestIsOver() const { return harvest_next_.load(std::memory_order_relaxed) >= harvest_end_; }
  void Wait(WriterState& writer, std::uint32_t handle, std::uint64_t key_size, std::uint64_t value_size) {
    const unsigned size_class = ClassOf(key_size, value_size);
    pool_->Push(writer.free, FreeBlockPool::kWaiting + size_class, handle);
    writer.waiting_bytes += BytesOf(size_class);
    if (!pool_->IsSmall(size_class)) [[unlikely]]
      CountLarge(BytesOf(size_class));
  }
  [[gnu::noinline]] void CountLarge(std::uint64_t bytes);
  std::uint64_t LargeWaiting() const {
    return large_waiting_.load(std::memory_order_relaxed) + large_closing_.load(std::memory_order_relaxed);
  }
  std::uint64_t AllLive() const;
  void PaceLongWrite() const;
  void StampFree(std::span<std::uint32_t> handles);
  std::vector<std::uint32_t> StampFree(std::uint32_t chain);
  template <class AsWriter>
  void FreeSlowly(WriterState& writer, unsigned size_class, std::vector<std::uint32_t> handles, AsWriter&& as_writer);
  std::uint32_t ReleaseSome(WriterState& writer, unsigned size_class, std::uint32_t chain);
  void KeepPinned(unsigned size_class, std::uint32_t chain);
  // Makes a block that is stamped as free available. A victim's block is forgotten until the
  // evacuation is over.
  HAKO_INLINE void FreeStamped(WriterState& writer, std::uint32_t handle, unsigned size_class);
  [[gnu::noinline]] void ForgetBlock(std::uint32_t handle, unsigned size_class);
  template <class Named>
  Status SweepPiece(std::uint64_t bytes, Named&& named);
  template <class Named>
  Status SweepRecord(std::uint64_t offset, const char* bytes, std::uint64_t room, std::uint64_t* size, Named&& named);
  void MakeAncient(std::uint64_t offset, const Head& head, std::uint64_t key_hash);
  void StampAncient(std::span<const SweptRecord> run, std::uint64_t mask, std::uint64_t read_from);
  [[gnu::cold]] void StopAt(const Status& unread);

  std::unique_ptr<ExtentFile<FileT>> extents_;
  std::unique_ptr<FreeBlockPool> pool_;
  std::unique_ptr<IndexArena> index_arena_;  // the index, if it cannot be in the file
  char* base_ = nullptr;                     // mapped only
  unsigned shift_;
  std::uint64_t hash_seed_;
  std::uint64_t secret_;
  std::uint64_t min_read_size_ = 0;
  std::uint64_t block_ = 1;       // unit of transfers in direct I/O
  std::uint64_t place_unit_ = 1;  // bytes that the device reads at once
  mutable SizeGuess guess_;
  mutable std::atomic<std::uint64_t> second_reads_{0};
  std::atomic<std::uint64_t> large_waiting_{0};  // bytes of large blocks retired in this epoch
  std::atomic<std::uint64_t> large_closing_{0};  // the same, of the epoch that is becoming durable
  std::atomic<bool> is_reclaiming_{false};       // a synchronization was requested
  std::uint64_t reclaim_bytes_ = 0;
  ReclaimCall reclaim_call_;
  alignas(64) std::atomic<std::uint64_t> epoch_{0};
  std::atomic<std::uint64_t> durable_epoch_;  // of the superblock, once durable
  sync::StickyStatus refusal_;                // why writes are refused
  std::atomic<std::uint64_t> stamps_{0};
  std::atomic<std::uint64_t> index_bytes_{0};
  std::uint64_t num_index_extents_ = 0;
  // Of this opening. After a process kill no update is of this epoch, but what Revive makes live:
  // a block born in the current epoch is free as soon as its record is removed, and the harvest
  // would find it a second time.
  std::uint64_t first_epoch_;
  std::atomic<std::uint64_t> harvest_next_{0};
  std::uint64_t harvest_end_ = 0;
  std::mutex harvest_mutex_;           // guards harvest_next_ and the two below
  std::uint64_t live_to_harvest_ = 0;  // live at the beginning and not yet found
  std::vector<ChunkRest> doubtful_;    // free, unless they hold a damaged record
  struct SweepPlace {
    std::uint64_t extent, to, end;
  };
  SweepPlace sweep_;  // used by the thread that closes epochs
  std::string sweep_buffer_;
  std::vector<SweptRecord> sweep_found_;
  std::unique_ptr<PinnedState> pinned_;  // changed with writers kept out
  std::atomic<bool> evacuating_{false};
  std::vector<bool> victims_;  // by extent unit; changed with writers kept out
  std::mutex forgotten_mutex_;
  std::vector<Run> forgotten_;  // free space in victims
  std::mutex extents_mutex_;    // held while heap extents are returned to the file
  int extent_pins_ = 0;
  std::mutex index_mutex_;
  sync::WriteGate gate_;
  ScanTracker move_tracker_;
};

}  // namespace hako::hash

#include "hako/hash/record_allocation-inl.h"
#include "hako/hash/record_heap-inl.h"
#include "hako/hash/record_passes-inl.h"
#include "hako/hash/record_pin-inl.h"
#include "hako/hash/record_sweep-inl.h"

static_assert(hako::hash::RecordSpace<hako::hash::RecordHeap<hako::MemoryMapParallelFile>>);
