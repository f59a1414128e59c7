// Recomputes the checks in the files of a database after a change, so that the change is seen by the
// code behind the checks. Unlike HashForgery and TreeForgery it accepts files of any content.
//
// The records of a hash file and of a log have their places in no list: those count whose checks held
// before the change.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hako/base/hash.h"
#include "hako/format/array_format.h"
#include "hako/format/hash_file_format.h"
#include "hako/format/log_format.h"
#include "hako/format/record_format.h"
#include "hako/format/snapshot_format.h"
#include "hako/format/tree_file_format.h"
#include "hako/storage/superblock_slots.h"

namespace hako::fuzz {

template <class T>
std::optional<T> LoadFrom(std::string_view file, std::uint64_t at) {
  if (at > file.size() || sizeof(T) > file.size() - at) return std::nullopt;
  T value;
  std::memcpy(static_cast<void*>(&value), file.data() + at, sizeof(T));
  return value;
}
template <class T>
void StoreTo(std::string& file, std::uint64_t at, const T& value) {
  if (at <= file.size() && sizeof(T) <= file.size() - at) std::memcpy(file.data() + at, &value, sizeof(T));
}

// The superblock that counts, whether its check holds or not.
template <class Block>
std::optional<Block> NewerSuperBlock(std::string_view file, const std::array<char, 16>& magic) {
  std::optional<Block> newer;
  for (const std::uint64_t at : {std::uint64_t{0}, storage::kSlotDistance}) {
    const std::optional<Block> block = LoadFrom<Block>(file, at);
    if (block && block->magic == magic && (!newer || block->sequence > newer->sequence)) newer = block;
  }
  return newer;
}
// Stores it where NewerSuperBlock has found it.
template <class Block>
void StoreNewer(std::string& file, const Block& super) {
  const auto first = LoadFrom<Block>(file, 0);
  const bool is_first = first && first->magic == super.magic && first->sequence == super.sequence;
  StoreTo(file, is_first ? 0 : storage::kSlotDistance, super);
}
template <class Block>
void FixSlots(std::string& file, const std::array<char, 16>& magic) {
  for (const std::uint64_t at : {std::uint64_t{0}, storage::kSlotDistance}) {
    std::optional<Block> block = LoadFrom<Block>(file, at);
    if (!block || block->magic != magic) continue;
    block->check = CheckOf(*block);
    StoreTo(file, at, *block);
  }
}

class ForgedHash {
 public:
  using Block = format::HashSuperBlock;
  explicit ForgedHash(std::string_view file) {
    const auto super = NewerSuperBlock<Block>(file, format::kHashFileMagic);
    if (!super) return;
    is_hash_ = true;
    for (std::uint64_t at = format::kFirstExtent; at < file.size(); at += 8) {
      if (LoadFrom<std::uint64_t>(file, at).value_or(0) == 0) continue;  // most of a file
      if (const auto check = RecordChecks(file, at, *super); check && LoadFrom<Le<std::uint32_t>>(file, at) == check->first)
        records_.push_back(at);
    }
    for (std::size_t i = 0; i < kSealed.size(); ++i) {
      const auto word = LoadFrom<std::uint64_t>(file, kSealed[i]);
      sealed_[i] = word && *word != 0 && *word == format::SealLive(Unsealed(*word));
    }
  }
  void Fix(std::string& file) const {
    const auto super = NewerSuperBlock<Block>(file, format::kHashFileMagic);
    if (!is_hash_ || !super) return;
    for (std::uint64_t at = format::kFirstExtent; at < file.size(); at += format::kExtentUnit) {
      auto header = LoadFrom<format::HeapExtentHeader>(file, at);
      if (!header || header->magic != format::kHeapExtentMagic) continue;
      header->check = header->CheckAt(at, super->secret);
      StoreTo(file, at, *header);
    }
    for (const std::uint64_t at : records_) {
      const auto check = RecordChecks(file, at, *super);
      if (!check) continue;
      StoreTo<Le<std::uint32_t>>(file, at, check->first);
      const format::Lengths lengths = format::DecodeLengths(file.data() + at + 6, file.size() - at - 6);
      if (lengths.header > 2) StoreTo<Le<std::uint32_t>>(file, at + 6 + lengths.header, check->second);
    }
    for (std::size_t i = 0; i < kSealed.size(); ++i) {
      if (const auto word = LoadFrom<std::uint64_t>(file, kSealed[i]); word && sealed_[i])
        StoreTo(file, kSealed[i], format::SealLive(Unsealed(*word)));
    }
    FixSuperBlock(file, *super);
  }

 private:
  static constexpr std::array<std::uint64_t, 5> kSealed = {format::kLiveStateOffset + offsetof(format::LiveState, epoch),
                                                           format::kLiveStateOffset + offsetof(format::LiveState, tail),
                                                           format::kLiveStateOffset + offsetof(format::LiveState, num_lines),
                                                           format::kLiveStateOffset + offsetof(format::LiveState, index_extents),
                                                           format::kLiveStateOffset + offsetof(format::LiveState, oldest_retired_epoch)};
  static std::uint64_t Unsealed(std::uint64_t word) { return word & ((std::uint64_t{1} << format::kLiveBits) - 1); }

