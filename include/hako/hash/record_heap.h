// Records in a file: the space of HashDBM (hash/record_space.h).
//
// A record is written once and never changed; an update writes a new one, publishes it, and retires the old block. What a crash may
// reuse is decided by the stamps (format/stamp.h). On a mapped file the index lines lie in the file too and everything is a memory
// access; on any other file the lines are in memory and records are read and written by ReadAt and WriteAt.
//
// Invariants
//   1. The sync rule: a block that belongs to the last synced state is neither written (but for its stamp) nor handed out before the next
//      synchronization is durable. Until then it waits.
//   2. A block born in the current epoch is free as soon as it is retired.
//   3. A record's check is keyed by its key, lengths, place and file (format/record_format.h) and verified by every read.
//   4. After a failed write or sync, or a read that failed where a record's stamp was to be changed, nothing more is written; what is there
//      can still be read.
//   5. The stamp of a retired block is replaced long before epochs wrap, when it would mean a later epoch. In a mapped file: at the next
//      synchronization, at the next Open, or, if the process died, by the harvest, of which each synchronization does a part. In any other
//      file it would be an access to the device, and most blocks are written again before long: those that still are free have it replaced
//      within 256 synchronizations.
//   6. While a state is pinned (hash/pinned_state.h), none of its blocks is written, except for its stamp, or handed out.
//
// Threads: the calls of the engine, from any. An epoch is closed with the writers kept out.
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
    std::uint64_t waiting_bytes = 0;  // of blocks that it retired in this epoch, and that wait for its end
    OwnedScratch write_buffer;        // where a record is put together for a file that is not mapped
    std::uint32_t freed = 0;          // a large block that goes to the free space with ReleaseFreed
    unsigned freed_class = 0;
    Run ahead;  // the block of a record that is being written and that no entry names yet
  };

  // A record of the heap as a scan finds it; views into the scan's buffer.
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
  // Tells the epoch to the process that opens the file if this one is killed. REQUIRES: the superblock says durably that the file is in
  // use; until then nothing but superblocks is stored, so that a file of which no superblock is durable yet is blank after a power cut.
  void PublishEpoch() { extents_->StoreLive(&format::LiveState::epoch, epoch()); }
  // Whether one is due before epochs wrap, because many processes died without a synchronization between.
  bool IsFarAhead() const { return epochs().now - epochs().durable > format::kEpochsAhead / 4; }
  format::Epochs epochs() const { return {durable_epoch_.load(std::memory_order_relaxed), epoch()}; }

  // ---- for the engine: index lines ----
  StatusOr<std::uint64_t> AllocateIndexExtent(std::uint64_t bytes, IndexExtent kind);
  std::byte* index_base() const { return index_arena_ != nullptr ? index_arena_->base() : extents_->base(); }
  std::uint64_t index_end() const { return index_arena_ != nullptr ? index_arena_->end() : extents_->tail(); }
  void StoreLineCount(std::uint64_t n) { extents_->StoreLive(&format::LiveState::num_lines, n); }

  // ---- for the engine: records ----
  HAKO_INLINE void Prefetch(std::uint32_t handle) const {
    if constexpr (kMapped) {
      hako::Prefetch(base_ + OffsetOf(handle));
      hako::Prefetch(base_ + OffsetOf(handle) + 31);  // often the next line
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
  // The record is one of those that `ahead` is going to read.
  void Want(Ahead& ahead, std::uint32_t handle) const {
    if constexpr (kReadsAhead) {
      if (IsPlace(OffsetOf(handle))) ahead.Want(handle, OffsetOf(handle), FirstRead(OffsetOf(handle)));
    }
  }
  void Read(Ahead& ahead) const {
    if constexpr (kReadsAhead) ahead.Read(extents_->file());
  }
  bool IsDirect() const { return block_ > 1; }
  // Whether what is read together stays near, so that it pays for who is going to read it one by one.
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
    if constexpr (!kMapped) moves_.Note(old, fresh);
  }
  std::uint32_t Write(WriterState& writer, std::uint64_t key_hash, std::string_view key, std::string_view value, Status* error);
  // Write for a long value, while the caller is no writer (sync/write_gate.h) and holds no lock: epochs may close and other threads go on
  // meanwhile. The record is unborn until EndAhead, which the caller calls as a writer, and then publishes it or gives it back.
  std::uint32_t WriteAhead(WriterState& writer, std::uint64_t key_hash, std::string_view key, std::string_view value, Status* error);
  // An error if the record could not be made live: then the heap takes no more writes, and nobody may name the record.
  Status EndAhead(WriterState& writer, std::uint32_t handle) {
    writer.ahead = {};
    if constexpr (kMapped) return absl::OkStatus();
    StoreStamp(handle, stamps().live);
    return Health();
  }
  bool Overwrite(std::uint32_t, const format::Lengths&, std::string_view, std::string_view) { return false; }
  HAKO_INLINE void Commit(std::uint32_t handle) {
    if constexpr (kMapped) StoreStamp(handle, stamps().live);  // else it has it already, see Put
  }
  // An entry names the block, or will: so it is alive, whatever a dead process left in its stamp.
  void Revive(std::uint32_t handle);
  void Revive(std::uint32_t handle, format::Stamp stamp);
  // A small block that becomes free stays with the thread for now. A large one is for all threads at once, but not before no entry names
  // it: if the process dies first, it is alive again. So the engine calls ReleaseFreed once the entry is changed.
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

  // ---- epochs; REQUIRES: writers kept out, but for CommitEpoch and ReleaseWaiting ----
  struct ClosedEpoch {
    std::uint64_t epoch;
    std::uint64_t tail;
    FreeBlockPool::Chains waiting;  // blocks that are free once the epoch is durable, by size class
    std::uint32_t unstamped;        // a chain of some that are free, see ReleaseUnstamped
    bool settles;                   // those that wait are all that were retired until its end
  };
  template <class ForEachWriter>
  ClosedEpoch CloseEpoch(ForEachWriter&& for_each_writer);
  Status CommitEpoch(const ClosedEpoch& closed, std::uint64_t num_records);
  // Makes free what waited for the end of the epoch, in steps: as_writer(step) runs each as a writer with this slot.
  template <class AsWriter>
  void ReleaseWaiting(WriterState& writer, ClosedEpoch& closed, AsWriter&& as_writer);
  // Stamps those of one size class that no release has stamped; each epoch's is another class.
  template <class AsWriter>
  void ReleaseUnstamped(WriterState& writer, const ClosedEpoch& closed, AsWriter&& as_writer);

  // Once large blocks of `bytes` bytes wait for the end of the epoch, and of an eighth of what live records take, `ask` is called; 0 =
  // never. It arranges for a synchronization, and for EndReclaim after it, and returns true; or returns false. The caller holds a bucket's
  // lock, so `ask` must neither wait nor retire blocks. Small blocks do not count: after a synchronization the first store to each page
  // takes microseconds, which is little for a large record and ten times the update of a small one.
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
  // Epochs wrap: before one ends, looks at some more records and makes old stamps ancient. `named` knows the index:
  //   bool Has(SweptRecord)   whether an entry names the record
  //   void Prefetch(records)  of a file that is not mapped: they are going to be refreshed
  //   void RunLocked(span of at most 64 records, body)  the same: body(mask) with their lines locked; a bit for each that an entry names
  struct SweptRecord {
    std::uint64_t key_hash;
    std::uint32_t handle;
    std::uint32_t block_bytes;  // 0 of a long one, whose bytes have not been read
  };
  template <class Named>
  Status Sweep(Named&& named);
  void RefreshStamp(std::uint32_t handle, format::Stamp stamp);

  // ---- whole-file passes ----
  // Visits the heap extents in [from, to), void enter(Extent), and after each its records, Status visit(ScannedRecord); void other(Extent)
  // gets space that is no heap. Bytes that do not validate are skipped. What validates may be long dead, wherever it lies outside of other
  // records: stamps and the index tell. May run beside writers.
  template <class Visit, class Enter, class Other>
  Status Scan(std::uint64_t from, std::uint64_t to, Visit&& visit, Enter&& enter, Other&& other) const;
  template <class Visit>
  Status Scan(std::uint64_t from, std::uint64_t to, Visit&& visit) const {
    return Scan(
        from, to, visit, [](Extent) {}, [](Extent) {});
  }
  // The same for an extent that has been read, or whose bytes nobody changes but for stamps. doubt() is called at bytes that are neither
  // zero nor a record.
  enum class Trust { kNothing, kLiveHeads };  // kLiveHeads: a long record that is alive is not hashed if its head is intact
  template <Trust kTrust = Trust::kNothing, class Visit, class Doubt>
  Status ScanExtent(Extent extent, const char* bytes, Visit&& visit, Doubt&& doubt) const;
  // For a walk in the order of the file.
  ScanTracker& moves() { return moves_; }
  HAKO_INLINE std::uint64_t OffsetOf(std::uint32_t handle) const { return std::uint64_t{handle} << shift_; }
  std::uint64_t BlockBytes(const ScannedRecord& record) const { return BytesOf(ClassOf(record.key.size(), record.value.size())); }
  // Marks a dead record, so that no later recovery takes it for one of its state.
  void Bury(std::uint32_t handle) { StoreStamp(handle, stamps().free); }
  std::uint64_t HandleAt(std::uint64_t offset) const { return offset >> shift_; }  // one more than any record's, at the file's end
  // Whether an entry may name a record with this stamp.
  HAKO_INLINE bool MayBeNamed(format::Stamp stamp) const { return stamp.IsLive() || KeepsStamps(); }
  // Whether one does name it.
  bool IsNamed(std::uint32_t handle) const { return IsNamed(LoadStamp(handle)); }
  bool IsNamed(format::Stamp stamp) const { return KeepsStamps() ? stamp.BelongsTo(extents_->super().epoch) : stamp.IsLive(); }
  HAKO_INLINE void FreeBlock(WriterState& writer, std::uint32_t handle, std::uint64_t key_size, std::uint64_t value_size);
  // Gives bytes of a heap extent back that no block has, in whole units.
  void FreeGap(WriterState& writer, std::uint64_t offset, std::uint64_t bytes) { depot_->FreeGap(writer.free, {offset, offset + bytes}); }
  // After a process kill: the space that the dead process had free or waiting is found extent by extent, whenever space is needed and a
  // part with each synchronization; all at once if the stamps that it left are old. Until its turn comes an extent is frozen: nothing in it
  // is handed out, so what is written there are stamps only. `num_records` are alive.
  void BeginHarvest(WriterState& writer, std::uint64_t num_records);
  template <class AsWriter>
  void HarvestAll(WriterState& writer, AsWriter&& as_writer) {
    while (!HarvestIsOver()) as_writer([&] { HarvestFor(writer, 1); });
  }

  // ---- a state that stays readable while epochs go on (hash/pinned_state.h); one at a time, and no evacuation meanwhile ----
  // Pins the state of the epoch that is closed next. REQUIRES: writers kept out, nothing left to harvest, extents pinned
  template <class ForEachWriter>
  Status PinState(ForEachWriter&& for_each_writer);
  // Visits the records of the pinned state.
  template <class Visit>
  Status ScanPinned(Visit&& visit) const;
  // REQUIRES: no epoch is closed meanwhile, extents not pinned any more
  template <class AsWriter>
  void UnpinState(WriterState& writer, AsWriter&& as_writer);

  // ---- moving records together; one evacuation at a time ----
  // Marks heap extents as victims: from now on no block of theirs is handed out, and those that become free are forgotten. Leaves out, and
  // takes from the list, those that a record is being written to.
  // REQUIRES: writers kept out
  template <class ForEachWriter>
  void BeginEvacuation(std::vector<Extent>& victims, ForEachWriter&& for_each_writer);
  bool IsVictim(std::uint32_t handle) const {
    const std::uint64_t unit = OffsetOf(handle) / format::kExtentUnit;
    return unit < victims_.size() && victims_[unit];
  }
  // Whether copying the record would keep others waiting: then it is moved by WriteAhead, before its bucket is locked.
  bool IsLong(std::uint32_t handle) const;
  // A copy of the record, in a chunk of the mover's; to be published in its place.
  StatusOr<std::uint32_t> Relocate(WriterState& mover, std::uint32_t handle);
  // The victims hold no record of the last synced state any more, nor any other: they become free extents. REQUIRES: writers kept out
  void EndEvacuation(WriterState& writer, const std::vector<Extent>& victims, bool emptied);
  void ReleaseChunk(WriterState& mover) { depot_->FreeRun(Rest(std::exchange(mover.chunk, {}))); }
  // What the mover retired waits with what others did, and what it did not use is free.
  void ReleaseMover(WriterState& mover) {
    ReleaseChunk(mover);
    depot_->Flush(mover.free, 0, FreeBlockPool::kLists);
  }
  // The bytes of a heap extent that live records take.
  StatusOr<std::uint64_t> LiveBytes(Extent extent) const;

  // Gives heap extents that are free all over back to the file, for any use. Not while extents are pinned.
  void ReleaseExtents();
  // While a pin lives no heap extent becomes anything else, so that a list of them stays true.
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
  // All that threads keep for themselves goes to the depot. REQUIRES: writers kept out
  template <class ForEachWriter>
  void GatherFree(ForEachWriter&& for_each_writer);

  // What a clean close remembers of free space, and taking it back.
  template <class ForEachWriter>
  std::string TakeNote(ForEachWriter&& for_each_writer, const ClosedEpoch& closed);
  Status ReadNote(WriterState& writer, std::string_view note);

  template <class ForEachWriter>
  std::uint64_t FreeBytes(ForEachWriter&& for_each_writer) const;
  std::uint64_t index_bytes() const { return index_bytes_.load(std::memory_order_relaxed); }
  void AddIndexBytes(std::uint64_t bytes) { index_bytes_.fetch_add(bytes, std::memory_order_relaxed); }
  // From now on index lines lie in memory, not in the file.
  Status UseIndexArena();
  // All that index lines lie in, in the file or in memory.
  std::vector<format::IndexExtentEntry> IndexExtents() const;
  // At a clean close, of an index that is in memory, behind the `end` of all else; the check of what was written, 0 if nothing was.
  StatusOr<std::uint64_t> SaveIndex(std::uint64_t end) { return index_arena_->Save(*extents_, end, secret_); }
  StatusOr<bool> LoadIndex(std::uint64_t end, std::uint64_t check) { return index_arena_->Load(*extents_, end, secret_, check); }
  // Records whose first read was too short.
  std::uint64_t second_reads() const { return second_reads_.load(std::memory_order_relaxed); }
  std::uint64_t num_index_extents() const { return num_index_extents_; }
  void set_num_index_extents(std::uint64_t n) {
    num_index_extents_ = n;
    extents_->StoreLive(&format::LiveState::index_extents, n);
  }
  // Forgets the index extents; the caller frees them.
  std::vector<Extent> TakeIndexExtents();
  bool index_is_in_memory() const { return index_arena_ != nullptr; }
  // Whether the table names only extents that lie in the file.
  bool IndexTableIsInside() const;
  // XXH3 over the index extents and their table. REQUIRES: kMapped, writers kept out.
  std::uint64_t IndexCheck() const;

  // OK, or the failure since which the heap refuses writes. One of a file that is open for reading is OK too, and accepts none.
  Status Health() const { return extents_->file().IsWritable() ? refusal_.Get() : absl::OkStatus(); }
  Status Refusal() const { return refusal_.Get(); }
  bool AcceptsWrites() const { return refusal_.IsOk(); }
  void Poison(const Status& why);

 private:
  // The header of a record, decoded.
  struct Head {
    std::uint32_t check = 0;
    format::Stamp stamp;
    format::Lengths lengths;

    std::uint64_t key_at() const { return format::RecordHeadSize(lengths.header); }  // from the record's start
    std::uint64_t size() const { return key_at() + lengths.key_size + lengths.value_size; }
  };
  static constexpr std::uint64_t kFixed = 6;  // check and stamp
  // The bits of a short record's first 8 bytes that tell a short live one: its stamp's, and the high ones of its lengths.
  static constexpr std::uint64_t kShortLiveMask = std::uint64_t{0x8080'0000'0000'0000} | std::uint64_t{format::Stamp::kLiveMask} << 32;
  static constexpr std::uint64_t kShortLiveWord = std::uint64_t{format::Stamp::kLiveBits} << 32;
  static constexpr std::uint64_t kHeadMax = 16;               // without the head check
  static constexpr std::uint64_t kOptimisticValueMax = 4096;  // a longer value is copied only while the version holds
  static constexpr std::uint64_t kReclaimShare = 8;           // of the live bytes
  static constexpr int kPauses = 10;                          // of a Set of a long value, of 1 ms each
  static constexpr std::uint64_t kHarvestParts = 512;
  static constexpr std::uint64_t kSweepEpochs = 14'000;
  static constexpr std::uint64_t kSweepPiece = 256 << 10;
  static constexpr std::size_t kStampedAtOnce = 64;       // records, in one write
  static constexpr std::uint64_t kLongRecord = 8192;      // bytes
  static constexpr int kHarvestsAtOnce = 2;               // extents, of 1 MiB as a rule
  static constexpr unsigned kReleasesAtOnce = 16;         // magazines
  static constexpr std::uint64_t kLarge = 1 << 20;        // bytes of a block whose extent, once free, is given back at once
  static constexpr std::uint64_t kDevicePage = 4096;      // what most devices read at once, whatever their smallest block
  static constexpr std::uint64_t kDirectChunk = 1 << 20;  // at least, in direct I/O: what is appended is to be written together
  static constexpr std::uint64_t kSettledAgeMax = format::kOtherAgeMax / 2;  // when a harvest begins: it ends before kOtherAgeMax

  RecordHeap(std::unique_ptr<ExtentFile<FileT>> extents, std::uint64_t min_read_size);

  // The stamps of the current epoch, made once.
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

  // The first 8 bytes of a mapped record, if it is short, alive, not at the file's very end, and has a key of this size.
  HAKO_INLINE bool LoadShortHead(std::uint64_t offset, std::size_t key_size, std::uint64_t* word) const {
    if (key_size >= format::kShortLength || offset + format::kShortRecordMax > extents_->tail()) [[unlikely]]
      return false;
    constexpr std::uint64_t kMask = kShortLiveMask | std::uint64_t{0xff} << 48;
    *word = sync::LoadSharedWord(base_ + offset);
    return ((*word ^ (kShortLiveWord | key_size << 48)) & kMask) == 0;
  }
  // The same, whatever its key's size.
  HAKO_INLINE bool LoadShortHead(std::uint64_t offset, std::uint64_t* word) const {
    if (offset + format::kShortRecordMax > extents_->tail()) [[unlikely]]
      return false;
    *word = sync::LoadSharedWord(base_ + offset);
    return (*word & kShortLiveMask) == kShortLiveWord;
  }
  template <class C, class B>
  [[gnu::noinline]] Match CopyAnyRecord(std::uint32_t handle, const C& is_current, B& buffer, RecordCopy* copy) const;

  // A file that is neither mapped nor writable keeps the stamps that a crash left.
  HAKO_INLINE bool KeepsStamps() const { return !kMapped && !extents_->file().IsWritable(); }
  static Head DecodeHead(const char* bytes, std::size_t size);
  bool DecodeWholeHead(const char* shared, std::uint64_t size, std::uint64_t offset, Head* head) const;
  Head HeadOf(std::uint64_t offset) const;  // mapped
  // Whether the record lies inside the file.
  HAKO_INLINE bool IsInside(std::uint64_t offset, const Head& head) const {
    return head.lengths.header != 0 && head.size() <= extents_->tail() - offset;
  }
  // An entry names live records only; a damaged one may name an old version.
  HAKO_INLINE bool IsAlive(const Head& head) const { return MayBeNamed(head.stamp); }
  HAKO_INLINE bool IsPlace(std::uint64_t offset) const { return offset >= format::kFirstExtent && offset + 8 <= extents_->tail(); }
  // Not mapped: how many bytes to read of a record whose size is not known: more than enough costs little, too few cost a second access.
  std::uint64_t FirstRead(std::uint64_t offset) const {
    const std::uint64_t end = offset + (min_read_size_ != 0 ? min_read_size_ : guess_.Get());
    return std::min((end + block_ - 1) & ~(block_ - 1), extents_->tail()) - offset;
  }
  // Where a block of `bytes` goes in the rest of a chunk: in direct I/O not across a device block, or 4 KiB, that it fits in, or from the
  // beginning of one.
  std::uint64_t PlaceIn(const ChunkRest& chunk, std::uint64_t bytes) const {
    const std::uint64_t within = chunk.next & (place_unit_ - 1);
    const bool fits = within == 0 || within + bytes <= place_unit_;
    return fits ? chunk.next : chunk.next - within + place_unit_;
  }
  // Not mapped: the whole record, in this thread's buffer until the next call.
  Match ReadRecord(std::uint32_t handle, Head* head, const char** bytes, Status* status) const;
  // The record, wherever it lies. Under the line's lock.
  Match Load(std::uint32_t handle, Head* head, const char** bytes) const;

  // Whether the record is alive and matches its check.
  bool IsIntact(std::uint32_t handle, RecordView* record) const;
  HAKO_INLINE format::Stamp LoadStamp(std::uint32_t handle, Status* status = nullptr) const;
  HAKO_INLINE void StoreStamp(std::uint32_t handle, format::Stamp stamp);

  // Writes a record into a block that nobody knows yet.
  Status Put(WriterState& writer, std::uint32_t handle, format::Stamp stamp, std::uint64_t key_hash, std::string_view key,
             std::string_view value);
  // That of a record written under its bucket's lock. What a killed process wrote to a file that is not mapped counts for nothing, so there
  // a record need not be unborn until it is published.
  format::Stamp fresh_stamp() const { return kMapped ? stamps().unborn : stamps().live; }
  // A small block of the thread's chunk, or 0.
  HAKO_INLINE std::uint32_t Carve(WriterState& writer, unsigned size_class);
  // A block of any size, from what is free, else from a new extent; 0 with an error.
  [[gnu::noinline]] std::uint32_t CarveSlowly(WriterState& writer, unsigned size_class, Status* error);
  // Whether the run is none, though it looks free: a record whose length is damaged reached into the index.
  bool IndexHas(Run run) const { return run.bytes() != 0 && extents_->IndexHas({run.begin, run.bytes()}); }
  std::uint32_t CutSmall(WriterState& writer, unsigned size_class);
  // Makes a new heap extent with room for a block.
  Status Grow(std::uint64_t bytes, std::uint64_t most);
  // How large an extent to take for a block of `bytes`, for which `most` bytes are enough wherever they lie.
  std::uint64_t ExtentSize(std::uint64_t bytes, std::uint64_t most) const;
  // Whether the run is all that a heap extent has for records.
  bool IsHeapExtent(Run run) const;
  void ReleaseIfExtent(Run run);
  void ReleaseExtent(Run run);
  void HarvestFor(WriterState& writer, std::uint64_t bytes);
  bool HarvestSome(WriterState& writer);
  void HarvestUntil(WriterState& writer, std::uint64_t end);  // REQUIRES: harvest_mutex_ held
  void HarvestExtent(WriterState& writer, Extent extent);
  // Of an extent that the harvest has yet to come to. REQUIRES: harvest_mutex_ held, or the harvest is over
  bool IsFrozen(std::uint32_t handle) const {
    return OffsetOf(handle) >= harvest_next_.load(std::memory_order_relaxed) && OffsetOf(handle) < harvest_end_;
  }
  bool HarvestIsOver() const { return harvest_next_.load(std::memory_order_relaxed) >= harvest_end_; }
  void Wait(WriterState& writer, std::uint32_t handle, std::uint64_t key_size, std::uint64_t value_size) {
    const unsigned size_class = ClassOf(key_size, value_size);
    depot_->Push(writer.free, FreeBlockPool::kWaiting + size_class, handle);
    writer.waiting_bytes += BytesOf(size_class);
    if (!depot_->IsSmall(size_class)) [[unlikely]]
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
  // A block that is stamped as free goes to the free space, or, of a victim, is forgotten until the evacuation is over.
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
  std::unique_ptr<FreeBlockPool> depot_;
  std::unique_ptr<IndexArena> index_arena_;  // where the lines are if they cannot be in the file
  char* base_ = nullptr;                     // mapped only
  unsigned shift_;
  std::uint64_t hash_seed_;
  std::uint64_t secret_;
  std::uint64_t min_read_size_ = 0;
  std::uint64_t block_ = 1;       // of transfers, in direct I/O
  std::uint64_t place_unit_ = 1;  // of the device: what lies in one is read at once
  mutable SizeGuess guess_;
  mutable std::atomic<std::uint64_t> second_reads_{0};
  std::atomic<std::uint64_t> large_waiting_{0};  // bytes of large blocks that wait for the end of this epoch
  std::atomic<std::uint64_t> large_closing_{0};  // the same, of one whose end is being made durable
  std::atomic<bool> is_reclaiming_{false};       // a synchronization was asked for and has not ended
  std::uint64_t reclaim_bytes_ = 0;
  ReclaimCall reclaim_call_;
  alignas(64) std::atomic<std::uint64_t> epoch_{0};
  std::atomic<std::uint64_t> durable_epoch_;  // of the superblock, once it is on the device
  sync::StickyStatus refusal_;                // why writes are refused: the file is open for reading, or a write failed
  std::atomic<std::uint64_t> stamps_{0};
  std::atomic<std::uint64_t> index_bytes_{0};
  std::uint64_t num_index_extents_ = 0;
  std::uint64_t first_epoch_;  // of this opening
  std::atomic<std::uint64_t> harvest_next_{0};
  std::uint64_t harvest_end_ = 0;
  std::mutex harvest_mutex_;           // guards harvest_next_ and the two below
  std::uint64_t live_to_harvest_ = 0;  // records that were alive at the beginning and are not yet found
  std::vector<ChunkRest> doubtful_;    // free, unless they hold a damaged record
  struct SweepPlace {
    std::uint64_t extent, to, end;
  };
  SweepPlace sweep_;  // used by who closes epochs
  std::string sweep_buffer_;
  std::vector<SweptRecord> sweep_found_;
  std::unique_ptr<PinnedState> pinned_;  // changed with writers kept out
  std::atomic<bool> evacuating_{false};
  std::vector<bool> victims_;  // by extent unit; changed with writers kept out
  std::mutex forgotten_mutex_;
  std::vector<Run> forgotten_;  // what is free in victims
  std::mutex extents_mutex_;    // held while heap extents are given back to the file
  int extent_pins_ = 0;
  std::mutex index_mutex_;
  sync::WriteGate gate_;
  ScanTracker moves_;
};

}  // namespace hako::hash

#include "hako/hash/record_allocation-inl.h"
#include "hako/hash/record_heap-inl.h"
#include "hako/hash/record_passes-inl.h"
#include "hako/hash/record_pin-inl.h"
#include "hako/hash/record_sweep-inl.h"

static_assert(hako::hash::RecordSpace<hako::hash::RecordHeap<hako::MemoryMapParallelFile>>);
