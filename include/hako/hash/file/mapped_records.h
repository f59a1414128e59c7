// Reading and writing the records of a mapped file, in place. The index is in the file too
// (hash/file/positional_records.h has the same interface for all other files).
//
// Invariants
//   1. A reader without a lock reads bytes that may change. It copies the bytes on which it
//      decides, and never follows a length beyond the end of the file. The caller validates the
//      result.
//   2. A record is unborn until Commit makes it live, once an entry names it, because the stores of
//      a killed process count.
//   3. An intent word is 0 or names an intent. The thread of the intent waits for nothing until it
//      has cleared the word.
//
// Thread-safe.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hako/base/hash.h"
#include "hako/base/inline.h"
#include "hako/base/prefetch.h"
#include "hako/base/scratch_buffer.h"
#include "hako/base/status.h"
#include "hako/base/visitor_ref.h"
#include "hako/file/file.h"
#include "hako/format/hash_file_format.h"
#include "hako/format/intent_format.h"
#include "hako/hash/file/heap_file.h"
#include "hako/hash/free/chunk.h"
#include "hako/sync/atomic_bytes.h"
#include "hako/sync/version_lock.h"
#include "hako/sync/writer_states.h"

namespace hako::hash {

template <MappedFile FileT>
class MappedRecords : public HeapFile<FileT> {
  using Heap = HeapFile<FileT>;

 public:
  static constexpr bool kMapped = true;
  static constexpr bool kReadsAhead = false;
  // Whether the block of a retired small record keeps its stamp until it is used again.
  static constexpr bool kStampsLate = false;
  using Heap::CheckOf, Heap::OffsetOf, Heap::stamps;
  using typename Heap::Head;

  // A mapped file is in memory: nothing is read ahead.
  struct Ahead {};
  static void Want(Ahead&, std::uint32_t) {}
  static void Read(Ahead&) {}
  static std::uint64_t CachedRecords() { return 0; }
  static bool IsDirect() { return false; }
  static std::uint64_t second_reads() { return 0; }
  // Scans go by buckets, which need no tracker.
  HAKO_INLINE static void NoteMove(std::uint32_t, std::uint32_t) {}
  static void ForgetMoves() {}

  HAKO_INLINE void Prefetch(std::uint32_t handle) const {
    hako::Prefetch(base_ + OffsetOf(handle));
    hako::Prefetch(base_ + OffsetOf(handle) + 31);  // often the next cache line
  }
  HAKO_INLINE void PrefetchRest(std::uint32_t handle) const {
    if (!IsPlace(OffsetOf(handle))) return;
    const char* at = base_ + OffsetOf(handle);
    const std::uint64_t size = std::min<std::uint64_t>(HeadOf(OffsetOf(handle)).size(), 512);
    for (std::uint64_t last = size; last > 32; last -= std::min<std::uint64_t>(last, 64)) hako::Prefetch(at + last - 1);
  }

  template <class S>
  HAKO_INLINE bool TryFetchShort(std::uint32_t handle, std::uint64_t key_hash, std::string_view key, S& sink) const;
  template <class S, class C>
  Match TryFetch(std::uint32_t handle, std::string_view key, S& sink, const C& is_current, FetchedCopy& copy) const;
  Status DamageAt(std::uint32_t handle) const { return DataLossError("a record fails its checksum", OffsetOf(handle)); }
  HAKO_INLINE bool MatchShort(std::uint32_t handle, std::string_view key, std::uint64_t* head) const {
    const std::uint64_t offset = OffsetOf(handle);
    return LoadShortHead(offset, key.size(), head) && sync::EqualShared(base_ + offset + format::kShortHead, key.data(), key.size());
  }
  HAKO_INLINE std::optional<std::string_view> ViewShort(std::uint32_t handle, std::uint64_t head, std::uint64_t key_hash) const {
    const std::uint64_t offset = OffsetOf(handle);
    const std::string_view value(base_ + offset + format::kShortHead + KeySizeOf(head), ValueSizeOf(head));
    if (static_cast<std::uint32_t>(head) != CheckOf(value, key_hash, offset)) [[unlikely]]
      return std::nullopt;
    return value;
  }
  HAKO_INLINE void Commit(std::uint32_t handle) { StoreStamp(handle, stamps().live); }

