// The free runs of a space: byte ranges in ascending order. An added run is joined with adjacent
// runs.
//
// A treap keyed by offset (Seidel and Aragon, "Randomized Search Trees", 1996). Each node stores
// the longest run of its subtree, so the first run that is long enough is found in O(log n). Taking
// the first one keeps long runs together at the end of the space.
//
// Invariants
//   1. No two runs overlap or are adjacent.
//   2. The steady state allocates nothing: nodes are recycled. If there is no memory for a node,
//      the space of its run is lost, but no data.
//
// Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

#include "hako/base/assert.h"
#include "hako/base/hash.h"

namespace hako::hash {

struct Run {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t bytes() const { return end - begin; }
};

class FreeRuns {
 public:
  // Adds a run, and returns the run of which it is then part. REQUIRES: it overlaps no free run
  Run Add(Run run) {
    if (run.bytes() == 0) return run;
    HAKO_DCHECK(!Overlaps(run));  // invariant 1
    Index below, above, same;
    Split(root_, run.begin, &below, &above);
    if (const Index last = Last(below); last != 0 && NodeAt(last).run.end == run.begin) {
      run.begin = NodeAt(last).run.begin;
      Split(below, run.begin, &below, &same);
      Recycle(same);
    }
    if (const Index first = First(above); first != 0 && NodeAt(first).run.begin == run.end) {
      run.end = NodeAt(first).run.end;
      Split(above, run.end, &same, &above);
      Recycle(same);
    }
    root_ = Merge(Merge(below, New(run)), above);
    return run;
  }

  // Whether there is memory for one more run.
  bool HasRoom() { return unused_ != 0 || num_nodes_ != capacity_ || Grow(); }

  // Returns the first run of at least `bytes`, which stays in the set; an empty run if there is
  // none.
  Run Find(std::uint64_t bytes) const {
    Index at = root_;
    if (at == 0 || NodeAt(at).longest < bytes) return {};
    for (;;) {
      const Node& node = NodeAt(at);
      if (node.left != 0 && NodeAt(node.left).longest >= bytes) {
        at = node.left;
      } else if (node.run.bytes() >= bytes) {
        return node.run;
      } else {
        at = node.right;
      }
    }
  }

  // The last run that begins at `place` or before, or an empty one.
  Run Around(std::uint64_t place) const {
    Run found;
    for (Index at = root_; at != 0;) {
      const bool is_before = NodeAt(at).run.begin <= place;
      if (is_before) found = NodeAt(at).run;
      at = is_before ? NodeAt(at).right : NodeAt(at).left;
    }
    return found;
  }
  // Whether a byte of the range is free.
  bool Overlaps(Run range) const { return range.bytes() != 0 && Around(range.end - 1).end > range.begin; }
  // The run that begins at `place`, or an empty one.
  Run At(std::uint64_t place) const {
    Index at = root_;
    while (at != 0 && NodeAt(at).run.begin != place) at = place < NodeAt(at).run.begin ? NodeAt(at).left : NodeAt(at).right;
    return at != 0 ? NodeAt(at).run : Run{};
  }

  // Removes every free byte of the range; calls visit(Run) for each piece.
  template <class F>
  void Cut(Run range, F&& visit) {
    Index below, within, above;
    Split(root_, range.begin, &below, &within);
    Split(within, range.end, &within, &above);
    const Index last = Last(below);
    const Run before = last != 0 ? NodeAt(last).run : Run{};
    if (before.end > range.begin) {  // a run that begins below the range
      Index node;
      Split(below, before.begin, &below, &node);
      Recycle(node);
      below = Merge(below, New({before.begin, range.begin}));
      if (before.end > range.end) above = Merge(New({range.end, before.end}), above);
      visit(Run{range.begin, std::min(before.end, range.end)});
    }
    Run beyond;
    Drain(within, [&](Run run) {
      if (run.end > range.end) beyond = {range.end, run.end};
      visit(Run{run.begin, std::min(run.end, range.end)});
    });
    if (beyond.bytes() != 0) above = Merge(New(beyond), above);
    root_ = Merge(below, above);
  }
  // Removes the range. REQUIRES: all of it is free
  void Take(Run range) {
    HAKO_DCHECK(range.bytes() == 0 || range.end <= Around(range.begin).end);
    Remove(range);
  }
  // Removes the free units of the range.
  void Remove(Run range) {
    Cut(range, [](Run) {});
  }

