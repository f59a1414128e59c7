// Reads the undamaged records of a damaged tree file, for a salvage.
//
// The page map finds pages and long values (tree/file/image_salvage.h), so inner pages are not needed to
// find leaves.
//
// Records are shown in key order: leaves are sorted by their low fences. A gap between the fences
// of two successive leaves is a lost range.
//
// A long value could look like the image of a page, including its check. Therefore an id that a
// leaf names as a long value is not taken for a page.
//
// Takes memory for the low fence of each leaf, and 40 bytes for each page and long value. Not
// thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hako/base/aligned_buffer.h"
#include "hako/base/page_codec.h"
#include "hako/base/status.h"
#include "hako/file/file.h"
#include "hako/format/page_format.h"
#include "hako/format/record_format.h"
#include "hako/format/tree_file_format.h"
#include "hako/storage/damaged_file.h"
#include "hako/storage/salvage_report.h"
#include "hako/tree/file/image_salvage.h"
#include "hako/tree/file/page_encoding.h"
#include "hako/tree/file/page_image.h"

namespace hako::tree {

template <File FileT, PageCodec Codec>
class PageSalvage {
  using Kind = SalvageReport::Kind;
  using Images = ImageSalvage<FileT>;
  using Entry = format::PageEntry;

 public:
  // `super` must be checked. The file and the order must outlive the object.
  PageSalvage(const storage::DamagedFile<FileT>& file, const format::TreeSuperBlock& super, const format::PageOrder& order)
      : images_(file, super), report_(file.report()), order_(order) {}

  // Calls take(key, value) for each record, in key order. Returns the first error of `take`.
  template <class Take>
  Status Run(Take&& take) {
    if (images_.super().root == 0) return absl::OkStatus();  // no checkpoint yet
    images_.ForEachImage([this](std::uint32_t id, const Entry& entry) { Sort({.id = id, .entry = entry}); });
    SeparateLongValues();
    const auto has_lower_fence = [this](const Leaf& a, const Leaf& b) {
      if (!a.low || !b.low) return b.low && !a.low;
      return order_.compare(*a.low, *b.low) < 0;
    };
    std::ranges::stable_sort(leaves_, has_lower_fence);
    std::optional<std::string> from = "";  // where the next leaf should begin; nullopt = nowhere
    for (const Leaf& leaf : leaves_) {
      if (from && leaf.low.value_or("") != *from) AddLostRange(*from, leaf.low.value_or(""));
      HAKO_RETURN_IF_ERROR(TakeLeaf(leaf, &from, take));
    }
    if (from) AddLostRange(*from, std::nullopt);
    ReportUnnamed();
    return absl::OkStatus();
  }

 private:
  static std::uint64_t OffsetOf(const Entry& entry) { return Images::OffsetOf(entry); }
  static std::uint64_t SizeOf(const Entry& entry) { return Images::SizeOf(entry); }
  struct Image {
    std::uint32_t id = 0;
    bool is_sound = false;  // an inner page, or a long value that a leaf names
    Entry entry{};
  };
  struct Leaf {
    Image image;
    std::optional<std::string> low;  // its low fence, if it has one
  };

  // Returns the page of an image, in memory of this object until the next call; nullopt if it is
  // damaged, or the image is a long value.
  std::optional<PageImage> ReadPage(const Image& image) {
    if (SizeOf(image.entry) > format::kPageImageMax) return std::nullopt;
    const std::span<std::byte> bytes(image_.get(), SizeOf(image.entry)), room(page_.get(), format::kPageImageMax + 8);
    if (!images_.ReadImage(image.id, image.entry, bytes)) return std::nullopt;
    const auto unpacked = Unpack<Codec>(image.id, bytes, room);
    if (!unpacked.ok()) return std::nullopt;
    auto page = PageImage::Parse(image.id, *unpacked, order_, images_.super().id_end);
    return page.ok() ? std::optional(*std::move(page)) : std::nullopt;
  }

  // Classifies an image by its bytes. Images come in ascending order of their ids.
  void Sort(Image image) {
    const std::optional<PageImage> page = ReadPage(image);
    if (!page || page->shape().level() > 0) {
      image.is_sound = page.has_value();
      others_.push_back(image);
      return;
    }
    const bool has_low = (page->edges() & format::PageTail::kNoLow) == 0;
    leaves_.push_back({image, has_low ? std::optional(std::string(page->low())) : std::nullopt});
    for (unsigned i = 0; i < page->shape().count; ++i) {
      if (const auto value = page->ValueAt(i, order_); value.is_long) named_.push_back(LongValueOf(value).place);
    }
  }
  static format::OverflowValue LongValueOf(const PageImage::Value& value) {
    format::OverflowValue name;
    std::memcpy(&name, value.bytes.data(), sizeof(name));
    return name;
  }