  HAKO_INLINE void StoreStamp(std::uint32_t handle, format::Stamp stamp) { StampOf(handle).store(stamp.bits(), std::memory_order_release); }
  std::atomic_ref<std::uint16_t> StampOf(std::uint32_t handle) const {
    return std::atomic_ref(*reinterpret_cast<std::uint16_t*>(base_ + OffsetOf(handle) + Heap::kStampAt));
  }

  // ---- intents (format/intent_format.h) ----
  // Publishes the intent by one store, the commit point of its changes. Different threads begin to
  // search for a word that is 0 at different words.
  unsigned PublishIntent(const sync::WriterState& writer, std::uint32_t handle, bool has_applied_index) {
    constexpr unsigned kOthers = format::kIntentWords - 1;
    unsigned word = has_applied_index ? 0 : 1 + static_cast<unsigned>(MixBits(reinterpret_cast<std::uintptr_t>(&writer)) % kOthers);
    for (sync::Backoff backoff;; backoff.Pause()) {
      std::uint64_t none = 0;
      if (extents_->IntentWord(word).compare_exchange_strong(none, handle, std::memory_order_seq_cst)) return word;
      if (!has_applied_index) word = word % kOthers + 1;
    }
  }
  void EndIntent(unsigned word) {
    extents_->IntentWord(word).store(0, std::memory_order_release);
    std::atomic_signal_fence(std::memory_order_seq_cst);  // later stores may reuse the blocks that the intent named
  }
  // The entries of a published intent.
  StatusOr<std::vector<format::IntentEntry>> LoadIntent(std::uint64_t handle) const;

  // Whether an entry may name a record with this stamp. Entries name live records only, but a
  // damaged entry may name an old version.
  HAKO_INLINE static bool MayBeNamed(format::Stamp stamp) { return stamp.IsLive(); }
  // Whether an entry names a record with this stamp.
  static bool IsNamed(format::Stamp stamp) { return stamp.IsLive(); }

 protected:
  using Heap::DecodeHead;
  using Heap::extents_;
  using Heap::IsInside;
  using Heap::IsPlace;
  using Heap::kHeadMax;
  using Value = std::string_view;  // of a long record, where it is

  MappedRecords(std::unique_ptr<ExtentFile<FileT>> extents, std::uint64_t)
      : Heap(std::move(extents)), base_(reinterpret_cast<char*>(extents_->base())) {}

  // The sizes in the first 8 bytes of a short record.
  static std::uint64_t KeySizeOf(std::uint64_t short_head) { return short_head >> 48 & 127; }
  static std::uint64_t ValueSizeOf(std::uint64_t short_head) { return short_head >> 56; }

  // Tells whether the caller needs the value. Ignored here, because all of the record is in the
  // map.
  enum class Wanted { kKey, kRecord };
  // Finds the record. Unless its bucket is locked, the caller validates the result.
  HAKO_INLINE Match Load(std::uint32_t handle, Head* head, const char** bytes, Wanted = Wanted::kRecord) const {
    const std::uint64_t offset = OffsetOf(handle);
    if (!IsPlace(offset)) return Match::kDamaged;
    *bytes = base_ + offset;
    *head = HeadOf(offset);
    return IsInside(offset, *head) ? Match::kYes : Match::kDamaged;
  }
  // Copies a short record. Returns nullopt if the record is not short.
  template <class B>
  HAKO_INLINE std::optional<Match> CopyShort(std::uint32_t handle, B& buffer, RecordCopy* copy) const;
  Value ValueOf(std::uint32_t, const std::string&, const Head& head, const char* bytes) const { return head.In(bytes).value; }

  // The stamp of a record that is written under its bucket's lock.
  format::Stamp fresh_stamp() const { return stamps().unborn; }
  HAKO_INLINE format::Stamp LoadStamp(std::uint32_t handle, Status* = nullptr) const {
    return format::Stamp(StampOf(handle).load(std::memory_order_relaxed));
  }
  // Writes a record into a block that no entry names yet.
  Status Put(OwnedScratch&, std::uint32_t handle, format::Stamp stamp, std::uint64_t key_hash, std::string_view key,
             std::string_view value);
  // As Put, for a short record.
  HAKO_INLINE void PutShort(std::uint32_t handle, std::uint64_t key_hash, std::string_view key, std::string_view value);
  // Makes a record that was written before it is published live. Does nothing here, because Commit
  // does that.
  static Status EndPut(std::uint32_t) { return absl::OkStatus(); }

