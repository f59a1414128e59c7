// The scans that show the records of one moment (sync/range_capture.h). A writer passes a leaf to
// each of them before it changes the leaf.
//
// Thread-safe, except Begin and End.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hako/sync/range_capture.h"
#include "hako/tree/key_buffer.h"
#include "hako/tree/tree_pages.h"

namespace hako::tree {

template <class Space, Comparator Compare>
class LeafCaptures {
  using Pages = TreePages<Space, Compare>;

 public:
  struct IsBelow {
    using is_transparent = void;
    bool operator()(std::string_view a, std::string_view b) const { return Compare::Compare(a, b) < 0; }
  };
  using Capture = sync::RangeCapture<std::string, std::string_view, IsBelow>;

  explicit LeafCaptures(const Pages& pages) : pages_(pages) {}

  // REQUIRES: no writers, for either
  void Begin(Capture* capture) {
    pages_.space().gate().AssertNoWriters();
    captures_.push_back(capture);
    pages_.space().gate().SetCapturing(true);
  }
  void End(Capture* capture) {
    pages_.space().gate().AssertNoWriters();
    std::erase(captures_, capture);
    pages_.space().gate().SetCapturing(!captures_.empty());
  }
  // REQUIRES: no writers
  void Fail(const Status& why) const {
    pages_.space().gate().AssertNoWriters();
    for (Capture* const capture : captures_) capture->Fail(why);
  }

  // REQUIRES: the writer has locked the leaf, and not yet changed it
  HAKO_INLINE void CaptureIfAsked(const format::PageLine& leaf) const {
    sync::VersionLock(const_cast<format::PageLine&>(leaf).version).AssertLocked();
    if (pages_.space().gate().IsCapturing()) [[unlikely]]
      CaptureLeaf(leaf);
  }

 private:
  // Counts the records that can be read, and keeps the first error. May read a long value with the
  // leaf locked, because the thread that stores the value holds no lock.
  [[gnu::cold, gnu::noinline]] void CaptureLeaf(const format::PageLine& leaf) const {
    const auto page = pages_.ViewOf(leaf);
    const format::PageTail tail = page.tail();
    typename Capture::Bound low, high;
    if ((tail.edges & format::PageTail::kNoLow) == 0) low = page.low(tail);
    if ((tail.edges & format::PageTail::kNoHigh) == 0) high = page.high(tail);
    for (Capture* const capture : captures_) {
      capture->Capture(low, high, [&](auto&& visit) -> Status {
        Status unread;
        KeyBuffer key;
        for (unsigned i = 0; i < page.count(); ++i) {
          Pages::Builder::CopyKeyOf(page, i, &key);
          const char* const cell = page.cell(i);
          const format::Cell sizes = Pages::View::Decode(cell);
          const std::string_view content = Pages::ContentOf(cell, sizes);
          if (!sizes.is_long) {
            visit(key, content);
            continue;
          }
          typename Space::LongRead read(pages_.space());
          while (!read.Has(Pages::LongValueIn(content))) read.Read();
          unread.Update(read.status());
          if (read.status().ok()) visit(key, read.bytes());
        }
        return unread;
      });
    }
  }

  const Pages& pages_;
  std::vector<Capture*> captures_;  // changed without writers
};

}  // namespace hako::tree
