// What lies where in the file of a tree or an array, as its last checkpoint has it, for `hako inspect --plot`.
// Reads the file as its format says (hako/format/tree_file_format.h), without the database.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace hako::tool {

struct FileMap {
  std::uint64_t page_size = 0;            // of a tree: of a whole page
  std::vector<std::uint32_t> leaf_sizes;  // bytes of their images, a multiple of 512
  std::uint64_t num_inner = 0;            // pages above the leaves
  std::uint64_t num_long = 0;             // values beside the pages
  std::vector<std::uint64_t> free_runs;   // bytes of each
};

// nullopt if the file is none of these, or cannot be read.
std::optional<FileMap> ReadFileMap(const std::string& path);

// The seed of the hashes of a HashDBM's keys; nullopt if the file is none.
std::optional<std::uint64_t> ReadHashSeed(const std::string& path);

}  // namespace hako::tool
