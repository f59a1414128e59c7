// Records in memory: the space of TinyDBM (hash/record_space.h).
//
// Each thread carves blocks from its own chunk, and freed blocks go to the thread's magazines
// (hash/free/free_block_pool.h), so an update takes no lock except its bucket's. If the new value
// needs a block of the same size, it overwrites the old one in place, guarded by the bucket's
// version. Memory is reused; without a limit, it is returned to the system only when the database
// is destroyed.
//
// Invariants
//   1. A block is named by one entry, or is in a free list, or belongs to a write in progress.
//   2. Handle h is the block at byte h << shift of the arena.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "hako/base/hash.h"
#include "hako/base/inline.h"
#include "hako/base/no_memory.h"
#include "hako/base/prefetch.h"
#include "hako/base/status.h"
#include "hako/base/visitor_ref.h"
#include "hako/format/record_format.h"
#include "hako/format/size_class.h"
#include "hako/hash/free/chunk.h"
#include "hako/hash/free/free_block_pool.h"
#include "hako/hash/memory/large_blocks.h"
#include "hako/hash/memory/record_windows.h"
#include "hako/hash/record_limit.h"
#include "hako/hash/record_space.h"
#include "hako/hash/record_view.h"
#include "hako/storage/arena.h"
#include "hako/sync/atomic_bytes.h"
#include "hako/sync/write_gate.h"

namespace hako::hash {

class RecordArena {
 public:
  static constexpr bool kOverwrites = true;
  static constexpr bool kReadsAhead = false;
  struct Ahead {};
  struct WriterState : sync::WriterState {
    FreeBlockPool::Cache free;
    ChunkRest chunk;
    std::atomic<std::uint64_t> evictions{0};  // where there is a limit
    bool is_counted = false;                  // among the writers of the limit
    OwnBuckets* own_buckets = nullptr;        // buckets that the thread has locked, whose other records it may evict
    std::uint64_t failed_searches = 0;        // failed searches of the limit when the thread last gave its free blocks back
  };

  // Creates an arena of type Made: RecordArena, or a derived class with the same constructor.
  template <class Made = RecordArena>
  static StatusOr<std::unique_ptr<Made>> Create(int align_pow, std::uint64_t seed, const Capacity& capacity = {}) {
    std::uint64_t bytes = std::uint64_t{1} << (32 + align_pow);
    if (capacity.bytes != 0) bytes = std::min(bytes, RecordLimit::ArenaBytes(capacity.bytes));
    HAKO_ASSIGN_OR_RETURN(auto arena, storage::Arena::Create(bytes));
    HAKO_ASSIGN_OR_RETURN(auto pool, FreeBlockPool::Create(static_cast<unsigned>(align_pow)));
    std::unique_ptr<Made> made(new Made(std::move(arena), std::move(pool), align_pow, seed));
    if (capacity.IsLimited()) HAKO_RETURN_IF_ERROR(made->SetLimit(capacity));
    return made;
  }

  // The limit, which never changes; nullptr = none.
  HAKO_INLINE RecordLimit* limit() const { return limit_.get(); }

  sync::WriteGate& gate() { return gate_; }
  void StoreAppliedIndex(std::uint64_t index) { applied_index_.store(index, std::memory_order_release); }
  std::uint64_t AppliedIndex() const { return applied_index_.load(std::memory_order_acquire); }
  HAKO_INLINE std::uint64_t KeyHash(std::string_view key) const { return Hash64(key, seed_); }
  void NoteMove(std::uint32_t, std::uint32_t) {}

  // The index shares the arena, unless there is a limit. With a limit, the extents of the index
  // would leave no room between them for large records.
  StatusOr<std::uint64_t> AllocateIndexExtent(std::uint64_t bytes, IndexExtent kind);
  // Only with a limit: calls visit(handle, hash) for the blocks that begin in the part, in use or
  // free. `visit` returns whether the index names the block. Calls prefetch(hash) a little earlier.
  template <class P, class F>
  void ForEachBlockIn(Part part, P&& prefetch, F&& visit) const;
  void ReserveExtents(WriterState& writer);
  // Frees the rest of the thread's chunk and its free blocks. REQUIRES: the thread is kept out or
  // is the calling one (checked in CarveLarge)
  void ReturnChunk(WriterState& writer);
  std::byte* index_base() const { return index_arena().base(); }
  std::uint64_t index_end() const { return index_arena().end(); }
  void StoreLineCount(std::uint64_t) {}

