// The file of a record heap, and the facts that each access to a record needs: where the record of
// a handle lies, how it is encoded and checked, the epochs, and whether the heap accepts writes.
//
// Invariants
//   1. A record's check is keyed by its key, lengths, place and file (format/record_format.h).
//      Every read of a value verifies it.
//   2. The current epoch is later than the durable one. stamps() returns the stamps of the current
//      epoch.
//   3. After a failed write or sync, or a failed read of a stamp that had to be changed, the heap
//      refuses writes. Its records can still be read.
//
// Thread-safe, except UseEpoch, which requires that writers are kept out.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "hako/base/assert.h"
#include "hako/base/hash.h"
#include "hako/base/hash_stream.h"
#include "hako/base/inline.h"
#include "hako/base/no_memory.h"
#include "hako/base/status.h"
#include "hako/format/record_format.h"
#include "hako/format/size_class.h"
#include "hako/format/stamp.h"
#include "hako/hash/file/extent_bytes.h"
#include "hako/hash/file/extent_file.h"
#include "hako/hash/record_view.h"
#include "hako/log/sync_progress.h"
#include "hako/log/update_log.h"
#include "hako/sync/atomic_bytes.h"
#include "hako/sync/sticky_status.h"

namespace hako::hash {

// For scans that ignore bytes that are neither zero nor a record.
inline constexpr auto kNoDoubt = [](std::uint32_t, format::Stamp) {};

template <File FileT>
class HeapFile {
 public:
  // A record that a scan has found, and that has passed its check. Its bytes are in memory during
  // the visit. But the pointers are nullptr if the record is long and the file is not mapped.
  struct ScannedRecord : RecordCopy {
    std::uint32_t handle;
    format::Stamp stamp;
    std::uint64_t key_hash;
  };

  ExtentFile<FileT>& extents() { return *extents_; }
  HAKO_INLINE std::uint64_t KeyHash(std::string_view key) const { return Hash64(key, hash_seed_); }
  HAKO_INLINE std::uint64_t OffsetOf(std::uint32_t handle) const { return std::uint64_t{handle} << shift_; }
  // The handle at the end of the file, which is above the handle of every record.
  std::uint64_t HandleAt(std::uint64_t offset) const { return offset >> shift_; }
  unsigned shift() const { return shift_; }
  std::uint64_t BlockBytes(const ScannedRecord& record) const { return BytesOf(ClassOf(record.key_size, record.value_size)); }
  HAKO_INLINE bool CopyIsIntact(const FetchedCopy& copy, std::uint64_t key_hash) const {
    return copy.value == nullptr || copy.check == CheckOf({copy.value, copy.value_size}, key_hash, copy.place);
  }

  // ---- epochs ----
  std::uint64_t epoch() const { return epoch_.load(std::memory_order_relaxed); }
  format::Epochs epochs() const { return {durable_epoch_.load(std::memory_order_relaxed), epoch()}; }
  // Stores the epoch for the process that opens the file if this one is killed. REQUIRES: the
  // superblock durably says that the file is in use. Before that only superblocks are stored, so
  // that a file without a durable superblock is blank after a power cut. (unchecked: the device does not tell)
  void PublishEpoch() { extents_->StoreSealed(&format::LiveState::epoch, epoch()); }
  // Whether a synchronization is needed before epochs wrap, because many processes may have died
  // without one.
  bool IsFarAhead() const { return epochs().now - epochs().durable > format::kEpochsAhead / 4; }

  // ---- whether it accepts writes ----
  // OK, or the failure after which the heap refuses writes. Also OK for a file that is open for
  // reading only.
  Status Health() const { return failure_.Get(); }
  Status Refusal() const { return refusal_.Get(); }
  // Why updates are refused. The database sets it after a failure of the log; the heap can then
  // still be synchronized.
  sync::StickyStatus& refusal() { return refusal_; }
  bool AcceptsWrites() const { return refusal_.IsOk(); }
  void Poison(const Status& why) {
    failure_.Set(NoMoreWritesError(why));
    refusal_.Set(failure_.Get());
  }

