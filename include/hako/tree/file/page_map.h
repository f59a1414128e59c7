// The page map of a tree file: where the image of each id lies (format/tree_file_format.h). A node
// is read when one of its entries is first needed, and stays in memory until it has no entries. The
// address space for all entries is reserved at once, and limits the number of ids of the tree.
//
// Thread safety: only one thread at a time changes entries. Every thread holds the caller's lock
// during each call, with one exception: the thread that changes entries may call SortChanged and
// ForEach without the lock, because other threads only add nodes. The `read` argument of a call may
// release the lock while it reads, so that no thread waits for another thread's I/O. The map checks
// afterwards that the node is still needed.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "hako/base/assert.h"
#include "hako/base/status.h"
#include "hako/format/page_format.h"
#include "hako/format/tree_file_format.h"
#include "hako/storage/arena.h"

namespace hako::tree {

class PageMap {
 public:
  using Entry = format::PageEntry;
  using Node = std::span<Entry, format::kMapFanout>;

  // A map for the ids below `id_end` and for as many others as the address space of the process
  // allows.
  static StatusOr<PageMap> Create(const std::array<Entry, format::kMapRoots>& roots, std::uint32_t id_end = 0) {
    HAKO_ASSIGN_OR_RETURN(const std::uint64_t id_capacity, ChooseCapacity(id_end));
    PageMap map;
    map.roots_ = roots;
    std::uint64_t bytes = 0;
    for (unsigned level = 0; level < format::kMapLevels; ++level) {
      map.levels_[level].num_nodes = NumNodes(level, id_capacity);
      bytes += map.levels_[level].num_nodes * kNodeBytes;
    }
    HAKO_ASSIGN_OR_RETURN(map.memory_, storage::ReservedMemory::Reserve(bytes));
    std::byte* at = map.memory_.base();
    for (Level& level : map.levels_) level.entries = std::exchange(at, at + level.num_nodes * kNodeBytes);
    return map;
  }

  // A power of two: all ids are below it.
  std::uint64_t id_capacity() const { return levels_[0].num_nodes * format::kMapFanout; }
  const std::array<Entry, format::kMapRoots>& roots() const { return roots_; }
  // Memory of the nodes that are loaded.
  std::uint64_t bytes() const { return num_here_ * kNodeBytes; }

  // Returns the entry of an id. read(entry, level, node, bytes) reads the node that an entry names.
  template <class Read>
  StatusOr<Entry*> At(std::uint32_t id, Read&& read) {
    return At(0, id, read);
  }
  // The entry of an id if its node is loaded, otherwise nullptr.
  Entry* Find(std::uint32_t id) const { return IsHere(0, id / format::kMapFanout) ? EntryAt(0, id) : nullptr; }
  // Sets the entry of an id and returns the previous one.
  template <class Read>
  StatusOr<Entry> Exchange(std::uint32_t id, Entry entry, Read&& read) {
    HAKO_ASSIGN_OR_RETURN(Entry * at, At(0, id, read));
    MarkChanged(0, id / format::kMapFanout);
    return std::exchange(*at, entry);
  }

  // Optional: reduces the work of WriteOut, which runs with the lock held.
  void SortChanged() { std::ranges::sort(levels_[0].changed); }
  // Writes the nodes that have changed since MarkWritten, lowest level first: write(level, number
  // of the node, its bytes, its previous entry) returns the new entry, and may release the lock. A
  // node without entries is not written: WriteOut calls prepare(), then drop(its previous entry),
  // which must not fail.
  template <class Read, class Prepare, class Write, class Drop>
  Status WriteOut(Read&& read, Prepare&& prepare, Write&& write, Drop&& drop) {
    for (unsigned level = 0; level < format::kMapLevels; ++level) {
      if (!std::ranges::is_sorted(levels_[level].changed)) std::ranges::sort(levels_[level].changed);
      for (const std::uint64_t node : levels_[level].changed) {
        Entry* named;
        if (level + 1 < format::kMapLevels) {
          HAKO_ASSIGN_OR_RETURN(named, At(level + 1, node, read));
          MarkChanged(level + 1, node / format::kMapFanout);
        } else {
          named = &roots_[node];
        }
        if (IsEmpty(level, node)) {
          prepare();
          drop(std::exchange(*named, Entry{}));
        } else {
          HAKO_ASSIGN_OR_RETURN(*named, write(level, node, NodeOf(level, node), *named));
        }
      }
    }
    return absl::OkStatus();
  }
  // Call this once the nodes that WriteOut has written are in the file. Unloads nodes without
  // entries.
  void MarkWritten() {
    for (unsigned level = 0; level < format::kMapLevels; ++level) {
      for (const std::uint64_t node : std::exchange(levels_[level].changed, {})) {
        levels_[level].flags[node] &= static_cast<std::uint8_t>(~kChanged);
        if (IsEmpty(level, node)) Forget(level, node);
      }
    }
  }
  // Call this if WriteOut has failed or its writes are lost, so that entries that name changed
  // nodes are invalid. withdraw(entry) returns whether to clear an entry.
  template <class Withdraw>
  void TakeBack(Withdraw&& withdraw) {
    for (unsigned level = 0; level < format::kMapLevels; ++level) {
      for (const std::uint64_t node : levels_[level].changed) {
        Entry* const named = level + 1 < format::kMapLevels ? EntryAt(level + 1, node) : &roots_[node];
        if ((level + 1 == format::kMapLevels || IsHere(level + 1, node / format::kMapFanout)) && withdraw(*named)) *named = {};
      }
    }
  }