  HAKO_INLINE void Prefetch(std::uint32_t handle) const {
    hako::Prefetch(At(handle));
    hako::Prefetch(At(handle) + 31);  // often the next cache line
  }
  HAKO_INLINE void PrefetchRest(std::uint32_t handle) const {
    const char* at = At(handle);
    const format::Lengths lengths = ReadLengths(at);
    const std::uint64_t size = std::min<std::uint64_t>(lengths.header + lengths.key_size + lengths.value_size, 512);
    for (std::uint64_t last = size; last > 32; last -= std::min<std::uint64_t>(last, 64)) hako::Prefetch(at + last - 1);
  }

  // May read a little past the end of a block: the arena reserves more address space than it can
  // use.
  template <class S>
  HAKO_INLINE bool TryFetchShort(std::uint32_t handle, std::uint64_t, std::string_view key, S& sink) const {
    const char* const at = At(handle) + 2;
    const std::uint64_t word = sync::LoadSharedWord(at - 2);
    if ((word & 0x80ff) != key.size() || key.size() >= format::kShortLength || !sync::EqualShared(at, key.data(), key.size())) [[unlikely]]
      return false;
    auto size = static_cast<std::size_t>(word >> 8 & 127);
    if (char* out = RoomFor(sink, at + key.size(), &size)) sync::LoadShared(out, at + key.size(), size);
    return true;
  }
  template <class S, class C>
  Match TryFetch(std::uint32_t handle, std::string_view key, S& sink, const C& is_current, FetchedCopy& copy) const {
    const char* at = At(handle);
    const format::Lengths lengths = ReadLengths(at);
    if (lengths.key_size != key.size()) return Match::kNo;
    if (!IsInside(handle, lengths)) return Match::kDamaged;
    if (!sync::EqualShared(at + lengths.header, key.data(), key.size())) return Match::kNo;
    if (lengths.value_size > kOptimisticValueMax && !is_current()) return Match::kDamaged;
    if (char* out = sink(static_cast<std::size_t>(lengths.value_size))) {
      sync::LoadShared(out, at + lengths.header + lengths.key_size, static_cast<std::size_t>(lengths.value_size));
      copy.value = out;
    }
    return Match::kYes;
  }

  template <class C, class B>
  HAKO_INLINE Match CopyRecord(std::uint32_t handle, const C& is_current, B& buffer, RecordCopy* copy) const {
    const char* at = At(handle);
    const format::Lengths lengths = ReadLengths(at);
    const auto size = static_cast<std::size_t>(lengths.key_size + lengths.value_size);
    if (size >= 2 * format::kShortLength) [[unlikely]] {
      if (!IsInside(handle, lengths) || (size > kOptimisticValueMax && !is_current())) return Match::kDamaged;
    }
    char* out = buffer.Take(size);
    sync::LoadShared(out, at + lengths.header, size);
    *copy = {out, lengths.key_size, lengths.value_size};
    return lengths.header != 0 ? Match::kYes : Match::kDamaged;
  }

  bool CopyIsIntact(const FetchedCopy&, std::uint64_t) const { return true; }
  Status DamageAt(std::uint32_t handle) const { return absl::InternalError(absl::StrCat("corrupt memory in block ", handle)); }

  Match MatchKey(std::uint32_t handle, std::string_view key, format::Lengths* lengths) const {
    const char* at = At(handle);
    *lengths = ReadLengths(at);
    if (lengths->key_size != key.size()) return Match::kNo;
    return sync::EqualShared(at + lengths->header, key.data(), key.size()) ? Match::kYes : Match::kNo;
  }

  StatusOr<RecordView> View(WriterState&, std::uint32_t handle) const {
    const char* at = At(handle);
    const format::Lengths lengths = ReadLengths(at);
    const std::string_view body(at + lengths.header, lengths.key_size + lengths.value_size);
    return RecordView{body.substr(0, lengths.key_size), body.substr(lengths.key_size)};
  }

