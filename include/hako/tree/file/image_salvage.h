// Finds the images that the last checkpoint of a damaged file of pages names, for a salvage of its pages
// (tree/file/page_salvage.h, array/array_salvage.h).
//
// The page map names all images of the last checkpoint, with their checks. So each image is found
// without other pages, and an image that passes its check belongs to the checkpoint and is not an
// older one. If a node of the map is damaged, the images below it are lost. A scan of the file
// could not replace the node: images have no check inside, and the file may have older images of
// the same page, so a scan could not tell right values from stale ones.
//
// Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "hako/base/hash.h"
#include "hako/file/file.h"
#include "hako/format/tree_file_format.h"
#include "hako/storage/damaged_file.h"
#include "hako/storage/salvage_report.h"

namespace hako::tree {

template <File FileT>
class ImageSalvage {
 public:
  using Entry = format::PageEntry;

  // `super` must be checked. The file must outlive the object.
  ImageSalvage(const storage::DamagedFile<FileT>& file, const format::TreeSuperBlock& super)
      : file_(file), report_(file.report()), super_(super) {}

  const storage::DamagedFile<FileT>& file() const { return file_; }
  SalvageReport& report() const { return report_; }
  const format::TreeSuperBlock& super() const { return super_; }

  static std::uint64_t OffsetOf(const Entry& entry) { return entry.place() * format::kTreeUnit; }
  static std::uint64_t SizeOf(const Entry& entry) { return entry.units() * format::kTreeUnit; }
  bool IsInside(const Entry& entry) const {
    return entry.place() >= format::kTreeFirstUnit && entry.place() <= super_.end && entry.units() <= super_.end - entry.place();
  }
  // Reads the bytes that the entry of an id names, up to out.size() of them. Returns whether they
  // pass the check.
  bool ReadImage(std::uint64_t id, const Entry& entry, std::span<std::byte> out) const { return Read(entry, SeedOf(id), out); }

  // Calls visit(id, entry) for each image, in ascending order of ids. Reports damaged nodes of the map, and
  // returns whether there is none.
  template <class F>
  bool ForEachImage(F&& visit) const {
    bool is_whole = true;
    for (unsigned root = 0; root < format::kMapRoots; ++root) is_whole &= FindBelow(format::kMapLevels - 1, root, super_.map[root], visit);
    return is_whole;
  }

 private:
  std::uint64_t SeedOf(std::uint64_t number) const { return MixBits(super_.secret ^ number); }
  bool Read(const Entry& entry, std::uint64_t seed, std::span<std::byte> out) const {
    return IsInside(entry) && file_.ReadAt(OffsetOf(entry), out).ok() && Hash64(out.data(), out.size(), seed) == entry.check;
  }

  template <class F>
  bool FindBelow(unsigned level, std::uint64_t number, const Entry& named, F& visit) const {
    if (named.IsNone()) return true;
    std::array<Entry, format::kMapFanout> node;
    if (SizeOf(named) != sizeof(node) || !Read(named, SeedOf((level + 1ull) << 32 | number), std::as_writable_bytes(std::span(node)))) {
      report_.Add(SalvageReport::Kind::kPageMap, OffsetOf(named), sizeof(node));
      return false;
    }
    bool is_whole = true;
    for (std::uint64_t i = 0; i < format::kMapFanout; ++i) {
      const std::uint64_t below = number * format::kMapFanout + i;
      if (level > 0) {
        is_whole &= FindBelow(level - 1, below, node[i], visit);
      } else if (!node[i].IsNone() && below < super_.id_end) {
        visit(static_cast<std::uint32_t>(below), node[i]);
      }
    }
    return is_whole;
  }

  const storage::DamagedFile<FileT>& file_;
  SalvageReport& report_;
  const format::TreeSuperBlock super_;
};

}  // namespace hako::tree
