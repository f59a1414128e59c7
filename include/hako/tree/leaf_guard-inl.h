// Definitions of tree/page_tree.h: a writer's access to one leaf.
#pragma once

#include "hako/tree/page_tree.h"

namespace hako::tree {

// A writer's access to a leaf: until the end of the scope, its state is marked busy and the leaf
// is locked.
template <class Space, Comparator Compare>
class PageTree<Space, Compare>::LeafGuard {
 public:
  HAKO_INLINE LeafGuard(PageTree& tree, WriterState& writer, std::string_view key)
      : line(tree.LockLeaf(writer, key)), tree_(tree), writer_(writer) {}
  // `locked` is the result of LockLeaf.
  LeafGuard(PageTree& tree, WriterState& writer, Line* locked) : line(locked), tree_(tree), writer_(writer) {}
  LeafGuard(const LeafGuard&) = delete;
  HAKO_INLINE ~LeafGuard() {
    if (line != nullptr) Lock(line->version).Unlock(changed);
    tree_.EndWrite(writer_, changed);
  }
  // Ends the access before the end of the scope.
  void End() {
    if (line != nullptr) Lock(std::exchange(line, nullptr)->version).Unlock(changed);
    tree_.EndWrite(writer_, std::exchange(changed, false));
  }
  // As End, without the pause that a writer may have to make: that comes at the end of the scope.
  void Unlock() {
    if (line != nullptr) Lock(std::exchange(line, nullptr)->version).Unlock(changed);
    writer_.Leave();
  }
  // Starts again after End.
  void Begin(std::string_view key) { line = tree_.LockLeafByCall(writer_, key); }
  // Why `line` is nullptr.
  Status error() const { return update::ErrorOf(writer_); }
  HAKO_INLINE void Change() {
    tree_.space_.MarkDirty(*line);
    changed = true;
  }
  Line* line;            // nullptr if it could not be loaded into a space that is not resident
  bool changed = false;  // whether the leaf was changed, so the thread may have to pause

 private:
  PageTree& tree_;
  WriterState& writer_;
};

// Joins the leaf of the guard with a neighbour if it has become sparse; the guard ends then.
template <class Space, Comparator Compare>
HAKO_INLINE void PageTree<Space, Compare>::MergeIfSparse(LeafGuard& guard, WriterState& writer, std::string_view key) {
  if (IsSparse(*guard.line)) [[unlikely]]
    Merge(writer, std::exchange(guard.line, nullptr), key);
}

}  // namespace hako::tree
