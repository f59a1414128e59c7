// Definitions of hash/file/heap_file.h: scans of heap extents, and the check of one record.
#pragma once

namespace hako::hash {

template <File FileT>
template <class Visit, class Enter, class Other, class Doubt>
Status HeapFile<FileT>::Scan(std::uint64_t from, std::uint64_t to, Visit&& visit, Enter&& enter, Other&& other, Doubt&& doubt) const {
  ExtentBytes<FileT> bytes(*extents_);
  for (std::uint64_t extent = from; extent < to;) {
    HAKO_ASSIGN_OR_RETURN(const std::uint64_t size, extents_->HeapExtentBytes(extent));
    if (size == 0) {
      other(Extent{extent, format::kExtentUnit});
      extent += format::kExtentUnit;
      continue;
    }
    HAKO_RETURN_IF_ERROR(bytes.Enter({extent, size}));
    enter(Extent{extent, size});
    HAKO_RETURN_IF_ERROR(ScanExtent({extent, size}, bytes, visit, doubt));
    extent += size;
  }
  return absl::OkStatus();
}

// Continues after the end of a record rather than the end of its block, because dead records may
// follow there.
//
// A record that the durable state does not have may overlap a newer record. Its check still holds
// if the shared bytes are equal; for one shared byte this happens once in 256 times. So the last
// unit of such a record is scanned, too. Earlier units need not be scanned, because eight equal
// bytes are as rare as a false match of the check. The stamp does not help: after a crash of the
// machine a free block may have an earlier stamp.
template <File FileT>
template <typename HeapFile<FileT>::Trust kTrust, class Bytes, class Visit, class Doubt>
Status HeapFile<FileT>::ScanExtent(Extent extent, Bytes&& bytes, Visit&& visit, Doubt&& doubt) const {
  const std::uint64_t size = extent.bytes, unit = std::uint64_t{1} << shift_;
  const std::uint64_t wasted_max = std::max<std::uint64_t>(64 * size, std::uint64_t{2} << 30);
  std::uint64_t wasted = 0;        // bytes hashed in vain; bounds the work on a hostile file
  std::uint64_t shared_until = 0;  // end of the last record not in the durable state
  const auto doubt_at = [&](std::uint64_t at, format::Stamp stamp) {
    if (at >= shared_until || (extent.offset + at) % format::kExtentUnit == 0) doubt(HandleOf(extent.offset + at), stamp);
  };
  for (std::uint64_t at = sizeof(format::HeapExtentHeader); size - at >= format::kShortHead && wasted <= wasted_max; at += unit) {
    const char* const begin = bytes.Get(at, std::min<std::uint64_t>(format::kRecordHeadMax, size - at));
    if (sync::LoadSharedWord(begin) == 0) continue;
    Head head;
    if (!DecodeWholeHead(begin, size - at, extent.offset + at, &head)) {
      doubt_at(at, head.stamp);
      continue;
    }
    const std::uint64_t key_size = head.lengths.key_size, value_size = head.lengths.value_size;
    const bool is_whole = key_size + value_size <= std::remove_cvref_t<Bytes>::kWhole;
    const char* const key = is_whole ? bytes.Get(at + head.key_at(), key_size + value_size) : nullptr;
    const std::uint64_t key_hash = bytes.Hash(at + head.key_at(), key_size, hash_seed_);
    const bool trusted = kTrust == Trust::kLiveHeads && head.lengths.header > 2 && head.stamp.IsLive();
    const std::uint64_t seed = format::RecordCheckSeed(key_hash, extent.offset + at, secret_);
    if (!trusted && head.check != static_cast<std::uint32_t>(bytes.Hash(at + head.key_at() + key_size, value_size, seed))) {
      doubt_at(at, head.stamp);
      wasted += head.size();
      continue;
    }
    HAKO_RETURN_IF_ERROR(bytes.status());
    HAKO_RETURN_IF_ERROR(visit(ScannedRecord{{key, key_size, value_size}, HandleOf(extent.offset + at), head.stamp, key_hash}));
    const std::uint64_t last_unit = (head.size() - 1) & ~(unit - 1);
    const bool looks_at_last = last_unit != 0 && !head.stamp.BelongsTo(epochs().durable);
    if (looks_at_last) shared_until = at + head.size();
    at += looks_at_last ? last_unit - unit : last_unit;  // the loop then adds a unit
  }
  return bytes.status();
}

template <File FileT>
auto HeapFile<FileT>::CheckRecord(std::uint32_t handle, ReadsFrom reads_from, std::span<char> buffer) const -> CheckedRecord {
  static constexpr std::uint64_t kFirstRead = 1024, kBlock = 4096;
  HAKO_DCHECK(buffer.size() >= kBlock);
  const std::uint64_t offset = OffsetOf(handle), end = extents_->tail();
  CheckedRecord result;
  const auto read = [&](std::uint64_t from, std::uint64_t size) {
    result.read_bytes += std::max<std::uint64_t>(size, kBlock);  // the device reads whole blocks
    return reads_from == ReadsFrom::kDevice ? extents_->ReadDevice(from, buffer.data(), size) : extents_->Read(from, buffer.data(), size);
  };
  // Hashes bytes of the record; `there` of them are in the buffer already.
  const auto hash_of = [&](std::uint64_t at, std::uint64_t size, std::uint64_t there, std::uint64_t seed) {
    if (at + size <= there) return Hash64(buffer.data() + at, size, seed);
    HashStream hash(seed);
    for (std::uint64_t done = 0, piece; done < size && result.status.ok(); done += piece) {
      piece = std::min<std::uint64_t>(buffer.size(), size - done);
      result.status = read(offset + at + done, piece);
      hash.Add(buffer.data(), piece);
    }
    return hash.Get();
  };
  const auto damaged = [offset] { return DataLossError("a record fails its checksum", offset); };
  if (!IsPlace(offset)) {
    result.status = DataLossError("an entry of the index names a record outside the file,", offset);
    return result;
  }
  std::uint64_t there = std::min(kFirstRead, end - offset);
  result.status = read(offset, there);
  if (!result.status.ok()) return result;
  char bytes[format::kRecordHeadMax] = {};
  std::memcpy(bytes, buffer.data(), std::min<std::uint64_t>(sizeof(bytes), there));
  const std::uint16_t any_valid = format::Stamp::Ancient().bits();
  std::memcpy(bytes + kStampAt, &any_valid, sizeof(any_valid));
  Head head;
  if (!DecodeWholeHead(bytes, end - offset, offset, &head)) {
    result.status = damaged();
    return result;
  }
  result.size = head.size();
  if (head.size() > there && head.size() <= buffer.size()) {
    result.status = read(offset, head.size());
    if (!result.status.ok()) return result;
    there = head.size();
  }
  const std::uint64_t key_size = head.lengths.key_size;
  const std::uint64_t key_hash = hash_of(head.key_at(), key_size, there, hash_seed_);
  if (there < head.size()) there = 0;  // the buffer has another part now
  const std::uint64_t check =
      hash_of(head.key_at() + key_size, head.lengths.value_size, there, format::RecordCheckSeed(key_hash, offset, secret_));
  if (result.status.ok() && static_cast<std::uint32_t>(check) != head.check) result.status = damaged();
  result.key_hash = key_hash;
  return result;
}

template <File FileT>
template <class B>
Status HeapFile<FileT>::CopyScanned(ScannedRecord* record, B& buffer) const {
  const std::uint64_t head = format::RecordHeadSize(format::LengthsSize(record->key_size, record->value_size));
  const auto size = static_cast<std::size_t>(record->key_size + record->value_size);
  char* const out = buffer.Take(size);
  if (record->bytes == nullptr) {
    HAKO_RETURN_IF_ERROR(extents_->Read(OffsetOf(record->handle) + head, out, size));
  } else {
    std::memcpy(out, record->bytes, size);
  }
  record->bytes = out;
  return absl::OkStatus();
}

}  // namespace hako::hash