  // ---- the log of the updates since the last synchronization, if there is one ----
  using Log = log::UpdateLog<log::LogFileOf<FileT>>;
  Log& log() { return log_; }
  log::SyncProgress& sync_progress() { return sync_progress_; }
  // Waits a while for a synchronization if the log has become long. Call with nothing locked.
  void PauseIfLogIsLong() {
    if (!needs_pause_.load(std::memory_order_relaxed)) return;
    needs_pause_.store(false, std::memory_order_relaxed);
    log_.PauseIfLong();
  }

  // ---- scans ----
  // Calls enter(Extent) for each heap extent in [from, to), then Status visit(ScannedRecord) for
  // its records. Calls other(Extent) for space that is not part of the heap. Skips bytes that do
  // not validate. A record that validates may be long dead, and may lie anywhere outside other
  // records, so the caller must check its stamp and the index. For bytes outside records that are
  // neither zero nor a record, calls doubt(handle, stamp) with the bytes in the place of a stamp.
  // May run beside writers.
  template <class Visit, class Enter, class Other, class Doubt>
  Status Scan(std::uint64_t from, std::uint64_t to, Visit&& visit, Enter&& enter, Other&& other, Doubt&& doubt) const;
  template <class Visit>
  Status Scan(std::uint64_t from, std::uint64_t to, Visit&& visit) const {
    return Scan(
        from, to, visit, [](Extent) {}, [](Extent) {}, kNoDoubt);
  }
  // Scans one extent by its bytes (hash/file/extent_bytes.h).
  // kLiveHeads: the value of a long live record is not hashed if its head is intact.
  enum class Trust { kNothing, kLiveHeads };
  template <Trust kTrust = Trust::kNothing, class Bytes, class Visit, class Doubt>
  Status ScanExtent(Extent extent, Bytes&& bytes, Visit&& visit, Doubt&& doubt) const;
  // The result of CheckRecord, which checks the record at a place that an entry names, regardless
  // of its stamp.
  struct CheckedRecord {
    Status status;               // DataLoss if it fails its check, or the error of the device
    std::uint64_t size = 0;      // as its head says; 0 if that is damaged
    std::uint64_t key_hash = 0;  // if the status is OK
    std::uint64_t read_bytes = 0;
  };
  // Reads the record in pieces of the size of the buffer, and checks it. REQUIRES: `buffer` has at
  // least 4 KiB
  CheckedRecord CheckRecord(std::uint32_t handle, ReadsFrom reads_from, std::span<char> buffer) const;
  // The bytes of the blocks that live and unborn records occupy in a heap extent.
  StatusOr<std::uint64_t> LiveBytes(Extent extent) const {
    std::uint64_t bytes = 0;
    HAKO_RETURN_IF_ERROR(Scan(extent.offset, extent.offset + extent.bytes, [&](const ScannedRecord& record) {
      const bool is_live = record.stamp.IsLive() || record.stamp.state() == format::BlockState::kUnborn;
      if (is_live) bytes += BlockBytes(record);
      return absl::OkStatus();
    }));
    return bytes;
  }
  // Whether a copy of the record would keep other threads waiting. Such a record is moved without
  // locks.
  bool IsLong(std::uint32_t handle) const {
    char bytes[kHeadMax];
    const std::uint64_t offset = OffsetOf(handle);
    if (!IsPlace(offset)) return false;
    const std::uint64_t size = std::min<std::uint64_t>(sizeof(bytes), extents_->tail() - offset);
    return extents_->Read(offset, bytes, size).ok() && DecodeHead(bytes, static_cast<std::size_t>(size)).size() > kLongRecord;
  }
  // Copies the key and the value of a scanned record to the buffer, even if they are not in memory.
  template <class B>
  Status CopyScanned(ScannedRecord* record, B& buffer) const;

  // ---- for the parts of a heap ----
  // A record's header, decoded.
  struct Head {
    std::uint32_t check = 0;
    format::Stamp stamp;
    format::Lengths lengths;

