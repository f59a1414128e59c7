// Writes and reads snapshots (format/snapshot_format.h) through any File, in blocks of about 1 MiB.
// Not thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "hako/base/assert.h"
#include "hako/base/bytes.h"
#include "hako/base/hash.h"
#include "hako/base/random_seed.h"
#include "hako/base/status.h"
#include "hako/file/file.h"
#include "hako/format/record_format.h"
#include "hako/format/snapshot_format.h"
#include "hako/storage/superblock_slots.h"

namespace hako::storage {

// Call Begin, Add for each record, and End. After an error the file's content is unusable.
template <File FileT>
class SnapshotWriter {
 public:
  explicit SnapshotWriter(FileT& file) : file_(file) {}
  // Continues a snapshot with this id after an end block, at `offset`. Then call AddEnd, which
  // needs no memory.
  SnapshotWriter(FileT& file, std::uint64_t id, std::uint64_t offset) : file_(file), id_(id), offset_(offset) {
    block_.reserve(block_.size() + sizeof(format::SnapshotEnd));
  }

  Status Begin(bool has_clock) {
    has_clock_ = has_clock;
    format::SnapshotHeader header{};
    header.magic = format::kSnapshotMagic;
    header.version = has_clock ? format::kSnapshotVersion : format::kSnapshotPlainVersion;
    header.id = id_ = RandomSeed();
    header.check = Hash64(&header, offsetof(format::SnapshotHeader, check), 0);
    return Write({reinterpret_cast<const char*>(&header), sizeof(header)});
  }

  Status Add(std::string_view key, std::string_view value) {
    char lengths[format::kLengthsMax];
    const unsigned header = format::EncodeLengths(lengths, key.size(), value.size());
    const std::size_t size = header + key.size() + value.size();
    if (size > kPayloadMax) return absl::OutOfRangeError("a record of 4 GiB or more does not fit a snapshot");
    if (records_ != 0 && block_.size() + size > kUsualBlock) HAKO_RETURN_IF_ERROR(Flush());
    block_.append(lengths, header).append(key).append(value);
    ++records_;
    ++total_;
    return absl::OkStatus();
  }

  // Sets the number of records in `end`. REQUIRES: it has a clock as Begin says
  Status End(format::SnapshotEnd* end) {
    HAKO_DCHECK((end->clock != 0) == has_clock_);
    if (records_ != 0) HAKO_RETURN_IF_ERROR(Flush());
    end->records = total_;
    return AddEnd(*end);
  }
  Status AddEnd(const format::SnapshotEnd& end) {
    const std::uint32_t version = end.clock != 0 ? format::kSnapshotVersion : format::kSnapshotPlainVersion;
    block_.append(reinterpret_cast<const char*>(&end), format::SnapshotEndSize(version));
    return Flush();
  }

  std::uint64_t id() const { return id_; }
  std::uint64_t offset() const { return offset_; }  // of the next block

 private:
  static constexpr std::size_t kUsualBlock = 1 << 20;
  static constexpr std::size_t kPayloadMax = 0xffffffff;

  // Writes the block at once, so that a kill rarely leaves a part of it.
  Status Flush() {
    format::SnapshotBlockHeader header;
    const std::string_view payload = std::string_view(block_).substr(sizeof(header));
    header.payload_bytes = static_cast<std::uint32_t>(payload.size());
    header.records = records_;
    header.check = format::SnapshotBlockCheck(payload, records_, id_, offset_);
    std::memcpy(block_.data(), &header, sizeof(header));
    HAKO_RETURN_IF_ERROR(Write(block_));
    block_.resize(sizeof(header));
    records_ = 0;
    return absl::OkStatus();
  }
  Status Write(std::string_view bytes) {
    HAKO_RETURN_IF_ERROR(file_.Resize(offset_ + bytes.size()));
    HAKO_RETURN_IF_ERROR(file_.WriteAt(offset_, AsBytes(bytes)));
    offset_ += bytes.size();
    return absl::OkStatus();
  }

  FileT& file_;
  std::uint64_t id_ = 0;
  std::uint64_t offset_ = 0;
  std::string block_ = std::string(sizeof(format::SnapshotBlockHeader), '\0');  // to be written next
  std::uint32_t records_ = 0;
  std::uint64_t total_ = 0;
  bool has_clock_ = false;
};

template <File FileT>
class SnapshotReader {
 public:
  explicit SnapshotReader(FileT& file) : file_(file) {}

  // Calls Status visit(key, value) for each record, up to the first error of the visitor. Returns
  // DataLoss if the snapshot does not validate.
  template <class F>
  Status ForEach(F&& visit) {
    HAKO_RETURN_IF_ERROR(ReadHeader());
    offset_ = sizeof(header_);
    std::uint64_t total = 0;
    std::string payload;
    for (;;) {
      HAKO_ASSIGN_OR_RETURN(const std::uint32_t records, ReadBlock(&payload));
      if (records == 0) {
        HAKO_RETURN_IF_ERROR(TakeEnd(payload, total));
        return ReadFurtherEnds();
      }
      HAKO_RETURN_IF_ERROR(ForEachIn(payload, records, offset_, visit));
      total += records;
      offset_ += sizeof(format::SnapshotBlockHeader) + payload.size();
    }
  }

