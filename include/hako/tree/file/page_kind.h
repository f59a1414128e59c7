// Pages of another structure than the B+ tree: the functions by which a pool over a file writes,
// loads and checks them (tree/file/buffer_pool.h). The array has one (array/array_pages.h).
//
// Such pages form a tree, too. A page of level 0 is a leaf, and its line may be evicted; pages of higher
// levels name their children by id, and stay in memory once they were loaded. The pages of a level
// are numbered. A page's parent implies its number, and an image with another number is refused.
// The root has number 0. There are no long values.
//
// Get and Set of a page that is in memory call none of these functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "hako/base/status.h"
#include "hako/format/page_format.h"

namespace hako::tree {

class PageKind {
 public:
  // An image that Parse has checked.
  struct Image {
    format::PageShape shape;   // shape of the page in memory: level and units have the usual meaning, the kind defines the other fields
    std::uint64_t number = 0;  // of the page among those of its level
    unsigned num_children = 0;
    std::span<const std::byte> bytes;
  };
  struct Child {
    std::uint32_t id;
    std::uint64_t number;
  };

  virtual unsigned root_level() const = 0;
  // The number of a page with this shape.
  virtual std::uint64_t NumberOf(const format::PageShape& shape) const = 0;
  // Encodes a locked page and returns the size of its image. `out` has format::kPageImageMax bytes.
  virtual std::size_t Encode(std::uint32_t id, const format::PageLine& line, const char* base, char* out) const = 0;
  // Checks everything on which the code that uses the page relies, because a forged image may have
  // a valid checksum. `bytes` may be longer than the image. Ids are below `id_end`.
  virtual StatusOr<Image> Parse(std::uint32_t id, std::span<const std::byte> bytes, std::uint32_t id_end) const = 0;
  // Writes the page to shape.size() bytes at `base` and to the hints of its line. Late readers of a
  // previous page may be reading both.
  virtual void Store(const Image& image, char* base, std::int32_t* hints) const = 0;
  virtual Child ChildOf(const Image& image, unsigned i) const = 0;

 protected:
  ~PageKind() = default;
};

}  // namespace hako::tree
