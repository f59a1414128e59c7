// The captures of a tree (sync/captured_ranges.h). A writer passes a leaf to each of them before it changes the leaf.
//
// Thread-safe, except Begin and End.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "hako/base/comparator.h"
#include "hako/base/endian.h"
#include "hako/sync/captured_ranges.h"
#include "hako/tree/key_buffer.h"
#include "hako/tree/tree_pages.h"

namespace hako::tree {

template <class Space, Comparator Compare>
class LeafCaptures {
  using Pages = TreePages<Space, Compare>;

 public:
  struct IsBelow {
    bool operator()(std::string_view a, std::string_view b) const { return Compare::Compare(a, b) < 0; }
    static std::uint64_t Head(std::string_view key) {
      if constexpr (!BytewiseOrder<Compare>) return 0;
      char first[sizeof(std::uint64_t)] = {};
      if (!key.empty()) std::memcpy(first, key.data(), std::min(key.size(), sizeof(first)));
      return LoadBigEndian(first);
    }
  };
  using Capture = sync::CapturedRanges<std::string, std::string_view, IsBelow>;

  explicit LeafCaptures(const Pages& pages) : pages_(pages) {}

  // REQUIRES: no writers, for either
  void Begin(Capture* capture) {
    pages_.space().gate().AssertNoWriters();
    pages_.passed_leaves().Prepare();
    captures_.Begin(capture);
    pages_.space().gate().SetCapturing(true);
  }
  void End(Capture* capture) {
    pages_.space().gate().AssertNoWriters();
    captures_.End(capture);
    pages_.space().gate().SetCapturing(!captures_.empty());
  }
  // REQUIRES: no writers
  void Fail(const Status& why) const {
    pages_.space().gate().AssertNoWriters();
    captures_.Fail(why);
  }
  sync::CaptureList<Capture>& list() { return captures_; }

  // REQUIRES: the writer has locked the leaf, and not yet changed it
  HAKO_INLINE void CaptureIfAsked(const format::PageLine& leaf) const {
    sync::VersionLock(const_cast<format::PageLine&>(leaf).version).AssertLocked();
    if (pages_.space().gate().IsCapturing()) [[unlikely]]
      CaptureLeaf(leaf);
  }

 private:
  [[gnu::cold, gnu::noinline]] void CaptureLeaf(const format::PageLine& leaf) const {
    const std::uint32_t id = pages_.IdOf(leaf);
    if (pages_.passed_leaves().Of(id) == captures_.num_begun()) return;
    const auto page = pages_.ViewOf(leaf);
    const format::PageTail tail = page.tail();
    typename Capture::Bound low, high;
    if ((tail.edges & format::PageTail::kNoLow) == 0) low = page.low(tail);
    if ((tail.edges & format::PageTail::kNoHigh) == 0) high = page.high(tail);
    captures_.Pass(low, high, [&] { return CopyOf(page); });
    pages_.passed_leaves().Set(id, captures_.num_begun());
  }
  // May read a long value with the leaf locked, because the thread that stores the value holds no lock.
  typename Capture::Copied CopyOf(const typename Pages::View& page) const {
    auto copy = std::make_shared<typename Capture::Leaf>();
    std::size_t bytes = 0;
    for (unsigned i = 0; i < page.count(); ++i) {
      const format::Cell sizes = Pages::View::Decode(page.cell(i));
      bytes += page.prefix_size() + sizes.suffix + sizes.value;
    }
    copy->Reserve(page.count(), bytes);
    KeyBuffer key;
    for (unsigned i = 0; i < page.count(); ++i) {
      Pages::Builder::CopyKeyOf(page, i, &key);
      const char* const cell = page.cell(i);
      const format::Cell sizes = Pages::View::Decode(cell);
      const std::string_view content = Pages::ContentOf(cell, sizes);
      if (!sizes.is_long) {
        copy->Add(key, content);
        continue;
      }
      typename Space::LongRead read(pages_.space());
      while (!read.Has(Pages::LongValueIn(content))) read.Read();
      copy->NoteUnread(read.status());
      if (read.status().ok()) copy->Add(key, read.bytes());
    }
    return copy;
  }

  const Pages& pages_;
  sync::CaptureList<Capture> captures_;
};

}  // namespace hako::tree
