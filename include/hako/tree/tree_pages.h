// The pages of one tree: their lines by id, and descents to them from the root.
//
// All parts of the engine use this view. Most use nothing else: splits and joins
// (tree/tree_shape.h), reads of leaves (tree/leaf_reader.h), captures (tree/leaf_captures.h), the
// removal of all records (tree/tree_removal.h), verification (tree/tree_check.h). Eviction
// (tree/leaf_eviction.h) also joins leaves and counts records. tree/page_tree.h combines the parts,
// and has the invariants.
//
// Thread-safe, except LockPage.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

#include "hako/base/comparator.h"
#include "hako/base/inline.h"
#include "hako/base/key_value.h"
#include "hako/base/no_memory.h"
#include "hako/base/prefetch.h"
#include "hako/base/status.h"
#include "hako/format/page_format.h"
#include "hako/sync/passed_leaves.h"
#include "hako/sync/version_lock.h"
#include "hako/tree/leaf_copy.h"
#include "hako/tree/page_builder.h"
#include "hako/tree/page_editor.h"
#include "hako/tree/page_limit.h"
#include "hako/tree/page_space.h"
#include "hako/tree/page_view.h"

namespace hako::tree {

// REQUIRES: from is below to (checked in CountRange, RemoveRange and ProcessMulti)
using Range = KeyRange;

template <class Space, Comparator Compare>
class TreePages {
 public:
  using Line = format::PageLine;
  using View = PageView<Compare>;
  using Copy = LeafCopy<Compare>;
  using Editor = PageEditor<Space, Compare>;
  using Builder = PageBuilder<Space, Compare>;
  using Lock = sync::VersionLock;
  static constexpr std::size_t kPrefetchGroup = 32;

  // Where a descent ended, and the version that it read there. If the descent failed, `line` is the
  // line that was locked, or nullptr.
  struct Reached {
    Line* line;
    std::uint32_t version;
    int level = -1;  // of the page, if known; checked when the page is loaded
  };
  struct EvictedLeaves {
    std::array<std::uint32_t, kPrefetchGroup> ids;
    std::size_t count = 0;
  };

  explicit TreePages(Space& space) : space_(space), id_mask_(space.id_mask()), lines_(space.lines()), memory_(space.memory()) {
    if (const PageLimit* const limit = LimitOf(space)) {
      is_limited_ = true;
      has_byte_limit_ = limit->capacity().bytes != 0;
    }
  }
  TreePages(const TreePages&) = delete;
  TreePages& operator=(const TreePages&) = delete;

  Space& space() const { return space_; }
  sync::PassedLeaves& passed_leaves() const { return passed_leaves_; }
  bool is_limited() const { return is_limited_; }
  bool has_byte_limit() const { return has_byte_limit_; }
  HAKO_INLINE Line& root() const { return *root_; }
  HAKO_INLINE Line& LineOf(std::uint32_t id) const { return lines_[id & id_mask_]; }
  HAKO_INLINE View ViewOf(const Line& line) const { return View(memory_, const_cast<Line&>(line)); }
  std::uint32_t IdOf(const Line& line) const { return static_cast<std::uint32_t>(&line - lines_); }
  // The id of a child, masked, because a writer may be changing the page.
  std::uint32_t ChildId(const View& page, unsigned i) const { return static_cast<std::uint32_t>(page.child(i) & id_mask_); }

  // ---- descents from the root, with nothing locked ----

  HAKO_INLINE bool Descend(std::string_view key, Reached* reached) const {
    Line* line = &root();
    std::uint32_t version = Lock(line->version).ReadVersion();
    if ((version & Lock::kLocked) != 0) [[unlikely]]
      return false;
    for (;;) {
      const View page(memory_, *line);
      if (page.level() == 0) {
        *reached = {line, version};
        return true;
      }
      Line* const child = &LineOf(page.child(page.ChildFor(key)));
      const std::uint32_t child_version = Lock(child->version).ReadVersion();
      if (!Lock(line->version).IsCurrent(version) || (child_version & Lock::kLocked) != 0) [[unlikely]]
        return false;
      line = child;
      version = child_version;
    }
  }

