// Reads the undamaged records of a damaged array file, for a salvage.
//
// It finds leaves by the page map (tree/file/image_salvage.h) instead of the directory, because the
// image of a leaf has its number. It shows records in the order of their numbers.
//
// The directory tells which records are lost. A leaf that a directory page of level 1 names, and
// that has no undamaged image, is a lost range of as many numbers as a leaf has. If the page that
// should name a damaged leaf is damaged, too, all numbers below that page are a lost range, except
// those of leaves that were found. Some of the lost records may never have existed.
//
// Takes memory for 48 bytes for each page. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "hako/array/array_pages.h"
#include "hako/array/record_key.h"
#include "hako/base/aligned_buffer.h"
#include "hako/base/status.h"
#include "hako/file/file.h"
#include "hako/format/array_format.h"
#include "hako/format/tree_file_format.h"
#include "hako/storage/damaged_file.h"
#include "hako/storage/salvage_report.h"
#include "hako/tree/file/image_salvage.h"

namespace hako::array {

template <File FileT>
class ArraySalvage {
  using Images = tree::ImageSalvage<FileT>;
  using Entry = format::PageEntry;

 public:
  // `super` must be checked, including its width. The file must outlive the object.
  ArraySalvage(const storage::DamagedFile<FileT>& file, const format::TreeSuperBlock& super)
      : images_(file, super), pages_(super.page_size) {}

  // Calls take(key, value) for each record, in the order of numbers. Returns the first error of `take`.
  template <class Take>
  Status Run(Take&& take) {
    if (images_.super().root == 0) return absl::OkStatus();  // no checkpoint yet
    const bool is_map_whole = images_.ForEachImage([this](std::uint32_t id, const Entry& entry) { Sort(id, entry); });
    std::ranges::stable_sort(leaves_, {}, &Leaf::number);
    ReportLost(!is_map_whole);
    for (const Leaf& leaf : leaves_) HAKO_RETURN_IF_ERROR(TakeLeaf(leaf, take));
    return absl::OkStatus();
  }

 private:
  struct Leaf {
    std::uint64_t number;
    std::uint32_t id;
    Entry entry;
  };
  // A page that its parent names.
  struct Named {
    std::uint32_t id;
    unsigned level;
    std::uint64_t number;
  };
  // Leaf numbers, [first, second).
  using Leaves = std::pair<std::uint64_t, std::uint64_t>;

  static Leaves LeavesBelow(unsigned level, std::uint64_t number) {
    return {number << format::kFanoutBits * level, (number + 1) << format::kFanoutBits * level};
  }

  // Returns the page of an image, in memory of this object until the next call; nullopt if it is
  // damaged.
  std::optional<tree::PageKind::Image> ReadPage(std::uint32_t id, const Entry& entry) {
    const std::uint64_t size = Images::SizeOf(entry);
    if (size > format::kPageImageMax) return std::nullopt;
    const std::span<std::byte> bytes(buffer_.get(), size);
    if (!images_.ReadImage(id, entry, bytes)) return std::nullopt;
    auto page = pages_.Parse(id, bytes, images_.super().id_end);
    return page.ok() ? std::optional(*std::move(page)) : std::nullopt;
  }
  void AddDamage(std::uint32_t id, const Entry& entry) {
    images_.report().Add(SalvageReport::Kind::kPage, Images::OffsetOf(entry), Images::SizeOf(entry));
    damaged_.push_back(id);
  }

  // Images come in ascending order of their ids.
  void Sort(std::uint32_t id, const Entry& entry) {
    const auto page = ReadPage(id, entry);
    if (!page) return AddDamage(id, entry);
    const unsigned level = page->shape.level();
    if (level == 0) return leaves_.push_back({page->number, id, entry});
    directories_.push_back(id);
    if (level == 1) covered_.push_back(LeavesBelow(1, page->number));
    for (unsigned i = 0; i < page->num_children; ++i) {
      const auto child = pages_.ChildOf(*page, i);
      named_.push_back({child.id, level - 1, child.number});
    }
  }

  // `lacks_images`: whether there may be more damaged pages than those in damaged_.
  void ReportLost(bool lacks_images) {
    std::ranges::sort(named_, {}, &Named::id);
    std::vector<Leaves> lost, unknown;  // `unknown`: below a lost directory page
    for (const Named& named : named_) {
      if (named.level > 0) {
        if (!std::ranges::binary_search(directories_, named.id)) unknown.push_back(LeavesBelow(named.level, named.number));
      } else if (!std::ranges::binary_search(leaves_, named.number, {}, &Leaf::number)) {
        lost.push_back({named.number, named.number + 1});
      }
    }
    const std::uint32_t root = images_.super().root;
    if (!std::ranges::binary_search(directories_, root)) unknown = {{0, pages_.shape().leaves()}};
    const auto is_nameless = [&](std::uint32_t id) { return id != root && !std::ranges::binary_search(named_, id, {}, &Named::id); };
    if (lacks_images || std::ranges::any_of(damaged_, is_nameless)) AddGaps(std::move(unknown), &lost);
    std::ranges::sort(lost);
    for (std::size_t i = 0, next; i < lost.size(); i = next) {
      for (next = i + 1; next < lost.size() && lost[next].first <= lost[i].second; ++next)
        lost[i].second = std::max(lost[i].second, lost[next].second);
      Report(lost[i]);
    }
  }
  // Adds the parts of `ranges` that no known page covers to *lost.
  void AddGaps(std::vector<Leaves> ranges, std::vector<Leaves>* lost) {
    if (ranges.empty()) return;
    for (const Leaf& leaf : leaves_) covered_.push_back({leaf.number, leaf.number + 1});
    std::ranges::sort(covered_);
    std::ranges::sort(ranges);
    auto next = covered_.cbegin();
    std::uint64_t at = 0;
    for (const auto& [begin, end] : ranges) {
      at = std::max(at, begin);
      for (; next != covered_.cend() && next->first < end; ++next) {
        if (next->first > at) lost->push_back({at, next->first});
        at = std::max(at, next->second);
      }
      if (at < end) lost->push_back({std::exchange(at, end), end});
    }
  }
  void Report(const Leaves& lost) {
    const std::uint64_t k = pages_.shape().per_leaf, to = lost.second * k;
    const auto key = [](std::uint64_t id) { return std::string(RecordKey(id).view()); };
    images_.report().AddRange(key(lost.first * k), to > kRecordIdMax ? std::nullopt : std::optional(key(to)));
  }

  template <class Take>
  Status TakeLeaf(const Leaf& leaf, Take& take) {
    const auto page = ReadPage(leaf.id, leaf.entry);
    if (!page) {  // the device has returned different bytes this time
      AddDamage(leaf.id, leaf.entry);
      Report({leaf.number, leaf.number + 1});
      return absl::OkStatus();
    }
    const std::uint64_t first = leaf.number * pages_.shape().per_leaf;
    return pages_.ForEachRecord(*page, [&](unsigned i, std::string_view record) { return take(RecordKey(first + i).view(), record); });
  }

  const Images images_;
  const ArrayPages pages_;
  std::vector<Leaf> leaves_;                // by id, then by number
  std::vector<std::uint32_t> directories_;  // ids of pages, ascending
  std::vector<std::uint32_t> damaged_;      // ids of damaged pages, ascending
  std::vector<Named> named_;
  std::vector<Leaves> covered_;  // ranges whose leaves are all named by a directory page of level 1
  const AlignedBuffer buffer_ = MakeAlignedBuffer(format::kPageImageMax);
};

}  // namespace hako::array
