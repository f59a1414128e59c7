// The index of a closed hash file, as a salvage uses it. An index that passes its check names
// exactly the records of the database. An index that fails its check can still contradict a stamp
// that says that a record is live: a stamp has no check, so damage may make a dead record look
// live.
//
// The parts of an index have no checks of their own. A bucket is believed if all of its entries
// name records of the state that belong there. An empty bucket may have been wiped, so it is
// believed only if the other buckets of its sector are believed and one of them has an entry. A
// believed bucket may still be an older version of itself, or lack an entry, so the caller compares
// numbers of records.
//
// Not thread-safe. The report must outlive the object.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "hako/base/assert.h"
#include "hako/base/hash.h"
#include "hako/base/status.h"
#include "hako/format/bucket_format.h"
#include "hako/format/hash_file_format.h"
#include "hako/hash/file/extent_file.h"
#include "hako/hash/file/index_arena.h"
#include "hako/hash/line_access.h"
#include "hako/hash/line_table.h"
#include "hako/hash/table_shape.h"
#include "hako/storage/damaged_file.h"
#include "hako/storage/salvage_report.h"

namespace hako::hash {

template <File FileT>
class SalvagedIndex {
  using Extents = ExtentFile<storage::DamagedFile<FileT>>;
  using Line = format::BucketLine;

 public:
  // An entry, and the bucket in which it is.
  struct Named {
    std::uint32_t handle, bucket;
    std::uint16_t tag;
  };

  explicit SalvagedIndex(SalvageReport& report) : report_(report) {}

  // Reads the index. Returns false if it was not saved, or is damaged, which it reports.
  bool Load(Extents& file);
  // All entries, by handle. REQUIRES: Load has returned true
  const std::vector<Named>& named() const {
    HAKO_DCHECK(shape_.num_lines() != 0 && !is_damaged_);
    return named_;
  }
  bool Names(const Named& entry, std::uint64_t key_hash) const {
    return shape_.IndexOf(key_hash) == entry.bucket && shape_.TagOf(key_hash, entry.bucket) == entry.tag;
  }

  // Whether the damaged index contradicts that the record is live: the buckets that would name the
  // record are believed and do not name it. key_hash_at(handle) returns the hash of the key of the
  // state's record there, or nullopt if there is none.
  template <class KeyHashAt>
  bool Contradicts(std::uint64_t key_hash, std::uint32_t handle, KeyHashAt&& key_hash_at) {
    if (!is_damaged_) return false;
    const std::uint64_t bucket = shape_.IndexOf(key_hash);
    chain_.clear();
    for (Place place = HomePlace(bucket);; place = OverflowPlace(LineAt(place).slots[format::kLinkEntry])) {
      if (place.chunk == nullptr || chain_.size() == kBelievedChainMax) return false;
      const Line line = LineAt(place);
      if (std::find(line.slots.begin(), line.slots.begin() + NumEntries(line), handle) != line.slots.begin() + NumEntries(line))
        return false;
      chain_.push_back(place);
      if (!HasLink(line.header)) break;
    }
    for (std::size_t i = 0; i < chain_.size(); ++i) {
      const std::uint64_t owner = OwnerOf(chain_[i], key_hash_at);
      if (owner != bucket && (owner != kEmpty || i != 0 || !IsBelievedSector(chain_[i], bucket, key_hash_at))) return false;
    }
    return true;
  }

 private:
  // A part of the index in memory; its lines are nullptr if it is lost.
  struct Chunk {
    std::uint64_t bytes = 0;
    const char* begin = nullptr;
    bool is_overflow = false;
  };
  struct Place {
    const Chunk* chunk = nullptr;
    std::uint64_t at = 0;
  };
  static constexpr unsigned kChainMax = 1 << 16, kBelievedChainMax = 256;
  static constexpr std::uint64_t kSectorLines = 512 / sizeof(Line);
  static constexpr std::uint64_t kNoBucket = ~std::uint64_t{0}, kEmpty = kNoBucket - 1;

