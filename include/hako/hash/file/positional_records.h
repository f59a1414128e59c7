// Reading and writing the records of a file that is not mapped, with ReadAt and WriteAt. The index
// is in memory (hash/file/mapped_records.h has the same interface for mapped files).
//
// The size of a record is not known before it is read, so SizeGuess chooses the length of the first
// read. A longer record takes a second read.
//
// Invariants
//   1. Bytes that were read stay in the thread's buffer, or in the Ahead that read them, until the
//      thread reads another record.
//   2. A record is written with a live stamp, because the writes of a killed process do not count
//      anyway. Only a record of WriteAhead is unborn until EndPut.
//   3. When a record is written, at most kPiece bytes of it are in memory in addition to the
//      caller's.
//   4. A writer reports each move of an entry to the tracker before anything reveals the move
//      (hash/file/scan_tracker.h).
//   5. The first failed write poisons the heap.
//
// Thread-safe.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hako/base/hash_stream.h"
#include "hako/base/inline.h"
#include "hako/base/no_memory.h"
#include "hako/base/scratch_buffer.h"
#include "hako/base/status.h"
#include "hako/file/file.h"
#include "hako/hash/file/heap_file.h"
#include "hako/hash/file/read_ahead.h"
#include "hako/hash/file/scan_tracker.h"
#include "hako/hash/file/size_guess.h"
#include "hako/hash/file/stored_value.h"
#include "hako/hash/free/chunk.h"
#include "hako/sync/atomic_bytes.h"

namespace hako::hash {

template <File FileT>
class PositionalRecords : public HeapFile<FileT> {
  using Heap = HeapFile<FileT>;
  struct NoReadAhead {};

 public:
  static constexpr bool kMapped = false;
  static constexpr bool kReadsAhead = BatchFile<FileT>;
  // Whether the block of a retired small record keeps its stamp until it is used again.
  static constexpr bool kStampsLate = true;
  using Ahead = std::conditional_t<kReadsAhead, ReadAhead, NoReadAhead>;
  using Heap::CheckOf, Heap::OffsetOf, Heap::stamps;
  using typename Heap::Head;

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
  // Returns how many records that are read together stay in the cache of the file, so that later
  // single reads are cheap; 0 without a cache.
  std::uint64_t CachedRecords() const {
    if constexpr (requires { extents_->file().cache_bytes(); })
      return extents_->file().cache_bytes() / std::max<std::uint64_t>(guess_.Get(), block_);
    return 0;
  }
  // Records that needed a second read because the first was too short.
  std::uint64_t second_reads() const { return second_reads_.load(std::memory_order_relaxed); }

  // Does nothing: only memory can be prefetched.
  static void Prefetch(std::uint32_t) {}
  static void PrefetchRest(std::uint32_t) {}

  // For a scan in file order.
  ScanTracker& move_tracker() { return move_tracker_; }
  HAKO_INLINE void NoteMove(std::uint32_t old, std::uint32_t fresh) { move_tracker_.Note(old, fresh); }
  void ForgetMoves() { move_tracker_.ForgetAll(); }

  template <class S, class C>
  Match TryFetch(std::uint32_t handle, std::string_view key, S& sink, const C& is_current, FetchedCopy& copy) const;
  Status DamageAt(std::uint32_t handle) const;
  void Commit(std::uint32_t) {}

  // Does nothing: the fast paths need short records in memory.
  template <class S>
  static bool TryFetchShort(std::uint32_t, std::uint64_t, std::string_view, S&) {
    return false;
  }
  static bool MatchShort(std::uint32_t, std::string_view, std::uint64_t*) { return false; }
  static std::optional<std::string_view> ViewShort(std::uint32_t, std::uint64_t, std::uint64_t) { return std::nullopt; }