  // Call these after ForEach. end() is the end block that counts, and offset() the offset of the
  // next one. unnamed_clock() is the clock of the last end block that names no log, and
  // unnamed_offset() the offset after that block; they are 0 if each names one.
  const format::SnapshotEnd& end() const { return end_; }
  std::uint64_t offset() const { return offset_; }
  std::uint64_t unnamed_offset() const { return unnamed_offset_; }
  std::uint64_t unnamed_clock() const { return unnamed_clock_; }
  // Whether an end block follows that does not validate, because it is incomplete or damaged.
  bool has_incomplete_end() const { return has_incomplete_end_; }
  std::uint32_t version() const { return header_.version; }
  std::uint64_t id() const { return header_.id; }

 private:
  Status ReadHeader() {
    const std::size_t size = std::min<std::uint64_t>(file_.Size(), sizeof(header_));
    HAKO_RETURN_IF_ERROR(file_.ReadAt(0, {reinterpret_cast<std::byte*>(&header_), size}));
    const bool has_magic = size >= sizeof(header_.magic);
    if (has_magic && header_.magic != format::kSnapshotMagic) return NotOfKindError(file_, "snapshot", header_.magic);
    if (size < sizeof(header_)) return DataLossError("too short for a snapshot: the file ends", size);
    if (header_.check != Hash64(&header_, offsetof(format::SnapshotHeader, check), 0)) {
      return DataLossError("the snapshot header fails its checksum", 0);
    }
    if (header_.version > format::kSnapshotVersion) {
      return absl::UnimplementedError(
          absl::StrCat("snapshot format ", std::uint32_t{header_.version}, " is newer than this library's ", format::kSnapshotVersion));
    }
    return absl::OkStatus();
  }
  // Reads the block at offset_; returns its number of records.
  StatusOr<std::uint32_t> ReadBlock(std::string* payload) {
    format::SnapshotBlockHeader block;
    const std::uint64_t left = file_.Size() - offset_;
    if (left < sizeof(block)) return DataLossError("the snapshot ends without an end block", offset_);
    HAKO_RETURN_IF_ERROR(file_.ReadAt(offset_, {reinterpret_cast<std::byte*>(&block), sizeof(block)}));
    const std::uint32_t size = block.payload_bytes, records = block.records;
    if (size > left - sizeof(block)) return DataLossError("a snapshot block extends beyond the file", offset_);
    payload->resize(size);
    HAKO_RETURN_IF_ERROR(file_.ReadAt(offset_ + sizeof(block), {reinterpret_cast<std::byte*>(payload->data()), size}));
    if (block.check != format::SnapshotBlockCheck(*payload, records, header_.id, offset_)) {
      return DataLossError("a snapshot block fails its checksum", offset_);
    }
    return records;
  }
  // Processes the end block at offset_.
  Status TakeEnd(std::string_view payload, std::uint64_t total) {
    const std::size_t size = format::SnapshotEndSize(header_.version);
    if (payload.size() != size) return DataLossError("bad end block", offset_);
    end_ = {};
    std::memcpy(static_cast<void*>(&end_), payload.data(), size);
    if (header_.version >= 3 && end_.clock == 0) return DataLossError("the end block lacks its clock", offset_);
    if (end_.records != total) {
      return DataLossError(absl::StrCat("the snapshot has ", total, " records, which the end block contradicts").c_str(), offset_);
    }
    offset_ += sizeof(format::SnapshotBlockHeader) + size;
    if (end_.log.id == format::SnapshotLog().id) {
      unnamed_offset_ = offset_;
      unnamed_clock_ = end_.clock;
    }
    return absl::OkStatus();
  }
  Status ReadFurtherEnds() {
    if (header_.version == 1) return absl::OkStatus();
    const std::uint64_t total = end_.records;
    std::string payload;
    for (;;) {
      const StatusOr<std::uint32_t> records = ReadBlock(&payload);
      if (absl::IsDataLoss(records.status()) || (records.ok() && *records != 0)) return LookForIncompleteEnd();
      HAKO_RETURN_IF_ERROR(records.status());
      HAKO_RETURN_IF_ERROR(TakeEnd(payload, total));
    }
  }
  // Sets has_incomplete_end_. Zeros are not an end block: space that was allocated ahead is zero.
  Status LookForIncompleteEnd() {
    std::array<std::byte, sizeof(format::SnapshotBlockHeader) + sizeof(format::SnapshotEnd)> bytes;
    const auto rest = std::span(bytes).first(std::min<std::uint64_t>(file_.Size() - offset_, bytes.size()));
    HAKO_RETURN_IF_ERROR(file_.ReadAt(offset_, rest));
    has_incomplete_end_ = std::ranges::any_of(rest, [](std::byte byte) { return byte != std::byte{0}; });
    return absl::OkStatus();
  }
  template <class F>
  static Status ForEachIn(std::string_view payload, std::uint32_t records, std::uint64_t offset, F& visit) {
    for (std::uint32_t i = 0; i < records; ++i) {
      const format::Lengths lengths = format::DecodeLengths(payload.data(), payload.size());
      if (lengths.header == 0 || lengths.key_size + lengths.value_size > payload.size() - lengths.header) {
        return DataLossError("a record extends beyond its snapshot block", offset);
      }
      payload.remove_prefix(lengths.header);
      HAKO_RETURN_IF_ERROR(visit(payload.substr(0, lengths.key_size), payload.substr(lengths.key_size, lengths.value_size)));
      payload.remove_prefix(lengths.key_size + lengths.value_size);
    }
    return payload.empty() ? absl::OkStatus() : DataLossError("bytes after the last record of a snapshot block", offset);
  }

