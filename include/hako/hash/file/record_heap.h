// Records in a file: the space of HashDBM (hash/record_space.h).
//
// A record is written once and never changed. An update writes a new record, publishes it and
// retires the old block. Stamps (format/stamp.h) decide which blocks are free after a crash.
// Records determines how a record is read, written, checked and stamped; this class decides which
// blocks are free and when a block may be used again.
//
// Invariants
//   1. The sync rule: a block of the last synced state is neither written (except its stamp) nor
//      handed out before the next synchronization is durable. Until then it waits.
//   2. A block born in the current epoch is free as soon as it is retired.
//   3. The stamp of a retired block is replaced long before epochs wrap, when the stamp would mean
//      a later epoch. In a mapped file this is done at the next synchronization, at the next Open,
//      or, after a process kill, by the harvest, which each synchronization advances. In any other
//      file a stamp costs an access to the device, and most small blocks are soon written again. So
//      a small block there is stamped within 256 synchronizations, and only if it is still free.
//   4. While a state is pinned (hash/free/pinned_state.h), none of its blocks is written, except its
//      stamp, or handed out.
//
// Its parts: FreeBlockPool has the free space, HeapExtents makes the file grow, Victims has the
// space that an evacuation holds back, HeapHarvest finds the free space that a killed process left,
// StampSweep replaces old stamps, Reclaimer counts large blocks that wait, and FreeSpaceNote stores
// the free space at a clean close.
//
// Thread-safe for the engine's calls. Writers are kept out while an epoch is closed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "hako/base/assert.h"
#include "hako/base/inline.h"
#include "hako/base/no_memory.h"
#include "hako/base/scratch_buffer.h"
#include "hako/base/status.h"
#include "hako/base/wall_clock.h"
#include "hako/file/memory_map_parallel_file.h"
#include "hako/format/record_format.h"
#include "hako/format/size_class.h"
#include "hako/format/stamp.h"
#include "hako/hash/file/extent_file.h"
#include "hako/hash/file/free_space_note.h"
#include "hako/hash/file/heap_extents.h"
#include "hako/hash/file/heap_file.h"
#include "hako/hash/file/heap_harvest.h"
#include "hako/hash/file/heap_index.h"
#include "hako/hash/file/mapped_records.h"
#include "hako/hash/file/positional_records.h"
#include "hako/hash/file/reclaimer.h"
#include "hako/hash/file/stamp_sweep.h"
#include "hako/hash/file/victims.h"
#include "hako/hash/free/chunk.h"
#include "hako/hash/free/free_block_pool.h"
#include "hako/hash/free/pinned_state.h"
#include "hako/hash/lock_order.h"
#include "hako/hash/record_space.h"
#include "hako/hash/record_view.h"
#include "hako/sync/atomic_bytes.h"
#include "hako/sync/mutex.h"
#include "hako/sync/write_gate.h"

namespace hako::hash {

// The class that reads and writes the records of a file of type FileT.
template <class FileT>
struct RecordsOf : std::type_identity<PositionalRecords<FileT>> {};
template <MappedFile FileT>
struct RecordsOf<FileT> : std::type_identity<MappedRecords<FileT>> {};

// Inherits
//   HeapFile (hash/file/heap_file.h)       extents, KeyHash, OffsetOf; epochs; Health, Poison; Scan
//   MappedRecords or PositionalRecords (hash/file/mapped_records.h, hash/file/positional_records.h)
//     TryFetchShort, TryFetch, DamageAt    optimistic reads
//     MatchShort, ViewShort, Commit        fast paths of short records
//     Prefetch, PrefetchRest, Want, Read   reading ahead
//     NoteMove, IsNamed, MayBeNamed
//   HeapIndex (hash/file/heap_index.h)     the extents of the index
template <File FileT>
class RecordHeap : public RecordsOf<FileT>::type, public HeapIndex<FileT> {
  using Records = typename RecordsOf<FileT>::type;
  using Heap = HeapFile<FileT>;

 public:
  using Heap::AcceptsWrites, Heap::epoch, Heap::epochs, Heap::Health, Heap::KeyHash, Heap::log, Heap::OffsetOf, Heap::Poison, Heap::Scan;
  using Records::kMapped, Records::kReadsAhead;
  using typename Heap::ScannedRecord, typename Records::Ahead;
  static constexpr bool kOverwrites = false;

