// A copy of a leaf. A scan shows the records of the copy while writers change the leaf.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "hako/base/comparator.h"
#include "hako/base/inline.h"
#include "hako/format/page_format.h"
#include "hako/sync/version_lock.h"
#include "hako/tree/page_view.h"

namespace hako::tree {

// A leaf as it was at one moment. The memory is reused for the next leaf.
//
// In place, the bytes are those of the leaf itself, which writers may change: a reader uses the
// bytes that it has read only if IsCurrent() holds afterwards. The line is still a copy, so the
// sizes of the page's parts are consistent.
template <Comparator Compare>
class LeafCopy {
 public:
  using View = PageView<Compare>;
  LeafCopy() = default;

  View view() { return View(*line_, base_); }
  char* Reserve(std::size_t size) {
    if (line_ == nullptr) line_ = std::make_unique<format::PageLine>();
    if (size > size_) {
      bytes_ = std::make_unique_for_overwrite<char[]>(size);
      size_ = size;
    }
    return base_ = bytes_.get();
  }
  void UseInPlace(char* base) {
    if (line_ == nullptr) line_ = std::make_unique<format::PageLine>();
    base_ = base;
  }
  format::PageLine& line() { return *line_; }

  // Stores the leaf's version at the moment of the copy, for HasChanged. A leaf that was only
  // locked or evicted since then counts as unchanged. A freed leaf counts as changed, and so does a
  // leaf in place.
  void NoteSource(std::uint32_t* version_word, std::uint32_t version) {
    leaf_ = version_word;
    leaf_version_ = version;
    source_ = is_in_place ? &changed_ : leaf_;
    version_ = is_in_place ? changed_ + sync::VersionLock::kStep : version;
  }
  bool IsCurrent() const { return sync::VersionLock(*leaf_).IsCurrent(leaf_version_); }
  // Copies a leaf that was in place. Returns false if it is no longer current.
  bool CopyFromPlace() {
    char* const place = base_;
    const unsigned size = line_->shape.size();
    sync::LoadShared(Reserve(size), place, size);
    is_in_place = !IsCurrent();
    if (is_in_place) base_ = place;
    NoteSource(leaf_, leaf_version_);
    return !is_in_place;
  }
  HAKO_INLINE bool HasChanged() const {
    return ((sync::VersionLock(*source_).ReadVersion() ^ version_) & ~sync::VersionLock::kLocked) != 0;
  }

  // Set before a leaf is read: whether its bytes are to stay in place.
  bool is_in_place = false;

  // The scan that reads leaf after leaf into this copy, for a space that evicts pages.
  struct Scan {
    unsigned leaves = 0;  // copied before this one
    unsigned misses = 0;  // leaves that the scan's thread has read from the file
    // `ahead`: how many leaves after this one to request from other threads; `asked`: how many of
    // these were requested.
    unsigned ahead = 0, asked = 0;
    std::uint32_t asked_inner = 0;  // the first of the inner pages that were requested last
  };
  Scan scan;

  // For prefetches: where the neighbour in the direction of the seek was at the moment of the copy;
  // its size is 0 if it is unknown.
  struct Neighbour {
    const char* base = nullptr;
    std::size_t size = 0;
  };
  Neighbour neighbour;

 private:
  static inline constinit std::uint32_t changed_ = 0;  // a version that no copy has

  std::unique_ptr<char[]> bytes_;
  char* base_ = nullptr;
  std::size_t size_ = 0;
  // A pointer, so that views stay valid when this object is moved.
  std::unique_ptr<format::PageLine> line_;
  std::uint32_t* source_ = nullptr;  // for HasChanged
  std::uint32_t version_ = 0;
  std::uint32_t* leaf_ = nullptr;
  std::uint32_t leaf_version_ = 0;
};

}  // namespace hako::tree
