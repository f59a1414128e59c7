// Definitions of index/page_tree.h that look at every page.
#pragma once

#include "hako/index/page_tree.h"

namespace hako::index {

template <class Space, Comparator Compare>
template <class F>
void PageTree<Space, Compare>::ForEachPageBelow(Line& line, F& visit) const {
  const View page(memory_, line);
  for (unsigned i = 0; page.level() > 0 && i < page.count(); ++i) ForEachPageBelow(LineOf(page.child(i)), visit);
  visit(page.level(), page.shape().size(), Editor(space_, line).LiveBytes());
}

template <class Space, Comparator Compare>
Status PageTree<Space, Compare>::Verify(std::uint64_t expected) const {
  std::uint64_t found = 0;
  HAKO_RETURN_IF_ERROR(
      VerifyBelow(root(), View(memory_, root()).level(), {{}, {}, format::PageTail::kNoLow | format::PageTail::kNoHigh}, &found));
  if (found == expected) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(found, " records are in the tree, not ", expected));
}

// Loads the children from the one at `begin` on, so many at most; a hint.
template <class Space, Comparator Compare>
void PageTree<Space, Compare>::LoadChildren(const View& page, unsigned begin, unsigned count) const {
  if constexpr (!Space::kResident) {
    absl::InlinedVector<std::uint32_t, kPrefetchGroup> ids;
    for (unsigned i = begin; i < page.count() && i < begin + count; ++i) ids.push_back(page.child(i));
    space_.BringTogether(ids, static_cast<int>(page.level()) - 1, true);
  }
}

template <class Space, Comparator Compare>
Status PageTree<Space, Compare>::VerifyBelow(Line& line, unsigned level, const Fences& fences, std::uint64_t* found) const {
  if (Space::kResident && (line.version & Lock::kLocked) != 0)
    return absl::DataLossError(absl::StrCat("page ", IdOf(line), ": it is locked"));
  HAKO_RETURN_IF_ERROR(LockPage(line, static_cast<int>(level)));
  struct Unlocker {
    Line& line;
    bool locked = true;
    void Unlock() {
      if (std::exchange(locked, false)) Lock(line.version).Unlock(false);
    }
    ~Unlocker() { Unlock(); }
  } unlocker{line};
  const View page(memory_, line);
  const format::PageTail tail = page.tail();
  const auto wrong = [id = IdOf(line)](std::string_view what) {
    return absl::DataLossError(absl::StrCat("page ", id, ": ", ToAbsl(what)));
  };
  if (page.level() != level) return wrong("it has the wrong level");
  if (tail.edges != fences.edges || page.low(tail) != fences.low || page.high(tail) != fences.high)
    return wrong("its fences are not its parent's");
  if (page.shape().guarded() != (View::kBytewise && fences.edges != 0)) return wrong("it is guarded, or not, without reason");
  if (View::kBytewise && fences.edges == 0 && page.prefix() != fences.low.substr(0, Builder::Common(fences.low, fences.high)))
    return wrong("its prefix is not what its fences share");
  if (level > 0 && page.count() == 0) return wrong("it has no child");
  if (page.count() > page.shape().slots()) return wrong("it has more slots than room for them");
  if (page.shape().slots() * page.shape().slot_size() + page.shape().heap > page.shape().size()) return wrong("its parts overlap");

  unsigned cells = 0;
  std::string before, key;
  for (unsigned i = 0; i < page.count(); ++i) {
    const format::Cell sizes = View::Decode(page.cell(i));
    cells += sizes.Size(View::kInlined);
    if (page.offset(i) > page.shape().heap || sizes.Size(View::kInlined) > page.offset(i)) return wrong("a cell lies outside of the heap");
    if (level > 0 && i == 0) {
      if (page.head(0) != format::kLowestHead) return wrong("its first slot has a head");
      continue;
    }
    Builder::CopyKeyOf(page, i, &key);
    if (page.head(i) != View::HeadOf(key, page.shape().prefix)) return wrong("a head is not its key's");
    if (i > (level > 0 ? 1 : 0) && Compare::Compare(before, key) >= 0) return wrong("its keys do not rise");
    if ((fences.edges & format::PageTail::kNoLow) == 0 && Compare::Compare(key, fences.low) < 0) return wrong("a key is below its fence");
    if ((fences.edges & format::PageTail::kNoHigh) == 0 && Compare::Compare(key, fences.high) >= 0)
      return wrong("a key is above its fence");
    before = key;
  }
  const unsigned fixed = static_cast<unsigned>(sizeof(tail)) + tail.fences() + page.shape().prefix;
  if (cells + tail.garbage + fixed != page.shape().heap) return wrong("its cells and its garbage are not all of its heap");
  for (unsigned i = page.count(); i < page.shape().slots(); ++i) {
    if (page.head(i) != format::kNoHead) return wrong("a slot that is not in use has a head");
  }
  for (unsigned hint = 0; hint < format::kPageHints; ++hint) {
    const unsigned slot = (hint + 1) * format::kSlotGroup;
    if (line.hints[hint] != (slot < page.count() ? page.head(slot) : format::kNoHead)) return wrong("a hint is not the head it stands for");
  }

  if (level == 0) {
    *found += page.count();
    if constexpr (!Space::kResident) {
      for (unsigned i = 0; i < page.count(); ++i) {
        const auto value = LongValueOf(page, i);
        if (!value) continue;
        LongRead read(space_);
        while (!read.Has(*value)) read.Read();
        HAKO_RETURN_IF_ERROR(read.status());
      }
    }
    return absl::OkStatus();
  }
  unlocker.Unlock();  // an inner page stays
  std::string low(fences.low);
  for (unsigned i = 0; i < page.count(); ++i) {
    if (level == 1 && i % kPrefetchGroup == 0) LoadChildren(page, i, kPrefetchGroup);
    const bool last = i + 1 == page.count();
    if (last)
      key.assign(fences.high);
    else
      Builder::CopyKeyOf(page, i + 1, &key);
    const unsigned edges = (i == 0 ? fences.edges & format::PageTail::kNoLow : 0) | (last ? fences.edges & format::PageTail::kNoHigh : 0);
    HAKO_RETURN_IF_ERROR(VerifyBelow(LineOf(page.child(i)), level - 1, {low, key, edges}, found));
    low = key;
  }
  return absl::OkStatus();
}

}  // namespace hako::index