  struct WriterState : sync::WriterState {
    FreeBlockPool::Cache free;
    ChunkRest chunk;
    // Bytes of the blocks that the writer has retired in this epoch and that wait for its end.
    std::uint64_t waiting_bytes = 0;
    // Where a record is assembled for a file that is not mapped.
    OwnedScratch write_buffer;
    std::uint32_t freed = 0;  // a large block that ReleaseFreed makes free
    unsigned freed_class = 0;
    Run ahead;              // the block of a WriteAhead in progress
    std::uint64_t lsn = 0;  // after its last update in the log
    log::AheadRun logged_ahead;
    Status error;  // of a call that has no other way to return one
  };

  // min_read_size: see HashOptions.
  static StatusOr<std::unique_ptr<RecordHeap>> Open(std::unique_ptr<ExtentFile<FileT>> extents, std::uint64_t min_read_size);

  sync::WriteGate& gate() { return gate_; }

  // ---- for the engine: records ----
  template <class C, class B>
  HAKO_INLINE Match CopyRecord(std::uint32_t handle, const C& is_current, B& buffer, RecordCopy* copy) const;
  Match MatchKey(std::uint32_t handle, std::string_view key, format::Lengths* lengths) const;
  StatusOr<RecordView> View(WriterState& writer, std::uint32_t handle) const;
  std::uint32_t Write(WriterState& writer, std::uint64_t key_hash, std::string_view key, std::string_view value, Status* error);
  // As Write, for a long value, while the caller is not a writer (sync/write_gate.h) and holds no
  // lock: meanwhile epochs may close and other threads continue. The record is unborn until
  // EndAhead, which the caller calls as a writer before it publishes the record or gives it back.
  // `value` is a std::string_view or a StoredValue.
  template <class Value>
  std::uint32_t WriteAhead(WriterState& writer, std::uint64_t key_hash, std::string_view key, Value&& value, Status* error);
  // Fails if the record could not be made live; then the heap refuses writes and no entry may name
  // the record.
  Status EndAhead(WriterState& writer, std::uint32_t handle) {
    writer.ahead = {};
    return this->EndPut(handle);
  }
  bool Overwrite(std::uint32_t, const format::Lengths&, std::string_view, std::string_view) { return false; }
  // Makes the block live, whatever stamp a dead process has left. An entry names the block, or will
  // name it.
  void Revive(std::uint32_t handle);
  void Revive(std::uint32_t handle, format::Stamp stamp) {
    if (!stamp.IsLive()) StoreStamp(handle, format::Revive(stamp, {epochs().durable, first_epoch_}));
  }
  // Retires a record. A small block that becomes free stays with the thread. A large block is
  // shared, but only once no entry names it: if the process is killed before that, the record is
  // live again. So the engine calls ReleaseFreed after it has changed the entry.
  void Retire(WriterState& writer, std::uint32_t handle, const format::Lengths& lengths);
  HAKO_INLINE void ReleaseFreed(WriterState& writer) {
    if (writer.freed != 0) [[unlikely]]
      FreeStamped(writer, std::exchange(writer.freed, 0), writer.freed_class);
  }
  void Retire(WriterState& writer, std::uint32_t handle);
  // Retire in two steps: see IntentSpace (hash/record_space.h).
  void StampRetired(std::uint32_t handle) {
    const format::Stamp stamp = LoadStamp(handle);
    StoreStamp(handle, stamp.bits() == stamps().live.bits() ? stamps().free : format::Retire(stamp, epochs()));
  }
  void FreeRetired(WriterState& writer, std::uint32_t handle, const format::Lengths& lengths) {
    if (LoadStamp(handle).state() != format::BlockState::kFree) return Wait(writer, handle, lengths.key_size, lengths.value_size);
    FreeStamped(writer, handle, ClassOf(lengths.key_size, lengths.value_size));
  }
  // The applied index (dbm/write_batch.h), which changes together with records; 0 = none. It is
  // part of the state of an epoch.
  void StoreAppliedIndex(std::uint64_t index) { extents_->StoreLive(&format::LiveState::applied_index, index); }
  std::uint64_t AppliedIndex() const { return extents_->LoadLive(&format::LiveState::applied_index); }