  // The check and the head check that a record there has.
  static std::optional<std::pair<std::uint32_t, std::uint32_t>> RecordChecks(std::string_view file, std::uint64_t at, const Block& super) {
    if (at + 6 >= file.size()) return std::nullopt;
    const format::Lengths lengths = format::DecodeLengths(file.data() + at + 6, file.size() - at - 6);
    if (lengths.header == 0) return std::nullopt;
    const std::uint64_t key = at + format::RecordHeadSize(lengths.header), size = lengths.key_size + lengths.value_size;
    if (key > file.size() || size > file.size() - key) return std::nullopt;
    const std::uint64_t hash = Hash64(file.substr(key, lengths.key_size), super.hash_seed);
    const std::uint32_t check = format::RecordCheck(file.substr(key + lengths.key_size, lengths.value_size), hash, at, super.secret);
    return std::pair(check, format::RecordHeadCheck(check, lengths.key_size, lengths.value_size, at, super.secret));
  }
  static void FixSuperBlock(std::string& file, Block super) {
    const auto round_up = [](std::uint64_t size) { return (size + 4095) / 4096 * 4096; };
    const std::uint64_t tail = super.tail, note = super.note_size;
    if (tail > file.size() || note > file.size() - tail) return FixSlots<Block>(file, format::kHashFileMagic);
    super.note_check = Hash64(file.data() + tail, note, super.secret);
    if (super.index_extents != 0) {
      std::uint64_t check = super.index_extents;
      for (std::uint64_t i = 0; i < std::min<std::uint64_t>(super.index_extents, format::kIndexExtentsMax); ++i) {
        const auto word = LoadFrom<std::uint32_t>(file, format::kIndexExtentsOffset + 4 * i);
        const auto entry = format::IndexExtentEntry::Unpack(word.value_or(0));
        if (!word || entry.offset + entry.bytes > file.size()) break;
        check = Hash64(file.data() + entry.offset, entry.bytes, MixBits(check ^ *word));
      }
      super.index_check = check;
    } else if (super.index_check != 0) {
      const std::uint64_t at = round_up(tail + note), count = LoadFrom<std::uint64_t>(file, at).value_or(0);
      const std::uint64_t head = round_up((1 + 2 * std::min<std::uint64_t>(count, file.size())) * 8);
      if (at <= file.size() && head <= file.size() - at) {
        std::uint64_t check = Hash64(file.data() + at, head, super.secret), extent = at + head;
        for (std::uint64_t i = 0; i < count; ++i) {
          const std::uint64_t bytes = LoadFrom<std::uint64_t>(file, at + 8 + 16 * i).value_or(0);
          if (extent > file.size() || bytes > file.size() - extent) break;
          check = Hash64(file.data() + extent, bytes, check);
          extent += bytes;
        }
        super.index_check = check | 1;
      }
    }
    StoreNewer(file, super);
    FixSlots<Block>(file, format::kHashFileMagic);
  }

  bool is_hash_ = false;
  std::vector<std::uint64_t> records_;  // offsets
  std::array<bool, kSealed.size()> sealed_{};
};

class ForgedTree {
 public:
  using Block = format::TreeSuperBlock;
  // The superblock of a tree or an array.
  static std::optional<Block> SuperOf(std::string_view file) {
    const auto super = NewerSuperBlock<Block>(file, format::kTreeFileMagic);
    return super ? super : NewerSuperBlock<Block>(file, format::kArrayFileMagic);
  }
  // Of all pages, nodes of the page map and superblocks, from below.
  static void Fix(std::string& file) {
    std::optional<Block> super = SuperOf(file);
    if (!super) return;
    int budget = kEntriesMax;
    for (unsigned root = 0; root < format::kMapRoots; ++root)
      FixEntry(file, super->secret, format::kMapLevels, root, &super->map[root], &budget);
    StoreNewer(file, *super);
    FixSlots<Block>(file, super->magic);
  }

 private:
  static constexpr int kEntriesMax = 5000;