  // Descends to the page of this level. If there is none, returns false and sets the line to
  // nullptr.
  bool DescendTo(unsigned level, std::string_view key, Reached* reached) const {
    return DescendBy(
        level, [key](const View& page) { return page.ChildFor(key); }, reached);
  }
  // Descends to the first leaf.
  bool DescendToFirst(Reached* reached) const {
    return DescendBy(
        0, [](const View&) { return 0u; }, reached);
  }
  // Descends to the page of this level by the child that child_of(page) names.
  template <class ChildOf>
  HAKO_INLINE bool DescendBy(unsigned level, ChildOf&& child_of, Reached* reached) const {
    Line* line = &root();
    std::uint32_t version = Lock(line->version).ReadVersion();
    *reached = {line, version};
    for (;;) {
      if ((version & Lock::kLocked) != 0) return false;
      const View page(memory_, *line);
      if (page.level() <= level) {
        if (page.level() < level) reached->line = nullptr;
        return page.level() == level;
      }
      Line* const child = &LineOf(page.child(child_of(page)));
      const std::uint32_t child_version = Lock(child->version).ReadVersion();
      if (!Lock(line->version).IsCurrent(version)) {
        reached->line = nullptr;
        return false;
      }
      *reached = {child, child_version, static_cast<int>(page.level()) - 1};
      line = child;
      version = child_version;
    }
  }