  // Moves long values that look like pages to others_.
  void SeparateLongValues() {
    std::ranges::sort(named_);
    const auto is_named = [this](const Image& image) { return std::ranges::binary_search(named_, std::uint64_t{image.id}); };
    for (Image& image : others_) image.is_sound = image.is_sound && !is_named(image);
    for (const Leaf& leaf : leaves_) {
      if (is_named(leaf.image)) others_.push_back(leaf.image);
    }
    std::erase_if(leaves_, [&](const Leaf& leaf) { return is_named(leaf.image); });
    std::ranges::sort(others_, {}, &Image::id);
  }

  template <class Take>
  Status TakeLeaf(const Leaf& leaf, std::optional<std::string>* end, Take& take) {
    const std::optional<PageImage> page = ReadPage(leaf.image);
    if (!page) {  // the device has returned other bytes than before
      report_.Add(Kind::kPage, OffsetOf(leaf.image.entry), SizeOf(leaf.image.entry));
      return absl::OkStatus();
    }
    const bool has_high = (page->edges() & format::PageTail::kNoHigh) == 0;
    *end = has_high ? std::optional(std::string(page->high())) : std::nullopt;
    PageImage::KeyBuffer buffer;
    for (unsigned i = 0; i < page->shape().count; ++i) {
      const std::string_view key = page->Key(i, order_, buffer);
      const PageImage::Value value = page->ValueAt(i, order_);
      if (!value.is_long) {
        HAKO_RETURN_IF_ERROR(take(key, value.bytes));
      } else if (ReadLong(LongValueOf(value), key)) {
        HAKO_RETURN_IF_ERROR(take(key, std::string_view(long_)));
      }
    }
    return absl::OkStatus();
  }
  // Reads a value to long_, or reports that it is damaged.
  bool ReadLong(const format::OverflowValue& name, std::string_view key) {
    const auto found = std::ranges::lower_bound(others_, name.place, {}, &Image::id);
    if (found == others_.end() || found->id != name.place) {
      report_.Add(Kind::kLongValue, 0, name.size, key);  // the page map has lost the value
      return false;
    }
    found->is_sound = true;
    const Entry& entry = found->entry;
    // Check before taking memory, because a file that was cut cannot have such a value.
    const bool has_size = name.size <= kValueSizeMax && format::TreeUnitsFor(name.size) == entry.units();
    if (has_size && images_.IsInside(entry) && OffsetOf(entry) + name.size <= images_.file().end()) {
      long_.resize(name.size);
      if (images_.ReadImage(found->id, entry, std::as_writable_bytes(std::span(long_)))) return true;
    }
    report_.Add(Kind::kLongValue, OffsetOf(entry), SizeOf(entry), key);
    return false;
  }

  // Reports images that are neither a page nor named as a long value. If a page is damaged after
  // its head, the head still tells that it is a page.
  void ReportUnnamed() {
    for (const Image& image : others_) {
      if (image.is_sound) continue;
      format::PageImageHeader header{};
      const bool is_read = images_.file().ReadAt(OffsetOf(image.entry), std::as_writable_bytes(std::span(&header, 1))).ok();
      const bool is_page = SizeOf(image.entry) <= format::kPageImageMax && is_read && header.id == image.id;
      report_.Add(is_page ? Kind::kPage : Kind::kLongValue, OffsetOf(image.entry), SizeOf(image.entry));
    }
  }
  void AddLostRange(const std::string& from, const std::optional<std::string>& to) { report_.AddRange(from, to); }

  const Images images_;
  SalvageReport& report_;
  const format::PageOrder& order_;
  std::vector<Leaf> leaves_;          // by id, then by their low fences
  std::vector<Image> others_;         // by id
  std::vector<std::uint64_t> named_;  // ids of long values that leaves name
  const AlignedBuffer image_ = MakeAlignedBuffer(format::kPageImageMax + 8), page_ = MakeAlignedBuffer(format::kPageImageMax + 8);
  std::string long_;
};

}  // namespace hako::tree
