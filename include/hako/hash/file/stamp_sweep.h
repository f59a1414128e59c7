// Makes old stamps ancient before epochs wrap.
//
// Each synchronization sweeps a small part of the file, so that a pass takes kSweepEpochs epochs,
// across reopens: the superblock stores the position. A pass ends where the file ended when the
// pass began. So each live stamp is seen again within two passes. A stamp is at most kRefreshAge
// old after it was seen, so it never reaches kLiveAgeMax.
//
// Not thread-safe: it belongs to the thread that closes epochs. It runs beside writers.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hako/base/status.h"
#include "hako/format/hash_file_format.h"
#include "hako/format/record_format.h"
#include "hako/format/stamp.h"

namespace hako::hash {

// `Records`: MappedRecords or PositionalRecords.
template <class Records>
class StampSweep {
 public:
  // A record with an old stamp.
  struct Record {
    std::uint64_t key_hash;
    std::uint32_t handle;
    std::uint32_t block_bytes;  // 0 if it is long: its bytes have not been read
    format::Stamp stamp;
  };

  // Continues where the superblock says that the last opening ended.
  explicit StampSweep(Records& records) : records_(records) {
    const format::HashSuperBlock& super = records.extents().super();
    const Place place{super.sweep_extent, super.sweep_to, std::min<std::uint64_t>(super.sweep_end, records.extents().tail())};
    const bool is_place = place.extent >= format::kFirstExtent && place.extent % format::kExtentUnit == 0 && place.extent <= place.to;
    if (is_place) place_ = place;  // else the next pass starts at the beginning
  }
  StampSweep(const StampSweep&) = delete;

  void StorePlace(format::HashSuperBlock& super) const {
    super.sweep_extent = place_.extent;
    super.sweep_to = place_.to;
    super.sweep_end = place_.end;
  }

  // Refreshes some more records before an epoch ends. `named` has the functions by which the sweep
  // asks the index:
  //   bool Has(Record)        whether an entry names the record
  //   void Prefetch(records)  not mapped: these will be refreshed
  //   void RunLocked(span of at most 64 records, body)  not mapped: calls body(mask) with their
  //                           buckets locked; bit i is set if an entry names record i
  template <class Named>
  Status Advance(Named&& named) {
    static_assert(2 * kSweepEpochs + format::kRefreshAge <= format::kLiveAgeMax);
    const format::Epochs at = records_.epochs();
    if (at.now <= format::kRefreshAge) return absl::OkStatus();  // no stamp is old
    if (place_.to < format::kFirstExtent || place_.to >= place_.end)
      place_ = {format::kFirstExtent, format::kFirstExtent, records_.extents().tail()};
    const std::uint64_t share = (place_.end - format::kFirstExtent) / kSweepEpochs + kSweepLeast;
    for (std::uint64_t left = share * (at.now - at.durable); left != 0 && place_.to < place_.end;) {
      const std::uint64_t from = place_.to;
      HAKO_RETURN_IF_ERROR(SweepPiece(std::min(left, kSweepPiece), named));
      left -= std::min(left, place_.to - from);
    }
    return absl::OkStatus();
  }

 private:
  using Head = typename Records::Head;
  struct Place {
    std::uint64_t extent, to, end;
  };
  static constexpr std::uint64_t kSweepEpochs = 14'000;
  static constexpr std::uint64_t kSweepPiece = 256 << 10, kSweepLeast = 4096;
  static constexpr std::size_t kStampedAtOnce = 64;  // records, in one write

  // Sweeps about `bytes` bytes of one extent.
  template <class Named>
  Status SweepPiece(std::uint64_t bytes, Named&& named) {
    HAKO_ASSIGN_OR_RETURN(const std::uint64_t extent, records_.extents().HeapExtentBytes(place_.extent));
    const std::uint64_t end = place_.extent + extent;
    const auto leave = [&](std::uint64_t next) { place_.extent = place_.to = next; };
    if (extent == 0) {  // no longer a heap extent
      leave((place_.to / format::kExtentUnit + 1) * format::kExtentUnit);
      return absl::OkStatus();
    }
    const std::uint64_t from = std::max(place_.to, place_.extent + sizeof(format::HeapExtentHeader)), unit = records_.OffsetOf(1);
    if (from + format::kShortHead > end) return leave(end), absl::OkStatus();
    bytes_.resize(std::min(end - from, bytes + format::kShortRecordMax));
    HAKO_RETURN_IF_ERROR(records_.extents().Read(from, bytes_.data(), bytes_.size()));
    old_.clear();
    std::uint64_t offset = from;
    while (offset < from + bytes && offset + format::kShortHead <= end) {
      HAKO_ASSIGN_OR_RETURN(const std::uint64_t size, SweepRecord(offset, bytes_.data() + (offset - from), end - offset, named));
      offset += size == 0 ? unit : (size + unit - 1) & ~(unit - 1);
    }
    MakeAncient(from, named);
    if (offset + format::kShortHead > end) {
      leave(end);
    } else {
      place_.to = offset;
    }
    return absl::OkStatus();
  }

