// A copy of a leaf, which a scan shows while writers change the leaf.
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
template <Comparator Compare>
class LeafCopy {
 public:
  using View = PageView<Compare>;
  LeafCopy() = default;

  View view() { return View(*line_, bytes_.get()); }
  char* Reserve(std::size_t size) {
    if (line_ == nullptr) line_ = std::make_unique<format::PageLine>();
    if (size > size_) {
      bytes_ = std::make_unique_for_overwrite<char[]>(size);
      size_ = size;
    }
    return bytes_.get();
  }
  format::PageLine& line() { return *line_; }

  // The leaf's line, and its version at that moment. A leaf that is locked or evicted counts as
  // unchanged.
  void NoteSource(std::uint32_t* version_word, std::uint32_t version) {
    source_ = version_word;
    version_ = version;
  }
  HAKO_INLINE bool HasChanged() const {
    const std::uint32_t now = sync::VersionLock(*source_).ReadVersion();
    return now != version_ && (now & sync::VersionLock::kLocked) == 0;
  }

  // The scan that reads leaf after leaf into this copy, for a space that evicts pages.
  struct Scan {
    unsigned leaves = 0;  // copied before this one
    unsigned misses = 0;  // leaves that the scan's thread has read from the file
    // How many leaves beyond this one to request from other threads, and how many of these were
    // requested.
    unsigned ahead = 0, asked = 0;
    std::uint32_t asked_inner = 0;  // the first of the inner pages that were requested last
  };
  Scan scan;

  // For prefetches: where the neighbour in the direction of the seek was at that moment; size 0 if
  // unknown.
  struct Neighbour {
    const char* base = nullptr;
    std::size_t size = 0;
  };
  Neighbour neighbour;

 private:
  std::unique_ptr<char[]> bytes_;
  std::size_t size_ = 0;
  // Behind a pointer, so that views stay valid when the copy moves.
  std::unique_ptr<format::PageLine> line_;
  std::uint32_t* source_ = nullptr;
  std::uint32_t version_ = 0;
};

}  // namespace hako::tree