  // Whether an entry may name a record with this stamp.
  HAKO_INLINE bool MayBeNamed(format::Stamp stamp) const { return stamp.IsLive() || KeepsStamps(); }
  // Whether an entry names a record with this stamp.
  bool IsNamed(format::Stamp stamp) const { return KeepsStamps() ? stamp.BelongsTo(extents_->super().epoch) : stamp.IsLive(); }
  void StoreStamp(std::uint32_t handle, format::Stamp stamp) {
    const std::uint16_t bits = stamp.bits();
    if (this->Health().ok() && !KeepsStamps())
      (void)this->WriteOrPoison(OffsetOf(handle) + Heap::kStampAt, {reinterpret_cast<const char*>(&bits), sizeof(bits)});
  }

 protected:
  using Heap::extents_;
  using Heap::IsInside;
  using Heap::IsPlace;
  using Value = StoredValue<FileT>;  // of a long record, where it is

  PositionalRecords(std::unique_ptr<ExtentFile<FileT>> extents, std::uint64_t min_read_size)
      : Heap(std::move(extents)), min_read_size_(min_read_size) {
    if constexpr (requires { extents_->file().block_size(); }) block_ = extents_->file().block_size();
    if (block_ > 1) place_unit_ = std::max(block_, kDevicePage);
  }

  static std::uint64_t KeySizeOf(std::uint64_t) { return 0; }
  static std::uint64_t ValueSizeOf(std::uint64_t) { return 0; }

  enum class Wanted { kKey, kRecord };
  // Reads the record, or its head and key, into this thread's buffer until the next call.
  Match Load(std::uint32_t handle, Head* head, const char** bytes, Wanted wanted = Wanted::kRecord, Status* status = nullptr) const;
  template <class B>
  static std::optional<Match> CopyShort(std::uint32_t, B&, RecordCopy*) {
    return std::nullopt;
  }
  Value ValueOf(std::uint32_t handle, const std::string& key, const Head& head, const char*) const {
    const std::uint64_t seed = format::RecordCheckSeed(this->KeyHash(key), OffsetOf(handle), this->secret_);
    return {*extents_, OffsetOf(handle), head.key_at() + key.size(), head.lengths.value_size, seed, head.check};
  }

  // The stamp of a record that is written under its bucket's lock.
  format::Stamp fresh_stamp() const { return stamps().live; }
  format::Stamp LoadStamp(std::uint32_t handle, Status* status = nullptr) const {
    std::uint16_t bits = 0;
    Status read = extents_->Read(OffsetOf(handle) + Heap::kStampAt, reinterpret_cast<char*>(&bits), sizeof(bits));
    if (status != nullptr) *status = std::move(read);
    return format::Stamp(bits);
  }
  // Writes a record into a block that no entry names yet. Direct I/O writes the whole block, so that
  // nothing has to be read first. The check of a StoredValue is known only after the value was
  // read, so the head is then written again.
  template <class V>
  Status Put(OwnedScratch& buffer, std::uint32_t handle, format::Stamp stamp, std::uint64_t key_hash, std::string_view key, V&& value);
  static void PutShort(std::uint32_t, std::uint64_t, std::string_view, std::string_view) {}
  // Makes a record that was written before it is published live.
  Status EndPut(std::uint32_t handle) {
    StoreStamp(handle, stamps().live);
    return this->Health();
  }

  // Where in the rest of a chunk a block of `bytes` goes. With direct I/O, a block that fits into
  // one place unit does not cross the end of a place unit, and a larger block begins at the start
  // of one.
  std::uint64_t PlaceIn(const ChunkRest& chunk, std::uint64_t bytes) const {
    const std::uint64_t within = chunk.next & (place_unit_ - 1);
    const bool fits = within == 0 || within + bytes <= place_unit_;
    return fits ? chunk.next : chunk.next - within + place_unit_;
  }
  std::uint64_t place_unit() const { return place_unit_; }

 private:
  static constexpr std::uint64_t kPiece = 1 << 20;    // bytes written at once
  static constexpr std::uint64_t kDevicePage = 4096;  // what most devices read at once