  // Descends one level at a time for all keys of a group, so that the group waits for each level
  // only once, and prefetches the cells of the keys. A leaf's line is nullptr if a writer
  // interfered or the descent reached an evicted page.
  void DescendTogether(std::span<const std::string_view> keys, Reached* leaves, EvictedLeaves* evicted = nullptr) const {
    const std::uint32_t version = Lock(root().version).ReadVersion();
    const unsigned levels = ViewOf(root()).level();
    for (std::size_t i = 0; i < keys.size(); ++i) leaves[i] = {(version & Lock::kLocked) == 0 ? root_ : nullptr, version};
    for (unsigned level = levels; level > 0; --level) {
      Line* children[kPrefetchGroup];
      if (level < levels) {
        for (std::size_t i = 0; i < keys.size(); ++i) {
          if (leaves[i].line != nullptr) ViewOf(*leaves[i].line).PrefetchSlots(keys[i]);
        }
      }
      for (std::size_t i = 0; i < keys.size(); ++i) {
        if (leaves[i].line == nullptr) continue;
        const View page = ViewOf(*leaves[i].line);
        children[i] = page.level() == level ? &LineOf(page.child(page.ChildFor(keys[i]))) : nullptr;
        if (children[i] != nullptr) hako::Prefetch(children[i]);
      }
      for (std::size_t i = 0; i < keys.size(); ++i) {
        if (leaves[i].line == nullptr) continue;
        const std::uint32_t child = children[i] != nullptr ? Lock(children[i]->version).ReadVersion() : Lock::kLocked;
        const bool good = (child & Lock::kLocked) == 0 && Lock(leaves[i].line->version).IsCurrent(leaves[i].version);
        if (!good && level == 1 && evicted != nullptr && children[i] != nullptr && space_.IsEvicted(IdOf(*children[i])))
          evicted->ids[evicted->count++] = IdOf(*children[i]);
        leaves[i] = {good ? children[i] : nullptr, child};
      }
    }
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (leaves[i].line != nullptr) ViewOf(*leaves[i].line).PrefetchSlots(keys[i]);
    }
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (leaves[i].line != nullptr && ViewOf(*leaves[i].line).level() == 0) ViewOf(*leaves[i].line).PrefetchCell(keys[i]);
    }
  }

  // Loads a page if its line is locked because the page is evicted.
  Status LoadIfEvicted(const Reached& page, bool once = false) const {
    if (page.line == nullptr || !space_.IsEvicted(IdOf(*page.line))) return absl::OkStatus();
    return space_.LoadPage(IdOf(*page.line), page.level, once);
  }

  // Copies a page as of a version read before. Returns false if the page now has another version.
  bool CopyPage(Line& line, std::uint32_t version, Copy* copy) const {
    const View page = ViewOf(line);
    const unsigned size = page.shape().size();
    if (copy->is_in_place)
      copy->UseInPlace(page.base());
    else
      sync::LoadShared(copy->Reserve(size), page.base(), size);
    sync::LoadShared(reinterpret_cast<char*>(copy->line().hints), reinterpret_cast<const char*>(line.hints), sizeof(line.hints));
    copy->line().shape = page.shape();
    if (!Lock(line.version).IsCurrent(version)) return false;
    copy->NoteSource(&line.version, version);
    return true;
  }

  // ---- locks ----

  // Locks and returns the parent of `child`, which the caller has locked and whose range contains
  // `key`. The lock keeps `child` in the tree. Threads that change its ancestors finish without
  // waiting for this lock, so the loop ends.
  Line* LockParent(const Line& child, std::string_view key) const {
    Lock(const_cast<Line&>(child).version).AssertLocked();
    const std::uint32_t id = IdOf(child);
    const unsigned level = ViewOf(child).level() + 1;
    for (sync::Backoff backoff;; backoff.Pause()) {
      Reached parent;
      if (!DescendTo(level, key, &parent) || !Lock(parent.line->version).LockIf(parent.version)) continue;
      const View page = ViewOf(*parent.line);
      if (page.child(page.ChildForByCall(key)) == id) return parent.line;
      Unlock(parent.line, false);
    }
  }
  // Locks a page of the tree. REQUIRES: no writers (unchecked: a copy that is verified has no gate)
  Status LockPage(Line& line, int level = -1) const {
    for (sync::Backoff backoff; !Lock(line.version).TryLock(); backoff.Pause())
      HAKO_RETURN_IF_ERROR(LoadIfEvicted({&line, 0, level}, true));
    return absl::OkStatus();
  }
  static void Unlock(Line* line, bool changed) { Lock(line->version).Unlock(changed); }
  // Marks the page dirty. Returns false if memory runs out.
  bool TryMarkDirty(Line& line) const {
    HAKO_TRY { return space_.MarkDirty(line), true; }
    HAKO_CATCH_NO_MEMORY()
    return false;
  }

  // ---- parts of pages ----

  // Whether no page after this one has keys of the range.
  static bool IsLastOf(const Range& range, const View& page) {
    const format::PageTail tail = page.tail();
    return (tail.edges & format::PageTail::kNoHigh) != 0 || (range.to && Compare::Compare(page.high(tail), *range.to) >= 0);
  }
  static Fences FencesOf(const View& page) {
    const format::PageTail tail = page.tail();
    return {page.low(tail), page.high(tail), tail.edges};
  }
  // The value in the cell of a locked leaf's slot: the bytes, or the name of a long value.
  HAKO_INLINE static std::string_view ContentOf(const typename View::Place& place) { return ContentOf(place.cell, place.sizes); }
  HAKO_INLINE static std::string_view ContentOf(const char* cell, const format::Cell& sizes) {
    return {cell + sizes.header + sizes.Rest(View::kInlined), sizes.value};
  }
  static format::OverflowValue LongValueIn(std::string_view bytes) {
    format::OverflowValue value;
    std::memcpy(&value, bytes.data(), sizeof(value));
    return value;
  }
  static std::optional<format::OverflowValue> LongValueOf(const View& page, unsigned i) {
    const char* const cell = page.cell(i);
    const format::Cell sizes = View::Decode(cell);
    if (!sizes.is_long) [[likely]]
      return std::nullopt;
    return LongValueIn(ContentOf(cell, sizes));
  }
  // Removes the record of a locked leaf's slot, and its long value.
  void RemoveSlot(Line& line, unsigned i, typename Space::Deferred& deferred) const {
    Editor page(space_, line);
    if (const auto value = LongValueOf(page.view(), i)) space_.FreeLong(*value, deferred);
    page.Erase(i);
  }

  [[gnu::cold]] static Status NoMemory() {
    return absl::ResourceExhaustedError("out of memory for a page: the database has reached its limit, or that of the process (ulimit -v)");
  }

 protected:
  ~TreePages() = default;

  Space& space_;
  const std::uint32_t id_mask_;
  Line* const lines_;
  char* const memory_;
  mutable sync::PassedLeaves passed_leaves_;
  bool is_limited_ = false, has_byte_limit_ = false;  // whether the space has a limit; never change
  Line* root_ = nullptr;
};

}  // namespace hako::tree