  // `level` 0 is an image, and number its id.
  static void FixEntry(std::string& file, std::uint64_t secret, unsigned level, std::uint64_t number, format::PageEntry* entry,
                       int* budget) {
    const std::uint64_t begin = entry->place() * format::kTreeUnit, size = entry->units() * format::kTreeUnit;
    if (entry->IsNone() || size == 0 || begin > file.size() || size > file.size() - begin || --*budget < 0) return;
    if (level == 0) {
      const auto header = LoadFrom<format::PageImageHeader>(file, begin);  // that of an array begins as this one
      // Of a long value the file does not have the size here: its check stays as it is.
      if (header && header->id == number) entry->check = Hash64(file.data() + begin, size, MixBits(secret ^ number));
      return;
    }
    using Node = std::array<format::PageEntry, format::kMapFanout>;
    auto node = LoadFrom<Node>(file, begin);
    if (!node) return;
    for (unsigned i = 0; i < format::kMapFanout; ++i)
      FixEntry(file, secret, level - 1, number * format::kMapFanout + i, &(*node)[i], budget);
    StoreTo(file, begin, *node);
    entry->check = Hash64(file.data() + begin, sizeof(Node), MixBits(secret ^ (std::uint64_t{level} << 32 | number)));
  }
};

class ForgedSnapshot {
 public:
  static void Fix(std::string& file) {
    auto header = LoadFrom<format::SnapshotHeader>(file, 0);
    if (!header || header->magic != format::kSnapshotMagic) return;
    header->check = Hash64(&*header, offsetof(format::SnapshotHeader, check), 0);
    StoreTo(file, 0, *header);
    for (std::uint64_t at = sizeof(*header); auto block = LoadFrom<format::SnapshotBlockHeader>(file, at);) {
      const std::uint64_t payload = at + sizeof(*block), size = block->payload_bytes;
      if (size > file.size() - payload || (size == 0 && block->records == 0)) return;
      block->check = format::SnapshotBlockCheck(std::string_view(file).substr(payload, size), block->records, header->id, at);
      StoreTo(file, at, *block);
      at = payload + size;
    }
  }
  // The log that the last end block names.
  static std::optional<format::SnapshotLog> LogOf(std::string_view file) {
    std::optional<format::SnapshotLog> log;
    for (std::uint64_t at = sizeof(format::SnapshotHeader); auto block = LoadFrom<format::SnapshotBlockHeader>(file, at);) {
      const std::uint64_t payload = at + sizeof(*block), size = block->payload_bytes;
      if (block->records == 0 && size == sizeof(format::SnapshotEnd)) {
        if (const auto end = LoadFrom<format::SnapshotEnd>(file, payload)) log = end->log;
      }
      if (size == 0 || size > file.size() - payload) break;
      at = payload + size;
    }
    return log;
  }
};

// The secret that seeds the checks of the log of a database.
inline std::uint64_t LogSecretOf(std::string_view database) {
  if (const auto super = NewerSuperBlock<format::HashSuperBlock>(database, format::kHashFileMagic)) return super->secret;
  if (const auto super = ForgedTree::SuperOf(database)) return super->secret;
  if (const auto log = ForgedSnapshot::LogOf(database)) return log->secret;
  return 0;
}

class ForgedLog {
 public:
  ForgedLog(std::string_view log, std::uint64_t secret) {
    ForEachSegment(log, [&](const format::LogSegmentHeader& header, std::uint64_t segment) {
      const std::uint64_t size = format::LogSegmentSize(header.index) - format::kLogSegmentHeader;
      for (std::uint64_t at = 0; at < size;) {
        const std::uint64_t place = segment + format::kLogSegmentHeader + at;
        const auto check = CheckAt(log, place, header, at, secret);
        if (!check || LoadFrom<Le<std::uint32_t>>(log, place) != *check) break;
        records_.push_back({segment, at});
        at += format::LogRecordSpace(LoadFrom<format::LogRecordHeader>(log, place)->size);
      }
    });
  }
  void Fix(std::string& log, std::uint64_t secret) const {
    ForEachSegment(log, [&](format::LogSegmentHeader header, std::uint64_t segment) {
      header.check = CheckOf(header);
      StoreTo(log, segment, header);
    });
    for (const auto& [segment, at] : records_) {
      const auto header = LoadFrom<format::LogSegmentHeader>(log, segment);
      const std::uint64_t place = segment + format::kLogSegmentHeader + at;
      if (!header) continue;
      if (const auto check = CheckAt(log, place, *header, at, secret)) StoreTo<Le<std::uint32_t>>(log, place, *check);
    }
  }

 private:
  template <class F>
  static void ForEachSegment(std::string_view log, F&& visit) {
    for (std::uint32_t i = 0; format::LogSegmentOffset(i + 1) <= log.size(); ++i) {
      const std::uint64_t segment = format::LogSegmentOffset(i);
      const auto header = LoadFrom<format::LogSegmentHeader>(log, segment);
      if (header && header->magic == format::kLogMagic && header->index == i) visit(*header, segment);
    }
  }
  static std::optional<std::uint32_t> CheckAt(std::string_view log, std::uint64_t place, const format::LogSegmentHeader& segment,
                                              std::uint64_t at, std::uint64_t secret) {
    const auto record = LoadFrom<format::LogRecordHeader>(log, place);
    if (!record || record->size < sizeof(*record) || record->size > log.size() - place) return std::nullopt;
    return format::LogCheck(log.data() + place, record->size, segment.first_lsn + at, segment.sequence, secret);
  }

  struct Place {
    std::uint64_t segment, at;  // the offset of the segment; that of the record behind its header
  };
  std::vector<Place> records_;
};

}  // namespace hako::fuzz
