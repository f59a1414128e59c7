// The layout of the file of a tree or an array at its last checkpoint, for `hako inspect --plot`.
// Reads the file by its format (hako/format/tree_file_format.h), without opening a database.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace hako::tool {

struct FileMap {
  std::uint64_t page_size = 0;            // of a tree: bytes of a whole page
  std::vector<std::uint32_t> leaf_sizes;  // bytes of the images of the leaves, a multiple of 512
  std::uint64_t num_inner = 0;            // pages above the leaves
  std::uint64_t num_long = 0;             // values stored out of line
  std::vector<std::uint64_t> free_runs;   // bytes of each free run
};

// Returns nullopt if the file is neither a tree nor an array, or cannot be read.
std::optional<FileMap> ReadFileMap(const std::string& path);

// Returns the seed of the hashes of keys; nullopt if the file is not a HashDBM.
std::optional<std::uint64_t> ReadHashSeed(const std::string& path);

}  // namespace hako::tool