    std::uint64_t key_at() const { return format::RecordHeadSize(lengths.header); }  // from the record's start
    std::uint64_t size() const { return key_at() + lengths.key_size + lengths.value_size; }
    RecordView In(const char* record) const {
      return {{record + key_at(), lengths.key_size}, {record + key_at() + lengths.key_size, lengths.value_size}};
    }
  };
  // The stamps of the current epoch, precomputed.
  struct EpochStamps {
    format::Stamp unborn, live, free;
  };
  EpochStamps stamps() const {
    const std::uint64_t bits = stamps_.load(std::memory_order_relaxed);
    const auto at = [bits](int i) { return format::Stamp(static_cast<std::uint16_t>(bits >> (16 * i))); };
    return {at(0), at(1), at(2)};
  }
  static constexpr std::uint64_t kStampAt = 4;  // after the check
  std::uint32_t HandleOf(std::uint64_t offset) const { return static_cast<std::uint32_t>(HandleAt(offset)); }
  unsigned ClassOf(std::uint64_t key_size, std::uint64_t value_size) const {
    return UnitsClassOf(format::RecordHeadSize(format::LengthsSize(key_size, value_size)) + key_size + value_size);
  }
  std::uint64_t BytesOf(unsigned size_class) const { return format::UnitsOf(size_class) << shift_; }
  HAKO_INLINE std::uint32_t CheckOf(std::string_view value, std::uint64_t key_hash, std::uint64_t offset) const {
    return format::RecordCheck(value, key_hash, offset, secret_);
  }
  // Whether a record may start at `offset`, where `size` bytes are left.
  bool DecodeWholeHead(const char* shared, std::uint64_t size, std::uint64_t offset, Head* head) const;
  Status WriteOrPoison(std::uint64_t offset, std::string_view bytes) {
    Status status = extents_->Write(offset, bytes);
    if (!status.ok()) Poison(status);
    return status;
  }

 protected:
  static constexpr std::uint64_t kFixed = 6;                  // check and stamp
  static constexpr std::uint64_t kHeadMax = 16;               // without the head check
  static constexpr std::uint64_t kOptimisticValueMax = 4096;  // longer values are copied only at a current version
  static constexpr std::uint64_t kLongRecord = 8192;

  explicit HeapFile(std::unique_ptr<ExtentFile<FileT>> extents)
      : extents_(std::move(extents)),
        shift_(static_cast<unsigned>(std::uint32_t{extents_->super().align_pow})),
        hash_seed_(extents_->super().hash_seed),
        secret_(extents_->super().secret),
        epoch_(extents_->super().epoch + 1),
        durable_epoch_(extents_->super().epoch),
        refusal_(extents_->file().IsWritable() ? absl::OkStatus() : ReadOnlyError()) {}

  void UseEpoch(std::uint64_t epoch) {
    using format::BlockState;
    std::uint64_t bits = 0;
    for (const BlockState state : {BlockState::kFree, BlockState::kLive, BlockState::kUnborn}) {
      bits = bits << 16 | format::Stamp::Of(state, epoch).bits();
    }
    epoch_.store(epoch, std::memory_order_seq_cst);
    stamps_.store(bits, std::memory_order_seq_cst);
  }
  void NoteDurable(std::uint64_t epoch) {
    HAKO_DCHECK(epoch < this->epoch());  // invariant 2
    durable_epoch_.store(epoch, std::memory_order_release);
  }
  // Call this if the stamp of a record could not be read when an entry stops or starts naming the
  // record, so that the next stamp is unknown. If the state became durable with the old stamp, it
  // would have one record too many or too few.
  [[gnu::cold]] void StopAt(const Status& unread) {
    if (extents_->file().IsWritable()) Poison(unread);
  }

