#include "tool/file_map.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "hako/format/array_format.h"
#include "hako/format/hash_file_format.h"
#include "hako/format/tree_file_format.h"
#include "hako/storage/superblock_slots.h"

namespace hako::tool {
namespace {

using format::kMapFanout;
using format::kTreeUnit;
using format::PageEntry;

class File {
 public:
  explicit File(const std::string& path) : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  template <class T>
  bool ReadAt(std::uint64_t offset, T* out) const {
    return fd_ >= 0 && pread(fd_, static_cast<void*>(out), sizeof(T), static_cast<off_t>(offset)) == ssize_t{sizeof(T)};
  }

 private:
  const int fd_;
};

class MapReader {
 public:
  explicit MapReader(const File& file) : file_(file) {}

  std::optional<FileMap> Read() {
    std::optional<format::TreeSuperBlock> newest;
    for (const std::uint64_t offset : {std::uint64_t{0}, storage::kSlotDistance}) {
      format::TreeSuperBlock block;
      if (!file_.ReadAt(offset, &block) || (block.magic != format::kTreeFileMagic && block.magic != format::kArrayFileMagic)) continue;
      if (block.check == format::CheckOf(block) && (!newest || block.sequence > newest->sequence)) newest = block;
    }
    if (!newest) return std::nullopt;
    end_ = newest->end;
    map_.page_size = newest->page_size;
    used_.emplace_back(0, format::kTreeFirstUnit);
    for (unsigned i = 0; i < format::kMapRoots; ++i) {
      if (!Visit(newest->map[i], format::kMapLevels, i)) return std::nullopt;
    }
    std::sort(used_.begin(), used_.end());
    std::uint64_t at = 0;
    for (const auto& [begin, size] : used_) {
      if (begin > at) map_.free_runs.push_back((begin - at) * kTreeUnit);
      at = std::max(at, begin + size);
    }
    if (end_ > at) map_.free_runs.push_back((end_ - at) * kTreeUnit);
    return std::move(map_);
  }

 private:
  // Visits the entry of a node of the page map or, on level 0, of the image with the id `number`.
  bool Visit(const PageEntry& entry, unsigned level, std::uint64_t number) {
    if (entry.IsNone()) return true;
    used_.emplace_back(entry.place(), entry.units());
    if (level == 0) {
      format::PageImageHeader header;
      if (!file_.ReadAt(entry.place() * kTreeUnit, &header)) return false;
      if (header.id != number) {
        ++map_.num_long;
      } else if ((header.kind & format::PageShape::kLevel) == 0) {
        map_.leaf_sizes.push_back(static_cast<std::uint32_t>(entry.units() * kTreeUnit));
      } else {
        ++map_.num_inner;
      }
      return true;
    }
    std::array<PageEntry, kMapFanout> node;
    if (!file_.ReadAt(entry.place() * kTreeUnit, &node)) return false;
    for (unsigned i = 0; i < kMapFanout; ++i) {
      if (!Visit(node[i], level - 1, number * kMapFanout + i)) return false;
    }
    return true;
  }

  const File& file_;
  FileMap map_;
  std::uint64_t end_ = 0;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> used_;  // first unit, number of units
};

}  // namespace

std::optional<FileMap> ReadFileMap(const std::string& path) {
  const File file(path);
  return MapReader(file).Read();
}

std::optional<std::uint64_t> ReadHashSeed(const std::string& path) {
  const File file(path);
  for (const std::uint64_t offset : {std::uint64_t{0}, storage::kSlotDistance}) {
    format::HashSuperBlock block;
    if (file.ReadAt(offset, &block) && block.magic == format::kHashFileMagic) return block.hash_seed;
  }
  return std::nullopt;
}

}  // namespace hako::tool