  std::uint32_t Write(WriterState& writer, std::uint64_t, std::string_view key, std::string_view value, Status* error) {
    if (value.size() > kValueSizeMax) [[unlikely]] {
      *error = TooLargeError("a value", value.size(), kValueSizeMax);
      return 0;
    }
    const unsigned size_class = ClassOf(key.size(), value.size());
    std::uint32_t handle = 0;
    if (pool_->IsSmall(size_class)) [[likely]]
      handle = TakeSmall(writer, size_class);
    if (handle == 0) handle = CarveSlowly(writer, size_class, error);
    if (handle == 0) [[unlikely]]
      return 0;
    Put(handle, key, value);
    return handle;
  }

  // Write for a long value, while the caller holds no lock.
  std::uint32_t WriteAhead(WriterState& writer, std::uint64_t hash, std::string_view key, std::string_view value, Status* error);
  Status EndAhead(WriterState&, std::uint32_t) { return absl::OkStatus(); }

  bool Overwrite(std::uint32_t handle, const format::Lengths& old, std::string_view key, std::string_view value) {
    char* at = At(handle);
    if (old.value_size != value.size()) {
      if (value.size() > kValueSizeMax || format::LengthsSize(key.size(), value.size()) != old.header) return false;
      if (ClassOf(key.size(), value.size()) != ClassOf(old.key_size, old.value_size)) return false;
      char lengths[format::kLengthsMax];
      sync::StoreSharedHeader<2>(at, lengths, format::EncodeLengths(lengths, key.size(), value.size()));
    }
    sync::StoreShared(at + old.header + key.size(), value.data(), value.size());
    return true;
  }

  // Appends both pieces to the value. Returns false if its block has no room for them.
  bool Extend(std::uint32_t handle, const format::Lengths& old, std::string_view piece, std::string_view other) {
    const std::uint64_t value_size = old.value_size + piece.size() + other.size();
    if (value_size > kValueSizeMax || format::LengthsSize(old.key_size, value_size) != old.header) return false;
    if (ClassOf(old.key_size, value_size) != ClassOf(old.key_size, old.value_size)) return false;
    char lengths[format::kLengthsMax];
    char* const at = At(handle);
    sync::StoreSharedHeader<2>(at, lengths, format::EncodeLengths(lengths, old.key_size, value_size));
    char* const end = at + old.header + old.key_size + old.value_size;
    sync::StoreShared(end, piece.data(), piece.size());
    sync::StoreShared(end + piece.size(), other.data(), other.size());
    return true;
  }

  void Commit(std::uint32_t) {}
  void Revive(std::uint32_t) {}

  void Retire(WriterState& writer, std::uint32_t handle, const format::Lengths& lengths) {
    FreeBlock(writer, ClassOf(lengths.key_size, lengths.value_size), handle);
  }
  void ReleaseFreed(WriterState&) {}
  void Retire(WriterState& writer, std::uint32_t handle) { Retire(writer, handle, ReadLengths(At(handle))); }

  // ---- short records ----
  HAKO_INLINE bool MatchShort(std::uint32_t handle, std::string_view key, std::uint64_t* head) const {
    const char* const at = At(handle);
    *head = sync::LoadSharedWord(at);
    return (*head & 0x80ff) == key.size() && key.size() < format::kShortLength && sync::EqualShared(at + 2, key.data(), key.size());
  }
  HAKO_INLINE std::optional<std::string_view> ViewShort(std::uint32_t handle, std::uint64_t head, std::uint64_t) const {
    return std::string_view(At(handle) + 2 + KeySizeOf(head), ValueSizeOf(head));
  }
  HAKO_INLINE std::uint32_t WriteShort(WriterState& writer, std::uint64_t, std::string_view key, std::string_view value) {
    if ((key.size() | value.size()) >= format::kShortLength) [[unlikely]]
      return 0;
    const unsigned size_class = ShortClassOf(key.size(), value.size());
    const std::uint32_t handle = TakeSmall(writer, size_class);
    if (handle == 0) [[unlikely]]
      return 0;
    char* const at = At(handle);
    StoreShortLengths(at, key.size(), value.size());
    sync::StoreShared(at + 2, key.data(), key.size());
    sync::StoreShared(at + 2 + key.size(), value.data(), value.size());
    return handle;
  }
  void GiveBack(WriterState& writer, std::uint32_t handle, std::uint64_t key_size, std::uint64_t value_size) {
    FreeBlock(writer, ClassOf(key_size, value_size), handle);
  }
  HAKO_INLINE bool OverwriteShort(std::uint32_t handle, std::uint64_t head, std::string_view value) {
    const std::uint64_t key_size = KeySizeOf(head);
    if (value.size() != ValueSizeOf(head)) {
      if (value.size() >= format::kShortLength || ShortClassOf(key_size, value.size()) != ShortClassOf(key_size, ValueSizeOf(head)))
        return false;
      StoreShortLengths(At(handle), key_size, value.size());
    }
    sync::StoreShared(At(handle) + 2 + key_size, value.data(), value.size());
    return true;
  }
  HAKO_INLINE void RetireShort(WriterState& writer, std::uint32_t handle, std::uint64_t head) {
    pool_->Push(writer.free, ShortClassOf(KeySizeOf(head), ValueSizeOf(head)), handle);
  }