  // ---- for the engine: short records ----
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
    log::Position log_end;          // the log up to here has all updates of the epoch
    FreeBlockPool::Chains waiting;  // free once the epoch is durable, by size class
    std::uint32_t unstamped;        // a chain of free blocks, see ReleaseUnstamped
    bool has_all_retired;           // whether `waiting` has every block that was retired up to the end of the epoch
    std::uint64_t applied_index;
  };
  template <class ForEachWriter>
  ClosedEpoch CloseEpoch(ForEachWriter&& for_each_writer);
  Status CommitEpoch(const ClosedEpoch& closed, std::uint64_t num_records);
  // Frees the blocks that waited for the end of the epoch, in steps: as_writer(step) runs each step
  // as a writer with this state.
  template <class AsWriter>
  void ReleaseWaiting(WriterState& writer, ClosedEpoch& closed, AsWriter&& as_writer);
  // Stamps the free blocks of one size class that were not stamped when they were released. Each
  // epoch takes the next class.
  template <class AsWriter>
  void ReleaseUnstamped(WriterState& writer, const ClosedEpoch& closed, AsWriter&& as_writer) {
    static_assert(format::kSizeClasses < format::kOtherAgeMax / 2);
    if (closed.unstamped != 0) FreeSlowly(writer, closed.epoch % format::kSizeClasses, StampFree(closed.unstamped), as_writer);
  }

  // See hash/file/reclaimer.h.
  void ReclaimFrom(std::uint64_t bytes, Reclaimer::Call call) { reclaimer_.Start(bytes, call); }
  bool NeedsReclaim() const {
    return reclaimer_.IsDue([this] { return AllLive(); });
  }
  void EndReclaim() { reclaimer_.End(); }
  template <class ForEachWriter>
  std::uint64_t WaitingBytes(ForEachWriter&& for_each_writer) const {
    std::uint64_t bytes = 0;
    for_each_writer([&](const WriterState& writer) { bytes += writer.waiting_bytes; });
    return bytes;
  }
  using Sweep = StampSweep<Records>;
  Sweep& sweep() { return sweep_; }
  void RefreshStamp(std::uint32_t handle, format::Stamp stamp) {
    const format::Stamp refreshed = format::Refresh(stamp, epochs());
    if (refreshed.bits() != stamp.bits()) StoreStamp(handle, refreshed);
  }

  // ---- for recovery ----
  // Stamps a dead record as free, so that no later recovery restores it.
  void Bury(std::uint32_t handle) { StoreStamp(handle, stamps().free); }
  // Retires a record on behalf of a killed process, if that process has left it live.
  void RetireLate(std::uint32_t handle) {
    if (IsPlace(OffsetOf(handle))) StoreStamp(handle, format::RetireLate(LoadStamp(handle), {epochs().durable, first_epoch_ - 1}));
  }
  // Calls complete(entries) for each intent that a killed process had published, then forgets it.
  template <class Complete>
  Status CompleteIntents(Complete&& complete);
  // Whether an entry names the record.
  bool IsNamed(std::uint32_t handle) const { return Records::IsNamed(LoadStamp(handle)); }
  using Records::IsNamed;
  HAKO_INLINE void FreeBlock(WriterState& writer, std::uint32_t handle, std::uint64_t key_size, std::uint64_t value_size);
  // Frees bytes of a heap extent that belong to no block, in whole units.
  void FreeGap(WriterState& writer, std::uint64_t offset, std::uint64_t bytes) { pool_->FreeGap(writer.free, {offset, offset + bytes}); }
  const HeapHarvest<FileT>& harvest() const { return harvest_; }
  auto NamedNoter() { return harvest_.NamedNoter(); }
  // `num_records` are live.
  void BeginHarvest(WriterState& writer, std::uint64_t num_records) { harvest_.Begin(num_records, Found{*this, writer}); }
  template <class AsWriter>
  void HarvestAll(WriterState& writer, AsWriter&& as_writer) {
    while (!harvest_.IsOver()) as_writer([&] { harvest_.RunOnce(Found{*this, writer}); });
  }