  // Whether stamps stay as a crash has left them, because the file is read-only.
  HAKO_INLINE bool KeepsStamps() const { return !extents_->file().IsWritable(); }
  // Returns how many bytes to read of a record of unknown size. Too many cost little; too few cost
  // a second access.
  std::uint64_t FirstRead(std::uint64_t offset) const {
    const std::uint64_t end = offset + (min_read_size_ != 0 ? min_read_size_ : guess_.Get());
    return std::min((end + block_ - 1) & ~(block_ - 1), extents_->tail()) - offset;
  }

  const std::uint64_t min_read_size_;
  std::uint64_t block_ = 1;       // unit of transfers in direct I/O
  std::uint64_t place_unit_ = 1;  // bytes that the device reads at once
  mutable SizeGuess guess_;
  mutable std::atomic<std::uint64_t> second_reads_{0};
  ScanTracker move_tracker_;
};

template <File FileT>
Match PositionalRecords<FileT>::Load(std::uint32_t handle, Head* head, const char** bytes, Wanted wanted, Status* status) const {
  const std::uint64_t offset = OffsetOf(handle);
  if (!IsPlace(offset)) return Match::kDamaged;
  ScratchBuffer& buffer = ThreadScratch<PositionalRecords>::Get();
  buffer.Trim();
  const auto failed = [status](const Status& read) {
    if (status != nullptr) *status = read;
    return !read.ok();
  };
  // Extends the buffer from the first `had` to `size` bytes of the record.
  const auto read_rest = [&](std::uint64_t had, std::uint64_t size) {
    char* const out = buffer.Take(size, had);
    return !failed(out == nullptr ? NoMemoryError() : extents_->Read(offset + had, out + had, size - had));
  };
  std::span<const std::byte> ready;
  if constexpr (kReadsAhead) ready = Ahead::Take(&extents_->file(), handle);
  const std::uint64_t first = ready.empty() ? FirstRead(offset) : ready.size();
  if (ready.empty() && !read_rest(0, first)) return Match::kFailed;
  *bytes = ready.empty() ? buffer.data() : reinterpret_cast<const char*>(ready.data());
  *head = Heap::DecodeHead(*bytes, std::min(first, Heap::kHeadMax));
  if (!IsInside(offset, *head)) return Match::kDamaged;
  guess_.Note(head->size());
  const std::uint64_t size = wanted == Wanted::kKey ? head->key_at() + head->lengths.key_size : head->size();
  if (size > first) {
    second_reads_.fetch_add(1, std::memory_order_relaxed);
    if (!ready.empty()) {
      char* const out = buffer.Take(first);
      if (out == nullptr) return failed(NoMemoryError()), Match::kFailed;
      std::memcpy(out, ready.data(), first);
    }
    if (!read_rest(first, size)) return Match::kFailed;
    *bytes = buffer.data();
  }
  return Match::kYes;
}

template <File FileT>
template <class S, class C>
Match PositionalRecords<FileT>::TryFetch(std::uint32_t handle, std::string_view key, S& sink, const C& is_current,
                                         FetchedCopy& copy) const {
  Head head;
  const char* at = nullptr;
  if (const Match match = Load(handle, &head, &at); match != Match::kYes) return match;
  if (head.lengths.key_size != key.size() || !sync::EqualBytes(at + head.key_at(), key.data(), key.size())) return Match::kNo;
  if (!is_current() || !MayBeNamed(head.stamp)) return Match::kDamaged;
  copy = {nullptr, head.lengths.key_size, head.lengths.value_size, OffsetOf(handle), head.check};
  if (char* out = sink(static_cast<std::size_t>(copy.value_size))) {
    sync::CopyBytes(out, at + head.key_at() + copy.key_size, static_cast<std::size_t>(copy.value_size));
    copy.value = out;
  }
  return Match::kYes;
}

// The device may have failed, perhaps only for a moment.
template <File FileT>
Status PositionalRecords<FileT>::DamageAt(std::uint32_t handle) const {
  Head head;
  const char* at = nullptr;
  Status status;
  const Match match = Load(handle, &head, &at, Wanted::kRecord, &status);
  if (match == Match::kFailed) return status;
  if (match == Match::kYes && MayBeNamed(head.stamp) && this->IsIntact(head, head.In(at), OffsetOf(handle)))
    return absl::UnavailableError(absl::StrCat("a read of the record at offset ", OffsetOf(handle), " failed, but succeeds now"));
  return DataLossError("a record fails its checksum", OffsetOf(handle));
}

template <File FileT>
template <class V>
Status PositionalRecords<FileT>::Put(OwnedScratch& buffer, std::uint32_t handle, format::Stamp stamp, std::uint64_t key_hash,
                                     std::string_view key, V&& value) {
  static constexpr bool kIsStored = std::is_same_v<std::remove_cvref_t<V>, Value>;
  const std::uint64_t offset = OffsetOf(handle);
  std::uint32_t check = 0;
  if constexpr (!kIsStored) check = CheckOf(value, key_hash, offset);
  char head[format::kRecordHeadMax];
  const std::uint64_t key_at = this->EncodeHead(head, check, stamp, key.size(), value.size(), offset), value_at = key_at + key.size();
  const std::uint64_t used = value_at + value.size();
  const std::uint64_t size = block_ > 1 ? this->BytesOf(this->ClassOf(key.size(), value.size())) : used;
  const ScratchUse use(buffer);
  char* const piece = buffer.Take(static_cast<std::size_t>(std::min(size, kPiece)));
  if (piece == nullptr) return NoMemoryError();
  [[maybe_unused]] std::conditional_t<kIsStored, HashStream, std::uint64_t> hash(format::RecordCheckSeed(key_hash, offset, this->secret_));
  for (std::uint64_t begin = 0; begin < size; begin += kPiece) {
    const std::uint64_t end = std::min(begin + kPiece, size);
    // Calls copy(to, from, bytes) for the part of [at, at + bytes) that lies in this piece.
    const auto in_piece = [&](std::uint64_t at, std::uint64_t bytes, auto&& copy) {
      const std::uint64_t first = std::max(at, begin), last = std::min(at + bytes, end);
      if (first < last) copy(piece + (first - begin), first - at, static_cast<std::size_t>(last - first));
    };
    Status status;
    in_piece(0, key_at, [&](char* to, std::uint64_t from, std::size_t bytes) { std::memcpy(to, head + from, bytes); });
    in_piece(key_at, key.size(), [&](char* to, std::uint64_t from, std::size_t bytes) { sync::CopyBytes(to, key.data() + from, bytes); });
    in_piece(value_at, value.size(), [&](char* to, [[maybe_unused]] std::uint64_t from, std::size_t bytes) {
      if constexpr (kIsStored) {
        status = value.Read(to, bytes);
        hash.Add(to, bytes);
      } else {
        sync::CopyBytes(to, value.data() + from, bytes);
      }
    });
    in_piece(used, size - used, [&](char* to, std::uint64_t, std::size_t bytes) { std::memset(to, 0, bytes); });
    HAKO_RETURN_IF_ERROR(status);
    HAKO_RETURN_IF_ERROR(this->WriteOrPoison(offset + begin, {piece, static_cast<std::size_t>(end - begin)}));
  }
  if constexpr (kIsStored) {
    HAKO_RETURN_IF_ERROR(value.Verify());
    (void)this->EncodeHead(head, static_cast<std::uint32_t>(hash.Get()), stamp, key.size(), value.size(), offset);
    return this->WriteOrPoison(offset, {head, static_cast<std::size_t>(key_at)});
  }
  return absl::OkStatus();
}

}  // namespace hako::hash