  // REQUIRES: writers kept out
  template <class ForEachWriter>
  std::uint64_t FreeBytes(ForEachWriter&& for_each_writer) const {
    std::uint64_t bytes = pool_->free_bytes();
    for_each_writer([&](WriterState& writer) {
      gate_.AssertKeptOut(writer);
      bytes += writer.chunk.bytes();
      for (unsigned c = 0; pool_->IsSmall(c); ++c) pool_->ForEach(writer.free, c, [&](std::uint32_t) { bytes += BytesOf(c); });
    });
    return bytes;
  }
  std::uint64_t total_bytes() const {
    if (limit_ == nullptr) return arena_->end();
    return arena_->end() - storage::Arena::kExtentAlignment - holes_.load(std::memory_order_relaxed) + index_bytes() +
           index_bytes() / LineUses::kLinesPerByte + pool_->magazine_memory() + RecordLimit::kBeside;
  }
  // A record may take a quarter of the capacity.
  Status CheckSize(std::uint64_t key_size, std::uint64_t value_size) const { return CheckBlock(BytesOf(ClassOf(key_size, value_size))); }
  Status CheckBlock(std::uint64_t bytes) const;
  std::uint64_t index_bytes() const { return index_bytes_.load(std::memory_order_relaxed); }

 protected:
  RecordArena(std::unique_ptr<storage::Arena> arena, std::unique_ptr<FreeBlockPool> pool, int shift, std::uint64_t seed)
      : arena_(std::move(arena)),
        pool_(std::move(pool)),
        index_arena_(arena_.get()),
        base_(reinterpret_cast<char*>(arena_->base())),
        shift_(static_cast<unsigned>(shift)),
        seed_(seed) {}

 private:
  static constexpr std::uint64_t kOptimisticValueMax = 4096;  // longer values need a current version
  // Memory kept for the last extent of the index within a limit, and for the use bits of its lines.
  static constexpr std::uint64_t kKeptForIndex =
      storage::Arena::kExtentAlignment + storage::Arena::kExtentAlignment / LineUses::kLinesPerByte;

  std::uint64_t BeginOf(std::uint32_t handle) const { return std::uint64_t{handle} << shift_; }
  HAKO_INLINE std::uint32_t HandleAt(std::uint64_t begin) const { return static_cast<std::uint32_t>(begin >> shift_); }
  // REQUIRES: no other thread writes or frees the record (unchecked: its bucket is not known here)
  Part PartOf(std::uint32_t handle) const {
    const format::Lengths lengths = ReadLengths(At(handle));
    return {BeginOf(handle), BeginOf(handle) + BytesOf(ClassOf(lengths.key_size, lengths.value_size))};
  }
  HAKO_INLINE char* At(std::uint32_t handle) const { return base_ + BeginOf(handle); }

  HAKO_INLINE static format::Lengths ReadLengths(const char* at) {
    const std::uint64_t word = sync::LoadSharedWord(at);
    if ((word & 0x8080) == 0) [[likely]]
      return {2, word & 127, (word >> 8) & 127};
    char bytes[format::kLengthsMax];
    sync::LoadShared(bytes, at, sizeof(bytes));
    return format::DecodeLengths(bytes, sizeof(bytes));
  }