  // ---- a state that stays readable across epochs (hash/free/pinned_state.h); one at a time, and no
  // evacuation meanwhile ----
  // Pins the state of the epoch that is closed next. REQUIRES: writers kept out, harvest over,
  // extents pinned
  template <class ForEachWriter>
  Status PinState(ForEachWriter&& for_each_writer);
  // Visits the records of the pinned state.
  template <class Visit>
  Status ScanPinned(Visit&& visit) const {
    return Scan(format::kFirstExtent, pinned_->tail, [&](const ScannedRecord& record) {
      return pinned_->Has(record.handle, record.stamp, epoch()) ? visit(record) : absl::OkStatus();
    });
  }
  // REQUIRES: no epoch is closed meanwhile, extents no longer pinned
  template <class AsWriter>
  void UnpinState(WriterState& writer, AsWriter&& as_writer);

  // ---- moving records together; one evacuation at a time ----
  // Marks heap extents as victims: from now on none of their blocks is handed out, and blocks that
  // become free are held back. Removes from the list the extents to which a long record is being
  // written. REQUIRES: writers kept out
  template <class ForEachWriter>
  void BeginEvacuation(std::vector<Extent>& victims, ForEachWriter&& for_each_writer) {
    for_each_writer([this](const WriterState& writer) { gate_.AssertKeptOut(writer); });
    heap_extents_.RunWithoutGrowth([&] { victims_.Begin(victims, extents_->tail(), for_each_writer); });
  }
  bool IsVictim(std::uint32_t handle) const { return victims_.Has(handle); }
  // Copies the record into a chunk of the mover; the copy is to be published in its place. A long record
  // (IsLong) is copied by WriteAhead instead, before its bucket is locked.
  StatusOr<std::uint32_t> Relocate(WriterState& mover, std::uint32_t handle);
  // A record to be copied without locks, by WriteAhead, which reads the value from the record's
  // place in the file.
  struct LongRecord {
    std::string key;
    typename Records::Value value;
  };
  StatusOr<LongRecord> FindLong(std::uint32_t handle) const;
  // If `emptied`, frees the victims' extents, which then hold no record of the last synced state
  // and no later one. Otherwise frees only the space that was held back. REQUIRES: writers kept out
  void EndEvacuation(WriterState& writer, const std::vector<Extent>& victims, bool emptied);
  void ReleaseChunk(WriterState& mover) { pool_->FreeRun(Rest(std::exchange(mover.chunk, {}))); }
  // Ends the use of the mover: the blocks that it has retired wait with those of writers, and its
  // unused blocks become free.
  void ReleaseMover(WriterState& mover) {
    ReleaseChunk(mover);
    pool_->Flush(mover.free, 0, FreeBlockPool::kLists);
  }

  HeapExtents<FileT>& heap_extents() { return heap_extents_; }
  // Moves the threads' free blocks and chunks to the shared pool. REQUIRES: writers kept out
  template <class ForEachWriter>
  void GatherFree(ForEachWriter&& for_each_writer);

  // TakeNote returns the free space in the form that a clean close stores; ReadNote takes it over.
  template <class ForEachWriter>
  std::string TakeNote(ForEachWriter&& for_each_writer, const ClosedEpoch& closed) {
    return FreeSpaceNote(records(), *this, *pool_, harvest_).Take(for_each_writer, closed.waiting);
  }
  Status ReadNote(WriterState& writer, std::string_view note) {
    HAKO_ASSIGN_OR_RETURN(const bool is_complete, FreeSpaceNote(records(), *this, *pool_, harvest_).Read(writer.free, note));
    if (!is_complete) BeginHarvest(writer, extents_->super().num_records);
    return absl::OkStatus();
  }

  template <class ForEachWriter>
  std::uint64_t FreeBytes(ForEachWriter&& for_each_writer) const;

 private:
  static constexpr unsigned kReleasesAtOnce = 16;  // magazines

  RecordHeap(std::unique_ptr<ExtentFile<FileT>> extents, std::unique_ptr<FreeBlockPool> pool, std::uint64_t min_read_size);
  Records& records() { return *this; }

  using Heap::BytesOf, Heap::CheckOf, Heap::ClassOf, Heap::extents_, Heap::HandleOf, Heap::IsPlace, Heap::shift_, Heap::stamps;
  using Records::fresh_stamp, Records::Load, Records::LoadStamp, Records::StoreStamp;
  using typename Heap::Head, typename Records::Wanted;

  template <class C, class B>
  [[gnu::noinline]] Match CopyAnyRecord(std::uint32_t handle, const C& is_current, B& buffer, RecordCopy* copy) const;