  // Adds the live record at `offset` to old_ if its stamp is old. Returns the size of the record; 0
  // if there is no live record, because the bytes of a dead record may belong to another one by
  // now.
  template <class Named>
  StatusOr<std::uint64_t> SweepRecord(std::uint64_t offset, const char* bytes, std::uint64_t room, Named&& named) {
    const auto read = static_cast<std::uint64_t>(bytes_.data() + bytes_.size() - bytes);
    std::uint64_t word = 0;
    std::memcpy(&word, bytes, std::min<std::uint64_t>(sizeof(word), read));
    if (!format::Stamp(static_cast<std::uint16_t>(word >> 32)).IsLive()) return 0;
    Head head;
    if (!records_.DecodeWholeHead(bytes, room, offset, &head) || head.key_at() > read) return 0;
    Record record{0, records_.HandleOf(offset), 0, head.stamp};
    if (head.lengths.header == 2) {
      if (head.size() > read) return 0;
      const std::string_view key(bytes + head.key_at(), head.lengths.key_size);
      record.key_hash = records_.KeyHash(key);
      if (head.check != records_.CheckOf({key.data() + key.size(), head.lengths.value_size}, record.key_hash, offset)) return 0;
      record.block_bytes = static_cast<std::uint32_t>(records_.BytesOf(records_.ClassOf(head.lengths.key_size, head.lengths.value_size)));
    } else {
      std::string key(head.lengths.key_size, '\0');  // the index confirms the record, so its check is not needed
      HAKO_RETURN_IF_ERROR(records_.extents().Read(offset + head.key_at(), key.data(), key.size()));
      record.key_hash = records_.KeyHash(key);
      if (!named.Has(record)) return 0;
    }
    if (format::Refresh(head.stamp, records_.epochs()).bits() != head.stamp.bits()) old_.push_back(record);
    return head.size();
  }

  // Runs beside writers. They may retire the records, but write nothing else to them before the next
  // synchronization, because only this thread releases their blocks. In a mapped file the exchange fails
  // if the record was retired; in any other file the buckets are locked, see StampAncient.
  template <class Named>
  void MakeAncient([[maybe_unused]] std::uint64_t read_from, [[maybe_unused]] Named&& named) {
    if constexpr (Records::kMapped) {
      for (const Record& record : old_) {
        std::uint16_t old = record.stamp.bits();
        records_.StampOf(record.handle).compare_exchange_strong(old, format::Stamp::Ancient().bits(), std::memory_order_relaxed);
      }
    } else {
      named.Prefetch(old_);
      for (std::span<const Record> rest(old_); !rest.empty();) {
        std::size_t count = 1;
        const auto is_next = [&] {
          return records_.OffsetOf(rest[count - 1].handle) + rest[count - 1].block_bytes == records_.OffsetOf(rest[count].handle);
        };
        while (count < std::min(rest.size(), kStampedAtOnce) && is_next()) ++count;
        named.RunLocked(rest.first(count), [&](std::uint64_t mask) { StampAncient(rest.first(count), mask, read_from); });
        rest = rest.subspan(count);
      }
    }
  }

  // Stamps the records of the mask, whose blocks are adjacent. Their buckets are locked and entries
  // name them, so no thread writes to the blocks, which are unchanged since the read. Adjacent
  // records are stamped in one write.
  void StampAncient(std::span<const Record> run, std::uint64_t mask, std::uint64_t read_from) {
    const std::uint16_t bits = format::Stamp::Ancient().bits();
    while (mask != 0) {
      const auto first = static_cast<std::size_t>(std::countr_zero(mask));
      const auto count = static_cast<std::size_t>(std::countr_one(mask >> first));
      mask = first + count < 64 ? mask >> (first + count) << (first + count) : 0;
      if (count == 1) {
        records_.StoreStamp(run[first].handle, format::Stamp(bits));
        continue;
      }
      const auto place_of = [&](std::size_t i) { return records_.OffsetOf(run[i].handle) + Records::kStampAt; };
      const auto stamp_of = [&](std::size_t i) { return bytes_.data() + (place_of(i) - read_from); };
      for (std::size_t i = first; i < first + count; ++i) std::memcpy(stamp_of(i), &bits, sizeof(bits));
      const auto size = static_cast<std::size_t>(stamp_of(first + count - 1) - stamp_of(first)) + sizeof(bits);
      if (!records_.AcceptsWrites()) return;
      (void)records_.WriteOrPoison(place_of(first), {stamp_of(first), size});
    }
  }

  Records& records_;
  Place place_{};
  std::string bytes_;        // of the piece
  std::vector<Record> old_;  // records of the piece
};

}  // namespace hako::hash
