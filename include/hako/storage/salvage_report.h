// The report of a salvage (dbm/salvage.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hako/base/language.h"

namespace hako {

// The result of a salvage: the contents of the new database, and the losses.
struct SalvageReport {
  // The kinds of damaged places.
  enum class Kind {
    kSuperBlock,    // one of the two superblocks
    kUnreadable,    // bytes that the device does not return
    kTruncated,     // bytes after the end of the file
    kRecord,        // a record of a hash table (without a sound index, or bytes that look like one), or a row of a table
    kExtentHeader,  // the header that should mark an extent of a hash table as having records
    kIndex,         // the index of a hash table, which is rebuilt
    kPageMap,       // a part of the page map of a tree or an array
    kPage,          // a page of a tree or an array
    kLongValue,     // a long value of a tree that fails its check, or that no undamaged page names
  };
  // A place of the damaged file.
  struct Place {
    Kind kind = Kind::kRecord;  // what is damaged
    std::uint64_t offset = 0;   // of its first byte
    std::uint64_t size = 0;     // in bytes; 0 = unknown
    std::string key;            // of the record, if it is readable and fits into kKeyBytesMax; else empty
  };
  // A range of keys: [from, to), or all keys from `from` on if there is no `to`. The keys of an
  // array are record numbers.
  struct LostRange {
    std::string from;               // the first key
    std::optional<std::string> to;  // the key after it
  };
  static constexpr std::size_t kPlacesMax = 100'000;          // entries of `places`, and of `lost_ranges`
  static constexpr std::uint64_t kKeyBytesMax = 16 << 20;     // of all keys of `places`; a key is listed whole or not at all
  static constexpr std::uint64_t kRangeBytesMax = 256 << 20;  // of all keys of `lost_ranges`

  std::uint64_t num_records = 0;          // in the new database, without the updates of the log
  std::optional<std::uint64_t> num_lost;  // records that are missing; nullopt = unknown
  std::uint64_t num_updates = 0;          // of the log, made in the new database
  std::uint64_t num_places = 0;           // damaged places, listed or not
  std::vector<Place> places;              // the first kPlacesMax of them
  std::vector<LostRange> lost_ranges;     // of a tree or an array: all records in them are lost; limited by kRangeBytesMax
  std::vector<std::string> notes;         // why the new database may lack more than the lost records

  // Whether the new database has everything that the damaged one had.
  bool IsComplete() const { return num_lost == std::optional<std::uint64_t>(0) && notes.empty(); }

  // Adds a damaged place.
  void Add(Kind kind, std::uint64_t offset, std::uint64_t size, std::string_view key = {}) {
    ++num_places;
    if (places.size() == kPlacesMax) return;
    const bool fits = key.size() <= kKeyBytesMax - key_bytes_;
    if (fits) key_bytes_ += key.size();
    places.push_back({kind, offset, size, fits ? std::string(key) : std::string()});
  }
  // Adds a lost range.
  void AddRange(const std::string& from, const std::optional<std::string>& to) {
    const std::uint64_t bytes = from.size() + (to ? to->size() : 0);
    if (lost_ranges.size() == kPlacesMax || bytes > kRangeBytesMax - range_bytes_) return;
    range_bytes_ += bytes;
    lost_ranges.push_back({from, to});
  }

 private:
  std::uint64_t key_bytes_ = 0, range_bytes_ = 0;
};

// Returns the name of a kind for people, such as "superblock".
constexpr std::string_view NameOf(SalvageReport::Kind kind) {
  using enum SalvageReport::Kind;
  switch (kind) {
    case kSuperBlock:
      return "superblock";
    case kUnreadable:
      return "unreadable";
    case kTruncated:
      return "truncated";
    case kRecord:
      return "record";
    case kExtentHeader:
      return "extent header";
    case kIndex:
      return "index";
    case kPageMap:
      return "page map";
    case kPage:
      return "page";
    case kLongValue:
      return "long value";
  }
  return "unknown";
}

}  // namespace hako