  static unsigned NumEntries(const Line& line) { return HasLink(line.header) ? format::kLinkEntry : format::kLineEntries; }
  static Line LineAt(Place place) {
    Line line;
    std::memcpy(&line, place.chunk->begin + place.at, sizeof(line));
    return line;
  }
  Place HomePlace(std::uint64_t bucket) const {
    constexpr std::uint64_t kSmall = format::kSmallIndexExtent / sizeof(Line), kLarge = format::kLargeIndexExtent / sizeof(Line);
    constexpr std::uint64_t kNumSmall = LineTable<int>::kSmallChunks;
    const bool is_small = bucket < kNumSmall * kSmall;
    const std::uint64_t large = is_small ? 0 : bucket - kNumSmall * kSmall;
    const std::uint64_t chunk = is_small ? bucket / kSmall : kNumSmall + large / kLarge;
    const std::uint64_t at = (is_small ? bucket % kSmall : large % kLarge) * sizeof(Line);
    if (chunk >= home_.size() || home_[chunk].begin == nullptr || at >= home_[chunk].bytes) return {};
    return {&home_[chunk], at};
  }
  Place OverflowPlace(std::uint32_t id) const {
    const std::uint64_t offset = std::uint64_t{id} * sizeof(Line);
    const auto next = overflow_.upper_bound(offset);
    if (id == 0 || next == overflow_.begin()) return {};
    const auto& [begin, chunk] = *std::prev(next);
    return offset - begin < chunk.bytes ? Place{&chunk, offset - begin} : Place{};
  }
  // Returns the bucket that all entries belong to; kEmpty if there are no entries, kNoBucket if
  // there is no such bucket.
  template <class KeyHashAt>
  std::uint64_t OwnerOf(Place place, KeyHashAt& key_hash_at) {
    const auto [known, is_new] = owners_.try_emplace(place.chunk->begin + place.at, kNoBucket);
    if (!is_new) return known->second;
    const Line line = LineAt(place);
    std::uint64_t owner = kEmpty;
    for (unsigned i = 0; i < NumEntries(line); ++i) {
      if (line.slots[i] == 0) continue;
      const std::optional<std::uint64_t> hash = key_hash_at(line.slots[i]);
      if (!hash) return kNoBucket;
      const std::uint64_t bucket = shape_.IndexOf(*hash);
      if ((owner != kEmpty && owner != bucket) || shape_.TagOf(*hash, bucket) != line.tags[i]) return kNoBucket;
      owner = bucket;
    }
    return known->second = owner;
  }
  // Whether the sector of this home bucket has an entry, and all its entries are where they belong.
  template <class KeyHashAt>
  bool IsBelievedSector(Place place, std::uint64_t bucket, KeyHashAt& key_hash_at) {
    const std::uint64_t own = place.at / sizeof(Line) % kSectorLines;
    bool has_entry = false;
    for (std::uint64_t i = 0; i < kSectorLines; ++i) {
      const std::uint64_t owner = OwnerOf({place.chunk, place.at + (i - own) * sizeof(Line)}, key_hash_at);
      if (owner != kEmpty && owner != bucket + (i - own)) return false;
      has_entry |= owner != kEmpty;
    }
    return has_entry;
  }

  void Add(std::uint64_t offset, const Chunk& chunk) {
    if (chunk.is_overflow) {
      overflow_[offset] = chunk;
    } else {
      home_.push_back(chunk);
    }
  }
  bool LoadTable(Extents& file);
  bool LoadImage(Extents& file);
  bool ReadEntries(const format::HashSuperBlock& super);