  HAKO_INLINE bool IsInside(std::uint32_t handle, const format::Lengths& lengths) const {
    const std::uint64_t end = (std::uint64_t{handle} << shift_) + lengths.header + lengths.key_size + lengths.value_size;
    return lengths.header != 0 && end <= arena_->end();
  }

  static std::uint64_t KeySizeOf(std::uint64_t short_head) { return short_head & 127; }
  static std::uint64_t ValueSizeOf(std::uint64_t short_head) { return short_head >> 8 & 127; }
  HAKO_INLINE static void StoreShortLengths(char* at, std::uint64_t key_size, std::uint64_t value_size) {
    const auto lengths = static_cast<std::uint16_t>(key_size | value_size << 8);
    sync::StoreShared(at, reinterpret_cast<const char*>(&lengths), sizeof(lengths));
  }
  HAKO_INLINE unsigned ShortClassOf(std::uint64_t key_size, std::uint64_t value_size) const {
    return format::SizeClassOf((2 + key_size + value_size + (std::uint64_t{1} << shift_) - 1) >> shift_);
  }
  unsigned ClassOf(std::uint64_t key_size, std::uint64_t value_size) const {
    const std::uint64_t bytes = format::LengthsSize(key_size, value_size) + key_size + value_size;
    return format::SizeClassOf((bytes + (std::uint64_t{1} << shift_) - 1) >> shift_);
  }
  std::uint64_t BytesOf(unsigned size_class) const { return format::UnitsOf(size_class) << shift_; }

  void Put(std::uint32_t handle, std::string_view key, std::string_view value) {
    char lengths[format::kLengthsMax];
    const unsigned header = format::EncodeLengths(lengths, key.size(), value.size());
    char* at = At(handle);
    sync::StoreSharedHeader<2>(at, lengths, header);
    sync::StoreShared(at + header, key.data(), key.size());
    sync::StoreShared(at + header + key.size(), value.data(), value.size());
  }

  // Takes one of the thread's own free small blocks, or one from its chunk; 0 if there is none.
  HAKO_INLINE std::uint32_t TakeSmall(WriterState& writer, unsigned size_class) {
    const std::uint32_t handle = pool_->Pop<FreeBlockPool::kRest>(writer.free, size_class);
    return handle != 0 ? handle : Carve(writer, size_class);
  }
  // Takes a small block from the thread's chunk; 0 if it does not fit.
  HAKO_INLINE std::uint32_t Carve(WriterState& writer, unsigned size_class) {
    const std::uint64_t bytes = BytesOf(size_class);
    ChunkRest& chunk = writer.chunk;
    if (chunk.bytes() < bytes) [[unlikely]]
      return 0;
    const auto handle = HandleAt(chunk.next);
    chunk.next += bytes;
    return handle;
  }

  // Takes a block of any size from free space, else from new memory; 0 with an error.
  [[gnu::noinline]] std::uint32_t CarveSlowly(WriterState& writer, unsigned size_class, Status* error) {
    const std::uint64_t bytes = BytesOf(size_class);
    const bool small = pool_->IsSmall(size_class);
    if (*error = CheckBlock(bytes); !error->ok()) return 0;
    if (small) pool_->FreeRun(Rest(std::exchange(writer.chunk, {})));
    for (bool gathered = false;;) {
      if (!small) {
        if (const Run block = pool_->TakeBlock(bytes); block.bytes() != 0) return NoteLarge(HandleAt(block.begin), bytes);
      } else if (writer.chunk = pool_->TakeChunk(bytes, ChunkBytes()); writer.chunk.bytes() != 0) {
        return Carve(writer, size_class);
      }
      if (!std::exchange(gathered, true)) {
        pool_->Flush(writer.free, FreeBlockPool::kFree, FreeBlockPool::kUnstamped);
        continue;
      }
      if (*error = Grow(bytes); error->ok()) continue;
      const std::uint32_t handle = small ? pool_->Pop(writer.free, size_class) : 0;
      if (handle != 0) *error = absl::OkStatus();
      return handle == 0 && MayEvict(*error) ? CarveByEviction(writer, size_class, error) : handle;
    }
  }
  Status Grow(std::uint64_t bytes);

