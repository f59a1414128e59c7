// The page map of a tree file: where the image of each id lies (format/tree_file_format.h). Nodes are read when an entry of them is first
// asked for, and stay.
//
// Threads: the caller's lock.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "hako/base/status.h"
#include "hako/format/tree_file_format.h"
#include "hako/storage/arena.h"

namespace hako::storage {

class PageMap {
 public:
  using Entry = format::PageEntry;
  using Node = std::span<Entry, format::kMapFanout>;

  static StatusOr<PageMap> Create(const std::array<Entry, format::kMapRoots>& roots) {
    PageMap map;
    map.roots_ = roots;
    std::uint64_t nodes = format::kMapRoots;
    for (unsigned level = format::kMapLevels; level-- > 0; nodes *= format::kMapFanout) {
      HAKO_ASSIGN_OR_RETURN(map.levels_[level].entries, ReservedMemory::Reserve(nodes * format::kMapFanout * sizeof(Entry)));
    }
    return map;
  }

  const std::array<Entry, format::kMapRoots>& roots() const { return roots_; }
  // Memory of the nodes that are here.
  std::uint64_t bytes() const { return num_here_ * sizeof(Entry) * format::kMapFanout; }

  // The entry of an id. read(entry, level, node, bytes) reads what an entry names.
  template <class Read>
  StatusOr<Entry*> At(std::uint32_t id, Read&& read) {
    return At(0, id, read);
  }
  // Gives an id another entry; the one that it had.
  template <class Read>
  StatusOr<Entry> Exchange(std::uint32_t id, Entry entry, Read&& read) {
    HAKO_ASSIGN_OR_RETURN(Entry * at, At(0, id, read));
    SetBit(levels_[0].changed, id / format::kMapFanout);
    return std::exchange(*at, entry);
  }

  // Writes the nodes that have changed, from below: write(level, number of the node, its bytes, its entry so far) gives the new entry.
  template <class Read, class Write>
  Status WriteOut(Read&& read, Write&& write) {
    for (unsigned level = 0; level < format::kMapLevels; ++level) {
      Level& here = levels_[level];
      for (std::size_t node = 0; node < here.changed.size(); ++node) {
        if (!here.changed[node]) continue;
        Entry* named;
        if (level + 1 < format::kMapLevels) {
          HAKO_ASSIGN_OR_RETURN(named, At(level + 1, node, read));
          SetBit(levels_[level + 1].changed, node / format::kMapFanout);
        } else {
          named = &roots_[node];
        }
        HAKO_ASSIGN_OR_RETURN(*named, write(level, node, NodeOf(level, node), *named));
        here.changed[node] = false;
      }
    }
    return absl::OkStatus();
  }

  // Has a node that is here written anew.
  void MarkChanged(unsigned level, std::uint64_t node) { SetBit(levels_[level].changed, node); }
  // Of the nodes that are here, any may have been lost on the way to the file.
  void MarkAllChanged() {
    for (Level& level : levels_) {
      for (std::size_t node = 0; node < level.here.size(); ++node) {
        if (level.here[node]) SetBit(level.changed, node);
      }
    }
  }

  // Visits every entry that names something, nodes too, and the empty ones of ids below `id_end`, where they have a node: visit(level,
  // number, entry); the images have level -1 and their id.
  template <class Read, class F>
  Status ForEach(std::uint32_t id_end, Read&& read, F&& visit) {
    for (unsigned root = 0; root < format::kMapRoots; ++root) {
      HAKO_RETURN_IF_ERROR(ForEachBelow(format::kMapLevels - 1, root, roots_[root], id_end, read, visit));
    }
    return absl::OkStatus();
  }

 private:
  struct Level {
    ReservedMemory entries;
    std::vector<bool> here, changed;  // by node
  };
  static void SetBit(std::vector<bool>& bits, std::size_t at) {
    if (at >= bits.size()) bits.resize(at + at / 2 + 16);
    bits[at] = true;
  }

  PageMap() = default;
  Entry* EntryAt(unsigned level, std::uint64_t index) const { return reinterpret_cast<Entry*>(levels_[level].entries.base()) + index; }
  std::span<const std::byte> NodeOf(unsigned level, std::uint64_t node) const {
    return {levels_[level].entries.base() + node * format::kMapFanout * sizeof(Entry), format::kMapFanout * sizeof(Entry)};
  }

  template <class Read>
  StatusOr<Entry*> At(unsigned level, std::uint64_t index, Read& read) {
    const std::uint64_t node = index / format::kMapFanout;
    if (node >= levels_[level].here.size() || !levels_[level].here[node]) HAKO_RETURN_IF_ERROR(ReadNode(level, node, read));
    return EntryAt(level, index);
  }
  template <class Read>
  Status ReadNode(unsigned level, std::uint64_t node, Read& read) {
    const Entry* named = &roots_[node % format::kMapRoots];
    if (level + 1 < format::kMapLevels) {
      HAKO_ASSIGN_OR_RETURN(named, At(level + 1, node, read));
    }
    if (!named->IsNone()) {
      const std::span<const std::byte> bytes = NodeOf(level, node);
      HAKO_RETURN_IF_ERROR(read(*named, level, node, std::span(const_cast<std::byte*>(bytes.data()), bytes.size())));
    }
    SetBit(levels_[level].here, node);
    ++num_here_;
    return absl::OkStatus();
  }

  template <class Read, class F>
  Status ForEachBelow(unsigned level, std::uint64_t node, const Entry& entry, std::uint32_t id_end, Read& read, F& visit) {
    const bool in_memory = node < levels_[level].here.size() && levels_[level].here[node];
    if (entry.IsNone() && !in_memory) return absl::OkStatus();
    if (!entry.IsNone()) HAKO_RETURN_IF_ERROR(visit(static_cast<int>(level), node, entry));
    for (std::uint64_t i = node * format::kMapFanout; i < (node + 1) * format::kMapFanout; ++i) {
      HAKO_ASSIGN_OR_RETURN(const Entry* below, At(level, i, read));
      if (level > 0) {
        HAKO_RETURN_IF_ERROR(ForEachBelow(level - 1, i, *below, id_end, read, visit));
      } else if (!below->IsNone() || i < id_end) {
        HAKO_RETURN_IF_ERROR(visit(-1, i, *below));
      }
    }
    return absl::OkStatus();
  }

  std::array<Entry, format::kMapRoots> roots_{};
  std::array<Level, format::kMapLevels> levels_;
  std::uint64_t num_here_ = 0;
};

}  // namespace hako::storage