  SalvageReport& report_;
  bool is_damaged_ = false;
  TableShape shape_ = TableShape::Of(0);
  std::vector<Chunk> home_;                  // home lines, in order
  std::map<std::uint64_t, Chunk> overflow_;  // by offset
  std::vector<std::unique_ptr<char[]>> memory_;
  std::unique_ptr<IndexArena> arena_;
  std::unordered_map<const char*, std::uint64_t> owners_;  // of the buckets that were tried
  std::vector<Place> chain_;
  std::vector<Named> named_;
};

template <File FileT>
bool SalvagedIndex<FileT>::Load(Extents& file) {
  const format::HashSuperBlock& super = file.super();
  const bool is_map = super.index_extents != 0;
  if (!is_map && super.index_check == 0) return false;  // the device was full
  if (super.num_lines >= 2 && super.num_lines <= TableShape::kMaxLines) {
    shape_ = TableShape::Of(super.num_lines);
    const bool is_sound = is_map ? LoadTable(file) : LoadImage(file);
    if (is_sound && ReadEntries(super)) return true;
    is_damaged_ = true;
  }
  named_.clear();
  report_.Add(SalvageReport::Kind::kIndex, is_map ? format::kIndexExtentsOffset : super.tail + super.note_size,
              is_map ? super.index_extents * sizeof(std::uint32_t) : 0);
  return false;
}

// Reads an index that was saved after the closing note.
template <File FileT>
bool SalvagedIndex<FileT>::LoadImage(Extents& file) {
  const format::HashSuperBlock& super = file.super();
  StatusOr<std::unique_ptr<IndexArena>> arena = IndexArena::Create();
  if (!arena.ok()) return false;
  arena_ = *std::move(arena);
  const StatusOr<bool> is_sound = arena_->Load(file, super.tail + super.note_size, super.secret, super.index_check);
  for (const format::IndexExtentEntry& extent : arena_->extents())
    Add(extent.offset, {extent.bytes, reinterpret_cast<const char*>(arena_->base()) + extent.offset, extent.overflow});
  return is_sound.ok() && *is_sound;
}

// Reads an index that is in extents of the file, which a table lists.
template <File FileT>
bool SalvagedIndex<FileT>::LoadTable(Extents& file) {
  const format::HashSuperBlock& super = file.super();
  std::vector<std::uint32_t> table(super.index_extents);
  if (!file.Read(format::kIndexExtentsOffset, reinterpret_cast<char*>(table.data()), table.size() * sizeof(std::uint32_t)).ok())
    return false;
  std::uint64_t check = table.size(), size = 0;
  bool is_whole = true;
  for (const std::uint32_t word : table) {
    const auto entry = format::IndexExtentEntry::Unpack(word);
    const bool is_inside = entry.offset >= format::kFirstExtent && entry.offset <= file.tail() && entry.bytes <= file.tail() - entry.offset;
    if (!is_inside || (size += entry.bytes) > file.tail()) {
      is_whole = false;
      Add(0, {entry.bytes, nullptr, false});  // one of home lines, as most are
      continue;
    }
    const auto& bytes = memory_.emplace_back(std::make_unique<char[]>(entry.bytes));
    is_whole = file.Read(entry.offset, bytes.get(), entry.bytes).ok() && is_whole;
    check = Hash64(bytes.get(), entry.bytes, MixBits(check ^ word));
    Add(entry.offset, {entry.bytes, bytes.get(), entry.overflow});
  }
  return is_whole && check == super.index_check;
}

// Collects the entries of all chains. Returns false if a chain is broken, or the number of entries
// is wrong.
template <File FileT>
bool SalvagedIndex<FileT>::ReadEntries(const format::HashSuperBlock& super) {
  for (std::uint64_t bucket = 0; bucket < super.num_lines; ++bucket) {
    Place place = HomePlace(bucket);
    for (unsigned length = 0;; ++length) {
      if (place.chunk == nullptr || length == kChainMax) return false;
      const Line line = LineAt(place);
      for (unsigned i = 0; i < NumEntries(line); ++i) {
        if (line.slots[i] != 0) named_.push_back({line.slots[i], static_cast<std::uint32_t>(bucket), line.tags[i]});
      }
      if (!HasLink(line.header)) break;
      place = OverflowPlace(line.slots[format::kLinkEntry]);
    }
  }
  std::ranges::sort(named_, {}, &Named::handle);
  return named_.size() == super.num_records;
}

}  // namespace hako::hash