  // Makes the next WriteOut write a loaded node again.
  void MarkChanged(unsigned level, std::uint64_t node) {
    std::uint8_t& flags = FlagsOf(level, node);
    if ((flags & kChanged) == 0) levels_[level].changed.push_back(node);  // first, as it may throw
    flags |= kChanged;
  }

  // Loads a node and the nodes above it; false if there is no such node.
  template <class Read>
  StatusOr<bool> Load(unsigned level, std::uint64_t node, Read&& read) {
    if (level + 1 < format::kMapLevels && !IsHere(level + 1, node / format::kMapFanout)) {
      HAKO_RETURN_IF_ERROR(LoadOrMake(level + 1, node / format::kMapFanout, read));
    }
    if (!IsHere(level, node) && NameOf(level, node).IsNone()) return false;
    HAKO_RETURN_IF_ERROR(LoadOrMake(level, node, read));
    return true;
  }
  // Calls visit(level, number, entry) for every entry that is not empty, including those of nodes.
  // Images have level -1 and their id as number, and come in ascending order. load(level, node)
  // takes the lock and calls Load. Images of ids below `first`, and nodes that begin below it, are
  // left out.
  template <class LoadNode, class F>
  Status ForEach(LoadNode&& load, F&& visit, std::uint64_t first = 0) {
    for (unsigned root = 0; root < format::kMapRoots; ++root) {
      HAKO_RETURN_IF_ERROR(ForEachBelow(format::kMapLevels - 1, root, roots_[root], load, visit, first));
    }
    return absl::OkStatus();
  }
  // The ids below one entry of a node.
  static constexpr std::uint64_t IdsPerEntry(unsigned level) {
    std::uint64_t ids = 1;
    for (; level > 0; --level) ids *= format::kMapFanout;
    return ids;
  }
  // The entry that names a node. REQUIRES: the node above it is loaded
  const Entry& NameOf(unsigned level, std::uint64_t node) const {
    HAKO_DCHECK(level + 1 >= format::kMapLevels || IsHere(level + 1, node / format::kMapFanout));
    return level + 1 < format::kMapLevels ? *EntryAt(level + 1, node) : roots_[node % format::kMapRoots];
  }

 private:
  enum : std::uint8_t { kHere = 1, kChanged = 2 };
  static constexpr std::uint64_t kNodeBytes = format::kMapFanout * sizeof(Entry);
  static constexpr std::uint64_t kIdsMin = std::uint64_t{1} << 16;
  // The address space for one id: its entry here, its line, and its states in the buffer pool.
  static constexpr std::uint64_t kBytesPerId = sizeof(Entry) + sizeof(format::PageLine) + 2;

  struct Level {
    std::byte* entries = nullptr;
    std::uint64_t num_nodes = 0;
    std::vector<std::uint8_t> flags;     // by node
    std::vector<std::uint64_t> changed;  // nodes that are kChanged
  };
  // Reserves the address space that this many ids need, and gives it back.
  static StatusOr<std::uint64_t> ChooseCapacity(std::uint32_t id_end) {
    const std::uint64_t least = std::max(kIdsMin, std::bit_ceil(id_end + std::uint64_t{id_end} / 8));
    HAKO_ASSIGN_OR_RETURN(const auto room, storage::ReservedMemory::ReserveUpTo(format::kTreeIdsMax * kBytesPerId,
                                                                                std::min(least, format::kTreeIdsMax) * kBytesPerId));
    return std::bit_floor(room.size() / kBytesPerId);
  }
  static std::uint64_t NumNodes(unsigned level, std::uint64_t id_capacity) {
    std::uint64_t most = format::kMapRoots, nodes = id_capacity / format::kMapFanout;
    for (unsigned above = format::kMapLevels - 1; above > level; --above) most *= format::kMapFanout;
    for (unsigned below = 0; below < level; ++below) nodes /= format::kMapFanout;
    return level + 1 == format::kMapLevels ? most : std::max<std::uint64_t>(nodes, 1);
  }
  std::uint8_t& FlagsOf(unsigned level, std::uint64_t node) {
    std::vector<std::uint8_t>& flags = levels_[level].flags;
    if (node >= flags.size()) flags.resize(node + node / 2 + 16);
    return flags[node];
  }
  bool IsHere(unsigned level, std::uint64_t node) const {
    return node < levels_[level].flags.size() && (levels_[level].flags[node] & kHere) != 0;
  }
  bool IsEmpty(unsigned level, std::uint64_t node) const {
    return std::ranges::all_of(NodeOf(level, node), [](std::byte byte) { return byte == std::byte{0}; });
  }
  void Forget(unsigned level, std::uint64_t node) {
    levels_[level].flags[node] = 0;
    --num_here_;
    const std::span<const std::byte> bytes = NodeOf(level, node);
    // No effect if the system's pages are larger.
    ::madvise(const_cast<std::byte*>(bytes.data()), bytes.size(), MADV_DONTNEED);
  }