  FileT& file_;
  format::SnapshotHeader header_{};
  format::SnapshotEnd end_;
  std::uint64_t offset_ = 0, unnamed_offset_ = 0, unnamed_clock_ = 0;
  bool has_incomplete_end_ = false;
};

// Empties a file, writes all records to it, and syncs it. show(add) calls Status add(key, value)
// for each record, and may still set the fields of *end; only whether there is a clock must be
// known before (`has_clock`). Returns the id of the snapshot.
template <File FileT, class Show>
StatusOr<std::uint64_t> SaveSnapshot(FileT& file, bool has_clock, format::SnapshotEnd* end, Show&& show) {
  HAKO_RETURN_IF_ERROR(file.Resize(0));
  SnapshotWriter<FileT> writer(file);
  HAKO_RETURN_IF_ERROR(writer.Begin(has_clock));
  HAKO_RETURN_IF_ERROR(show([&writer](std::string_view key, std::string_view value) { return writer.Add(key, value); }));
  HAKO_RETURN_IF_ERROR(writer.End(end));
  HAKO_RETURN_IF_ERROR(file.Sync());
  return writer.id();
}

// Replaces a database's records by those of a snapshot. First reads and validates all of the
// snapshot: no key may be longer than the database accepts, and CheckRecord of the database, if it
// has one, must accept each record. If that fails, the database is unchanged. If a Set fails, the
// database is left empty. Sets *applied_index to that of the snapshot, and moves the clock of the
// database forward to that of the snapshot. Returns FailedPrecondition if a log has later updates.
template <File FileT, class D>
Status LoadSnapshot(FileT& file, D& database, std::uint64_t* applied_index) {
  SnapshotReader<FileT> reader(file);
  const auto* const expiry = database.expiry();
  bool is_well_formed = true;
  const auto check = [&](std::string_view key, std::string_view value) -> Status {
    if (expiry != nullptr) is_well_formed = is_well_formed && expiry->Split(value);
    if constexpr (requires { database.CheckRecord(key, value); }) HAKO_RETURN_IF_ERROR(database.CheckRecord(key, value));
    return key.size() <= D::kKeySizeMax ? absl::OkStatus() : TooLargeError("a key of the snapshot", key.size(), D::kKeySizeMax);
  };
  HAKO_RETURN_IF_ERROR(reader.ForEach(check));
  if (reader.end().log.IsNeeded()) {
    return absl::FailedPreconditionError(
        "the log beside the snapshot has later updates, as the database was not closed; open it with its log, and close it");
  }
  const bool has_clock = reader.end().clock != 0;
  if (has_clock && expiry == nullptr) {
    return absl::FailedPreconditionError("the records of the snapshot may expire, and the database was created without the option expiry");
  }
  if (has_clock && !is_well_formed) return expiry->MalformedError();
  if (has_clock) expiry->NoteTime(reader.end().clock);
  HAKO_RETURN_IF_ERROR(database.Clear());
  Status status = reader.ForEach(
      [&](std::string_view key, std::string_view value) { return has_clock ? database.SetStored(key, value) : database.Set(key, value); });
  if (has_clock) expiry->schedule().RequestPass();
  if (!status.ok()) HAKO_RETURN_IF_ERROR(database.Clear());
  *applied_index = reader.end().applied_index;
  return status;
}
template <PathFile FileT, class D>
Status LoadSnapshot(const std::string& path, D& database, std::uint64_t* applied_index) {
  FileOptions options;
  options.mode = OpenMode::kReadOnly;
  HAKO_ASSIGN_OR_RETURN(FileT file, FileT::Open(path, options));
  const Status loaded = LoadSnapshot(file, database, applied_index);
  if (!loaded.ok()) return Status(loaded.code(), absl::StrCat(path, ": ", loaded.message()));
  return file.Close();
}

}  // namespace hako::storage
