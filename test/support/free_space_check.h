// Reads the closing note of a HashDBM's file and tells whether a byte that it calls free belongs to
// something else, or is free twice. The database itself would notice only when it has handed such a
// byte out.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "hako/format/hash_file_format.h"
#include "hako/format/record_format.h"
#include "hako/format/size_class.h"
#include "support/file_system.h"
#include "support/hash_forgery.h"

namespace hako {

class FreeSpaceCheck {
 public:
  // Of a file that was closed. The result is empty if all is well, otherwise it names the first two
  // pieces that overlap.
  static std::string Of(const HashForgery::Image& image) {
    FreeSpaceCheck check(image);
    check.MarkUsed();
    check.MarkFree();
    return check.error_;
  }
  // Bytes that neither belong to anything nor are free, of a file whose note lists all free space.
  static std::uint64_t LostBytes(const HashForgery::Image& image) {
    FreeSpaceCheck check(image);
    check.MarkUsed();
    check.MarkFree();
    std::uint64_t units = 0;
    for (std::uint64_t at = format::kFirstExtent / check.unit_; at < check.uses_.size(); ++at) units += check.uses_[at] == kNothing;
    return units * check.unit_;
  }
  static std::string OfFile(const std::string& path) {
    const std::string bytes = ReadWhole(path);
    const auto* const begin = reinterpret_cast<const std::byte*>(bytes.data());
    return Of(HashForgery::Image(begin, begin + bytes.size()));
  }

 private:
  enum Use : char { kNothing, kIndex, kHeader, kRecord, kFreeExtent, kFreeRun, kFreeBlock };

  explicit FreeSpaceCheck(const HashForgery::Image& image)
      : image_(image), file_(image), unit_(std::uint64_t{1} << file_.super.align_pow), uses_(file_.super.tail / unit_) {}

  void Mark(std::uint64_t begin, std::uint64_t bytes, Use use) {
    if (begin % unit_ != 0 || begin > file_.super.tail || bytes > file_.super.tail - begin) return Report(begin, bytes, use, "the end");
    for (std::uint64_t at = begin; at < begin + bytes; at += unit_) {
      Use& there = uses_[at / unit_];
      if (there != kNothing) return Report(begin, bytes, use, NameOf(there));
      there = use;
    }
  }
  void Report(std::uint64_t begin, std::uint64_t bytes, Use use, const std::string& other) {
    if (error_.empty())
      error_ = NameOf(use) + " of " + std::to_string(bytes) + " bytes at offset " + std::to_string(begin) + " overlaps " + other;
  }
  static std::string NameOf(Use use) {
    constexpr const char* kNames[] = {"nothing",       "an index extent", "the head of an extent", "a record",
                                      "a free extent", "a free run",      "a free block"};
    return kNames[use];
  }

  void MarkUsed() {
    for (std::uint64_t i = 0; i < file_.super.index_extents; ++i) {
      std::uint32_t word;
      std::memcpy(&word, &image_[format::kIndexExtentsOffset + i * sizeof(word)], sizeof(word));
      const auto extent = format::IndexExtentEntry::Unpack(word);
      Mark(extent.offset, extent.bytes, kIndex);
    }
    for (const std::uint64_t extent : file_.heap_extents) {
      if (uses_[extent / unit_] == kNothing) Mark(extent, sizeof(format::HeapExtentHeader), kHeader);
    }
    for (const std::uint64_t record : file_.Records()) {
      const char* const lengths = reinterpret_cast<const char*>(&image_[record + 6]);
      const format::Lengths size = format::DecodeLengths(lengths, std::min<std::size_t>(format::kLengthsMax, image_.size() - record - 6));
      const std::uint64_t bytes = format::RecordHeadSize(size.header) + size.key_size + size.value_size;
      Mark(record, format::UnitsOf(format::SizeClassOf((bytes + unit_ - 1) / unit_)) * unit_, kRecord);
    }
  }

  void MarkFree() {
    rest_ = {reinterpret_cast<const char*>(file_.note.data()), file_.note.size()};
    if (rest_.empty()) return;
    for (std::uint64_t count = Take(8); count != 0; --count) {
      const std::uint64_t offset = Take(8);
      Mark(offset, Take(8), kFreeExtent);
    }
    if (Take(8) != 0) return;  // the next Open looks for the rest
    for (std::uint64_t count = Take(8); count != 0; --count) {
      const std::uint64_t begin = Take(8);
      Mark(begin, Take(8) - begin, kFreeRun);
    }
    while (!rest_.empty()) {
      const std::uint64_t list = Take(8);
      const auto bytes = format::UnitsOf(static_cast<unsigned>(list % format::kSizeClasses)) * unit_;
      for (std::uint64_t count = Take(8); count != 0; --count) Mark(Take(4) * unit_, bytes, kFreeBlock);
    }
  }
  std::uint64_t Take(std::size_t size) {
    std::uint64_t number = 0;
    if (rest_.size() < size) {
      if (error_.empty()) error_ = "the closing note is cut short";
      rest_ = {};
      return 0;
    }
    std::memcpy(&number, rest_.data(), size);
    rest_.remove_prefix(size);
    return number;
  }

  const HashForgery::Image& image_;
  HashForgery file_;
  const std::uint64_t unit_;
  std::vector<Use> uses_;
  std::string_view rest_;
  std::string error_;
};

}  // namespace hako
