// Damaged database files for the tests of salvage: a database with its records, the pieces of its
// file, and the records that each piece holds.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dbm/listing.h"
#include "gtest/gtest.h"
#include "hako/base/comparator.h"
#include "hako/dbm/hash_dbm.h"
#include "hako/dbm/positional_hash_dbm.h"
#include "hako/dbm/positional_tree_dbm.h"
#include "hako/dbm/salvage.h"
#include "hako/dbm/tree_dbm.h"
#include "hako/format/record_format.h"
#include "hako/format/tree_file_format.h"
#include "hako/tree/file/page_image.h"
#include "hako/tree/page_view.h"
#include "support/checked_value.h"
#include "support/file_system.h"
#include "support/random.h"
#include "support/status_matchers.h"

namespace hako {

template <class D>
inline constexpr bool kIsTree = requires(D& db) {
  db.Range();
};

// Fills a database so that its file has replaced and removed records too; `longest` is the size of
// some values.
template <class D>
Records Fill(D& db, int num_records, std::size_t longest) {
  Records records;
  const auto set = [&](int i, std::uint64_t salt) {
    const std::size_t n = static_cast<std::size_t>(i);
    const std::string key = NumberedKey(n) + std::string(n % 7 == 0 ? 150 : 0, 'k');
    const std::size_t size = n % 100 == 1 ? longest : n % 5 == 0 ? 100 + n % 900 : 8 + n % 100;
    records[key] = CheckedValue(key, size, salt);
    EXPECT_THAT(db.Set(key, records[key]), IsOk());
  };
  for (int i = 0; i < num_records; ++i) set(i, 1);
  EXPECT_THAT(db.Synchronize(SyncMode::kHard), IsOk());
  for (int i = 0; i < num_records; i += 4) set(i, 2);
  for (auto it = records.begin(); it != records.end();) {
    if (std::hash<std::string>()(it->first) % 6 != 0) {
      ++it;
      continue;
    }
    EXPECT_THAT(db.Remove(it->first), IsOk());
    it = records.erase(it);
  }
  return records;
}

// Where a piece of the file lies, and the keys of the records that are lost with it.
struct Piece {
  std::uint64_t offset = 0, size = 0;
  std::set<std::string> keys;
  SalvageReport::Kind kind = SalvageReport::Kind::kRecord;
  std::uint32_t id = 0;  // of a page or a long value
};

// Of a hash file: the records, each without its stamp, which has no check.
inline std::vector<Piece> RecordsIn(std::string_view image, const Records& records) {
  std::vector<Piece> pieces;
  for (const auto& [key, value] : records) {
    const std::size_t at = image.find(key + value);
    if (at == image.npos) {
      ADD_FAILURE() << key << " is not in the file";
      continue;
    }
    const std::uint64_t head = format::RecordHeadSize(format::LengthsSize(key.size(), value.size()));
    Piece& piece = pieces.emplace_back();
    piece.offset = at - head;
    piece.size = head + key.size() + value.size();
    piece.keys = {key};
  }
  return pieces;
}

// Of a tree file: pages and long values, as the newer superblock reaches them.
class TreePieces {
 public:
  explicit TreePieces(std::string_view image) : image_(image) {
    format::TreeSuperBlock slots[2];
    for (std::size_t i : {0, 1}) std::memcpy(&slots[i], image.data() + i * storage::kSlotDistance, sizeof(slots[i]));
    super = slots[0].sequence > slots[1].sequence ? slots[0] : slots[1];
    for (unsigned root = 0; root < format::kMapRoots; ++root) Walk(format::kMapLevels - 1, root, super.map[root]);
    for (Piece& piece : long_values) {
      const auto& [key, size] = named_[piece.id];
      piece.keys = {key};
      piece.size = size;  // without the rest of its last unit, which has no check
    }
  }

  format::TreeSuperBlock super;
  std::vector<Piece> nodes, inner_pages, leaves, long_values;

 private:
  void Walk(unsigned level, std::uint64_t number, const format::PageEntry& named) {
    if (named.IsNone()) return;
    std::array<format::PageEntry, format::kMapFanout> node;
    std::memcpy(node.data(), image_.data() + named.place() * format::kTreeUnit, sizeof(node));
    nodes.push_back({named.place() * format::kTreeUnit, sizeof(node), {}, SalvageReport::Kind::kPageMap, 0});
    for (std::uint64_t i = 0; i < node.size(); ++i) {
      if (level > 0) {
        Walk(level - 1, number * node.size() + i, node[i]);
      } else if (!node[i].IsNone()) {
        Take(static_cast<std::uint32_t>(number * node.size() + i), node[i]);
      }
    }
  }
  void Take(std::uint32_t id, const format::PageEntry& entry) {
    const std::uint64_t offset = entry.place() * format::kTreeUnit, size = entry.units() * format::kTreeUnit;
    std::string bytes(image_.substr(offset, size));
    bytes.append(8, '\0');
    static constexpr auto kOrder = tree::PageView<BytewiseComparator>::kOrder;
    const auto page = size > format::kPageImageMax
                          ? StatusOr<tree::PageImage>(absl::DataLossError("too long"))
                          : tree::PageImage::Parse(id, std::as_bytes(std::span(bytes)).first(size), kOrder, super.id_end);
    if (!page.ok()) {
      long_values.push_back({offset, size, {}, SalvageReport::Kind::kLongValue, id});
      return;
    }
    Piece piece{offset, size, {}, SalvageReport::Kind::kPage, id};
    if (page->shape().level() > 0) {
      inner_pages.push_back(piece);
      return;
    }
    tree::PageImage::KeyBuffer buffer;
    for (unsigned i = 0; i < page->shape().count; ++i) {
      const std::string key(page->Key(i, kOrder, buffer));
      piece.keys.insert(key);
      if (const auto value = page->ValueAt(i, kOrder); value.is_long) {
        format::OverflowValue name;
        std::memcpy(&name, value.bytes.data(), sizeof(name));
        named_[name.place] = {key, name.size};
      }
    }
    leaves.push_back(piece);
  }

  const std::string_view image_;
  std::map<std::uint64_t, std::pair<std::string, std::uint64_t>> named_;  // keys and sizes of long values, by id
};

// Salvages the file at `from` and returns the records of the new database, which is sound.
template <class D>
struct Salvaged {
  Status status;
  SalvageReport report;
  Records records;

  Salvaged(const std::string& from, const std::string& to) {
    auto result = Salvage<D>(from, to);
    status = result.status();
    if (!result.ok()) return;
    report = *std::move(result);
    auto db = D::Open(to);
    EXPECT_THAT(db.status(), IsOk());
    if (!db.ok()) return;
    records = ListByProcessEach(**db).records;
    EXPECT_EQ((*db)->Count(), records.size());
    EXPECT_THAT((*db)->Verify(), IsOk());
    EXPECT_THAT((*db)->Close(), IsOk());
  }

  std::multiset<std::uint64_t> OffsetsOf(SalvageReport::Kind kind) const {
    std::multiset<std::uint64_t> offsets;
    for (const SalvageReport::Place& place : report.places) {
      if (place.kind == kind) offsets.insert(place.offset);
    }
    return offsets;
  }
};

}  // namespace hako