  // Visits all runs in ascending order.
  template <class F>
  void ForEach(F&& visit) const {
    Visit(root_, visit);
  }

 private:
  using Index = std::uint32_t;  // of a node; 0 = none
  struct Node {
    Run run;
    std::uint64_t longest;  // of the runs in this subtree
    Index left, right;
  };

  Node& NodeAt(Index index) const { return nodes_[index]; }
  static std::uint64_t PriorityOf(Index index) { return MixBits(index); }

  Index New(Run run) {
    Index index = unused_;
    if (index != 0) {
      unused_ = NodeAt(index).left;
    } else {
      if (num_nodes_ == capacity_ && !Grow()) return 0;
      index = num_nodes_++;
    }
    NodeAt(index) = {run, run.bytes(), 0, 0};
    return index;
  }
  void Recycle(Index index) {
    NodeAt(index).left = unused_;
    unused_ = index;
  }
  bool Grow() {
    const Index capacity = std::max<Index>(64, 2 * capacity_);
    std::unique_ptr<Node[]> nodes(new (std::nothrow) Node[capacity]);
    if (nodes == nullptr) return false;
    std::copy_n(nodes_.get(), num_nodes_, nodes.get());
    nodes_ = std::move(nodes);
    num_nodes_ = std::max<Index>(1, num_nodes_);
    capacity_ = capacity;
    return true;
  }

  void Update(Index index) {
    Node& node = NodeAt(index);
    node.longest = node.run.bytes();
    for (const Index child : {node.left, node.right}) {
      if (child != 0) node.longest = std::max(node.longest, NodeAt(child).longest);
    }
  }
  // Splits a tree into the runs that begin below `place`, and the others.
  void Split(Index tree, std::uint64_t place, Index* below, Index* above) {
    if (tree == 0) {
      *below = *above = 0;
      return;
    }
    Index part;
    if (NodeAt(tree).run.begin < place) {
      Split(NodeAt(tree).right, place, &part, above);
      NodeAt(tree).right = part;
      *below = tree;
    } else {
      Split(NodeAt(tree).left, place, below, &part);
      NodeAt(tree).left = part;
      *above = tree;
    }
    Update(tree);
  }
  Index Merge(Index below, Index above) {
    if (below == 0 || above == 0) return below + above;
    const bool below_first = PriorityOf(below) > PriorityOf(above);
    const Index top = below_first ? below : above;
    if (below_first) {
      const Index right = Merge(NodeAt(below).right, above);
      NodeAt(below).right = right;
    } else {
      const Index left = Merge(below, NodeAt(above).left);
      NodeAt(above).left = left;
    }
    Update(top);
    return top;
  }
  Index First(Index tree) const {
    while (tree != 0 && NodeAt(tree).left != 0) tree = NodeAt(tree).left;
    return tree;
  }
  Index Last(Index tree) const {
    while (tree != 0 && NodeAt(tree).right != 0) tree = NodeAt(tree).right;
    return tree;
  }
  template <class F>
  void Visit(Index tree, F& visit) const {
    if (tree == 0) return;
    Visit(NodeAt(tree).left, visit);
    visit(NodeAt(tree).run);
    Visit(NodeAt(tree).right, visit);
  }
  // Visits the runs of a tree and recycles its nodes.
  template <class F>
  void Drain(Index tree, F&& visit) {
    if (tree == 0) return;
    const Node node = NodeAt(tree);
    Drain(node.left, visit);
    visit(node.run);
    Drain(node.right, visit);
    Recycle(tree);
  }

  std::unique_ptr<Node[]> nodes_;  // the first is not used
  Index num_nodes_ = 0, capacity_ = 0;
  Index unused_ = 0;  // recycled nodes, linked by `left`
  Index root_ = 0;
};

}  // namespace hako::hash