  // Returns where in the rest of a chunk a block is placed, and the alignment of larger blocks.
  static std::uint64_t PlaceIn(const ChunkRest& chunk, std::uint64_t) { return chunk.next; }
  static constexpr std::uint64_t place_unit() { return 1; }

  char* const base_;

 private:
  // The bits in the first 8 bytes of a short live record that identify it as one: those of its
  // stamp, and the high bits of its lengths.
  static constexpr std::uint64_t kShortLiveMask = std::uint64_t{0x8080'0000'0000'0000} | std::uint64_t{format::Stamp::kLiveMask} << 32;
  static constexpr std::uint64_t kShortLiveWord = std::uint64_t{format::Stamp::kLiveBits} << 32;

  HAKO_INLINE Head HeadOf(std::uint64_t offset) const;
  // Loads the first 8 bytes of a record. False unless it is short, live, not at the file's very end,
  // and has a key of this size.
  HAKO_INLINE bool LoadShortHead(std::uint64_t offset, std::size_t key_size, std::uint64_t* word) const {
    if (key_size >= format::kShortLength || offset + format::kShortRecordMax > extents_->tail()) [[unlikely]]
      return false;
    constexpr std::uint64_t kMask = kShortLiveMask | std::uint64_t{0xff} << 48;
    *word = sync::LoadSharedWord(base_ + offset);
    return ((*word ^ (kShortLiveWord | key_size << 48)) & kMask) == 0;
  }
  // As above, for any key size.
  HAKO_INLINE bool LoadShortHead(std::uint64_t offset, std::uint64_t* word) const {
    if (offset + format::kShortRecordMax > extents_->tail()) [[unlikely]]
      return false;
    *word = sync::LoadSharedWord(base_ + offset);
    return (*word & kShortLiveMask) == kShortLiveWord;
  }
};

template <MappedFile FileT>
HAKO_INLINE typename MappedRecords<FileT>::Head MappedRecords<FileT>::HeadOf(std::uint64_t offset) const {
  const char* shared = base_ + offset;
  const std::uint64_t word = sync::LoadSharedWord(shared);
  if ((word & 0x8080'0000'0000'0000u) == 0) [[likely]] {
    return {static_cast<std::uint32_t>(word),
            format::Stamp(static_cast<std::uint16_t>(word >> 32)),
            {2, (word >> 48) & 127, (word >> 56) & 127}};
  }
  if (offset + kHeadMax > extents_->tail()) return {};  // too close to the end for long lengths
  char bytes[kHeadMax];
  sync::LoadShared(bytes, shared, sizeof(bytes));
  return DecodeHead(bytes, sizeof(bytes));
}

template <MappedFile FileT>
template <class S>
HAKO_INLINE bool MappedRecords<FileT>::TryFetchShort(std::uint32_t handle, std::uint64_t key_hash, std::string_view key, S& sink) const {
  const std::uint64_t offset = OffsetOf(handle);
  std::uint64_t word;
  if (!LoadShortHead(offset, key.size(), &word)) [[unlikely]]
    return false;
  const char* const at = base_ + offset + format::kShortHead;
  if (!sync::EqualShared(at, key.data(), key.size())) [[unlikely]]
    return false;
  const auto size = static_cast<std::size_t>(word >> 56);
  std::size_t wanted = size;
  char* const out = RoomFor(sink, at + key.size(), &wanted);
  if (out == nullptr) return true;
  sync::LoadShared(out, at + key.size(), wanted);
  return static_cast<std::uint32_t>(word) == CheckOf({sync::SharedOrCopy(at + key.size(), out), size}, key_hash, offset);
}

template <MappedFile FileT>
template <class S, class C>
Match MappedRecords<FileT>::TryFetch(std::uint32_t handle, std::string_view key, S& sink, const C& is_current, FetchedCopy& copy) const {
  const std::uint64_t offset = OffsetOf(handle);
  if (!IsPlace(offset)) return Match::kDamaged;
  const char* const at = base_ + offset;
  const Head head = HeadOf(offset);
  if (head.lengths.key_size != key.size()) return Match::kNo;
  if (!IsInside(offset, head) || !MayBeNamed(head.stamp)) return Match::kDamaged;
  if (!sync::EqualShared(at + head.key_at(), key.data(), key.size())) return Match::kNo;
  if (head.lengths.value_size > Heap::kOptimisticValueMax && !is_current()) return Match::kDamaged;
  copy = {nullptr, head.lengths.key_size, head.lengths.value_size, offset, head.check};
  if (char* out = sink(static_cast<std::size_t>(copy.value_size))) {
    sync::LoadShared(out, at + head.key_at() + copy.key_size, static_cast<std::size_t>(copy.value_size));
    copy.value = out;
  }
  return Match::kYes;
}

template <MappedFile FileT>
template <class B>
HAKO_INLINE std::optional<Match> MappedRecords<FileT>::CopyShort(std::uint32_t handle, B& buffer, RecordCopy* copy) const {
  const std::uint64_t offset = OffsetOf(handle);
  std::uint64_t word;
  if (!LoadShortHead(offset, &word)) [[unlikely]]
    return std::nullopt;
  const std::uint64_t key_size = KeySizeOf(word), value_size = ValueSizeOf(word);
  const char* const at = base_ + offset + format::kShortHead;
  char* const out = buffer.Take(static_cast<std::size_t>(key_size + value_size));
  sync::LoadShared(out, at, static_cast<std::size_t>(key_size + value_size));
  *copy = {out, key_size, value_size};
  return static_cast<std::uint32_t>(word) == CheckOf(copy->value(), this->KeyHash(copy->key()), offset) ? Match::kYes : Match::kDamaged;
}

template <MappedFile FileT>
StatusOr<std::vector<format::IntentEntry>> MappedRecords<FileT>::LoadIntent(std::uint64_t handle) const {
  Head head;
  const char* at = nullptr;
  const bool is_record = handle <= UINT32_MAX && Load(static_cast<std::uint32_t>(handle), &head, &at) == Match::kYes &&
                         head.stamp.state() == format::BlockState::kUnborn &&
                         Heap::IsIntact(head, head.In(at), OffsetOf(static_cast<std::uint32_t>(handle)));
  if (!is_record || head.lengths.key_size != 0 || head.lengths.value_size == 0 ||
      head.lengths.value_size % sizeof(format::IntentEntry) != 0)
    return DataLossError("a published intent is damaged", handle << this->shift_);
  std::vector<format::IntentEntry> entries(static_cast<std::size_t>(head.lengths.value_size / sizeof(format::IntentEntry)));
  std::memcpy(entries.data(), at + head.key_at(), entries.size() * sizeof(entries[0]));
  return entries;
}

template <MappedFile FileT>
Status MappedRecords<FileT>::Put(OwnedScratch&, std::uint32_t handle, format::Stamp stamp, std::uint64_t key_hash, std::string_view key,
                                 std::string_view value) {
  const std::uint64_t offset = OffsetOf(handle);
  char head[format::kRecordHeadMax];
  const std::size_t head_size = this->EncodeHead(head, CheckOf(value, key_hash, offset), stamp, key.size(), value.size(), offset);
  char* const at = base_ + offset;
  sync::StoreSharedHeader<8>(at, head, head_size);
  sync::StoreShared(at + head_size, key.data(), key.size());
  sync::StoreShared(at + head_size + key.size(), value.data(), value.size());
  return absl::OkStatus();
}

template <MappedFile FileT>
HAKO_INLINE void MappedRecords<FileT>::PutShort(std::uint32_t handle, std::uint64_t key_hash, std::string_view key,
                                                std::string_view value) {
  const std::uint64_t offset = OffsetOf(handle);
  const std::uint64_t head = CheckOf(value, key_hash, offset) | std::uint64_t{stamps().unborn.bits()} << 32 |
                             std::uint64_t{key.size()} << 48 | std::uint64_t{value.size()} << 56;
  char* const at = base_ + offset;
  sync::StoreShared(at, reinterpret_cast<const char*>(&head), sizeof(head));
  sync::StoreShared(at + format::kShortHead, key.data(), key.size());
  sync::StoreShared(at + format::kShortHead + key.size(), value.data(), value.size());
}

}  // namespace hako::hash