  HAKO_INLINE bool IsPlace(std::uint64_t offset) const { return offset >= format::kFirstExtent && offset + 8 <= extents_->tail(); }
  // Whether the record lies inside the file.
  HAKO_INLINE bool IsInside(std::uint64_t offset, const Head& head) const {
    return head.lengths.header != 0 && head.size() <= extents_->tail() - offset;
  }
  HAKO_INLINE unsigned ShortClassOf(std::uint64_t key_size, std::uint64_t value_size) const {
    return UnitsClassOf(format::kShortHead + key_size + value_size);
  }

  bool IsIntact(const Head& head, const RecordView& record, std::uint64_t offset) const {
    return head.check == CheckOf(record.value, KeyHash(record.key), offset);
  }
  static Head DecodeHead(const char* bytes, std::size_t size);
  // Returns the size of the head.
  std::size_t EncodeHead(char* out, std::uint32_t check, format::Stamp stamp, std::uint64_t key_size, std::uint64_t value_size,
                         std::uint64_t offset) const;

  const std::unique_ptr<ExtentFile<FileT>> extents_;
  const unsigned shift_;
  const std::uint64_t hash_seed_, secret_;

 private:
  HAKO_INLINE unsigned UnitsClassOf(std::uint64_t bytes) const {
    return format::SizeClassOf((bytes + (std::uint64_t{1} << shift_) - 1) >> shift_);
  }

  alignas(64) std::atomic<std::uint64_t> epoch_{0};
  std::atomic<std::uint64_t> durable_epoch_;  // of the superblock, once durable
  std::atomic<std::uint64_t> stamps_{0};
  sync::StickyStatus failure_;  // of a write or a sync
  sync::StickyStatus refusal_;  // why updates are refused: a failure, or opened read-only
  log::SyncProgress sync_progress_;
  std::atomic<bool> needs_pause_{false};
  Log log_{sync_progress_, needs_pause_};
};

template <File FileT>
typename HeapFile<FileT>::Head HeapFile<FileT>::DecodeHead(const char* bytes, std::size_t size) {
  Head head;
  std::uint16_t stamp;
  std::memcpy(&head.check, bytes, sizeof(head.check));
  std::memcpy(&stamp, bytes + kStampAt, sizeof(stamp));
  head.stamp = format::Stamp(stamp);
  head.lengths = format::DecodeLengths(bytes + kFixed, size - kFixed);
  return head;
}

template <File FileT>
bool HeapFile<FileT>::DecodeWholeHead(const char* shared, std::uint64_t size, std::uint64_t offset, Head* head) const {
  char bytes[format::kRecordHeadMax] = {};
  const auto head_max = static_cast<std::size_t>(std::min<std::uint64_t>(sizeof(bytes), size));
  sync::LoadShared(bytes, shared, head_max);
  *head = DecodeHead(bytes, std::min<std::size_t>(kHeadMax, head_max));
  if (!head->stamp.IsValid() || head->lengths.header == 0 || head->size() > size) return false;
  if (head->lengths.header == 2) return true;
  std::uint32_t head_check;
  std::memcpy(&head_check, bytes + kFixed + head->lengths.header, sizeof(head_check));
  return head_check == format::RecordHeadCheck(head->check, head->lengths.key_size, head->lengths.value_size, offset, secret_);
}

template <File FileT>
std::size_t HeapFile<FileT>::EncodeHead(char* out, std::uint32_t check, format::Stamp stamp, std::uint64_t key_size,
                                        std::uint64_t value_size, std::uint64_t offset) const {
  const std::uint16_t stamp_bits = stamp.bits();
  std::memcpy(out, &check, sizeof(check));
  std::memcpy(out + kStampAt, &stamp_bits, sizeof(stamp_bits));
  const unsigned lengths = format::EncodeLengths(out + kFixed, key_size, value_size);
  const std::uint32_t head_check = format::RecordHeadCheck(check, key_size, value_size, offset, secret_);
  if (lengths > 2) std::memcpy(out + kFixed + lengths, &head_check, sizeof(head_check));
  return static_cast<std::size_t>(format::RecordHeadSize(lengths));
}

}  // namespace hako::hash

#include "hako/hash/file/heap_scan-inl.h"