  PageMap() = default;
  Entry* EntryAt(unsigned level, std::uint64_t index) const { return reinterpret_cast<Entry*>(levels_[level].entries) + index; }
  std::span<const std::byte> NodeOf(unsigned level, std::uint64_t node) const {
    return {levels_[level].entries + node * kNodeBytes, kNodeBytes};
  }

  template <class Read>
  StatusOr<Entry*> At(unsigned level, std::uint64_t index, Read& read) {
    const std::uint64_t node = index / format::kMapFanout;
    if (!IsHere(level, node)) HAKO_RETURN_IF_ERROR(LoadOrMake(level, node, read));
    return EntryAt(level, index);
  }
  // Loads the missing nodes on the way to this one, from the top, and then this one. A node that no
  // entry names is created empty.
  template <class Read>
  Status LoadOrMake(unsigned level, std::uint64_t node, Read& read) {
    if (node >= levels_[level].num_nodes) {
      const std::uint64_t id = node * format::kMapFanout << 8 * level;
      return absl::DataLossError(absl::StrCat("the page map has an image for id ", id, ", which is not in use"));
    }
    while (!IsHere(level, node)) {
      unsigned top = level;
      std::uint64_t missing = node;
      for (; top + 1 < format::kMapLevels && !IsHere(top + 1, missing / format::kMapFanout); ++top) missing /= format::kMapFanout;
      const Entry name = NameOf(top, missing);
      std::array<Entry, format::kMapFanout> entries{};
      if (!name.IsNone()) {
        const Status status = read(name, top, missing, std::as_writable_bytes(std::span(entries)));
        const bool is_above_here = top + 1 == format::kMapLevels || IsHere(top + 1, missing / format::kMapFanout);
        const bool has_changed = !is_above_here || IsHere(top, missing) || std::memcmp(&NameOf(top, missing), &name, sizeof(name)) != 0;
        if (has_changed) continue;  // while `read` had released the lock
        HAKO_RETURN_IF_ERROR(status);
      }
      std::uint8_t& flags = FlagsOf(top, missing);
      if (!name.IsNone()) std::ranges::copy(entries, EntryAt(top, missing * format::kMapFanout));
      flags |= kHere;
      ++num_here_;
    }
    return absl::OkStatus();
  }

  template <class LoadNode, class F>
  Status ForEachBelow(unsigned level, std::uint64_t node, const Entry& entry, LoadNode& load, F& visit, std::uint64_t first) {
    const std::uint64_t begin = node * format::kMapFanout, end = begin + format::kMapFanout, ids = IdsPerEntry(level);
    if (end * ids <= first) return absl::OkStatus();
    HAKO_ASSIGN_OR_RETURN(const bool is_there, load(level, node));
    if (!is_there) return absl::OkStatus();
    if (!entry.IsNone() && begin * ids >= first) HAKO_RETURN_IF_ERROR(visit(static_cast<int>(level), node, entry));
    for (std::uint64_t i = std::max(begin, first / ids); i < end; ++i) {
      const Entry& below = *EntryAt(level, i);
      if (level > 0) {
        HAKO_RETURN_IF_ERROR(ForEachBelow(level - 1, i, below, load, visit, first));
      } else if (!below.IsNone()) {
        HAKO_RETURN_IF_ERROR(visit(-1, i, below));
      }
    }
    return absl::OkStatus();
  }

  std::array<Entry, format::kMapRoots> roots_{};
  storage::ReservedMemory memory_;
  std::array<Level, format::kMapLevels> levels_;
  std::uint64_t num_here_ = 0;
};

}  // namespace hako::tree
