// Encodes and checks the pages of an array for a pool over a file (tree/file/page_kind.h,
// format/array_format.h). All records have one width.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "hako/array/presence_bits.h"
#include "hako/base/status.h"
#include "hako/format/array_format.h"
#include "hako/storage/superblock_slots.h"
#include "hako/tree/file/page_kind.h"

namespace hako::array {

inline constexpr storage::FileKind kArrayFileKind{"array", format::kArrayFileMagic, 1, format::kArrayFileVersion};
// Returns DataLoss if the width in a superblock is not one that an array can have.
inline Status CheckWidth(std::uint64_t width) {
  if (width != 0 && width <= kRecordWidthMax) return absl::OkStatus();
  return DataLossError("bad superblock: width", offsetof(format::TreeSuperBlock, page_size));
}

class ArrayPages final : public tree::PageKind {
 public:
  explicit ArrayPages(unsigned width) : shape_(format::ArrayShape::For(width)) {}

  const format::ArrayShape& shape() const { return shape_; }

  unsigned root_level() const override { return format::kDirectoryLevels; }
  std::uint64_t NumberOf(const format::PageShape& shape) const override { return format::NumberOfArrayPage(shape); }
  std::size_t Encode(std::uint32_t id, const format::PageLine& line, const char* base, char* out) const override;
  StatusOr<Image> Parse(std::uint32_t id, std::span<const std::byte> bytes, std::uint32_t id_end) const override;
  void Store(const Image& image, char* base, std::int32_t* hints) const override;
  Child ChildOf(const Image& image, unsigned i) const override;
  // Calls body(index, record), which returns a Status, for each record of a leaf. Returns the first error.
  template <class F>
  Status ForEachRecord(const Image& image, F&& body) const {
    const char* record = reinterpret_cast<const char*>(image.bytes.data()) + shape_.bit_bytes();
    for (unsigned i = 0; i < shape_.per_leaf; ++i) {
      if ((std::to_integer<unsigned>(image.bytes[i / 8]) >> i % 8 & 1) == 0) continue;
      HAKO_RETURN_IF_ERROR(body(i, std::string_view(record, shape_.width)));
      record += shape_.width;
    }
    return absl::OkStatus();
  }

 private:
  // Returns a description of the first flaw in the content of an image, or nullptr.
  const char* FlawOfLeaf(const Image& image, unsigned count) const;
  const char* FlawOfDirectory(const Image& image, std::uint32_t id_end) const;
  std::size_t EncodeLeaf(const format::PageLine& line, const char* base, unsigned* count, char* out) const;
  static std::size_t EncodeDirectory(const char* base, unsigned* count, char* out);
  static format::DirectoryEntry EntryAt(const Image& image, unsigned i);

  const format::ArrayShape shape_;
};

}  // namespace hako::array