  std::uint64_t FirstEpoch() const {
    const std::uint64_t next = extents_->super().epoch + 1;
    return extents_->found() == FoundState::kKilled ? std::max(next, extents_->LoadSealed(&format::LiveState::epoch) + 1) : next;
  }
  // Whether the record is live and matches its check.
  bool IsIntact(std::uint32_t handle, RecordView* record) const;
  // Takes one of the thread's own free small blocks, or one from its chunk; 0 if there is none.
  HAKO_INLINE std::uint32_t TakeSmall(WriterState& writer, unsigned size_class);
  // Takes a small block from the thread's chunk; 0 if it does not fit.
  HAKO_INLINE std::uint32_t Carve(WriterState& writer, unsigned size_class);
  // Takes a block of any size from free space, else from a new extent; 0 with an error.
  [[gnu::noinline]] std::uint32_t CarveSlowly(WriterState& writer, unsigned size_class, Status* error);
  // Whether the run overlaps the index: a record with a damaged length can make bytes of the index
  // look free.
  bool IndexHas(Run run) const { return run.bytes() != 0 && extents_->IndexHas({run.begin, run.bytes()}); }
  std::uint32_t CutSmall(WriterState& writer, unsigned size_class);
  // Receives the space that a harvest finds.
  struct Found {
    RecordHeap& heap;
    WriterState& writer;
    void Free(std::uint64_t offset, std::uint64_t bytes) { heap.FreeGap(writer, offset, bytes); }
    void Wait(const ScannedRecord& record) { heap.Wait(writer, record.handle, record.key_size, record.value_size); }
  };
  bool HarvestSome(WriterState& writer) { return harvest_.RunSome(Found{*this, writer}); }
  // See HeapHarvest::IsFrozen.
  bool IsFrozen(std::uint32_t handle) const { return harvest_.IsFrozen(OffsetOf(handle)); }
  void Wait(WriterState& writer, std::uint32_t handle, std::uint64_t key_size, std::uint64_t value_size);
  [[gnu::noinline]] void WaitLarge(std::uint64_t bytes) {
    reclaimer_.Add(bytes, [this] { return AllLive(); });
  }
  // Returns the bytes in use. Free blocks in the caches of threads, and small blocks that wait,
  // count as in use.
  std::uint64_t AllLive() const {
    const std::uint64_t index = this->index_is_in_memory() ? 0 : this->index_bytes();
    const std::uint64_t others = reclaimer_.waiting_bytes() + index + extents_->free_extent_bytes() + pool_->free_bytes(),
                        all = extents_->tail();
    return all - std::min(all, others);
  }
  void StampFree(std::span<std::uint32_t> handles);
  std::vector<std::uint32_t> StampFree(std::uint32_t chain);
  template <class AsWriter>
  void FreeSlowly(WriterState& writer, unsigned size_class, std::vector<std::uint32_t> handles, AsWriter&& as_writer);
  std::uint32_t ReleaseSome(WriterState& writer, unsigned size_class, std::uint32_t chain);
  void KeepPinned(unsigned size_class, std::uint32_t chain);
  // Makes a block that is stamped as free available. A victim's block is held back until the
  // evacuation is over.
  HAKO_INLINE void FreeStamped(WriterState& writer, std::uint32_t handle, unsigned size_class);

  const std::unique_ptr<FreeBlockPool> pool_;
  Reclaimer reclaimer_;
  Victims victims_;
  // The epoch of this opening. After a process kill this epoch has no updates, only what Revive
  // makes live. If it had updates, a block born in it would be free as soon as its record is
  // removed, and the harvest would find the block a second time.
  const std::uint64_t first_epoch_;
  HeapHarvest<FileT> harvest_;
  Sweep sweep_;
  std::unique_ptr<PinnedState> pinned_;  // changed with writers kept out
  HeapExtents<FileT> heap_extents_;
  sync::WriteGate gate_;
};

}  // namespace hako::hash

#include "hako/hash/file/record_allocation-inl.h"
#include "hako/hash/file/record_epochs-inl.h"
#include "hako/hash/file/record_heap-inl.h"

static_assert(hako::hash::RecordSpace<hako::hash::RecordHeap<hako::MemoryMapParallelFile>>);