  HAKO_INLINE storage::Arena& index_arena() const { return *index_arena_; }
  std::uint64_t byte_limit() const { return limit_ != nullptr ? limit_->capacity().bytes : 0; }  // 0 = none
  // The most bytes of a thread's chunk.
  std::uint64_t ChunkBytes() const { return byte_limit() == 0 ? FreeBlockPool::kRegion : limit_->ChunkBytes(); }
  // Whether an allocation failed with this error because of the limit.
  bool MayEvict(const Status& error) const { return byte_limit() != 0 && absl::IsResourceExhausted(error); }
  std::uint32_t CarveByEviction(WriterState& writer, unsigned size_class, Status* error);
  std::uint64_t EvictNextWindow(WriterState& writer, bool chooses);
  // A block whose first bytes look like a record, and the hash of the record's key.
  struct SeenBlock {
    Part block;
    std::optional<std::uint64_t> hash;
  };
  template <class P, class F>
  void WalkRegion(std::uint64_t at, Part visited, P&& prefetch, F&& visit) const;
  std::uint64_t FirstBlockIn(std::uint64_t region) const;
  SeenBlock See(std::uint64_t begin) const;
  void FreeGap(WriterState& writer, Part gap);
  void StoreLengths(std::uint32_t handle, std::uint64_t bytes);
  std::uint32_t CarveLarge(WriterState& writer, unsigned size_class, Status* error);
  std::uint32_t CarveWindow(WriterState& writer, unsigned size_class);
  RecordWindows Survey(WriterState& writer, Part section, Part least);
  static constexpr std::uint64_t kMovedOf = 4;  // at most one of this many bytes of a window is moved out of it
  std::optional<Part> EmptyWindow(WriterState& writer, std::uint64_t bytes);
  ChunkRest MakeRoomToMove(WriterState& writer, RecordWindows* windows, const RecordWindows::Window& window, unsigned levels);
  void EvictWindow(WriterState& writer, Part window, ChunkRest room);
  std::uint32_t NoteLarge(std::uint32_t handle, std::uint64_t bytes) {
    if (byte_limit() != 0) {
      StoreLengths(handle, bytes);
      limit_->NoteLarge(handle, bytes);
      large_blocks_.Add({BeginOf(handle), BeginOf(handle) + bytes}, handle);
    }
    return handle;
  }
  void FreeBlock(WriterState& writer, unsigned size_class, std::uint32_t handle) {
    if (!pool_->IsSmall(size_class) && byte_limit() != 0) large_blocks_.Remove({BeginOf(handle), BeginOf(handle) + BytesOf(size_class)});
    pool_->FreeBlock(writer.free, size_class, handle);
  }
  std::uint64_t ReturnExtents(WriterState& writer, std::uint64_t asked);
  std::uint32_t TakeFreed(WriterState& writer, unsigned size_class);
  StatusOr<std::uint64_t> TakeIndexExtent(std::uint64_t bytes, IndexExtent kind);
  Status SetLimit(const Capacity& capacity);
  static Status NoRoomError() {
    return absl::ResourceExhaustedError("the records that could be evicted leave no room: the others are in use, or cannot be removed");
  }

  std::unique_ptr<storage::Arena> arena_;
  std::unique_ptr<FreeBlockPool> pool_;
  std::unique_ptr<storage::Arena> separate_;  // memory of the index, where there is a limit
  storage::Arena* index_arena_;               // separate_, or arena_
  storage::ReservedMemory uses_;              // of the lines
  std::unique_ptr<RecordLimit> limit_;
  LargeBlocks large_blocks_;  // where bytes are limited
  char* base_;
  unsigned shift_;
  std::uint64_t seed_;
  std::atomic<std::uint64_t> index_bytes_{0};
  std::atomic<std::uint64_t> holes_{0};          // bytes of the arena that were returned in favour of the index
  std::atomic<std::uint64_t> applied_index_{0};  // see dbm/write_batch.h
  sync::WriteGate gate_;
};

static_assert(RecordSpace<RecordArena>);

}  // namespace hako::hash

#include "hako/hash/memory/record_arena-inl.h"
#include "hako/hash/memory/record_room-inl.h"
#include "hako/hash/memory/record_walk-inl.h"
